"""Who asks what of spreading: the pods of namespaces by shape, and their distinct constraints."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from topospread.codec.frames import framed
from topospread.codec.movable import bound_pod
from topospread.errors import CorruptValue, InvalidRequest
from topospread.kube.objects import DEFAULT_NAMESPACE, TERMINAL_PHASES
from topospread.service.turns import Turns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from topospread.index.snapshot import Snapshot
    from topospread.service.engine import Engine
    from topospread.service.rebalancing.asking import RebalanceAsk
    from topospread.service.shapes import Judgeable, Shape
    from topospread.spread.constraints import Constraint
    from topospread.spread.settings import Rules
    from topospread.spread.topology import Eligibility, GroupKey
    from topospread.store.api import StoredObject


@dataclass(frozen=True, slots=True)
class Limit:
    """A constraint apart from whose it is: what must hold of the counts of a group.

    Attributes:
        constraint: one that demands it; equal limits may have different ones.
    """

    topology_key: str
    max_skew: int
    group: GroupKey
    min_domains: int
    eligibility: Eligibility
    constraint: Constraint = field(compare=False)


def limit_of(constraint: Constraint) -> Limit:
    """What a pod's constraint demands."""
    return Limit(
        constraint.topology_key,
        constraint.max_skew,
        constraint.group,
        constraint.min_domains,
        constraint.eligibility,
        constraint,
    )


class Member(NamedTuple):
    """A pod that counts."""

    name: str
    uid: str
    node: str
    payload: bytes


@dataclass(slots=True, eq=False)
class Kind:
    """The pods of one shape.

    Attributes:
        limits: what their own constraints demand: the hard ones, and the soft ones if asked for.
        chosen: whether the request means them.
    """

    shape: Shape
    rules: Rules
    judgeable: Judgeable
    limits: tuple[Limit, ...]
    chosen: bool
    members: list[Member] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Space:
    """A namespace.

    Attributes:
        limits: all that its pods demand; True for those of pods that the request means.
    """

    kinds: dict[Shape, Kind] = field(default_factory=dict)
    limits: dict[Limit, bool] = field(default_factory=dict)


def taken(
    engine: Engine, ask: RebalanceAsk, stored: list[StoredObject], snapshot: Snapshot
) -> Mapping[str, Space]:
    """The namespaces, with the constraints that are in force at a snapshot.

    Raises:
        InvalidRequest: unknown settings.
    """
    spaces: dict[str, Space] = {}
    # A wrong setting is the caller's mistake; a pod that is too much is left out.
    engine.rules.rules_for(ask.settings, "")
    turn = Turns(ask.deadline, "the pods were counted")
    for item in stored:
        turn()
        with suppress(CorruptValue, InvalidRequest):
            bound = bound_pod(item.payload, TERMINAL_PHASES)
            if not bound.counted:
                continue
            pod = engine.shaped(framed(item.payload))
            space = spaces.setdefault(item.key.namespace or DEFAULT_NAMESPACE, Space())
            kind = space.kinds.get(pod.shape)
            if kind is None:
                kind = space.kinds[pod.shape] = _kind(engine, ask, pod.shape, snapshot)
            kind.members.append(Member(item.key.name, item.uid, bound.node, item.payload))
    for space in spaces.values():
        for kind in space.kinds.values():
            for limit in kind.limits:
                space.limits[limit] = space.limits.get(limit, False) or kind.chosen
    return spaces


def _kind(engine: Engine, ask: RebalanceAsk, shape: Shape, snapshot: Snapshot) -> Kind:
    rules = engine.rules.rules_for(ask.settings, shape.pod.scheduler_name)
    judgeable = shape.judgeable(rules, snapshot)
    own = judgeable.constraints
    constraints = [*own.hard.constraints, *(own.soft.constraints if ask.soft else ())]
    limits = dict.fromkeys(limit_of(c) for c in constraints if not c.group.counts_nothing)
    chosen = ask.selector.matches(shape.pod.labels)
    return Kind(shape, rules, judgeable, tuple(limits), chosen)


def groups_of(spaces: Mapping[str, Space]) -> set[GroupKey]:
    """All that must be counted."""
    found: set[GroupKey] = set()
    for space in spaces.values():
        found.update(limit.group for limit in space.limits)
        for kind in space.kinds.values():
            if kind.limits:
                found.update(kind.judgeable.groups)
    return found


def skew(limit: Limit, snapshot: Snapshot) -> int:
    """How far the fullest domain is ahead of the global minimum."""
    counts = snapshot.domain_counts(limit.group, limit.eligibility, limit.topology_key)
    membership = snapshot.membership(limit.eligibility, limit.topology_key)
    if not membership.size:
        return 0
    minimum = 0
    if membership.size >= limit.min_domains:
        minimum = int(counts[membership.present].min())
    return int(counts.max()) - minimum


@dataclass(slots=True, eq=False)
class Knot:
    """Constraints that depend on one another: to move a pod for one may break another.

    Attributes:
        limits: with whether the request means them.
        kinds: pods that may be moved for them.
    """

    namespace: str
    limits: dict[Limit, bool]
    kinds: list[Kind]


def knots(namespace: str, space: Space, snapshot: Snapshot) -> Iterator[Knot]:
    """The sets of dependent constraints of which at least one that is meant does not hold."""
    movable = [
        kind
        for kind in space.kinds.values()
        if kind.chosen and any(space.limits[limit] for limit in kind.limits)
    ]
    touched = {id(kind): _touched(kind, space) for kind in movable}
    users: dict[Limit, list[Kind]] = {}
    for kind in movable:
        for limit in touched[id(kind)]:
            users.setdefault(limit, []).append(kind)
    seen: set[Limit] = set()
    for first, meant in space.limits.items():
        if not meant or first in seen or skew(first, snapshot) <= first.max_skew:
            continue
        found, kinds = {first: True}, dict[int, Kind]()
        waiting = [first]
        while waiting:
            for kind in users.get(waiting.pop(), ()):
                if id(kind) in kinds:
                    continue
                kinds[id(kind)] = kind
                for limit in touched[id(kind)]:
                    if limit not in found:
                        found[limit] = space.limits[limit]
                        waiting.append(limit)
        seen.update(found)
        yield Knot(namespace, found, list(kinds.values()))


def _touched(kind: Kind, space: Space) -> list[Limit]:
    """What a pod's move may change, or is bound by."""
    labels = kind.shape.pod.labels
    return [
        limit
        for limit in space.limits
        if limit in kind.limits or limit.group.selector.matches(labels)
    ]
