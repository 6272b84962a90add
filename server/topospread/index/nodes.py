"""The node table: which slot holds which node, and what is derived from nodes alone.

A table is immutable and shared by all snapshots between two node changes. Columns (a label's value
on each slot), masks and memberships are made at first use and cached on the table; two threads that
make one at the same time make equal ones, so no lock is taken. A new table inherits the columns,
with the changed slots written anew.
"""

from __future__ import annotations

import hashlib
import itertools
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.cache import BUDGETS, Cache
from topospread.index.columns import NodeConditions, changed_column, make_partition, new_column
from topospread.spread.topology import (
    Bools,
    Domains,
    Eligibility,
    Ints,
    Membership,
    Slots,
    Traits,
)

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from topospread.kube.objects import Node
    from topospread.spread.cells import Partition
    from topospread.spread.plans import Plan

MAX_COLUMNS: Final = 256
"""Columns kept for one table, many times the topology keys of a cluster. Past it a column is made
for each look-up, and the next table starts anew: callers may ask for any key.
"""

MAX_RESOURCE_COLUMNS: Final = 64
"""Resources whose columns are kept for one table."""

MAX_LABEL_KEYS: Final = 10_000
"""Label keys that the next table takes over instead of looking at all nodes."""

LARGEST_CONDITIONS: Final = 512 << 10
"""Bytes in memory of conditions on nodes: what follows from more of them is not kept."""

_Planned = tuple["Plan | None"]
"""That nodes must be judged one by one is kept, too."""


