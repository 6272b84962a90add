"""topospread.v1.DecisionService: decode, call the use case, encode; metrics and span attributes.

Metrics carry upstream's names and labels, so that a dashboard for kube-scheduler shows this server,
too.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np

from topospread.api.decode import candidates_of, under_pod
from topospread.api.encode import Encoder, written_evaluation, written_meta
from topospread.api.envelope import (
    decision_request,
    raise_all_violations,
    shared_request,
    source_of,
)
from topospread.calls.call import Call, Encoded, Method, Unary
from topospread.calls.status import status_of
from topospread.checkpoints import checkpoint
from topospread.errors import InvalidPod, InvalidRequest, TopospreadError
from topospread.generated.internal.v1 import frames_pb2 as frames
from topospread.service.decisions.batch import evaluate_batch
from topospread.service.decisions.evaluate import Evaluation, evaluate
from topospread.service.decisions.extension_points import filter_, pre_filter, score
from topospread.spread.verdicts import SUCCESS, VERDICTS, Code, Status

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from google.rpc.status_pb2 import Status as RpcStatus

    from topospread.service.decisions.batch import BatchEvaluation
    from topospread.service.decisions.engine import Engine, ResolvedCycle
    from topospread.service.decisions.extension_points import (
        FilterResult,
        PreFilterResult,
        ScoreResult,
    )
    from topospread.service.decisions.request import DecisionRequest, PodRef
    from topospread.service.explaining.explain import ExplainResult
    from topospread.telemetry.meters import Result
    from topospread.telemetry.spans import CallSpan


class DecisionServicer:
    """Each method takes a request and a call, and raises what the use case raises."""

    def __init__(self, engine: Engine, metrics: DecisionMetrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._encoder = Encoder()

    def methods(self) -> dict[str, Method]:
        """The methods by name."""
        return {
            "PreFilter": Unary(frames.PreFilterFrame, self.pre_filter),
            "Filter": Unary(frames.FilterFrame, self.filter),
            "Score": Unary(frames.ScoreFrame, self.score),
            "EvaluatePod": Unary(frames.EvaluatePodFrame, self.evaluate),
            "BatchEvaluatePods": Unary(frames.BatchEvaluatePodsFrame, self.batch_evaluate),
        }

    def pre_filter(self, request: frames.PreFilterFrame, call: Call) -> Encoded:
        """DecisionService.PreFilter."""
        try:
            decision = decision_request(request, call)
            answer = pre_filter(self._engine, decision, with_counts=request.with_counts)
        except InvalidRequest as wrong:
            raise_all_violations(wrong, request, self._engine)
            raise
        self._metrics.pre_filtered(answer, call)
        return self._encoder.pre_filter(answer)

    def filter(self, request: frames.FilterFrame, call: Call) -> Encoded:
        """DecisionService.Filter."""
        try:
            decision = self._narrowed(request, call)
            answer = filter_(self._engine, decision)
        except InvalidRequest as wrong:
            raise_all_violations(wrong, request, self._engine)
            raise
        self._metrics.filtered(answer, call)
        return self._encoder.filter(answer, request.node_table_id)

    def score(self, request: frames.ScoreFrame, call: Call) -> Encoded:
        """DecisionService.Score."""
        try:
            decision = self._narrowed(request, call)
            answer = score(self._engine, decision)
        except InvalidRequest as wrong:
            raise_all_violations(wrong, request, self._engine)
            raise
        self._metrics.scored(answer, call)
        return self._encoder.score(answer, request.node_table_id)

    def evaluate(self, request: frames.EvaluatePodFrame, call: Call) -> Encoded:
        """DecisionService.EvaluatePod."""
        nodes = candidates_of(request.candidates) if request.HasField("candidates") else None
        try:
            decision = decision_request(request, call, nodes=nodes)
            answer = evaluate(self._engine, decision, request.top_k)
        except InvalidRequest as wrong:
            raise_all_violations(wrong, request, self._engine)
            raise
        self._metrics.evaluated(answer, call)
        resolved, kept = answer.resolved, answer.kept
        view, replica, version = resolved.cycle.view, resolved.replica, resolved.cycle.rules.version
        meta = view.meta
        if replica.health.stale_since is not None or version != view.snapshot.version:
            meta = written_meta(view, replica, version)
        if kept is not None and kept.encoded:
            return Encoded(kept.encoded, meta)
        return Encoded(written_evaluation(answer, request.top_k), meta)

    def batch_evaluate(self, request: frames.BatchEvaluatePodsFrame, call: Call) -> Encoded:
        """DecisionService.BatchEvaluatePods."""
        pods = [_pod_or_error(pod, f"pods[{number}]") for number, pod in enumerate(request.pods)]
        try:
            decision = shared_request(request, call)
            batch = evaluate_batch(self._engine, decision, pods, request.top_k)
        except InvalidRequest as wrong:
            raise_all_violations(wrong, request, self._engine)
            raise
        answers = _with_statuses(request, batch.answers)
        encoded = self._encoder.batch(
            batch.view, batch.replica, batch.version, answers, request.top_k
        )
        # Now that nothing can have it begun again.
        self._metrics.batch_evaluated(decision.cluster, batch, call)
        return encoded

    def _narrowed(
        self, request: frames.FilterFrame | frames.ScoreFrame, call: Call
    ) -> DecisionRequest:
        return decision_request(
            request,
            call,
            cycle=request.cycle,
            nodes=candidates_of(request.candidates) if request.HasField("candidates") else None,
            node_table=request.node_table_id,
        )


def _with_statuses(
    request: frames.BatchEvaluatePodsFrame, answers: Sequence[Evaluation | TopospreadError]
) -> Iterator[Evaluation | RpcStatus]:
    """The answers of a batch, with the statuses that its errors would be alone."""
    for number, answer in enumerate(answers):
        checkpoint()
        if isinstance(answer, InvalidPod):
            yield status_of(under_pod(answer, request.pods[number], f"pods[{number}]"))
        elif isinstance(answer, TopospreadError):
            yield status_of(answer)
        else:
            yield answer


def _pod_or_error(pod: frames.PodSourceFrame, path: str) -> bytes | PodRef | InvalidRequest:
    try:
        return source_of(pod, path)
    except InvalidRequest as refused:
        return refused


# ------------------------------ metrics and span attributes

_SUCCESS: Final = Code.SUCCESS.label


class PointCounter(Protocol):
    """Counts the runs of one extension point under one profile."""

    def observe(self, status: str, seconds: float) -> None:
        """A run took so long and ended with the framework's status."""


