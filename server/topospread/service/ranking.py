"""RankDeletions: the order in which the pods of a workload should go, and what that leaves."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import CooperativeYield, checkpoint
from topospread.codec.pods import node_from_proto, selector_of
from topospread.codec.stored_pods import (
    EncodedPod,
    StoredPodReader,
    deletion_candidate,
    owner_key_of,
    pod_of,
)
from topospread.errors import CorruptValue, FieldViolation
from topospread.index.nodes import NodeTable
from topospread.index.pod_classes import NO_CLASSES
from topospread.kube.label_syntax import label_key_errors
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.kube.selectors import EVERYTHING
from topospread.kube.violations import (
    DUPLICATE,
    Problems,
    duplicate,
    invalid,
    required,
    unknown,
)
from topospread.service.decisions.extension_points import all_constraints
from topospread.service.decisions.request import NO_OVERRIDE
from topospread.service.messages import constraint_message, meta_of
from topospread.service.state.consistent_read import ConsistentRead
from topospread.spread.constraints import Constraint, pod_constraints
from topospread.spread.deletion import (
    DeletionConstraint,
    DeletionOrder,
    Ranking,
    Strategy,
    best,
    domain_counts,
    rank,
    skew_of,
)
from topospread.spread.settings import NEWEST
from topospread.spread.topology import Eligibility, GroupKey
from topospread.store.model import Key, Kind
from topospread_proto.v1 import common_pb2, deletion_order_pb2
from topospread_proto.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topospread.index.pod_classes import PodClass
    from topospread.kube.objects import Pod
    from topospread.kube.selectors import Selector
    from topospread.kube.versions import KubernetesVersion
    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Replicas
    from topospread.replica.view import View
    from topospread.service.decisions.request import DecisionRequest, ProfileRegistry
    from topospread.spread.deletion import DeletionCandidate
    from topospread.store.api import Reader
    from topospread_proto.kubernetes.v1 import kubernetes_pb2


MAX_DOMAINS: Final = 1000
"""Domains of one constraint that an answer lists."""

MAX_CONSTRAINTS: Final = 64

SECOND: Final = 1_000_000_000
"""In nanoseconds."""

YEAR_10000: Final = 253_402_300_800
"""Seconds since 1970 where protobuf's timestamps end."""

_NUMBERS: Final = {
    each: deletion_order_pb2.RankStrategy.Value(f"RANK_STRATEGY_{each.name}") for each in Strategy
}
_STRATEGIES: Final = {number: each for each, number in _NUMBERS.items()} | {
    deletion_order_pb2.RANK_STRATEGY_UNSPECIFIED: Strategy.EVEN
}


@dataclass(frozen=True, slots=True, eq=False)
class _Question:
    """A checked request.

    Attributes:
        decision: the cluster, the freshness and the deadline.
        selector: of the pods.
    """

    message: pb.RankDeletionsRequest
    decision: DecisionRequest
    selector: Selector
    turn: CooperativeYield

    @property
    def namespace(self) -> str:
        return self.message.namespace or DEFAULT_NAMESPACE


@dataclass(slots=True, eq=False)
class _WorkloadPods:
    """The pods of the workload, how many of their families run where, and the cluster's version.

    Where no cluster is read, it is the newest version.
    """

    pods: list[DeletionCandidate] = field(default_factory=list)
    encoded: list[EncodedPod] = field(default_factory=list)
    constraints: set[tuple[bytes, ...]] = field(default_factory=set)
    related: Counter[tuple[str, str]] = field(default_factory=Counter)
    left_out: int = 0
    version: KubernetesVersion = NEWEST


