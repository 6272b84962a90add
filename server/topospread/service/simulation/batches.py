"""The pods of a simulation, in batches that are alike: of a request, and of workloads' plans."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.codec.frames import framed
from topospread.codec.stored import object_from_stored
from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.objects import TERMINAL_PHASES
from topospread.kube.violations import invalid
from topospread.service.decisions.pods import PodShape, ShapedPod, check_size
from topospread.service.decisions.request import PodRef
from topospread.service.simulation.plans import first_number
from topospread.service.simulation.request import changed_constraints, unused_changes
from topospread.service.simulation.run import PodBatch
from topospread.service.simulation.workloads import POD
from topospread_client import ORDINAL_LABELS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topospread.codec.demands import DemandReader
    from topospread.kube.versions import KubernetesVersion
    from topospread.service.decisions.engine import Engine
    from topospread.service.simulation.plans import WorkloadPlan
    from topospread.service.simulation.request import GivenPod, SimulationQuestion

UNNAMED: Final = "pod"

_NUMBERED: Final = re.compile(r"^(.*?)(\d{1,9})$")


class BatchBuilder:
    """Makes batches of pods."""

    def __init__(self, engine: Engine, demands: DemandReader) -> None:
        self._engine = engine
        self._demands = demands

    def of_request(
        self,
        question: SimulationQuestion,
        version: KubernetesVersion,
        wrong: list[FieldViolation],
    ) -> list[PodBatch]:
        """The pods that a request asks about; what is wrong with them is added to `wrong`."""
        batches: list[PodBatch] = []
        used: set[int] = set()
        for position, asked in enumerate(question.message.pods):
            checkpoint()
            given = question.pods[position]
            encoded = self._encoded(question, given, wrong)
            if encoded is None:
                continue
            replicas = asked.replicas if asked.HasField("replicas") else None
            try:
                batch = self._batch(question, version, given, replicas, encoded, used)
            except InvalidRequest as refused:
                wrong += in_pod(refused, given)
                continue
            batches.append(replace(batch, asked=position))
        if len(batches) == len(question.pods):
            wrong += unused_changes(question.changes.constraint_changes, used)
        return batches

    def _batch(
        self,
        question: SimulationQuestion,
        version: KubernetesVersion,
        given: GivenPod,
        replicas: int | None,
        encoded: bytes,
        used: set[int],
        numbers: Sequence[int] | None = None,
    ) -> PodBatch:
        shaped = self._engine.intern(framed(encoded))
        demand, _ = self._demands.of(encoded)
        shape = shaped.shape
        if question.changes.constraint_changes:
            pod = changed_constraints(shape.pod, question.changes.constraint_changes, used)
            check_size(pod, self._engine.limits)
            shape = PodShape(pod)
        if numbers is None:
            first = first_number(shape.pod.labels) or 0
            numbers = range(first, first + (1 if replicas is None else replicas))
        alone = replicas is None and bool(shaped.name)
        names = [shaped.name] if alone else _names(given, numbers, shaped)
        uid = shaped.uid if names == [shaped.name] else ""
        rules = self._engine.rules_of(ShapedPod(shape, "", uid), question.decision, version)
        numbered = () if shaped.name else _numbered(shape, numbers)
        recreated = isinstance(given.pod, PodRef) and given.pod in question.gone
        return PodBatch(
            numbered[0] if numbered else shape,
            rules,
            demand,
            names,
            uid,
            recreated=recreated,
            numbered=numbered[1:] and numbered,
        )

    def _encoded(
        self, question: SimulationQuestion, given: GivenPod, wrong: list[FieldViolation]
    ) -> bytes | None:
        if isinstance(given.pod, bytes):
            return given.pod
        reference = given.pod
        pod = object_from_stored(self._engine.stored(question.decision.cluster, reference)).pod
        ended = pod.status.phase in TERMINAL_PHASES
        if (ended or pod.spec.node_name) and reference not in question.gone:
            there = f"has ended ({pod.status.phase})" if ended else f"runs on {pod.spec.node_name}"
            text = f"it {there}: delete it in the same request to {'make' if ended else 'move'} it"
            wrong.append(invalid(given.path, f"{reference.namespace}/{reference.name}", text))
            return None
        if reference in question.gone:
            pod.ClearField("status")
        pod.spec.node_name = ""  # it may go elsewhere
        return pod.SerializeToString()

    def with_plans(
        self,
        question: SimulationQuestion,
        version: KubernetesVersion,
        batches: Sequence[PodBatch],
        plans: Iterable[WorkloadPlan],
    ) -> list[PodBatch]:
        """The batches, with what is to be placed of workloads in place of all their replicas."""
        by_position = {plan.pods.asked: plan for plan in plans}
        named = {each.pod for each in question.pods if isinstance(each.pod, PodRef)}
        taken = {(each.namespace, each.name) for each in named}
        found: list[PodBatch] = []
        for batch in batches:
            plan = by_position.get(batch.asked)
            if plan is None:
                found.append(batch)
                continue
            found += self._planned(question, version, batch, plan, taken)
        return found

    def _planned(
        self,
        question: SimulationQuestion,
        version: KubernetesVersion,
        batch: PodBatch,
        plan: WorkloadPlan,
        taken: set[tuple[str, str]],
    ) -> Iterator[PodBatch]:
        given = question.pods[batch.asked]
        # Pods of the state are taken as they are.
        lenient = replace(question, decision=question.decision._replace(validate=False))
        for pod in plan.waiting:
            checkpoint()
            name = pod.metadata.namespace, pod.metadata.name
            if name in taken:
                continue
            taken.add(name)
            encoded = pod.SerializeToString()
            of_state = given._replace(pod=encoded)
            made = self._batch(lenient, version, of_state, None, encoded, set())
            yield replace(made, asked=batch.asked, of_crowd=True)
        is_pod = plan.pods.name.kind == POD
        own = plan.pods.name.namespace, plan.pods.name.name
        if not plan.numbers or (is_pod and own in taken):
            return
        encoded = plan.template.SerializeToString()
        replicas = None if is_pod else len(plan.numbers)
        of_template = given._replace(pod=encoded)
        made = self._batch(question, version, of_template, replicas, encoded, set(), plan.numbers)
        if is_pod:
            taken.add(own)
        yield replace(made, asked=batch.asked, of_crowd=True)


def _names(given: GivenPod, numbers: Iterable[int], pod: ShapedPod) -> list[str]:
    """The names of pods by their numbers."""
    begin = f"{pod.name}-" if pod.name else given.generate_name or f"{UNNAMED}-"
    return [f"{begin}{number}" for number in numbers]


def _numbered(first: PodShape, numbers: Sequence[int]) -> Sequence[PodShape]:
    """The shapes of a workload's pods by their numbers, where labels have these; else none."""
    labels = first.pod.labels
    found = {label: _NUMBERED.match(labels[label]) for label in ORDINAL_LABELS & labels.keys()}
    begins = {label: match[1] for label, match in found.items() if match}
    if not begins:
        return ()
    shapes = []
    for number in numbers:
        checkpoint()
        own = {label: f"{begin}{number}" for label, begin in begins.items()}
        same = all(labels[label] == text for label, text in own.items())
        shapes.append(first if same else PodShape(replace(first.pod, labels={**labels, **own})))
    return shapes


def in_pod(refused: InvalidRequest, given: GivenPod) -> Sequence[FieldViolation]:
    """What is wrong with a pod of a request, by its path there."""
    named = isinstance(given.pod, PodRef)
    return (refused.named(given.path) if named else refused.under(given.path)).violations