class DecisionCounters(Protocol):
    """Where decisions are counted; :class:`~topospread.telemetry.metrics.Metrics` is one."""

    def extension_point(self, point: str, profile: str) -> PointCounter:
        """The counter of an extension point (upstream's name) under a profile."""
        ...

    def attempt(self, result: Result, profile: str) -> None:
        """A pod was judged as a whole."""


class _ProfileMeters:
    __slots__ = ("filter", "pre_filter", "pre_score", "score")

    def __init__(self, metrics: DecisionCounters, profile: str) -> None:
        self.pre_filter = metrics.extension_point("PreFilter", profile)
        self.filter = metrics.extension_point("Filter", profile)
        self.pre_score = metrics.extension_point("PreScore", profile)
        self.score = metrics.extension_point("Score", profile)


class DecisionMetrics:
    """Records decisions in metrics and spans."""

    def __init__(self, metrics: DecisionCounters) -> None:
        self._metrics = metrics
        self._by_profile: dict[str, _ProfileMeters] = {}

    def pre_filtered(self, result: PreFilterResult, call: Call) -> None:
        """After DecisionService.PreFilter."""
        meters = self._meters(result.resolved)
        meters.pre_filter.observe(result.status.code.label, result.resolved.timings.pre_filter)
        if call.span.recording:
            _describe(call.span, result.resolved, result.status)

    def filtered(self, result: FilterResult, call: Call) -> None:
        """After DecisionService.Filter."""
        meters = self._meters(result.resolved)
        meters.filter.observe(result.status.code.label, result.resolved.timings.filter)
        if call.span.recording:
            _describe(call.span, result.resolved, result.status)
            counts = np.bincount(result.verdicts, minlength=len(VERDICTS)).tolist()
            _describe_verdicts(call.span, sum(counts), zip(VERDICTS, counts, strict=True))

    def scored(self, result: ScoreResult, call: Call) -> None:
        """After DecisionService.Score."""
        meters, label = self._meters(result.resolved), result.status.code.label
        meters.pre_score.observe(label, result.resolved.timings.pre_score)
        if result.scores is not None:
            meters.score.observe(label, result.resolved.timings.score)
        if call.span.recording:
            _describe(call.span, result.resolved, result.status)
            scored = 0 if result.scores is None else result.scores.raw.size
            call.span.set("topospread.nodes", int(scored))

    def evaluated(self, result: Evaluation, call: Call) -> None:
        """After DecisionService.EvaluatePod."""
        self._count(result)
        if call.span.recording:
            _describe(call.span, result.resolved, result.pre_filter)
            _describe_verdicts(call.span, result.nodes, result.verdicts)

    def explained(self, result: ExplainResult, call: Call) -> None:
        """After DecisionService.ExplainPod, which is no scheduling attempt."""
        if call.span.recording:
            found = result.response.explanation
            _describe(call.span, result.resolved, result.resolved.cycle.pre_filter_status)
            call.span.set("topospread.nodes", found.node_count)
            call.span.set("topospread.feasible", found.fitting_node_count)
            call.span.set("topospread.suggestions", len(found.suggestions))

    def batch_evaluated(self, cluster: str, batch: BatchEvaluation, call: Call) -> None:
        """After DecisionService.BatchEvaluatePods."""
        evaluated = [result for result in batch.answers if isinstance(result, Evaluation)]
        for result in evaluated:
            self._count(result)
        if call.span.recording:
            results = Counter(map(_result, evaluated))
            call.span.set_many(
                {
                    "topospread.cluster": cluster,
                    "topospread.revision": batch.view.token,
                    "topospread.pods": len(batch.answers),
                    "topospread.pods.refused": len(batch.answers) - len(evaluated),
                    **{f"topospread.pods.{result}": count for result, count in results.items()},
                }
            )

    def _count(self, result: Evaluation) -> None:
        meters, stages = self._meters(result.resolved), result.resolved.timings
        pre_filter, feasible = result.pre_filter.code, result.feasible
        meters.pre_filter.observe(pre_filter.label, stages.pre_filter)
        if pre_filter is Code.SUCCESS:
            meters.filter.observe(_filter_status(result).code.label, stages.filter)
        if feasible:
            meters.pre_score.observe(result.pre_score.code.label, stages.pre_score)
            if result.pre_score.code is Code.SUCCESS:
                meters.score.observe(_SUCCESS, stages.score)
        self._metrics.attempt(_result(result), _profile(result.resolved))

    def _meters(self, resolved: ResolvedCycle) -> _ProfileMeters:
        profile = _profile(resolved)
        meters = self._by_profile.get(profile)
        if meters is None:
            # Profiles are few: the configuration's, and one for arguments given in requests.
            meters = self._by_profile[profile] = _ProfileMeters(self._metrics, profile)
        return meters


