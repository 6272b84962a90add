"""The interface of a cluster's state that the algebra is written against.

Nodes live in *slots* 0 … n−1 of equally long arrays; free slots are not alive. A *domain* is one
value of a topology key; the domains of a key are numbered 0 … d−1, in no particular order.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Protocol
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from topospread.kube.namespaces import NO_NAMESPACES

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Sequence

    from topospread.kube.affinity import CompiledRequirements
    from topospread.kube.namespaces import NamespaceSet
    from topospread.kube.objects import Toleration
    from topospread.kube.selectors import Selector
    from topospread.spread.cells import Cells, Partition

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
Slots = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Eligibility:
    """Conditions of the nodes that a constraint counts (KEP-895, KEP-3094); equal ones share masks.

    Attributes:
        keys: a node needs all of these labels: the keys of all constraints of the phase (upstream
            fact 9).
        requirements: the pod's node affinity when it is honoured; None: every node passes.
        tolerations: the pod's tolerations when taints are honoured; None: every node passes.
        comparison_operators: tolerations may use Lt and Gt.
        nbytes: about, of all of it.
    """

    keys: tuple[str, ...] = ()
    requirements: CompiledRequirements | None = None
    tolerations: tuple[Toleration, ...] | None = None
    comparison_operators: bool = False
    nbytes: int = field(init=False, repr=False, compare=False, default=0)
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        """Hash once: eligibilities are looked up on every decision."""
        object.__setattr__(self, "nbytes", self._size())
        parts = (self.keys, self.requirements, self.tolerations, self.comparison_operators)
        object.__setattr__(self, "_hash", hash(parts))

    def _size(self) -> int:
        size = 300 if self.requirements is None else 300 + self.requirements.nbytes
        size += sum([70 + len(key) for key in self.keys])
        return size + sum([200 + len(each.key + each.value) for each in self.tolerations or ()])

    @override
    def __hash__(self) -> int:
        return self._hash


class GroupKey:
    """Key of a group: pods of one namespace, or of several, that one selector matches.

    There is one object for each content, so that keys are compared and hashed by their identity:
    groups are looked up on every decision.

    Attributes:
        namespace: of the pods; empty where `namespaces` has them.
        namespaces: of any of these; empty where `namespace` has it.
        terminating: pods that terminate count, too, as inter-pod affinity counts.
    """

    __slots__ = ("__weakref__", "namespace", "namespaces", "selector", "terminating")

    namespace: str
    selector: Selector
    namespaces: NamespaceSet
    terminating: bool

    _known: ClassVar[WeakValueDictionary[tuple[str, Selector, NamespaceSet, bool], GroupKey]] = (
        WeakValueDictionary()
    )
    _lock: ClassVar[threading.Lock] = threading.Lock()

    def __new__(  # noqa: PYI034 - it has no subclasses
        cls,
        namespace: str,
        selector: Selector,
        namespaces: NamespaceSet = NO_NAMESPACES,
        *,
        terminating: bool = False,
    ) -> GroupKey:
        """The one of this content."""
        content = namespace, selector, namespaces, terminating
        with cls._lock:
            found = cls._known.get(content)
            if found is None:
                found = cls._known[content] = super().__new__(cls)
                found.namespace, found.selector, found.namespaces, found.terminating = content
        return found

    @override
    def __repr__(self) -> str:
        # Ids of constraints are hashes of texts with this one.
        return f"GroupKey(namespace={self.namespace!r}, selector={self.selector!r})"

    @property
    def named_namespaces(self) -> Collection[str] | None:
        """The namespaces whose pods count, if all of them are named."""
        return self.namespaces.names if self.namespaces else (self.namespace,)

    @property
    def nbytes(self) -> int:
        """Bytes, about."""
        return len(self.namespace) + self.namespaces.nbytes + self.selector.nbytes

    def covers(self, namespace: str) -> bool:
        """Whether pods of a namespace count."""
        return namespace == self.namespace or namespace in self.namespaces


@dataclass(frozen=True, slots=True, eq=False)
class Domains:
    """The domains of one topology key.

    Attributes:
        ids: [slots] the domain of each slot; −1 where the slot is free or the node lacks the label.
        values: [domains] label values; some may be held by no node any more.
        number: value to domain.
        unique: no two nodes share a domain, as it ought to be with hostnames.
    """

    key: str
    ids: Slots
    values: Sequence[str]
    number: dict[str, int]
    unique: bool
    _made: dict[str, Ints] = field(init=False, repr=False, default_factory=dict)

    def spread(self, marked: Bools) -> Bools:
        """[slots] whether the node's domain is marked; never for one without a domain.

        Args:
            marked: [domains] which.
        """
        # A last entry, which index −1 picks.
        found: Bools = np.append(marked, False)[self.ids]
        return found

    def having(self, values: Iterable[str]) -> Bools:
        """[slots] whether the node's label has one of the values."""
        found: Bools = np.isin(self.ids, [self.number[v] for v in values if v in self.number])
        return found

    @property
    def rank(self) -> Ints:
        """[domains] the position of each in the order of the values; worked out once."""
        rank = self._made.get("rank")
        if rank is None:
            order = sorted(range(len(self.values)), key=self.values.__getitem__)
            rank = np.empty(len(order), dtype=np.int64)
            rank[order] = np.arange(len(order))
            self._made["rank"] = rank
        return rank

    @property
    def nodes(self) -> Ints:
        """[domains] how many nodes have the value; worked out once."""
        nodes = self._made.get("nodes")
        if nodes is None:
            ids = self.ids[self.ids >= 0]
            nodes = np.bincount(ids, minlength=len(self.values)).astype(np.int64)
            self._made["nodes"] = nodes
        return nodes


