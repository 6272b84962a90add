"""topospread.v1.DecisionService: decode, call the use case, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import InvalidPod, InvalidRequest, TopospreadError
from topospread.generated.internal.v1 import frames_pb2 as frames
from topospread.service.decisions.evaluate import evaluate, evaluate_batch
from topospread.service.decisions.extension_points import filter_, pre_filter, score
from topospread.servicers.calls import (
    Call,
    Method,
    Unary,
)
from topospread.servicers.decode import (
    batch_request,
    candidates_of,
    decision_request,
    source_of,
    under_pod,
)
from topospread.servicers.encode import Encoder
from topospread.servicers.request_fields import raise_all_violations
from topospread.servicers.status import status_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.evaluate import Evaluation
    from topospread.service.decisions.request import DecisionRequest, PodRef
    from topospread.servicers.decision_metrics import DecisionMetrics
    from topospread.servicers.status import RpcStatus
    from topospread_proto.v1 import decision_service_pb2 as pb

SERVICE: Final = "topospread.v1.DecisionService"


class DecisionServicer:
    """Each method takes a request and a call, and raises what the use case raises."""

    def __init__(self, engine: Engine, metrics: DecisionMetrics) -> None:
        self._engine = engine
        self._metrics = metrics
        self._encoder = Encoder()

    def methods(self) -> dict[str, tuple[Method, str]]:
        """The methods by name, with the pool that each runs on."""
        return {
            "PreFilter": (Unary(frames.PreFilterFrame, self.pre_filter), "decisions"),
            "Filter": (Unary(frames.FilterFrame, self.filter), "decisions"),
            "Score": (Unary(frames.ScoreFrame, self.score), "decisions"),
            "EvaluatePod": (Unary(frames.EvaluatePodFrame, self.evaluate), "decisions"),
            "BatchEvaluatePods": (
                Unary(frames.BatchEvaluatePodsFrame, self.batch_evaluate),
                "decisions",
            ),
        }

    def pre_filter(self, request: frames.PreFilterFrame, call: Call) -> pb.PreFilterResponse:
        """DecisionService.PreFilter."""
        try:
            decision = decision_request(request, call)
            answer = pre_filter(self._engine, decision, with_counts=request.with_counts)
        except InvalidRequest as wrong:
            raise_all_violations(wrong, request, self._engine)
            raise
        self._metrics.pre_filtered(answer, call)
        return self._encoder.pre_filter(answer)

    def filter(self, request: frames.FilterFrame, call: Call) -> bytes:
        """DecisionService.Filter."""
        try:
            decision = self._narrowed(request, call)
            answer = filter_(self._engine, decision)
        except InvalidRequest as wrong:
            raise_all_violations(wrong, request, self._engine)
            raise
        self._metrics.filtered(answer, call)
        return self._encoder.filter(answer, request.node_table_id)

    def score(self, request: frames.ScoreFrame, call: Call) -> bytes:
        """DecisionService.Score."""
        try:
            decision = self._narrowed(request, call)
            answer = score(self._engine, decision)
        except InvalidRequest as wrong:
            raise_all_violations(wrong, request, self._engine)
            raise
        self._metrics.scored(answer, call)
        return self._encoder.score(answer, request.node_table_id)

    def evaluate(self, request: frames.EvaluatePodFrame, call: Call) -> bytes:
        """DecisionService.EvaluatePod."""
        nodes = candidates_of(request.candidates) if request.HasField("candidates") else None
        try:
            decision = decision_request(request, call, nodes=nodes)
            answer = evaluate(self._engine, decision, request.top_k)
        except InvalidRequest as wrong:
            raise_all_violations(wrong, request, self._engine)
            raise
        self._metrics.evaluated(answer, call)
        return self._encoder.evaluation(answer, request.top_k)

    def batch_evaluate(self, request: frames.BatchEvaluatePodsFrame, call: Call) -> bytes:
        """DecisionService.BatchEvaluatePods."""
        pods = [_pod_or_error(pod, f"pods[{number}]") for number, pod in enumerate(request.pods)]
        try:
            decision = batch_request(request, call)
            batch = evaluate_batch(self._engine, decision, pods, request.top_k)
        except InvalidRequest as wrong:
            raise_all_violations(wrong, request, self._engine)
            raise
        self._metrics.batch_evaluated(decision.cluster, batch, call)
        answers = _with_statuses(request, batch.answers)
        return self._encoder.batch(batch.view, batch.replica, answers, request.top_k)

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
    """A pod of a batch, or its error."""
    try:
        return source_of(pod, path)
    except InvalidRequest as refused:
        return refused