def _profile(resolved: ResolvedCycle) -> str:
    return resolved.cycle.rules.profile.name


def _filter_status(result: Evaluation) -> Status:
    """Success when a node passed; otherwise what most nodes got."""
    return SUCCESS if result.feasible or not result.verdicts else result.verdicts[0][0]


def _result(result: Evaluation) -> Result:
    if result.pre_filter.code is Code.ERROR:
        return "error"
    return "scheduled" if result.feasible else "unschedulable"


def _describe(span: CallSpan, resolved: ResolvedCycle, status: Status) -> None:
    cycle, stages = resolved.cycle, resolved.timings
    hard, soft = cycle.constraints.hard.constraints, cycle.constraints.soft.constraints
    span.set_many(
        {
            "topospread.cluster": cycle.cluster,
            "topospread.revision": cycle.view.token,
            "topospread.revision.number": cycle.view.revision.number,
            "topospread.profile": cycle.rules.profile.name,
            "topospread.status": status.code.label,
            "topospread.constraints.hard": [c.topology_key for c in hard],
            "topospread.constraints.soft": [c.topology_key for c in soft],
            "topospread.constraints.defaulted": cycle.constraints.defaulted,
            "topospread.nodes.seen": cycle.view.snapshot.node_count,
            "topospread.stale_for_s": resolved.replica.stale_for,
        }
    )
    for name in ("resolve", "pre_filter", "filter", "pre_score", "score"):
        seconds = getattr(stages, name)
        if seconds:
            span.stage(name, seconds)


def _describe_verdicts(span: CallSpan, judged: int, counts: Iterable[tuple[Status, int]]) -> None:
    by_code: Counter[Code] = Counter()
    for status, nodes in counts:
        by_code[status.code] += nodes
    span.set("topospread.nodes", judged)
    span.set("topospread.feasible", by_code[Code.SUCCESS])
    for code, nodes in by_code.items():
        if nodes:
            span.set(f"topospread.verdicts.{code.label}", nodes)
