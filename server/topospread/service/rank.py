"""RankDeletions: the order in which the pods of a workload should go, and what that leaves."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from topospread.checkpoints import checkpoint
from topospread.codec.candidates import (
    EncodedPod,
    ListedPod,
    Listing,
    candidate_of,
    family_of,
    pod_of,
)
from topospread.errors import CorruptValue
from topospread.index.nodes import NodeTable
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.replica.replicas import NEWEST_AT_HAND, Consistency
from topospread.service.asks import DEFAULT_CLUSTER, NO_SETTINGS
from topospread.service.listing import list_at
from topospread.service.spreads import both
from topospread.service.turns import Turns
from topospread.spread.constraints import Constraint, pod_constraints
from topospread.spread.ranking import Ranking, Spread, Strategy, best, rank
from topospread.spread.topology import Eligibility, GroupKey
from topospread.store.api import Key, Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.kube.objects import Node, Pod
    from topospread.kube.selectors import Selector
    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Replicas
    from topospread.replica.view import View
    from topospread.service.rules_book import RulesBook
    from topospread.spread.deletion import Candidate
    from topospread.store.api import Store


@dataclass(frozen=True, slots=True)
class KeptSpread:
    """What a caller wants kept spread.

    Attributes:
        values: the domains; none: all.
        max_skew: None: what the pods say of this key.
    """

    topology_key: str
    values: tuple[str, ...] = ()
    max_skew: int | None = None


@dataclass(frozen=True, slots=True)
class RankAsk:
    """What is asked.

    Attributes:
        selector: of the pods.
        pods, nodes: in place of those of the state; None: those.
        replica_sets: beside those of the state, encoded.
        constraints: none: those of the newest pod.
        delete: how many deletions are looked at; None: all.
        now: nanoseconds since 1970; None: the clock's.
    """

    deadline: float
    selector: Selector
    cluster: str = DEFAULT_CLUSTER
    namespace: str = DEFAULT_NAMESPACE
    consistency: Consistency = NEWEST_AT_HAND
    pods: Sequence[EncodedPod] | None = None
    nodes: Sequence[Node] | None = None
    replica_sets: Sequence[bytes] = ()
    constraints: tuple[KeptSpread, ...] = ()
    strategy: Strategy = Strategy.EVEN
    delete: int | None = None
    now: int | None = None


@dataclass(frozen=True, slots=True)
class Ranked:
    """The answer.

    Attributes:
        state: that was looked at, and who follows it; None for none.
        pods: in any order; rankings give it.
        constraints: as they were understood, and `spreads` what of them concerns ranking.
        limits: the domains that each constraint is limited to.
        rankings: by strategy.
        best: the strategy that keeps the constraints longest; None without constraints.
        left_out: matching pods that go anyway.
    """

    state: tuple[View, Replica] | None
    strategy: Strategy
    pods: Sequence[Candidate]
    constraints: Sequence[Constraint] = ()
    spreads: Sequence[Spread] = ()
    limits: Sequence[tuple[str, ...]] = ()
    rankings: Mapping[Strategy, Ranking] = field(default_factory=dict)
    best: Strategy | None = None
    left_out: int = 0
    notes: Sequence[str] = ()


@dataclass(slots=True, eq=False)
class _Found:
    """The pods of the workload, and how many of their families run where."""

    pods: list[Candidate] = field(default_factory=list)
    listed: list[tuple[ListedPod, EncodedPod]] = field(default_factory=list)
    related: Counter[tuple[str, str]] = field(default_factory=Counter)
    left_out: int = 0


class Ranks:
    """Ranks pods of clusters, or of requests."""

    def __init__(self, store: Store, replicas: Replicas, rules: RulesBook) -> None:
        self._store = store
        self._replicas = replicas
        self._rules = rules

    def rank(self, ask: RankAsk) -> Ranked:
        """Order the pods.

        Raises:
            NotFound: no such cluster, and it is needed.
            Unavailable, DeadlineExceeded, RevisionUnavailable: see list_at.
        """
        state, nodes, encoded, replica_sets = self._state(ask)
        families = _families((*replica_sets, *ask.replica_sets))
        turn = Turns(ask.deadline, "the pods were ranked")
        found = _chosen(encoded, Listing(families), ask.selector, turn)
        pods = found.pods
        if not pods:
            nothing = (_nothing_matches(ask),)
            return Ranked(state, ask.strategy, (), left_out=found.left_out, notes=nothing)
        wanted, notes = self._wanted(ask, found)
        spreads = [_spread(each, pods, nodes, frozenset(limits)) for each, limits in wanted]
        notes += _oddities(spreads)
        now = time.time_ns() if ask.now is None else ask.now
        deletions = len(pods) if ask.delete is None else min(ask.delete, len(pods))
        rankings = {
            each: rank(each, pods, spreads, found.related, now, deletions) for each in Strategy
        }
        return Ranked(
            state=state,
            strategy=ask.strategy,
            pods=pods,
            constraints=[constraint for constraint, _ in wanted],
            spreads=spreads,
            limits=[limits for _, limits in wanted],
            rankings=rankings,
            best=best(rankings) if spreads else None,
            left_out=found.left_out,
            notes=notes,
        )

    def _state(
        self, ask: RankAsk
    ) -> tuple[tuple[View, Replica] | None, NodeTable, Iterable[EncodedPod], Iterable[bytes]]:
        """The state, nodes, pods and ReplicaSets: those given, else those of the state."""
        given = None if ask.nodes is None else NodeTable(0, ask.nodes)
        if ask.pods is not None:
            if given is not None:
                return None, given, ask.pods, ()
            replica, view = self._replicas.resolve(ask.cluster, ask.consistency, ask.deadline)
            return (view, replica), view.snapshot.nodes, ask.pods, ()

        def wanted(key: Key) -> bool:
            return key.namespace == ask.namespace and key.kind in (Kind.POD, Kind.REPLICA_SET)

        listed = list_at(
            self._store, self._replicas, ask.cluster, ask.consistency, ask.deadline, wanted
        )
        stored = listed.readable()
        return (
            (listed.view, listed.replica),
            listed.view.snapshot.nodes if given is None else given,
            [EncodedPod(o.payload, o.uid) for o in stored if o.key.kind is Kind.POD],
            [o.payload for o in stored if o.key.kind is Kind.REPLICA_SET],
        )

    def _wanted(
        self, ask: RankAsk, found: _Found
    ) -> tuple[list[tuple[Constraint, tuple[str, ...]]], list[str]]:
        """What is to be kept spread, each with its limits, and what is odd about it."""
        pods = found.pods
        newest = max(range(len(pods)), key=lambda i: (pods[i].created or 0, pods[i].name))
        template = pod_of(found.listed[newest][1])
        own = self._own_constraints(template)
        if ask.constraints:
            group = GroupKey(template.namespace, ask.selector)
            limits = [tuple(sorted(set(each.values))) for each in ask.constraints]
            asked = [_asked(each, own, group) for each in ask.constraints]
            return list(zip(asked, limits, strict=True)), []
        notes = []
        if len({listed.constraints for listed, _ in found.listed}) > 1:
            notes.append(
                "the pods have different constraints; those of the newest, "
                f"{template.namespace}/{template.name}, are kept"
            )
        return [(each, ()) for each in own], notes

    def _own_constraints(self, template: Pod) -> Sequence[Constraint]:
        """Those of the pod itself: hard ones, then soft ones."""
        rules = self._rules.rules_for(NO_SETTINGS, template.scheduler_name)
        return both(pod_constraints(template, rules, None))


def _asked(asked: KeptSpread, own: Sequence[Constraint], group: GroupKey) -> Constraint:
    """What a caller named; what it did not say is as in the pods' own constraint of that key."""
    key = asked.topology_key
    like = next((each for each in own if each.topology_key == key), None)
    if like is None:
        like = Constraint(key, 1, group, 1, True, Eligibility(keys=(key,)), honors_affinity=False)
    return like if asked.max_skew is None else replace(like, max_skew=asked.max_skew)


