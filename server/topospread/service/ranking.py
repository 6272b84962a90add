"""RankDeletions: the order in which the pods of a workload should go, and what that leaves."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from topospread.checkpoints import CooperativeYield, checkpoint
from topospread.codec.stored_pods import (
    EncodedPod,
    ListedPod,
    StoredPodReader,
    deletion_candidate,
    owner_key_of,
    pod_of,
)
from topospread.errors import CorruptValue
from topospread.index.nodes import NodeTable
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.replica.view import DEFAULT_CONSISTENCY, Consistency
from topospread.service.decisions.extension_points import all_constraints
from topospread.service.decisions.request import DEFAULT_CLUSTER, NO_OVERRIDE
from topospread.service.state.log import newest_view
from topospread.service.state.members import read_members
from topospread.spread.constraints import Constraint, pod_constraints
from topospread.spread.ranking import DeletionConstraint, Ranking, Strategy, best, rank
from topospread.spread.topology import Eligibility, GroupKey
from topospread.store.model import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.index.pod_classes import PodClass
    from topospread.kube.objects import Node, Pod
    from topospread.kube.selectors import Selector
    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Replicas
    from topospread.replica.view import View
    from topospread.service.decisions.request import ProfileRegistry
    from topospread.spread.deletion import DeletionCandidate
    from topospread.store.api import Store


@dataclass(frozen=True, slots=True)
class KeptSpread:
    """A constraint that deletions should keep.

    Attributes:
        values: the domains; none: all.
        max_skew: None: that of the pods' own constraint.
    """

    topology_key: str
    values: tuple[str, ...] = ()
    max_skew: int | None = None


@dataclass(frozen=True, slots=True)
class RankRequest:
    """The request of RankDeletions.

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
    consistency: Consistency = DEFAULT_CONSISTENCY
    pods: Sequence[EncodedPod] | None = None
    nodes: Sequence[Node] | None = None
    replica_sets: Sequence[bytes] = ()
    constraints: tuple[KeptSpread, ...] = ()
    strategy: Strategy = Strategy.EVEN
    delete: int | None = None
    now: int | None = None


@dataclass(frozen=True, slots=True)
class DeletionRanking:
    """The ranking, and the spread that it leaves.

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
    pods: Sequence[DeletionCandidate]
    constraints: Sequence[Constraint] = ()
    spreads: Sequence[DeletionConstraint] = ()
    limits: Sequence[tuple[str, ...]] = ()
    rankings: Mapping[Strategy, Ranking] = field(default_factory=dict)
    best: Strategy | None = None
    left_out: int = 0
    notes: Sequence[str] = ()


@dataclass(slots=True, eq=False)
class _WorkloadPods:
    """The pods of the workload, and how many of their families run where."""

    pods: list[DeletionCandidate] = field(default_factory=list)
    listed: list[tuple[ListedPod, EncodedPod]] = field(default_factory=list)
    related: Counter[tuple[str, str]] = field(default_factory=Counter)
    left_out: int = 0


class DeletionRanker:
    """Ranks pods of clusters, or of requests."""

    def __init__(self, store: Store, replicas: Replicas, rules: ProfileRegistry) -> None:
        self._store = store
        self._replicas = replicas
        self._rules = rules

    def rank(self, request: RankRequest) -> DeletionRanking:
        """Order the pods.

        Raises:
            NotFound: no such cluster, and it is needed.
            Unavailable, DeadlineExceeded, RevisionUnavailable: see newest_view and read_members.
        """
        turn = CooperativeYield(request.deadline, "the pods were ranked")
        state, nodes, found = self._workload_pods(request, turn)
        pods = found.pods
        if not pods:
            nothing = (_nothing_matches(request),)
            return DeletionRanking(
                state, request.strategy, (), left_out=found.left_out, notes=nothing
            )
        wanted, notes = self._wanted(request, found)
        spreads = [_spread(each, pods, nodes, frozenset(limits)) for each, limits in wanted]
        notes += _ranking_warnings(spreads)
        now = time.time_ns() if request.now is None else request.now
        deletions = len(pods) if request.delete is None else min(request.delete, len(pods))
        rankings = {
            each: rank(each, pods, spreads, found.related, now, deletions) for each in Strategy
        }
        return DeletionRanking(
            state=state,
            strategy=request.strategy,
            pods=pods,
            constraints=[constraint for constraint, _ in wanted],
            spreads=spreads,
            limits=[limits for _, limits in wanted],
            rankings=rankings,
            best=best(rankings) if spreads else None,
            left_out=found.left_out,
            notes=notes,
        )

    def _workload_pods(
        self, request: RankRequest, turn: CooperativeYield
    ) -> tuple[tuple[View, Replica] | None, NodeTable, _WorkloadPods]:
        """The state, nodes and pods: those given, else those of the state."""
        given = None if request.nodes is None else NodeTable(0, request.nodes)
        if request.pods is not None:
            found = _WorkloadPods()
            reader = StoredPodReader(_owner_keys(request.replica_sets))
            _choose(found, request.pods, reader, request.selector, turn)
            if given is not None:
                return None, given, found
            replica, view = self._replicas.resolve(
                request.cluster, request.consistency, request.deadline
            )
            return (view, replica), view.snapshot.nodes, found

        replica, view = newest_view(
            self._store, self._replicas, request.cluster, request.consistency, request.deadline
        )
        nodes = view.snapshot.nodes if given is None else given
        return (view, replica), nodes, self._stored_pods(request, replica, view, turn)

    def _stored_pods(
        self, request: RankRequest, replica: Replica, view: View, turn: CooperativeYield
    ) -> _WorkloadPods:
        """The pods of the state that the request means, and how many of their families there are.

        Of the others' only the names and nodes are of interest, which the index has.
        """
        classes = view.snapshot.pod_classes.get(request.namespace, {})
        matches = _SelectorMatches(request.selector)
        chosen: list[PodClass] = []
        others: list[PodClass] = []
        for each in classes:
            turn()
            (chosen if matches(each.labels) else others).append(each)
        members = read_members(
            self._store,
            replica,
            view,
            (request.namespace,),
            read=chosen,
            known=others,
            without_class=True,
            kinds=(Kind.REPLICA_SET,),
        )
        stored = members.stored.values()
        replica_sets = [item.payload for item in stored if item.key.kind is Kind.REPLICA_SET]
        reader = StoredPodReader(_owner_keys((*replica_sets, *request.replica_sets)))
        pods = [EncodedPod(i.payload, i.uid) for i in stored if i.key.kind is Kind.POD]
        found = _WorkloadPods()
        _choose(found, pods, reader, request.selector, turn)
        owner_keys: dict[PodClass, str] = {}
        for pod_class, _, node in members.unchanged:
            turn()
            if matches(pod_class.labels):
                continue  # it was read
            owner_key = owner_keys.get(pod_class)
            if owner_key is None:
                owner_key = owner_keys[pod_class] = reader.owner_key_of_class(
                    pod_class.namespace, pod_class.template
                )
            found.related[owner_key, node] += 1
        return found

    def _wanted(
        self, request: RankRequest, found: _WorkloadPods
    ) -> tuple[list[tuple[Constraint, tuple[str, ...]]], list[str]]:
        """The constraints to keep, each with its limits, and warnings."""
        pods = found.pods
        newest = max(range(len(pods)), key=lambda i: (pods[i].created or 0, pods[i].name))
        template = pod_of(found.listed[newest][1])
        own = self._own_constraints(template)
        if request.constraints:
            group = GroupKey(template.namespace, request.selector)
            limits = [tuple(sorted(set(each.values))) for each in request.constraints]
            asked = [_asked(each, own, group) for each in request.constraints]
            return list(zip(asked, limits, strict=True)), []
        notes = []
        if len({listed.constraints for listed, _ in found.listed}) > 1:
            notes.append(
                "the pods have different constraints; those of the newest, "
                f"{template.namespace}/{template.name}, are kept"
            )
        return [(each, ()) for each in own], notes

    def _own_constraints(self, template: Pod) -> Sequence[Constraint]:
        """The constraints of the pod itself: hard ones, then soft ones."""
        rules = self._rules.rules_for(NO_OVERRIDE, template.scheduler_name)
        return all_constraints(pod_constraints(template, rules, None))


def _asked(asked: KeptSpread, own: Sequence[Constraint], group: GroupKey) -> Constraint:
    """The constraint that a caller named, completed from the pods' own constraint of that key."""
    key = asked.topology_key
    like = next((each for each in own if each.topology_key == key), None)
    if like is None:
        like = Constraint(key, 1, group, 1, True, Eligibility(keys=(key,)), honors_affinity=False)
    return like if asked.max_skew is None else replace(like, max_skew=asked.max_skew)