class DeletionRanker:
    """Ranks pods of clusters, or of requests."""

    def __init__(self, store: Reader, replicas: Replicas, rules: ProfileRegistry) -> None:
        self._store = store
        self._replicas = replicas
        self._rules = rules

    def rank(
        self,
        request: pb.RankDeletionsRequest,
        decision: DecisionRequest,
        wrong: Problems,
    ) -> pb.RankDeletionsResponse:
        """Order the pods.

        Raises:
            InvalidRequest: everything that is wrong.
            NotFound: no such cluster, and it is needed.
            Unavailable, DeadlineExceeded, RevisionUnavailable: see ConsistentRead.
        """
        turn = CooperativeYield(decision.deadline, "the pods were ranked")
        question = _Question(request, decision, _checked(request, wrong), turn)
        state, nodes, found = self._workload_pods(question)
        response = self._ranked(question, nodes, found)
        if state is not None:
            response.meta.CopyFrom(meta_of(*state))
        response.meta.kubernetes_version = str(found.version)
        return response

    def _ranked(
        self, question: _Question, nodes: NodeTable, found: _WorkloadPods
    ) -> pb.RankDeletionsResponse:
        pods, request = found.pods, question.message
        strategy = _STRATEGIES[request.strategy]
        response = pb.RankDeletionsResponse(
            strategy=_NUMBERS[strategy],
            ranked_pod_count=len(pods),
            ending_pod_count=found.left_out,
        )
        if not pods:
            response.notes.append(_nothing_matches(question))
            return response
        wanted, notes = self._wanted(question, found)
        spreads = [_spread(each, pods, nodes, frozenset(limits)) for each, limits in wanted]
        response.notes.extend([*notes, *_ranking_warnings(spreads)])
        now = time.time_ns()
        if request.HasField("evaluation_time"):
            now = request.evaluation_time.seconds * SECOND + request.evaluation_time.nanos
        order, deletions = DeletionOrder(pods), len(pods)
        if request.HasField("delete_count"):
            deletions = min(request.delete_count, deletions)
        rankings = {
            each: rank(each, order, spreads, found.related, now, deletions) for each in Strategy
        }
        _add_pods(response, pods, rankings[strategy], spreads)
        for (constraint, limits), each in zip(wanted, spreads, strict=True):
            response.constraints.append(_ranked_constraint(constraint, each, limits))
        present = [each.skew for each in response.constraints]
        for named, ranking in rankings.items():
            response.outcomes.add(
                strategy=_NUMBERS[named],
                kept_count=ranking.kept,
                within_count=ranking.within,
                last_skew=max(ranking.skews[-1].tolist() if deletions else present, default=0),
            )
        if spreads:
            response.keeps_longest = _NUMBERS[best(rankings)]
        return response

    def _workload_pods(
        self, question: _Question
    ) -> tuple[tuple[View, Replica] | None, NodeTable, _WorkloadPods]:
        """The state, nodes and pods: those given, else those of the state."""
        request, decision = question.message, question.decision
        pods = [_encoded(pod, question.namespace) for pod in request.pods]
        nodes = [node_from_proto(node) for node in request.nodes]
        given = NodeTable(0, nodes) if nodes else None
        replica_sets = [each.SerializeToString() for each in request.replica_sets]
        if pods:
            found = _WorkloadPods()
            reader = StoredPodReader(_owner_keys(replica_sets))
            _choose(found, pods, reader, question)
            if given is not None:
                return None, given, found
            replica, view = self._replicas.resolve(
                decision.cluster, decision.consistency, decision.deadline
            )
            found.version = view.snapshot.version
            return (view, replica), view.snapshot.nodes, found

        read = ConsistentRead.newest(
            self._store, self._replicas, decision.cluster, decision.consistency, decision.deadline
        )
        found = self._stored_pods(question, replica_sets, read)
        nodes_then = read.view.snapshot.nodes
        found.version = read.view.snapshot.version
        return (read.view, read.replica), nodes_then if given is None else given, found

    def _stored_pods(
        self, question: _Question, given: Sequence[bytes], read: ConsistentRead
    ) -> _WorkloadPods:
        """The pods of the state that the request means, and how many of their families there are.

        Of the others' only the names and nodes are of interest, which the index has.
        """
        turn, namespace = question.turn, question.namespace
        matches = _SelectorMatches(question.selector)
        while True:
            chosen: list[PodClass] = []
            others: list[PodClass] = []
            for each in read.view.snapshot.pod_classes.get(namespace, NO_CLASSES):
                turn()
                (chosen if matches(each.labels) else others).append(each)
            names = [name for _, name, _ in read.pods.of(chosen)]
            names += read.pods.without_class(namespace)
            keys = [Key(Kind.POD, namespace, name) for name in names]
            if read.read(keys, [(Kind.REPLICA_SET, namespace)]):
                break
        replica_sets = [item.payload for item in read.listed(Kind.REPLICA_SET, namespace)]
        reader = StoredPodReader(_owner_keys((*replica_sets, *given)))
        pods = [EncodedPod(item.payload, item.uid) for item in read.objects(keys)]
        found = _WorkloadPods()
        _choose(found, pods, reader, question)
        owner_keys: dict[PodClass, str] = {}
        for pod_class, _, node in read.pods.of(others):
            turn()
            owner_key = owner_keys.get(pod_class)
            if owner_key is None:
                owner_key = owner_keys[pod_class] = reader.owner_key_of_class(
                    pod_class.namespace, pod_class.template
                )
            found.related[owner_key, node] += 1
        return found

    def _wanted(
        self, question: _Question, found: _WorkloadPods
    ) -> tuple[list[tuple[Constraint, tuple[str, ...]]], list[str]]:
        asked, template = question.message.constraints, _newest(found)
        own = () if template is None else self._own_constraints(template, found.version)
        if asked:
            group = GroupKey(question.namespace, question.selector)
            limits = [tuple(sorted(set(each.limited_values))) for each in asked]
            kept = [_asked(each, own, group) for each in asked]
            return list(zip(kept, limits, strict=True)), []
        notes = []
        if template is not None and len(found.constraints) > 1:
            notes.append(
                "the pods have different constraints; those of the newest, "
                f"{template.namespace}/{template.name}, are kept"
            )
        return [(each, ()) for each in own], notes

    def _own_constraints(self, template: Pod, version: KubernetesVersion) -> Sequence[Constraint]:
        rules = self._rules.rules_for(NO_OVERRIDE, template.scheduler_name, version)
        return all_constraints(pod_constraints(template, rules, None))


