"""The values of the Inspector: a constraint's status, which ones are asked for, and their order."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
from typing_extensions import override

from topospread.kube.selectors import EVERYTHING
from topospread.service.explaining.counted_pods import NO_OWNER
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topospread.kube.selectors import Selector
    from topospread.service.explaining.counted_pods import Owner, Sharing
    from topospread.spread.constraints import Constraint
    from topospread.spread.topology import Bools, Domains, Ints, Membership
    from topospread_proto.v1.explanation_pb2 import Finding, MinimumReason

    State: TypeAlias = pb.SpreadState.ValueType

STATES: Final[Sequence[State]] = tuple(sorted(filter(None, pb.SpreadState.values()), reverse=True))
"""The states of a constraint, of which it has the worst that holds; the worst first."""

Labels = tuple[tuple[str, str], ...]
"""Labels of a pod, sorted."""

_ID_BYTES: Final = 10

_COMPARED: Final = (
    *("state", "message", "bound", "pending", "blocked", "findings", "labels", "gaps"),
    *("gated", "waiting_reason", "sharing"),
)
"""Fields of a status that may differ while its spread does not."""


@dataclass(frozen=True, slots=True, eq=False)
class OwnedConstraint:
    """A constraint that pods of one owner have: what a row of a list is about.

    An inventory has one object for each content, so that they are looked up by their identity.

    Attributes:
        constraint: as it is judged by.
        index: of the first like it in the pods' list, or in the profile's.
        defaulted: it is the profile's.
        id: the same on every server, as long as owner and constraint are the same.
    """

    owner: Owner
    constraint: Constraint
    index: int
    defaulted: bool
    id: str = field(init=False, default="")

    def __post_init__(self) -> None:
        content = (self.owner, self.constraint, self.index, self.defaulted)
        made = blake2b(repr(content).encode(), digest_size=_ID_BYTES).hexdigest()
        object.__setattr__(self, "id", made)

    @property
    def namespace(self) -> str:
        """The pods' namespace."""
        return self.constraint.group.namespace


@dataclass(frozen=True, slots=True, eq=False)
class DomainSpread:
    """How the pods that a constraint counts are spread over its domains.

    Attributes:
        domains: of the topology key.
        membership: the eligible nodes by domain.
        counts: [domains] matching pods on eligible nodes, with places held.
        rejected: [domains] whether the next replica may not come there; soft ones never do.
        lowest, highest: pods of an eligible domain; 0 without one.
        minimum: the global minimum, from which skew is computed.
        minimum_because: why it is that.
    """

    domains: Domains
    membership: Membership
    counts: Ints
    rejected: Bools
    lowest: int
    highest: int
    minimum: int
    minimum_because: MinimumReason.ValueType

    @property
    def skew(self) -> int:
        """The fullest eligible domain less the global minimum; 0 without an eligible domain."""
        return self.highest - self.minimum if self.membership.size else 0

    @property
    def pods(self) -> int:
        """Matching pods on nodes that count, with places held."""
        return int(self.counts.sum())

    @property
    def domain_count(self) -> int:
        """Values of the key that a node has."""
        return int(np.count_nonzero(self.domains.nodes))

    @property
    def allowed_domain_count(self) -> int:
        """Eligible domains that allow the next replica."""
        return int(np.count_nonzero(self.membership.present & ~self.rejected))

    def listed(self, limit: int) -> tuple[Sequence[tuple[str, int]], int]:
        """The eligible domains with the fewest pods, then those with the most.

        Returns:
            (value, pods) ascending by pods and value, and how many stand before those that are
            left out.
        """
        there = np.flatnonzero(self.membership.present)
        # Unique, and in the order of pods and values.
        places = self.counts[there] * len(self.domains.values) + self.domains.rank[there]
        few = there.size if there.size <= limit else limit - limit // 2
        chosen = np.argsort(places) if there.size <= limit else _ends(places, few, limit - few)
        values, pods = self.domains.values, self.counts
        return [(values[d], int(pods[d])) for d in there[chosen].tolist()], few

    def same_as(self, other: DomainSpread) -> bool:
        """Whether the two have the same pods in the same domains."""
        if self is other:
            return True
        return (
            self.domains is other.domains
            and self.minimum == other.minimum
            and np.array_equal(self.counts, other.counts)
            and np.array_equal(self.membership.present, other.membership.present)
            and np.array_equal(self.rejected, other.rejected)
        )


