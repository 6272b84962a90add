"""The scenario of a simulation: a request, checked and completed with the live state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.codec.demands import DemandReader
from topospread.codec.frames import framed
from topospread.codec.rows import decode_pod
from topospread.codec.stored import object_from_stored
from topospread.codec.stored_pods import recreated_pod
from topospread.errors import FieldViolation, InvalidRequest
from topospread.index.changes import PodRow
from topospread.index.overlay import Overlay, PodDelta
from topospread.kube.demands import holds_of
from topospread.kube.objects import TERMINAL_PHASES
from topospread.kube.violations import duplicate, invalid, required
from topospread.replica.view import Consistency, Freshness
from topospread.service.decisions.pods import check_size
from topospread.service.decisions.request import NO_OVERRIDE, PodRef
from topospread.service.simulation.batches import BatchBuilder, in_pod
from topospread.service.simulation.checks import (
    check_counts,
    check_nodes,
    check_templates,
    too_many_judged,
)
from topospread.service.simulation.notes import idle_constraints, not_made_again
from topospread.service.simulation.plans import planned
from topospread.service.simulation.request import (
    CHANGES,
)
from topospread.service.simulation.rollouts import planned_rollouts
from topospread.service.simulation.run import PodBatch
from topospread.service.simulation.workloads import (
    elsewhere,
    keys_of,
    names_of,
    pods_of,
)
from topospread.service.state.consistent_read import ConsistentRead
from topospread.store.api import get_one
from topospread.store.model import Key, Kind
from topospread_proto.v1 import scenario_pb2 as detail

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread.kube.versions import KubernetesVersion
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.request import DecisionRequest
    from topospread.service.simulation.plans import WorkloadPlan
    from topospread.service.simulation.request import SimulationQuestion
    from topospread.service.simulation.rollouts import PlannedRollout
    from topospread.service.simulation.workloads import WorkloadName, WorkloadPods
    from topospread.store.api import Reader
    from topospread_proto.kubernetes.v1 import kubernetes_pb2

FEWER: Final = "ask for fewer pods, or in several calls"


@dataclass(slots=True, eq=False)
class Scenario:
    """A checked question with the state it applies to.

    Attributes:
        view: counts what the batches need.
        version: of Kubernetes, by whose rules pods are judged.
        batches: those that are placed anew first, each a pod; then those that were asked about.
        changes: without nodes that join.
        beside: the same, but pods that rollouts take away are there.
        evicted: how many batches are pods that are placed anew.
        workloads: what is placed of those that are in the state already.
        rollouts: of these, those whose strategy is asked about.
    """

    question: SimulationQuestion
    replica: Replica
    view: View
    version: KubernetesVersion
    batches: Sequence[PodBatch]
    changes: Overlay
    beside: Overlay
    warnings: list[str] = field(default_factory=list)
    evicted: int = 0
    workloads: Sequence[WorkloadPlan] = ()
    rollouts: Sequence[PlannedRollout] = ()


class ScenarioBuilder:
    """Builds scenarios of questions."""

    def __init__(self, engine: Engine, store: Reader) -> None:
        self._engine = engine
        self._store = store
        self._demands = DemandReader()
        self._batches = BatchBuilder(engine, self._demands)

    def make(self, question: SimulationQuestion) -> Scenario:
        """Check a question against the state, and fetch what it needs.

        Raises:
            InvalidRequest: everything that is wrong with it.
            NotFound: the cluster, or a pod to place, is not there.
            Unavailable, DeadlineExceeded, RevisionUnavailable: see Replicas.resolve.
        """
        wrong: list[FieldViolation] = []
        check_counts(question, self._engine.limits, wrong)
        decision = question.decision
        try:
            self._engine.check_settings(decision.settings)
        except InvalidRequest as refused:
            wrong += refused.below("scenario")
            decision = decision._replace(settings=NO_OVERRIDE)
            question = replace(question, decision=decision)
        resolve = self._engine.replicas.resolve
        # Before any pod of the state is read.
        _, view = resolve(decision.cluster, decision.consistency, decision.deadline)
        # By its rules all is judged, though the cluster's change meanwhile.
        version = decision.settings.version or view.snapshot.version
        if question.removed:
            # What is taken away must be counted before.
            newest = Consistency(
                Freshness.FULLY_CONSISTENT, None, decision.consistency.max_staleness
            )
            decision = decision._replace(consistency=newest)
        removed = self._removed(question, wrong)
        added = self._added(question, wrong)
        batches = self._batches.of_request(question, version, wrong)
        wrong += too_many_judged("pods", batches, FEWER)
        if wrong:
            # The nodes can be looked at all the same; what is on them need not be read.
            _, view = resolve(decision.cluster, decision.consistency, decision.deadline)
            check_nodes(question, view, added, wrong)
            raise InvalidRequest.of(wrong)
        workloads = names_of(question, wrong)
        replica, view, evicted, found = self._state(question, decision, version, workloads)
        check_nodes(question, view, added, wrong)
        plans = [
            planned(of, question.message.pods[at], given)
            for at, of in sorted(found.items())
            if isinstance(given := question.pods[at].pod, bytes)
        ]
        missing = ((name, at) for name, at in workloads.items() if at not in found)
        wrong += elsewhere(self._engine, view.snapshot, question, missing)
        self._check_plans(batches, plans)
        rollouts = [*planned_rollouts(question, batches, plans, wrong)]
        replaced = {_name_of_pod(pod) for plan in plans for pod in plan.replaced}
        evicted = [each for each in evicted if (each.namespace, each.names[0]) not in replaced]
        batches = [*evicted, *self._batches.with_plans(question, version, batches, plans)]
        if evicted:
            path, advice = f"{CHANGES}.drainNodes", "drain fewer nodes, or ask for fewer pods"
        else:
            path, advice = "pods", FEWER
        wrong += too_many_judged(path, batches, advice)
        warnings = check_templates(question, view, batches, wrong)
        if wrong:
            raise InvalidRequest.of(wrong)
        judged = [pod for each in batches for pod in each.judged]
        judged += [each.judged for each in rollouts]
        view = self._engine.with_groups_counted(judged, replica, view)
        gone: list[str] = []
        emptied: list[str] = []
        for each in question.changes.drain_nodes:
            (emptied if each.mode == detail.DRAIN_MODE_TAINTED else gone).append(each.node)
        beside = Overlay(gone=gone, emptied=emptied, moves=[*added.values(), *removed])
        replaced_rows = [
            PodDelta(plan.pods.name.namespace, decode_pod(payload), -1)
            for plan in plans
            for payload in plan.replaced_payloads
        ]
        changes = replace(beside, moves=[*beside.moves, *replaced_rows])
        warnings += dict.fromkeys(idle_constraints(batches[len(evicted) :], view))
        warnings += not_made_again(evicted)
        return Scenario(
            question,
            replica,
            view,
            version,
            batches,
            changes,
            beside,
            warnings,
            evicted=len(evicted),
            workloads=plans,
            rollouts=rollouts,
        )

    # ------------------------------ parts

    def _state(
        self,
        question: SimulationQuestion,
        decision: DecisionRequest,
        version: KubernetesVersion,
        workloads: Mapping[WorkloadName, int],
    ) -> tuple[Replica, View, list[PodBatch], Mapping[int, WorkloadPods]]:
        """The state, the pods of it that are to be placed anew, and those of workloads."""
        if not question.reschedules and not workloads:
            resolve = self._engine.replicas.resolve
            return *resolve(decision.cluster, decision.consistency, decision.deadline), [], {}
        replicas = self._engine.replicas
        read = ConsistentRead.newest(
            self._store, replicas, decision.cluster, decision.consistency, decision.deadline
        )
        drained = frozenset(each.node for each in question.changes.drain_nodes)
        removed = {(each.namespace, each.name) for each in question.removed}
        batches: list[PodBatch] = []
        while True:
            of_workloads = keys_of(self._engine, workloads, read)
            on = read.pods.on(drained) if question.reschedules else ()
            keys = [Key(Kind.POD, *each) for each in on]
            if read.read([*keys, *of_workloads]):
                break
        gone = frozenset[str]() if question.reschedules else drained
        found = pods_of(workloads, of_workloads, read, gone, removed)
        for pod in read.objects(keys):
            encoded = recreated_pod(pod, drained)
            checkpoint()
            if encoded is None or _name_of(pod.key) in removed:
                continue
            shaped = self._engine.intern(framed(encoded))
            demand, _ = self._demands.of(encoded)
            # Its controller makes it anew: the API server has not stored it yet.
            new = shaped._replace(uid="")
            rules = self._engine.rules_of(new, decision._replace(validate=False), version)
            names = (pod.key.name,)
            batches.append(
                PodBatch(
                    shaped.shape, rules, demand, names, shaped.uid, recreated=True, of_crowd=True
                )
            )
        most = self._engine.limits.simulated_pods
        if len(batches) > most:
            text = f"at most {most} pods are placed anew: drain fewer nodes"
            raise InvalidRequest.of([invalid(f"{CHANGES}.drainNodes", len(batches), text)])
        return read.replica, read.view, batches, found

    def _check_plans(self, batches: Iterable[PodBatch], plans: Sequence[WorkloadPlan]) -> None:
        """Refuse more pods than a call may place, or take away, before any of them is read."""
        most = self._engine.limits.simulated_pods
        planned_pods = {plan.pods.asked: len(plan.waiting) + len(plan.numbers) for plan in plans}
        pods = sum(planned_pods.get(each.asked, len(each.names)) for each in batches)
        replaced = sum(len(plan.replaced) for plan in plans)
        for number, text in ((pods, "are placed"), (replaced, "are replaced")):
            if number > most:
                violation = invalid("pods", number, f"at most {most} pods {text}")
                raise InvalidRequest.of([violation])

    def _removed(self, question: SimulationQuestion, wrong: list[FieldViolation]) -> list[PodDelta]:
        moves: list[PodDelta] = []
        known: set[PodRef] = set()
        for number, reference in enumerate(question.removed):
            checkpoint()
            path = f"{CHANGES}.deletePods[{number}]"
            name = f"{reference.namespace}/{reference.name}"
            if reference in known:
                wrong.append(duplicate(path, name))
                continue
            known.add(reference)
            key = Key(Kind.POD, reference.namespace, reference.name)
            stored = get_one(self._store, question.decision.cluster, key)
            if stored is None or reference.uid not in ("", stored.uid):
                wrong.append(FieldViolation(path, "no such pod in the state", "Not found", name))
                continue
            moves.append(PodDelta(reference.namespace, decode_pod(stored.payload), -1))
        return moves

    def _added(
        self, question: SimulationQuestion, wrong: list[FieldViolation]
    ) -> dict[int, PodDelta]:
        """The added pods by position in the request; without those that have ended."""
        moves: dict[int, PodDelta] = {}
        seen: set[PodRef] = set()
        for number, given in enumerate(question.added):
            checkpoint()
            path = f"{CHANGES}.addPods[{number}]"
            try:
                encoded = self._engine.encoded(question.decision.cluster, given.pod)
                demand, own = self._demands.of(encoded)
                pod = framed(encoded).parse(self._engine.limits.terms)
                check_size(pod, self._engine.limits)
            except InvalidRequest as refused:
                wrong += in_pod(refused, given)
                continue
            where = question.changes.add_pods[number].node or own
            if not where:
                wrong.append(required(f"{path}.node", "say where it runs"))
                continue
            reference = PodRef(pod.name, pod.namespace)
            if pod.name and (reference in seen or self._is_there(question, reference)):
                wrong.append(duplicate(path, f"{pod.namespace}/{pod.name}"))
                continue
            seen.add(reference)
            if pod.phase in TERMINAL_PHASES:
                continue  # as in the state, where it takes up nothing any more
            labels = tuple(sorted(pod.labels.items()))
            holds = holds_of(demand, pod.namespace, pod.name)
            row = PodRow(
                labels,
                where,
                counted=not pod.terminating,
                requests=demand.requests,
                holds=holds,
            )
            moves[number] = PodDelta(pod.namespace, row, +1)
        return moves

    def _is_there(self, question: SimulationQuestion, reference: PodRef) -> bool:
        if reference in question.gone:
            return False
        key = Key(Kind.POD, reference.namespace, reference.name)
        stored = get_one(self._store, question.decision.cluster, key)
        return stored is not None and bool(object_from_stored(stored).pod.spec.node_name)


def _name_of(key: Key) -> tuple[str, str]:
    return key.namespace, key.name


def _name_of_pod(pod: kubernetes_pb2.Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name