def _newest(found: _WorkloadPods) -> Pod | None:
    """The newest pod that can be read as a whole."""
    pods = found.pods
    by_age = sorted(range(len(pods)), key=lambda i: (pods[i].created or 0, pods[i].name))
    for position in reversed(by_age):
        with suppress(CorruptValue):
            return pod_of(found.encoded[position])
    return None


def _checked(request: pb.RankDeletionsRequest, wrong: Problems) -> Selector:
    """Check a request; returns the selector of the pods.

    Raises:
        InvalidRequest: with all that is wrong.
    """
    selector = EVERYTHING
    if request.HasField("label_selector"):
        selector = wrong.read(selector_of, request.label_selector, "labelSelector")
    elif not request.pods:
        wrong.add(required("labelSelector", "select pods of the state, or give pods"))
    if request.strategy not in _STRATEGIES:
        known = deletion_order_pb2.RankStrategy.keys()
        wrong.add(unknown("strategy", request.strategy, known))
    _check_constraints(request.constraints, wrong)
    if request.delete_count < 0:
        wrong.add(invalid("deleteCount", request.delete_count, "must not be negative"))
    _check_names("pods", request.pods, wrong)
    _check_names("nodes", request.nodes, wrong)
    now = request.evaluation_time
    if not 0 <= now.seconds < YEAR_10000 or not 0 <= now.nanos < SECOND:
        given = f"{now.seconds}s {now.nanos}ns"
        wrong.add(invalid("evaluationTime", given, "must be between the years 1970 and 9999"))
    wrong.raise_all()
    return selector


def _check_constraints(
    constraints: Sequence[deletion_order_pb2.RankConstraint], wrong: Problems
) -> None:
    if len(constraints) > MAX_CONSTRAINTS:
        wrong.add(FieldViolation("constraints", f"must have at most {MAX_CONSTRAINTS} items"))
    seen: set[tuple[str, frozenset[str], int | None]] = set()
    for position, each in enumerate(constraints):
        path = f"constraints[{position}]"
        key = each.topology_key
        if not key:
            wrong.add(required(f"{path}.topologyKey", "can not be empty"))
        elif errors := label_key_errors(key):
            wrong.add(invalid(f"{path}.topologyKey", key, "; ".join(errors)))
        max_skew = each.max_skew if each.HasField("max_skew") else None
        if max_skew is not None and max_skew < 1:
            wrong.add(invalid(f"{path}.maxSkew", max_skew, "must be greater than zero"))
        same = key, frozenset(each.limited_values), max_skew
        if same in seen:
            values = ",".join(each.limited_values)
            shown = f"{key}={values}" if values else key
            wrong.add(FieldViolation(path, f"{shown} is named already", DUPLICATE, shown))
        seen.add(same)