def _ranking_warnings(spreads: Sequence[DeletionConstraint]) -> Iterator[str]:
    if not spreads:
        yield "no constraints: pods that stack on a node go first, and no more"
    for spread in spreads:
        if not any(domain is not None for domain in spread.domains):
            yield f"no pod is in a domain of {spread.topology_key}"


def _spread(
    kept: Constraint, pods: Sequence[DeletionCandidate], nodes: NodeTable, limits: frozenset[str]
) -> DeletionConstraint:
    column = nodes.domains(kept.topology_key)
    mask = nodes.mask(kept.eligibility)
    present = nodes.membership(kept.eligibility, kept.topology_key).present.tolist()
    slots = [nodes.slot(pod.node) if pod.node else -1 for pod in pods]
    numbers = [int(column.ids[slot]) if slot >= 0 else -1 for slot in slots]

    def allowed(value: str) -> bool:
        return not limits or value in limits

    return DeletionConstraint(
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


def _nothing_matches(request: RankRequest) -> str:
    if request.pods is None:
        return f"no pod of namespace {request.namespace!r} matches the selector"
    return "none of the pods given is running and matches the selector"


def _owner_keys(replica_sets: Iterable[bytes]) -> dict[tuple[str, str], str]:
    found = {}
    for encoded in replica_sets:
        checkpoint()
        with suppress(CorruptValue):  # counted and logged where it is followed
            name, owner_key = owner_key_of(encoded)
            found[name] = owner_key
    return found


class _SelectorMatches:
    """Whether a selector matches label sets, each looked at once."""

    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._known: dict[tuple[tuple[str, str], ...], bool] = {}

    def __call__(self, labels: tuple[tuple[str, str], ...]) -> bool:
        """Whether it matches a set of labels."""
        known = self._known.get(labels)
        if known is None:
            known = self._known[labels] = self._selector.matches(dict(labels))
        return known


def _choose(
    found: _WorkloadPods,
    encoded: Iterable[EncodedPod],
    reader: StoredPodReader,
    selector: Selector,
    turn: CooperativeYield,
) -> None:
    matches = _SelectorMatches(selector)
    for each in encoded:
        turn()
        with suppress(CorruptValue):  # counted and logged where it is followed
            listed = reader.listed(each)
            chosen = matches(listed.labels)
            if listed.active:
                found.related[listed.owner_key, listed.node] += 1
                if chosen:
                    found.pods.append(deletion_candidate(each, listed.owner_key))
                    found.listed.append((listed, each))
            elif chosen:
                found.left_out += 1
