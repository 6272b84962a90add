"""BatchEvaluatePods: pods that are judged at one revision, each on its own."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.cache import LARGEST_KEY
from topospread.checkpoints import checkpoint, will_take_long
from topospread.errors import FieldViolation, InvalidRequest, NotFound, TopospreadError
from topospread.service.decisions.engine import Engine, ResolvedCycle
from topospread.service.decisions.evaluate import Evaluation, check_top_k, judge_cycle
from topospread.service.decisions.pods import JudgedPod, read_pod
from topospread.service.decisions.request import PodRef, StageTimings

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from topospread.codec.frames import FramedPod
    from topospread.index.snapshot import Snapshot
    from topospread.kube.versions import KubernetesVersion
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.decisions.pods import EffectiveConstraints
    from topospread.service.decisions.request import DecisionRequest

FEW_NODES: Final = 1250
"""Nodes below which a constraint costs the same however few they are."""


@dataclass(frozen=True, slots=True)
class BatchEvaluation:
    """The result of BatchEvaluatePods.

    Attributes:
        view: all pods were judged by it.
        version: and by the rules of this Kubernetes version.
    """

    replica: Replica
    view: View
    version: KubernetesVersion
    answers: Sequence[Evaluation | TopospreadError]


def evaluate_batch(
    engine: Engine,
    request: DecisionRequest,
    pods: Sequence[bytes | PodRef | InvalidRequest],
    top_k: int = 0,
) -> BatchEvaluation:
    """Judge several pods at one revision, each on its own: one's bad input fails no other.

    Raises:
        InvalidRequest: more pods than the limit, or more to judge than one batch may ask for.
        NotFound, Unavailable, DeadlineExceeded: the cluster cannot be asked at all.
    """
    if len(pods) > engine.limits.batch_pods:
        text = f"{len(pods)} in one batch, at most {engine.limits.batch_pods}: split it"
        raise InvalidRequest.at("pods", text, "Too many")
    check_top_k(engine, top_k)
    engine.check_settings(request.settings)  # what is wrong with them is no pod's mistake
    replica, view, version, cycles = _cycles(engine, request, pods)
    judged: dict[tuple[EffectiveConstraints, Snapshot], Evaluation] = {}
    answers: list[Evaluation | TopospreadError] = []
    for begun in cycles:
        checkpoint()
        if isinstance(begun, TopospreadError):
            answers.append(begun)
            continue
        # Pods of one shape are judged once, unless something is held for one of them.
        same = begun.cycle.effective, begun.cycle.view.snapshot
        known = judged.get(same)
        if known is None:
            known = judged[same] = judge_cycle(engine, begun, request, top_k)
            answers.append(known)
        else:
            answers.append(Evaluation(begun, *known.parts))
    return BatchEvaluation(replica, view, version, answers)


def _cycles(
    engine: Engine, request: DecisionRequest, pods: Sequence[bytes | PodRef | InvalidRequest]
) -> tuple[Replica, View, KubernetesVersion, Sequence[ResolvedCycle | InvalidRequest | NotFound]]:
    """A state, a version, and for each pod a new cycle at it or the error of this pod alone."""
    if any(isinstance(pod, PodRef) for pod in pods):
        will_take_long()  # the store is asked for it
    replica, view = engine.replicas.resolve(request.cluster, request.consistency, request.deadline)
    version = request.settings.version or view.snapshot.version
    read = _read(engine, request.cluster, pods, view.snapshot.node_count)
    asked: list[JudgedPod | InvalidRequest | NotFound] = []
    for given in read:
        if isinstance(given, TopospreadError):
            asked.append(given)
            continue
        try:
            pod = engine.intern(given)
            asked.append(JudgedPod(pod, engine.rules_of(pod, request, version)))
        except (InvalidRequest, NotFound) as refused:
            asked.append(refused)
    readable = [each for each in asked if not isinstance(each, TopospreadError)]
    _check_groups(engine, readable, view.snapshot)
    view = engine.with_groups_counted(readable, replica, view)
    snapshot = view.snapshot
    cycles: list[ResolvedCycle | InvalidRequest | NotFound] = []
    for each in asked:
        if isinstance(each, TopospreadError):
            cycles.append(each)
            continue
        pod, rules, _ = each
        effective = pod.shape.effective_constraints(rules, snapshot)
        cycle = engine.cycle_at(pod, rules, effective, request, view)
        cycles.append(ResolvedCycle(cycle, replica, StageTimings()))
    return replica, view, version, cycles


def _read(
    engine: Engine,
    cluster: str,
    pods: Sequence[bytes | PodRef | InvalidRequest],
    node_count: int,
) -> Sequence[FramedPod | InvalidRequest | NotFound]:
    """The pods of a batch as far as their shapes, which are few and small enough."""
    most = max(1, engine.limits.batch_cells // max(node_count, FEW_NODES))
    shapes: set[Hashable] = set()
    different = judged = size = conditions = 0
    read: list[FramedPod | InvalidRequest | NotFound] = []
    for position, given in enumerate(pods):
        checkpoint()
        try:
            if isinstance(given, InvalidRequest):
                raise given
            pod = read_pod(engine.encoded(cluster, given))
        except (InvalidRequest, NotFound) as refused:
            read.append(refused)
            continue
        read.append(pod)
        # A large one is not kept: each is parsed and judged by itself.
        if pod.key in shapes and pod.size <= LARGEST_KEY:
            continue
        shapes.add(pod.key)
        different += 1
        judged += 1 + pod.constraints
        size += pod.size
        if len(pods) > 1 and not engine.knows(pod):
            conditions += pod.conditions(engine.limits.batch_conditions - conditions)
        if different == 1:
            continue  # one pod is bounded by the limits for a pod
        if judged > most:
            raise _to_be_split(
                f"different pods and their constraints are more than {most}, the most of one "
                f"batch for {node_count} nodes",
                position,
            )
        if size > engine.limits.batch_bytes:
            raise _to_be_split(
                "labels, tolerations, affinity and constraints of different pods are more "
                f"than {engine.limits.batch_bytes} bytes in one batch",
                position,
            )
        if conditions > engine.limits.batch_conditions:
            raise _to_be_split(
                "expressions of different pods (each as 5), their values, selected labels and "
                f"tolerations are more than {engine.limits.batch_conditions} in one batch",
                position,
            )
    return read


def _check_groups(engine: Engine, asked: Sequence[JudgedPod], snapshot: Snapshot) -> None:
    """Refuse a batch that has more counted at once than may be kept."""
    if len(asked) <= 1:
        return
    all_effective = {pod.shape.effective_constraints(rules, snapshot) for pod, rules, _ in asked}
    if sum([len(effective.groups) for effective in all_effective]) <= engine.limits.groups:
        return
    groups = {group for effective in all_effective for group in effective.groups}
    if len(groups) > engine.limits.groups:
        raise _to_be_split(
            f"the constraints of one batch have {len(groups)} different selectors, at most "
            f"{engine.limits.groups} are counted"
        )


def _to_be_split(why: str, first: int = 0) -> InvalidRequest:
    """The reason why a batch is too much, and how many of its first pods are not, if known."""
    advice = f"split it, the first {first} are not too many" if first else "split it"
    return InvalidRequest.of([FieldViolation("pods", f"{why}: {advice}", "Too many")])
