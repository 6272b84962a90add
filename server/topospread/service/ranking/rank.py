"""The order in which the pods of a workload go, and what it leaves."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import CooperativeYield, checkpoint
from topospread.codec.pods import node_from_proto
from topospread.codec.stored_pods import EncodedPod, StoredPodReader, pod_of
from topospread.errors import CorruptValue
from topospread.index.nodes import NodeTable
from topospread.index.pod_classes import NO_CLASSES
from topospread.service.decisions.extension_points import all_constraints
from topospread.service.decisions.request import NO_OVERRIDE
from topospread.service.messages import constraint_message, meta_of
from topospread.service.ranking.choosing import (
    RankedPods,
    SelectorMatches,
    choose,
    controllers,
    owner_keys,
)
from topospread.service.ranking.deciders import (
    decider_message,
    deciders_of_class,
    left_out_notes,
    revisions_note,
)
from topospread.service.ranking.notes import (
    counted_beside,
    left_above,
    nothing_matches,
    without_domains,
)
from topospread.service.ranking.outcomes import (
    add_pods,
    numbered,
    outcomes_by_strategy,
    own_outcome,
)
from topospread.service.ranking.request import (
    STRATEGIES,
    STRATEGY_NUMBERS,
    RankQuestion,
    checked,
)
from topospread.service.state.consistent_read import ConsistentRead
from topospread.spread.constraints import Constraint, pod_constraints
from topospread.spread.deletion import (
    SECOND,
    DeletionConstraint,
    DeletionOrder,
    best,
    domain_counts,
    skew_of,
)
from topospread.spread.topology import Eligibility, GroupKey
from topospread.store.model import Key, Kind
from topospread_proto.v1 import common_pb2, deletion_order_pb2
from topospread_proto.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.index.pod_classes import PodClass
    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import Pod
    from topospread.kube.versions import KubernetesVersion
    from topospread.kube.violations import Problems
    from topospread.replica.replica import Replica
    from topospread.replica.replicas import Replicas
    from topospread.replica.view import View
    from topospread.service.decisions.request import DecisionRequest, ProfileRegistry
    from topospread.spread.deletion import DeletionCandidate
    from topospread.store.api import Reader
    from topospread_proto.kubernetes.v1 import kubernetes_pb2


MAX_DOMAINS: Final = 1000
"""Domains of one constraint that an answer lists."""

_NO_CONSTRAINTS: Final = "no constraints: pods that stack on a node go first, and no more"


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
        question = RankQuestion(request, decision, checked(request, wrong), turn)
        state, nodes, found = self._workload_pods(question)
        response = self._ranked(question, nodes, found)
        if state is not None:
            response.meta.CopyFrom(meta_of(*state))
        response.meta.kubernetes_version = str(found.version)
        return response

    def _ranked(
        self, question: RankQuestion, nodes: NodeTable, found: RankedPods
    ) -> pb.RankDeletionsResponse:
        pods, request = found.pods, question.message
        response = pb.RankDeletionsResponse(
            strategy=STRATEGY_NUMBERS[STRATEGIES[request.strategy]],
            ranked_pod_count=len(pods),
            ending_pod_count=found.left_out,
        )
        if not pods:
            response.notes.append(nothing_matches(question, found))
            return response
        wanted, notes = self._wanted(question, found)
        spreads = [_spread(each, pods, nodes, frozenset(limits)) for each, limits in wanted]
        response.notes.extend([*notes, *without_domains(spreads)])
        response.notes.extend(counted_beside((each for each, _ in wanted), found))
        now = time.time_ns()
        if request.HasField("evaluation_time"):
            now = request.evaluation_time.seconds * SECOND + request.evaluation_time.nanos
        order, deletions = DeletionOrder(pods), len(pods)
        if request.HasField("delete_count"):
            deletions = min(request.delete_count, deletions)
        outcomes = own_outcome(found.decider, pods, spreads, deletions, question.completions)
        if outcomes:
            ((response.strategy, outcome),) = outcomes.items()
            response.notes.extend(left_above(spreads, outcome.ranking))
        else:
            if not spreads:
                response.notes.append(_NO_CONSTRAINTS)
            by_strategy = outcomes_by_strategy(order, spreads, found, now, deletions)
            outcome, outcomes = by_strategy[STRATEGIES[request.strategy]], numbered(by_strategy)
            # What chance decides keeps nothing for sure.
            rankings = {each: made.ranking for each, made in by_strategy.items() if made.is_certain}
            if spreads and rankings:
                response.keeps_longest = STRATEGY_NUMBERS[best(rankings)]
        add_pods(response, pods, outcome, spreads)
        for (constraint, limits), each, skews in zip(
            wanted, spreads, outcome.possible.skews, strict=True
        ):
            response.constraints.append(_ranked_constraint(constraint, each, limits, skews))
        present = max((each.skew for each in response.constraints), default=0)
        response.outcomes.extend(made.message(of, present) for of, made in outcomes.items())
        indexed = any(pod.completion_index is not None for pod in pods)
        response.decider.CopyFrom(decider_message(found.decider, indexed=indexed))
        response.notes.extend(revisions_note(found.decider, found.revisions))
        response.notes.extend(left_out_notes(found.decider, found.not_chosen))
        return response

    def _workload_pods(
        self, question: RankQuestion
    ) -> tuple[tuple[View, Replica] | None, NodeTable, RankedPods]:
        """The state, nodes and pods: those given, else those of the state."""
        request, decision = question.message, question.decision
        pods = [_encoded(pod, question.namespace) for pod in request.pods]
        nodes = [node_from_proto(node) for node in request.nodes]
        given = NodeTable(0, nodes) if nodes else None
        replica_sets = [each.SerializeToString() for each in request.replica_sets]
        if pods:
            found = RankedPods()
            reader = StoredPodReader(owner_keys(replica_sets))
            choose(found, pods, reader, question, controllers(replica_sets))
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
        self, question: RankQuestion, given: Sequence[bytes], read: ConsistentRead
    ) -> RankedPods:
        """The pods of the state that the request means, and how many of their families there are.

        Of the others' only the names and nodes are of interest, which the index has.
        """
        turn, namespace = question.turn, question.namespace
        matches, lists = SelectorMatches(question.selector), [(Kind.REPLICA_SET, namespace)]
        while True:
            stored = read.view.snapshot.controllers_in(namespace)
            known = {namespace: {**stored, **controllers(given).get(namespace, {})}}
            chosen: list[PodClass] = []
            others: list[PodClass] = []
            for each in read.view.snapshot.pod_classes.get(namespace, NO_CLASSES):
                turn()
                meant = matches(each.labels) and question.means_class(each, known)
                (chosen if meant else others).append(each)
            names = [name for _, name, _ in read.pods.of(chosen)]
            names += read.pods.without_class(namespace)
            keys = [Key(Kind.POD, namespace, name) for name in names]
            if read.read(keys, lists):
                break
        replica_sets = [item.payload for item in read.listed(Kind.REPLICA_SET, namespace)]
        reader = StoredPodReader(owner_keys((*replica_sets, *given)))
        pods = [EncodedPod(item.payload, item.uid) for item in read.objects(keys)]
        found = RankedPods()
        choose(found, pods, reader, question, known)
        if not found.pods:
            found.elsewhere = sorted(_elsewhere(question, read.view.snapshot))[:3]
        known_keys: dict[PodClass, str] = {}
        bound: Counter[PodClass] = Counter()
        for pod_class, _, node in read.pods.of(others):
            turn()
            owner_key = known_keys.get(pod_class)
            if owner_key is None:
                owner_key = known_keys[pod_class] = reader.owner_key_of_class(
                    pod_class.namespace, pod_class.template
                )
            found.related[owner_key, node] += 1
            bound[pod_class] += bool(node)
        for pod_class, pods_there in bound.items():
            found.beside[pod_class.labels] += pods_there
        return found

    def _wanted(
        self, question: RankQuestion, found: RankedPods
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


def _elsewhere(question: RankQuestion, snapshot: Snapshot) -> set[str]:
    """The workloads of the same kind and name in other namespaces, where none was named."""
    found: set[str] = set()
    if question.message.namespace or not question.message.HasField("workload"):
        return found
    workload = question.message.workload
    for space, classes in snapshot.pod_classes.items():
        known = {space: snapshot.controllers_in(space)}
        for each in classes:
            question.turn()
            for decider in deciders_of_class(each, known):
                if decider.same(workload.kind, workload.name):
                    found.add(decider.shown)
    return found


def _newest(found: RankedPods) -> Pod | None:
    """The newest pod that can be read as a whole."""
    pods = found.pods
    by_age = sorted(range(len(pods)), key=lambda i: (pods[i].created or 0, pods[i].name))
    for position in reversed(by_age):
        with suppress(CorruptValue):
            return pod_of(found.encoded[position])
    return None


def _encoded(pod: kubernetes_pb2.Pod, namespace: str) -> EncodedPod:
    if not pod.metadata.namespace:
        pod.metadata.namespace = namespace
    return EncodedPod(pod.SerializeToString(deterministic=True))


def _ranked_constraint(
    constraint: Constraint,
    spread: DeletionConstraint,
    limits: Iterable[str],
    skews: tuple[int, int],
) -> deletion_order_pb2.RankedConstraint:
    checkpoint()
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
        lowest_skew_after=skews[0],
        highest_skew_after=skews[1],
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


def _spread(
    kept: Constraint, pods: Sequence[DeletionCandidate], nodes: NodeTable, limits: frozenset[str]
) -> DeletionConstraint:
    checkpoint()
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
