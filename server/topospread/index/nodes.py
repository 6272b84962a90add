"""The node table: which slot holds which node, and what follows from nodes alone.

A table is immutable and shared by all snapshots between two node changes. Columns (a label's value
on each slot), masks and memberships are made at first use and cached on the table; two threads that
make one at the same time make equal ones, so no lock is taken. A new table inherits the columns,
with the changed slots written anew.
"""

from __future__ import annotations

import hashlib
import itertools
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from typing_extensions import override

from topospread.bounded import USUAL, Bounded
from topospread.checkpoints import checkpoint
from topospread.index.partitions import make_partition
from topospread.kube.affinity import NAME_FIELD
from topospread.kube.label_syntax import parse_int64
from topospread.kube.selectors import EXISTS, GREATER, IN, LESS, NOT_IN
from topospread.kube.taints import by_key, tolerated
from topospread.spread.topology import (
    Bools,
    Domains,
    Eligibility,
    Ints,
    Membership,
    Partition,
    Slots,
    Traits,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from topospread.bounded import Budgets
    from topospread.kube.affinity import CompiledRequirements, CompiledTerm, NodeLabelRequirement
    from topospread.kube.objects import Node, Taint, Toleration
    from topospread.spread.plans import Plan

MAX_COLUMNS: Final = 256
"""Columns kept for one table, many times the topology keys of a cluster. Past it a column is made
for each look-up, and the next table starts anew: callers may ask for any key.
"""

MAX_OFFERS: Final = 64
"""Resources whose columns are kept for one table."""

MAX_LABEL_KEYS: Final = 10_000
"""Label keys that the next table takes over instead of looking at all nodes."""

NO_TAINTS: Final[tuple[Taint, ...]] = ()


_Planned = tuple["Plan | None"]
"""That nodes must be judged one by one is kept, too."""


class _Judged(Protocol):
    """What plans are kept for.

    Attributes:
        nbytes: about.
    """

    @property
    def nbytes(self) -> int: ...

    @override
    def __hash__(self) -> int: ...


class _Eligible:
    """A mask, and how its nodes fall into the domains of the keys that were asked for."""

    __slots__ = ("mask", "memberships")

    def __init__(self, mask: Bools) -> None:
        self.mask = mask
        self.memberships: dict[str, Membership] = {}


class NodeTable:
    """The nodes of one cluster between two changes of any of them.

    Attributes:
        generation: grows with every change of a node.
        capacity: length of all arrays; slots may be free.
        alive: [capacity] whether the slot holds a node.
        names: [capacity] node names; "" where free.
    """

    __slots__ = (
        "_allocatable",
        "_budgets",
        "_columns",
        "_cordoned",
        "_hashes",
        "_id",
        "_label_keys",
        "_latest_affinity",
        "_masks",
        "_nobody",
        "_nodes",
        "_numbers",
        "_order",
        "_partitions",
        "_planned",
        "_plans",
        "_resources",
        "_slots",
        "_sorted_names",
        "_taint_ids",
        "_taint_sets",
        "alive",
        "capacity",
        "generation",
        "names",
    )

    def __init__(
        self,
        generation: int,
        nodes: Sequence[Node | None],
        columns: Mapping[str, Domains] | None = None,
        label_keys: frozenset[str] | None = None,
        budgets: Budgets = USUAL,
    ) -> None:
        self.generation = generation
        self._budgets = budgets
        self.capacity = len(nodes)
        self._nodes = nodes
        self.names: Sequence[str] = ["" if node is None else node.name for node in nodes]
        self._slots = {node.name: slot for slot, node in enumerate(nodes) if node is not None}
        self.alive: Bools = np.fromiter((n is not None for n in nodes), np.bool_, len(nodes))
        self._columns: dict[str, Domains] = dict(columns or {})
        self.forget()
        self._taint_sets: list[tuple[Taint, ...]] | None = None
        self._taint_ids: Slots | None = None
        self._cordoned: Bools | None = None
        self._allocatable: dict[str, Ints] = {}
        self._resources: frozenset[str] | None = None
        self._label_keys: frozenset[str] | None = label_keys
        self._numbers: dict[str, tuple[Ints, Bools]] = {}
        self._nobody: Slots | None = None
        self._hashes: NDArray[np.uint64] | None = None
        self._order: NDArray[np.intp] | None = None
        self._sorted_names: list[str] | None = None
        self._id: str | None = None

    def forget(self) -> None:
        """Let go of what callers' constraints had worked out, as when there is a newer table.

        Snapshots that are still looked at work it out again.
        """
        budgets = self._budgets
        self._masks: Bounded[Eligibility, _Eligible] = Bounded(budgets["masks"])
        self._partitions: Bounded[Traits, Partition] = Bounded(budgets["partitions"])
        self._plans: Bounded[_Judged, _Planned] = Bounded(budgets["plans"])
        self._planned: set[Partition] = set()
        self._latest_affinity: tuple[CompiledRequirements, Bools] | None = None

    # ------------------------------ names

    @property
    def count(self) -> int:
        """How many nodes there are."""
        return len(self._slots)

    def slot(self, name: str) -> int:
        """The slot of a node; −1 when there is none of that name."""
        return self._slots.get(name, -1)

    def slots(self, names: Sequence[str]) -> NDArray[np.intp]:
        """[names] the slots of nodes; −1 where there is none of that name."""
        found = map(self._slots.get, names, itertools.repeat(-1))
        return np.fromiter(found, np.intp, len(names))

    def node(self, slot: int) -> Node | None:
        """What a slot holds."""
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

    # ------------------------------ what nodes offer

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

    @property
    def says_allocatable(self) -> Bools:
        """[capacity] whether the node says what it has to give."""
        return self.allocatable("") > 0

    def offers(self, resource: str) -> bool:
        """Whether any node names the resource among what it has to give."""
        if self._resources is None:
            named = (node.allocatable for node in self._nodes if node is not None)
            every = itertools.chain.from_iterable(named)
            self._resources = frozenset(name for name, _ in every)
        return resource in self._resources

    def allocatable(self, resource: str) -> Ints:
        """[capacity] what each node has to give, in the scheduler's units; 0 where it has none.

        Of the resource "" it has as many as it names resources.
        """
        column = self._allocatable.get(resource)
        if column is None:
            if resource and not self.offers(resource):
                # Callers may ask for any: one that no node has costs no look at the nodes.
                return np.zeros(self.capacity, dtype=np.int64)
            column = np.fromiter(
                (0 if node is None else _offer(node, resource) for node in self._nodes),
                np.int64,
                self.capacity,
            )
            if len(self._allocatable) < MAX_OFFERS:
                self._allocatable[resource] = column
        return column

    # ------------------------------ columns and masks

    def domains(self, key: str) -> Domains:
        """The values of one label over the slots."""
        column = self._columns.get(key)
        if column is None:
            if not self._has_label(key):
                # Callers may ask for any key: one that no node has costs no look at the nodes.
                return Domains(key, self._no_domains(), (), {}, True)
            column = _new_column(key, self._nodes)
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
        if self._nobody is None:
            nobody = np.full(self.capacity, -1, dtype=np.int32)
            nobody.flags.writeable = False
            self._nobody = nobody
        return self._nobody

    def mask(self, eligibility: Eligibility) -> Bools:
        """[capacity] which nodes are eligible; never a free slot."""
        return self._eligible(eligibility).mask

    def _eligible(self, eligibility: Eligibility) -> _Eligible:
        made = self._masks.get(eligibility)
        if made is None:
            mask = self.alive.copy()
            nbytes = 500 + eligibility.nbytes + mask.nbytes
            latest, requirements = self._latest_affinity, eligibility.requirements
            if latest is not None and requirements is not None and latest[0] is requirements:
                # Those of another mask, too, which goes with this one unless it is a large one.
                nbytes -= 0 if self._masks.is_large(nbytes) else requirements.nbytes
            for key in eligibility.keys:
                mask &= self.domains(key).ids >= 0
            if eligibility.requirements is not None:
                mask &= self._affinity(eligibility.requirements)
            if eligibility.tolerations is not None:
                mask &= self._tolerated(eligibility.tolerations, eligibility.comparison_operators)
            mask.flags.writeable = False
            made = _Eligible(mask)
            self._masks.put(eligibility, made, nbytes)
        return made

    def membership(self, eligibility: Eligibility, key: str) -> Membership:
        """The eligible nodes by domain."""
        eligible = self._eligible(eligibility)
        membership = eligible.memberships.get(key)
        if membership is None:
            domains = self.domains(key)
            ids = domains.ids[eligible.mask]
            nodes = np.bincount(ids[ids >= 0], minlength=len(domains.values))
            present = nodes > 0
            membership = Membership(nodes, present, int(np.count_nonzero(present)))
            eligible.memberships[key] = membership
            self._masks.grew(eligibility, 400 + len(key) + nodes.nbytes + present.nbytes)
        return membership

    def _affinity(self, requirements: CompiledRequirements) -> Bools:
        """[capacity] which nodes a pod's affinity accepts, if they are there.

        The masks of one pod differ in keys and tolerations, and are made one after the other.
        """
        latest = self._latest_affinity
        if latest is None or latest[0] is not requirements:
            latest = self._latest_affinity = requirements, self._accepting(requirements)
        return latest[1]

    def _accepting(self, requirements: CompiledRequirements) -> Bools:
        mask = np.ones(self.capacity, dtype=np.bool_)
        for key, value in requirements.node_selector:
            checkpoint()
            column = self.domains(key)
            number = column.number.get(value)
            if number is None:
                return np.zeros(self.capacity, dtype=np.bool_)
            mask &= column.ids == number
        if requirements.terms is None:
            return mask
        anyone = np.zeros(self.capacity, dtype=np.bool_)
        # Of terms with one condition the values are brought together, and the nodes looked at once.
        alone: dict[str, Bools] = {}
        for term in dict.fromkeys(requirements.terms):
            if len(term.labels) == 1 and not term.fields:
                (label,) = term.labels
                accepted = self._accepted(label)
                known = alone.get(label.key)
                alone[label.key] = accepted if known is None else known | accepted
            else:
                anyone |= self._fits(term)
        for key, accepted in alone.items():
            anyone |= self._spread_out(accepted, key)
        return mask & anyone

    def _fits(self, term: CompiledTerm) -> Bools:
        """[capacity] which nodes fulfil a term, if they are there."""
        fits = np.ones(self.capacity, dtype=np.bool_)
        for label in term.labels:
            fits &= self._spread_out(self._accepted(label), label.key)
        for node_field in term.fields:
            if node_field.key == NAME_FIELD:
                slot = self.slot(node_field.values[0])
                named = np.zeros(self.capacity, dtype=np.bool_)
                if slot >= 0:
                    named[slot] = True
                fits &= named if node_field.operator == IN else ~named
            elif not node_field.accepts(""):
                fits[:] = False
        return fits

    def _spread_out(self, accepted: Bools, key: str) -> Bools:
        """[capacity] what holds for each node's value of a label; [1] where no node has it."""
        if len(accepted) == 1:
            return accepted
        # Seven times as quick as with the int32 of a column.
        return accepted[self.domains(key).ids.astype(np.intp)]

    def _accepted(self, label: NodeLabelRequirement) -> Bools:
        """[domains + 1] which values a condition on a label accepts; the last: no such label."""
        checkpoint()
        column = self.domains(label.key)
        if label.operator in (GREATER, LESS):
            numbers, are_numbers = self._as_numbers(column)
            bound = parse_int64(label.values[0])
            assert bound is not None, "requirements that do not parse are not compiled"
            compared = numbers > bound if label.operator == GREATER else numbers < bound
            return np.append(compared & are_numbers, False)
        # The last entry is picked by −1: label absent.
        if label.operator in (IN, NOT_IN):
            table = np.zeros(len(column.values) + 1, dtype=np.bool_)
            table[[column.number[value] for value in label.values if value in column.number]] = True
            return table if label.operator == IN else ~table
        table = np.full(len(column.values) + 1, label.operator == EXISTS)
        table[-1] = not table[-1]
        return table

    def _as_numbers(self, column: Domains) -> tuple[Ints, Bools]:
        """[domains] the values as integers, and which of them are any."""
        made = self._numbers.get(column.key)
        if made is None:
            parsed = [parse_int64(value) for value in column.values]
            numbers = np.array([number or 0 for number in parsed], dtype=np.int64)
            are_numbers = np.array([number is not None for number in parsed], dtype=np.bool_)
            made = numbers, are_numbers
            if column is self._columns.get(column.key):
                self._numbers[column.key] = made
        return made

    def _tolerated(self, tolerations: Sequence[Toleration], comparison_operators: bool) -> Bools:
        """[capacity] whether all taints of the node are tolerated."""
        known = by_key(tolerations)

        def judge(taints: tuple[Taint, ...]) -> bool:
            return all(
                tolerated(
                    (taint,),
                    (*known.get(taint.key, ()), *known.get("", ())),
                    comparison_operators=comparison_operators,
                )
                for taint in taints
            )

        if self._taint_ids is None or self._taint_sets is None:
            number: dict[tuple[Taint, ...], int] = {}
            ids = np.fromiter(
                (
                    number.setdefault(NO_TAINTS if n is None else n.taints, len(number))
                    for n in self._nodes
                ),
                np.int32,
                self.capacity,
            )
            self._taint_sets, self._taint_ids = list(number), ids
        table = [judge(taints) for taints in self._taint_sets]
        return np.array([*table, False], dtype=np.bool_)[self._taint_ids]

    def partition(self, traits: Traits) -> Partition:
        """The nodes by class."""
        partition = self._partitions.get(traits)
        if partition is None:
            partition = make_partition(self, traits)
            self._partitions.put(traits, partition, partition.nbytes + traits.nbytes)
        return partition

    def plan(self, of: _Judged, make: Callable[[], Plan | None]) -> Plan | None:
        """What follows from this table for somebody's constraints; gone when the table goes."""
        known = self._plans.get(of)
        if known is not None:
            return known[0]
        made = make()
        self._keep_plan(of, made)
        return made

    def _keep_plan(self, of: _Judged, made: Plan | None) -> None:
        """Keep a plan; a partition is counted once, with the first of the plans that rest on it.

        So where one has to go, all go: others may rest on the partition that was counted with it.
        """
        plans, size = self._plans, 300 + of.nbytes
        if made is None:
            if plans.put(of, (None,), size):
                self._forget_plans()
            return
        size += made.nbytes
        partition = made.partition
        if plans.is_large(size):
            plans.put(of, (made,), size + partition.nbytes)
            return
        if partition not in self._planned:
            size += partition.nbytes
        if plans.put(of, (made,), size):
            self._forget_plans()
            plans.put(of, (made,), 300 + of.nbytes + made.nbytes + partition.nbytes)
        if of in plans:
            self._planned.add(partition)

    def _forget_plans(self) -> None:
        self._plans.clear()
        self._planned = set()

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
            if (column := _changed_column(old, nodes, capacity)) is not None
        }
        label_keys = self._label_keys
        if label_keys is not None:
            written = (node.labels for node in nodes.values() if node is not None)
            # Those that no node has any more cost a look, and no more.
            label_keys = label_keys.union(*written)
            if len(label_keys) > MAX_LABEL_KEYS:
                label_keys = None
        return NodeTable(self.generation + 1, held, columns, label_keys, self._budgets)


