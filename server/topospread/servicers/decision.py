"""topospread.v1.DecisionService: decode, call the use case, encode."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import InvalidPod, InvalidRequest, TopospreadError
from topospread.generated.internal.v1 import frames_pb2 as frames
from topospread.kube.violations import required
from topospread.service.decisions.evaluate import evaluate, evaluate_batch
from topospread.service.decisions.extension_points import filter_, pre_filter, score
from topospread.servicers.calls import (
    DEFAULT_DEADLINE,
    BidiStreaming,
    Call,
    Method,
    OversizedRequest,
    Unary,
    parse,
)
from topospread.servicers.decode import (
    batch_request,
    candidates_of,
    decision_request,
    source_of,
    under_pod,
)
from topospread.servicers.encode import Encoder, stream_answer
from topospread.servicers.limits import too_large
from topospread.servicers.request_fields import raise_all_violations
from topospread.servicers.status import status_of
from topospread.threads.turns import decided

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.evaluate import Evaluation
    from topospread.service.decisions.request import DecisionRequest, PodRef
    from topospread.servicers.decision_metrics import DecisionMetrics
    from topospread.servicers.status import RpcStatus
    from topospread_proto.v1 import decision_service_pb2 as pb

SERVICE: Final = "topospread.v1.DecisionService"

_ID: Final = b"\x08"
_LATER: Final = (b"\x12", b"\x1a", b"\x22")
"""Tags of the fields of a request of a stream; an id of 0 is not written."""


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
            "StreamEvaluatePods": (
                BidiStreaming(frames.StreamEvaluatePodsFrame, self.evaluate_streamed),
                "decisions",
            ),
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

    def evaluate_streamed(
        self, received: frames.StreamEvaluatePodsFrame | OversizedRequest, call: Call
    ) -> bytes:
        """DecisionService.StreamEvaluatePods: one request; its failure is its answer.

        Raises:
            TooLarge: the request is, and its id is not known.
        """
        assert call.start_request_span is not None, "the pipeline of a stream starts spans"
        request = _id_only(received) if isinstance(received, OversizedRequest) else received
        span = call.start_request_span(request.traceparent, request.tracestate)
        one = Call(span, min(call.deadline, time.monotonic() + DEFAULT_DEADLINE), call.active)
        try:
            if isinstance(received, OversizedRequest):
                if call.permit is not None:
                    call.permit(None)
                raise too_large(received.limit)
            if not request.evaluate:
                raise InvalidRequest.of([required("evaluate", "a question that this server knows")])
            raw = b"".join(request.evaluate)
            if call.permit is not None:
                call.permit(raw)
            evaluate_request = parse(frames.EvaluatePodFrame, raw)
            answer = decided(
                partial(self.evaluate, evaluate_request, one),
                one.time_left,
                one.deadline,
                one.active,
            )
        except Exception as error:  # noqa: BLE001 - a request that fails does not end its stream
            status = status_of(error, span.traceparent)
            span.end(status.code.value[0], error)
            error_bytes = status.proto().SerializeToString()
            return stream_answer(request.id, b"", error_bytes, span.traceparent)
        span.end(0)
        return stream_answer(request.id, answer, b"", span.traceparent)

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


def _id_only(oversized: OversizedRequest) -> frames.StreamEvaluatePodsFrame:
    """A request with nothing but its id, which stands first: libraries write fields in order.

    Raises:
        TooLarge: it begins otherwise.
    """
    tag, rest = oversized.prefix[:1], oversized.prefix[1:]
    if tag == _ID:
        for size, byte in enumerate(rest[:10], 2):
            if byte < 0x80:
                return frames.StreamEvaluatePodsFrame.FromString(oversized.prefix[:size])
    elif tag and tag in _LATER:
        return frames.StreamEvaluatePodsFrame()
    raise too_large(oversized.limit)


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