def _oddities(spreads: Sequence[Spread]) -> Iterator[str]:
    if not spreads:
        yield "no constraints: pods that stack on a node go first, and no more"
    for spread in spreads:
        if not any(domain is not None for domain in spread.domains):
            yield f"no pod is in a domain of {spread.topology_key}"


def _spread(
    kept: Constraint, pods: Sequence[Candidate], nodes: NodeTable, limits: frozenset[str]
) -> Spread:
    column = nodes.domains(kept.topology_key)
    mask = nodes.mask(kept.eligibility)
    present = nodes.membership(kept.eligibility, kept.topology_key).present.tolist()
    slots = [nodes.slot(pod.node) if pod.node else -1 for pod in pods]
    numbers = [int(column.ids[slot]) if slot >= 0 else -1 for slot in slots]

    def allowed(value: str) -> bool:
        return not limits or value in limits

    return Spread(
        topology_key=kept.topology_key,
        max_skew=kept.max_skew,
        domains=[
            column.values[n] if n >= 0 and allowed(column.values[n]) else None for n in numbers
        ],
        counted=[slot >= 0 and bool(mask[slot]) for slot in slots],
        eligible=frozenset(
            value
            for value, there in zip(column.values, present, strict=True)
            if there and allowed(value)
        ),
        min_domains=kept.min_domains,
    )


def _nothing_matches(ask: RankAsk) -> str:
    if ask.pods is None:
        return f"no pod of namespace {ask.namespace!r} matches the selector"
    return "none of the pods given is running and matches the selector"


def _families(replica_sets: Iterable[bytes]) -> dict[tuple[str, str], str]:
    found = {}
    for encoded in replica_sets:
        checkpoint()
        with suppress(CorruptValue):  # counted and logged where it is followed
            name, family = family_of(encoded)
            found[name] = family
    return found


def _chosen(
    encoded: Iterable[EncodedPod], listing: Listing, selector: Selector, turn: Turns
) -> _Found:
    found = _Found()
    matches: dict[tuple[tuple[str, str], ...], bool] = {}
    for each in encoded:
        turn()
        with suppress(CorruptValue):  # counted and logged where it is followed
            listed = listing.listed(each)
            chosen = matches.get(listed.labels)
            if chosen is None:
                chosen = matches[listed.labels] = selector.matches(dict(listed.labels))
            if listed.active:
                found.related[listed.family, listed.node] += 1
                if chosen:
                    found.pods.append(candidate_of(each, listed.family))
                    found.listed.append((listed, each))
            elif chosen:
                found.left_out += 1
    return found