def _ends(places: Ints, few: int, many: int) -> NDArray[np.intp]:
    """Where the lowest and the highest of some numbers are, ascending."""
    ends = [few - 1, places.size - many] if few else [places.size - many]
    parted = np.argpartition(places, [each for each in ends if each < places.size])
    first, last = parted[:few], parted[places.size - many :]
    return np.concatenate([first[np.argsort(places[first])], last[np.argsort(places[last])]])


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintStatus:
    """What there is to say of a constraint at one state.

    Attributes:
        message: why it is in its state, for people; empty when it is satisfied.
        bound, pending: pods of the owner that have it: on a node, and waiting for one.
        gated: pods of the owner that scheduling gates hold, beside these.
        waiting_reason: why they wait, for people; empty where none does.
        sharing: whose pods it counts; None where they are the owner's alone.
        blocked: waiting pods that a node could take if this constraint were not.
        labels: label sets of the pods that have it.
        gaps: what of the next replica was not looked at.
        listed: the bytes of its message, by how many domains it lists.
    """

    key: OwnedConstraint
    state: State
    message: str
    spread: DomainSpread
    bound: int
    pending: int
    blocked: int
    findings: tuple[Finding, ...]
    labels: Sequence[Labels]
    gaps: Sequence[str] = ()
    gated: int = 0
    waiting_reason: str = ""
    sharing: Sharing | None = None
    listed: dict[int, bytes] = field(repr=False, default_factory=dict)
    _severity: list[tuple[Any, ...]] = field(init=False, repr=False, default_factory=list)

    def same_as(self, other: ConstraintStatus) -> bool:
        """Whether nothing differs."""
        same = all(getattr(self, name) == getattr(other, name) for name in _COMPARED)
        return same and self.spread.same_as(other.spread)

    @property
    def excess(self) -> int:
        """How far skew is above maxSkew; negative where it is below."""
        return self.spread.skew - self.key.constraint.max_skew

    @property
    def by_name(self) -> tuple[Any, ...]:
        """The place in the order of names."""
        key = self.key
        where = (key.namespace, key.owner.kind, key.owner.name, key.constraint.topology_key)
        return (*where, key.index, key.id)

    @property
    def by_severity(self) -> tuple[Any, ...]:
        """The place in the order of severity, the worst first; worked out once."""
        if not self._severity:
            self._severity.append((-self.state, -self.blocked, -self.excess, *self.by_name))
        return self._severity[0]


@dataclass(frozen=True, slots=True)
class ConstraintFilter:
    """Which constraints are asked for: those that pass all of these. It is hashed once.

    Attributes:
        namespace: empty for all.
        selector: of the pods' labels.
        states: empty for all.
        topology_key: empty for all.
        owner: each part empty for any.
        when_unsatisfiable: empty for both.
    """

    namespace: str = ""
    selector: Selector = EVERYTHING
    states: frozenset[State] = frozenset()
    topology_key: str = ""
    owner: Owner = NO_OWNER
    when_unsatisfiable: str = ""
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        parts = (self.namespace, self.selector, self.states, self.topology_key, self.owner)
        object.__setattr__(self, "_hash", hash((*parts, self.when_unsatisfiable)))

    @override
    def __hash__(self) -> int:
        return self._hash

    @property
    def nbytes(self) -> int:
        """Bytes, about, of all of it."""
        return 1000 + self.selector.nbytes

    def passes(self, status: ConstraintStatus) -> bool:
        """Whether a constraint passes, whatever its state is."""
        key, owner = status.key, status.key.owner
        constraint = key.constraint
        return (
            self.namespace in ("", key.namespace)
            and self.topology_key in ("", constraint.topology_key)
            and self.when_unsatisfiable in ("", constraint.when_unsatisfiable)
            and self.owner.kind in ("", owner.kind)
            and self.owner.name in ("", owner.name)
            and (
                self.selector is EVERYTHING
                or any(self.selector.matches(dict(labels)) for labels in status.labels)
            )
        )

    def has_state(self, status: ConstraintStatus) -> bool:
        """Whether it passes by its state."""
        return not self.states or status.state in self.states