def _check_names(
    path: str,
    objects: Iterable[kubernetes_pb2.Pod | kubernetes_pb2.Node],
    wrong: Problems,
) -> None:
    seen: set[tuple[str, str]] = set()
    for position, each in enumerate(objects):
        here, meta = f"{path}[{position}].metadata.name", each.metadata
        name = (meta.namespace, meta.name)
        if not meta.name:
            wrong.add(required(here, "name is required"))
        elif name in seen:
            wrong.add(duplicate(here, "/".join(part for part in name if part)))
        seen.add(name)


def _encoded(pod: kubernetes_pb2.Pod, namespace: str) -> EncodedPod:
    if not pod.metadata.namespace:
        pod.metadata.namespace = namespace
    return EncodedPod(pod.SerializeToString(deterministic=True))


def _add_pods(
    response: pb.RankDeletionsResponse,
    pods: Sequence[DeletionCandidate],
    ranking: Ranking,
    spreads: Sequence[DeletionConstraint],
) -> None:
    for position, skews in zip(ranking.order, ranking.skews.tolist(), strict=False):
        pod = pods[position]
        response.pods.add(
            pod=common_pb2.PodReference(namespace=pod.namespace, name=pod.name, uid=pod.uid),
            node=pod.node,
            rank=ranking.ranks[position],
            domains=[spread.domains[position] or "" for spread in spreads],
            skews=skews,
        )


def _ranked_constraint(
    constraint: Constraint, spread: DeletionConstraint, limits: Iterable[str]
) -> deletion_order_pb2.RankedConstraint:
    counts = domain_counts(spread)
    fullest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return deletion_order_pb2.RankedConstraint(
        constraint=constraint_message(constraint),
        limited_values=limits,
        domain_counts=[
            common_pb2.DomainCount(value=value, pod_count=pods)
            for value, pods in fullest[:MAX_DOMAINS]
        ],
        domain_count=len(counts),
        skew=skew_of(spread, counts),
    )


def _asked(
    asked: deletion_order_pb2.RankConstraint, own: Sequence[Constraint], group: GroupKey
) -> Constraint:
    """The constraint that a caller named, completed from the pods' own constraint of that key."""
    key = asked.topology_key
    like = next((each for each in own if each.topology_key == key), None)
    if like is None:
        like = Constraint(key, 1, group, 1, True, Eligibility(keys=(key,)), honors_affinity=False)
    return replace(like, max_skew=asked.max_skew) if asked.HasField("max_skew") else like


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


def _nothing_matches(question: _Question) -> str:
    if not question.message.pods:
        return f"no pod of namespace {question.namespace!r} matches the selector"
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
    def __init__(self, selector: Selector) -> None:
        self._selector = selector
        self._known: dict[tuple[tuple[str, str], ...], bool] = {}

    def __call__(self, labels: tuple[tuple[str, str], ...]) -> bool:
        known = self._known.get(labels)
        if known is None:
            known = self._known[labels] = self._selector.matches(dict(labels))
        return known


def _choose(
    found: _WorkloadPods,
    encoded: Iterable[EncodedPod],
    reader: StoredPodReader,
    question: _Question,
) -> None:
    matches = _SelectorMatches(question.selector)
    for each in encoded:
        question.turn()
        with suppress(CorruptValue):  # counted and logged where it is followed
            listed = reader.listed(each)
            chosen = matches(listed.labels)
            if listed.active:
                found.related[listed.owner_key, listed.node] += 1
                if chosen:
                    found.pods.append(deletion_candidate(listed, each.uid))
                    found.encoded.append(each)
                    found.constraints.add(listed.constraints)
            elif chosen:
                found.left_out += 1