class NodeTable:
    """The nodes of one cluster between two changes of any of them.

    Attributes:
        generation: grows with every change of a node.
        capacity: length of all arrays; slots may be free.
        count: how many nodes there are.
        alive: [capacity] whether the slot holds a node.
        names: [capacity] node names; "" where free.
    """

    __slots__ = (
        "_allocatable",
        "_columns",
        "_conditions",
        "_cordoned",
        "_declaring",
        "_hashes",
        "_id",
        "_label_keys",
        "_masks",
        "_memberships",
        "_no_domain_ids",
        "_nodes",
        "_order",
        "_partitions",
        "_rank",
        "_resources",
        "_slots",
        "_sorted_names",
        "alive",
        "capacity",
        "count",
        "generation",
        "names",
        "plans",
    )

    def __init__(
        self,
        generation: int,
        nodes: Sequence[Node | None],
        columns: Mapping[str, Domains] | None = None,
        label_keys: frozenset[str] | None = None,
    ) -> None:
        self.generation = generation
        self.capacity = len(nodes)
        self._nodes = nodes
        self.names: Sequence[str] = ["" if node is None else node.name for node in nodes]
        self._slots = {node.name: slot for slot, node in enumerate(nodes) if node is not None}
        self.count = len(self._slots)
        self.alive: Bools = np.fromiter((n is not None for n in nodes), np.bool_, len(nodes))
        self._columns: dict[str, Domains] = dict(columns or {})
        self._conditions = NodeConditions()
        self.forget()
        self._cordoned: Bools | None = None
        self._declaring: dict[str, Bools] = {}
        self._allocatable: dict[str, Ints] = {}
        self._resources: frozenset[str] | None = None
        self._label_keys: frozenset[str] | None = label_keys
        self._no_domain_ids: Slots | None = None
        self._hashes: NDArray[np.uint64] | None = None
        self._order: NDArray[np.intp] | None = None
        self._rank: Slots | None = None
        self._sorted_names: list[str] | None = None
        self._id: str | None = None

    def forget(self) -> None:
        """Drop what was worked out for callers' constraints, as when there is a newer table.

        Snapshots that are still read work it out again.
        """
        self._masks: Cache[Eligibility, Bools] = Cache(BUDGETS["masks"])
        self._memberships: Cache[tuple[Eligibility, str], Membership] = Cache(
            BUDGETS["memberships"]
        )
        self._partitions: Cache[Traits, Partition] = Cache(BUDGETS["partitions"])
        self.plans: Cache[Hashable, _Planned] = Cache(BUDGETS["plans"])
        self._conditions.forget()

    # ------------------------------ names

    def slot(self, name: str) -> int:
        """The slot of a node; −1 when there is none of that name."""
        return self._slots.get(name, -1)

    def slots(self, names: Sequence[str]) -> NDArray[np.intp]:
        """[names] the slots of nodes; −1 where there is none of that name."""
        found = map(self._slots.get, names, itertools.repeat(-1))
        return np.fromiter(found, np.intp, len(names))

    def marks(self, slots: Iterable[int]) -> Bools:
        """[capacity] whether a slot is among these, which may be beyond the table, or none: −1."""
        found: Bools = np.zeros(self.capacity, dtype=np.bool_)
        found[[slot for slot in slots if 0 <= slot < self.capacity]] = True
        return found

    def node(self, slot: int) -> Node | None:
        """The node in a slot; None where it is free."""
        return self._nodes[slot]

    @property
    def order(self) -> NDArray[np.intp]:
        """[count] slots in the order of the node names as bytes: the order of all answers."""
        if self._order is None:
            ordered = sorted(self._slots.items(), key=lambda item: item[0].encode())
            self._sorted_names = [name for name, _ in ordered]
            self._order = np.fromiter((slot for _, slot in ordered), np.intp, len(ordered))
        return self._order

    @property
    def rank(self) -> Slots:
        """[capacity] the position of each slot in that order; 0 where it is free."""
        if self._rank is None:
            rank = np.zeros(self.capacity, dtype=np.int32)
            rank[self.order] = np.arange(self.count, dtype=np.int32)
            self._rank = rank
        return self._rank

    @property
    def sorted_names(self) -> Sequence[str]:
        """[count] node names in the order of all answers."""
        if self._sorted_names is None:
            _ = self.order
        assert self._sorted_names is not None
        return self._sorted_names

    @property
    def id(self) -> str:
        """The table's identity: a hash of the sorted names, the same on every process."""
        if self._id is None:
            digest = hashlib.blake2b(digest_size=12)
            for name in self.sorted_names:
                digest.update(name.encode() + b"\0")
            self._id = digest.hexdigest()
        return self._id

    @property
    def hashes(self) -> NDArray[np.uint64]:
        """[capacity] a hash of each name, the same on every process; any value where free."""
        if self._hashes is None:
            self._hashes = np.fromiter(map(_hash, self.names), np.uint64, self.capacity)
        return self._hashes

    # ------------------------------ resources

    @property
    def cordoned(self) -> Bools:
        """[capacity] whether the node is marked unschedulable."""
        if self._cordoned is None:
            self._cordoned = np.fromiter(
                (node is not None and node.unschedulable for node in self._nodes),
                np.bool_,
                self.capacity,
            )
        return self._cordoned

    def declaring(self, feature: str) -> Bools:
        """[capacity] whether the node declares a feature, of which there are few."""
        declaring = self._declaring.get(feature)
        if declaring is None:
            declaring = self._declaring[feature] = np.fromiter(
                (node is not None and feature in node.declared_features for node in self._nodes),
                np.bool_,
                self.capacity,
            )
        return declaring

    def offers(self, resource: str) -> bool:
        """Whether any node names the resource among its allocatable ones."""
        if self._resources is None:
            named = (node.allocatable for node in self._nodes if node is not None)
            every = itertools.chain.from_iterable(named)
            self._resources = frozenset(name for name, _ in every)
        return resource in self._resources

    def allocatable(self, resource: str) -> Ints:
        """[capacity] the allocatable amount of each node, in the scheduler's units; 0 for none."""
        column = self._allocatable.get(resource)
        if column is None:
            if not self.offers(resource):
                # Callers may ask for any: one that no node has costs no look at the nodes.
                return np.zeros(self.capacity, dtype=np.int64)
            column = np.fromiter(
                (0 if node is None else _amount(node, resource) for node in self._nodes),
                np.int64,
                self.capacity,
            )
            if len(self._allocatable) < MAX_RESOURCE_COLUMNS:
                self._allocatable[resource] = column
        return column

    # ------------------------------ columns and masks

    def node_list(self) -> Sequence[Node | None]:
        """[capacity] the nodes by slot; None where free."""
        return self._nodes

    def is_cached(self, column: Domains) -> bool:
        """Whether a column is kept with the table."""
        return self._columns.get(column.key) is column

    def domains(self, key: str) -> Domains:
        """The values of one label over the slots."""
        column = self._columns.get(key)
        if column is None:
            if not self._has_label(key):
                # Callers may ask for any key: one that no node has costs no look at the nodes.
                return Domains(key, self._no_domains(), (), {}, True)
            column = new_column(key, self._nodes)
            # None is dropped instead: made again, it might number its domains in another way.
            if len(self._columns) < MAX_COLUMNS:
                self._columns[key] = column
        return column

    def _has_label(self, key: str) -> bool:
        if self._label_keys is None:
            labels = (node.labels for node in self._nodes if node is not None)
            self._label_keys = frozenset(itertools.chain.from_iterable(labels))
        return key in self._label_keys

    def _no_domains(self) -> Slots:
        if self._no_domain_ids is None:
            unlabelled = np.full(self.capacity, -1, dtype=np.int32)
            unlabelled.flags.writeable = False
            self._no_domain_ids = unlabelled
        return self._no_domain_ids

    def mask(self, eligibility: Eligibility) -> Bools:
        """[capacity] which nodes are eligible; never a free slot."""
        mask = self._masks.get(eligibility)
        if mask is None:
            mask = self._conditions.mask(self, eligibility)
            if eligibility.nbytes <= LARGEST_CONDITIONS:
                self._masks.put(eligibility, mask, 300 + eligibility.nbytes + mask.nbytes)
        return mask

    def membership(self, eligibility: Eligibility, key: str) -> Membership:
        """The eligible nodes by domain."""
        membership = self._memberships.get((eligibility, key))
        if membership is None:
            domains = self.domains(key)
            ids = domains.ids[self.mask(eligibility)]
            nodes = np.bincount(ids[ids >= 0], minlength=len(domains.values))
            present = nodes > 0
            membership = Membership(nodes, present, int(np.count_nonzero(present)))
            if eligibility.nbytes <= LARGEST_CONDITIONS:
                size = 700 + eligibility.nbytes + nodes.nbytes + present.nbytes
                self._memberships.put((eligibility, key), membership, size)
        return membership

    def partition(self, traits: Traits) -> Partition:
        """The nodes by class."""
        partition = self._partitions.get(traits)
        if partition is None:
            partition = make_partition(self, traits)
            if traits.nbytes <= LARGEST_CONDITIONS:
                self._partitions.put(traits, partition, partition.nbytes + traits.nbytes)
        return partition

    def keep_plan(self, of: Hashable, size: int, made: Plan | None) -> None:
        """Keep a plan under a key of so many bytes; plans share the bytes of their partition."""
        if made is None:
            self.plans.put(of, (None,), 300 + size)
            return
        partition = made.partition
        size += 400 + made.nbytes
        self.plans.put(of, (made,), size, ((partition, partition.nbytes),))

    # ------------------------------ the next table

    def changed(self, nodes: Mapping[int, Node | None], capacity: int) -> NodeTable:
        """The table after some slots changed; columns are copied, not made anew."""
        held = list(self._nodes)
        held.extend([None] * (capacity - len(held)))
        for slot, node in nodes.items():
            held[slot] = node
        inherited = list(self._columns.items())
        if len(inherited) >= MAX_COLUMNS:
            inherited = []
        columns = {
            key: column
            for key, old in inherited
            if (column := changed_column(old, nodes, capacity)) is not None
        }
        label_keys = self._label_keys
        if label_keys is not None:
            written = (node.labels for node in nodes.values() if node is not None)
            # Those that no node has any more cost a look, and no more.
            label_keys = label_keys.union(*written)
            if len(label_keys) > MAX_LABEL_KEYS:
                label_keys = None
        return NodeTable(self.generation + 1, held, columns, label_keys)


def _amount(node: Node, resource: str) -> int:
    for name, amount in node.allocatable:
        if name == resource:
            return amount
    return 0


@lru_cache(maxsize=65536)
def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")