def _offer(node: Node, resource: str) -> int:
    if not resource:
        return len(node.allocatable)
    for name, amount in node.allocatable:
        if name == resource:
            return amount
    return 0


@lru_cache(maxsize=65536)
def _hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big")


def _new_column(key: str, nodes: Iterable[Node | None]) -> Domains:
    number: dict[str, int] = {}
    ids: list[int] = []
    for node in nodes:
        value = None if node is None else node.labels.get(key)
        ids.append(-1 if value is None else number.setdefault(value, len(number)))
    column = np.array(ids, dtype=np.int32)
    column.flags.writeable = False
    return Domains(key, column, tuple(number), number, _unique(column))


def _changed_column(
    old: Domains, nodes: Mapping[int, Node | None], capacity: int
) -> Domains | None:
    """The column with some slots written anew; None when most of its values are dead."""
    number = old.number
    ids = np.full(capacity, -1, dtype=np.int32)
    ids[: old.ids.size] = old.ids
    for slot, node in nodes.items():
        value = None if node is None else node.labels.get(old.key)
        if value is None:
            ids[slot] = -1
            continue
        if value not in number:
            if number is old.number:
                number = dict(number)
            number[value] = len(number)
        ids[slot] = number[value]
    if len(number) > 2 * capacity + 16:
        return None
    ids.flags.writeable = False
    values = old.values if number is old.number else tuple(number)
    return Domains(old.key, ids, values, number, _unique(ids))


def _unique(ids: Slots) -> bool:
    held = ids[ids >= 0]
    return not held.size or int(np.bincount(held).max()) == 1