@dataclass(frozen=True, slots=True, eq=False)
class Membership:
    """The eligible nodes by domain of one key.

    Attributes:
        nodes: [domains] eligible nodes in each.
        present: [domains] whether there is any: only these domains take part in the minimum.
        size: how many are present.
    """

    nodes: Ints
    present: Bools
    size: int


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties that distinguish node classes.

    Attributes:
        keys: topology keys whose domain counts.
        labels: topology keys of which only counts whether the node has them.
        eligibilities: masks of which counts whether the node is in.
    """

    keys: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    eligibilities: tuple[Eligibility, ...] = ()

    @property
    def nbytes(self) -> int:
        """Bytes, about."""
        named = sum(map(len, (*self.keys, *self.labels)))
        return named + sum([each.nbytes for each in self.eligibilities])


class Memo(Protocol):
    """Results kept with one version of a group's counts, until these change."""

    def get(self, key: Hashable) -> object:
        """A kept result; None when there is none."""
        ...

    def put(self, key: Hashable, result: object, size: int | None = None) -> None:
        """Keep a result; `size` is about the bytes of the key."""
        ...


class Topology(Protocol):
    """One immutable state of a cluster; all arrays are read-only."""

    @property
    def alive(self) -> Bools:
        """[slots] whether the slot holds a node."""
        ...

    @property
    def node_count(self) -> int:
        """The number of nodes."""
        ...

    def slot(self, name: str) -> int:
        """The slot of a node; −1 when there is none of that name."""
        ...

    def domains(self, key: str) -> Domains:
        """The domains of a topology key."""
        ...

    def mask(self, eligibility: Eligibility) -> Bools:
        """[slots] whether the node is eligible."""
        ...

    def membership(self, eligibility: Eligibility, key: str) -> Membership:
        """The eligible nodes by domain."""
        ...

    def node_counts(self, group: GroupKey) -> NDArray[np.int32]:
        """[slots] matching pods on each slot, alive or not."""
        ...

    def domain_counts(self, group: GroupKey, eligibility: Eligibility, key: str) -> Ints:
        """[domains] matching pods on eligible nodes of each domain."""
        ...

    def partition(self, traits: Traits) -> Partition:
        """The nodes by class."""
        ...

    def cells(self, group: GroupKey, partition: Partition) -> Cells:
        """The nodes by class and by how many matching pods they hold."""
        ...

    def memo(self, group: GroupKey) -> Memo:
        """The results kept with the group's counts."""
        ...
