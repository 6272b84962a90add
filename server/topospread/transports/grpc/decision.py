"""topospread.v1.DecisionService: decode, call the use case, encode."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import InvalidPod, InvalidRequest, TopospreadError
from topospread.generated.internal.v1 import frames_pb2 as frames
from topospread.kube.violations import required
from topospread.service.evaluate import Evaluation, evaluate, evaluate_batch
from topospread.service.filter import filter_
from topospread.service.pre_filter import pre_filter
from topospread.service.score import score
from topospread.transports.grpc.calls import (
    DEFAULT_DEADLINE,
    Call,
    Method,
    StreamBoth,
    Unary,
    Unread,
    parse,
)
from topospread.transports.grpc.decode import (
    ask_of,
    batch_ask_of,
    candidates_of,
    in_pod,
    source_of,
)
from topospread.transports.grpc.encode import Encoder, meta_of, stream_answer
from topospread.transports.grpc.failures import failure_of
from topospread.transports.grpc.mistakes import tell_everything
from topospread.transports.grpc.packing import too_large
from topospread.transports.grpc.pool import decided
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.service.asks import Ask, PodRef
    from topospread.service.engine import Engine
    from topospread.transports.grpc.observe import Observer

SERVICE: Final = "topospread.v1.DecisionService"

_ID: Final = b"\x08"
_LATER: Final = (b"\x12", b"\x1a", b"\x22")
"""Tags of the fields of a question of a stream; an id of 0 is not written."""


class DecisionServicer:
    """Each method takes a request and a call, and raises what the use case raises."""

    def __init__(self, engine: Engine, observer: Observer) -> None:
        self._engine = engine
        self._observer = observer
        self._encoder = Encoder()

    def methods(self) -> dict[str, tuple[Method, str]]:
        """The methods by name, with the pool that each runs on."""
        return {
            "PreFilter": (Unary(frames.PreFilterFrame, self.pre_filter), "decisions"),
            "Filter": (Unary(frames.FilterFrame, self.filter), "decisions"),
            "Score": (Unary(frames.ScoreFrame, self.score), "decisions"),
            "EvaluatePod": (Unary(frames.EvaluatePodFrame, self.evaluate), "decisions"),
            "StreamEvaluatePods": (
                StreamBoth(frames.StreamEvaluatePodsFrame, self.evaluate_stream),
                "streams",
            ),
            "BatchEvaluatePods": (
                Unary(frames.BatchEvaluatePodsFrame, self.batch_evaluate),
                "decisions",
            ),
        }

    def pre_filter(self, request: frames.PreFilterFrame, call: Call) -> pb.PreFilterResponse:
        """DecisionService.PreFilter."""
        try:
            ask = ask_of(request, call, self._engine)
            answer = pre_filter(self._engine, ask, with_counts=request.with_counts)
        except InvalidRequest as wrong:
            tell_everything(wrong, request, self._engine)
            raise
        self._observer.pre_filtered(answer, ask, call)
        return self._encoder.pre_filter(answer)

    def filter(self, request: frames.FilterFrame, call: Call) -> bytes:
        """DecisionService.Filter."""
        try:
            ask = self._narrowed(request, call)
            answer = filter_(self._engine, ask)
        except InvalidRequest as wrong:
            tell_everything(wrong, request, self._engine)
            raise
        self._observer.filtered(answer, ask, call)
        return self._encoder.filter(answer, request.node_table_id)

    def score(self, request: frames.ScoreFrame, call: Call) -> bytes:
        """DecisionService.Score."""
        try:
            ask = self._narrowed(request, call)
            answer = score(self._engine, ask)
        except InvalidRequest as wrong:
            tell_everything(wrong, request, self._engine)
            raise
        self._observer.scored(answer, ask, call)
        return self._encoder.score(answer, request.node_table_id)

    def evaluate(self, request: frames.EvaluatePodFrame, call: Call) -> bytes:
        """DecisionService.EvaluatePod."""
        nodes = candidates_of(request.candidates) if request.HasField("candidates") else None
        try:
            ask = ask_of(request, call, self._engine, nodes=nodes)
            answer = evaluate(self._engine, ask, request.top_k)
        except InvalidRequest as wrong:
            tell_everything(wrong, request, self._engine)
            raise
        self._observer.evaluated(answer, ask, call)
        return self._encoder.evaluation(answer, request.top_k)

    def evaluate_stream(
        self, requests: Iterator[frames.StreamEvaluatePodsFrame | Unread], call: Call
    ) -> Iterator[bytes]:
        """DecisionService.StreamEvaluatePods; a question that fails is answered with its error.

        Raises:
            TooLarge: that was one, and which cannot be told.
        """
        for request in requests:
            yield self._asked(request, call)
            if not call.active():
                return

    def _asked(self, asked: frames.StreamEvaluatePodsFrame | Unread, call: Call) -> bytes:
        """The answer to one question."""
        assert call.question is not None, "the frame of a stream starts spans for its questions"
        request = _numbered(asked) if isinstance(asked, Unread) else asked
        span = call.question(request.traceparent, request.tracestate)
        one = Call(span, min(call.deadline, time.monotonic() + DEFAULT_DEADLINE), call.active)
        try:
            if isinstance(asked, Unread):
                if call.permit is not None:
                    call.permit(None)
                raise too_large(asked.limit)
            if not request.evaluate:
                raise InvalidRequest.of([required("evaluate", "a question that this server knows")])
            raw = b"".join(request.evaluate)
            if call.permit is not None:
                call.permit(raw)
            question = parse(frames.EvaluatePodFrame, raw)
            answer = decided(
                partial(self.evaluate, question, one), one.left, one.deadline, one.active
            )
        except Exception as error:  # noqa: BLE001 - one question's failure ends no other's stream
            failure = failure_of(error, span.traceparent)
            span.end(failure.code.value[0], error)
            error_bytes = failure.status().SerializeToString()
            return stream_answer(request.id, b"", error_bytes, span.traceparent)
        span.end(0)
        return stream_answer(request.id, answer, b"", span.traceparent)

    def batch_evaluate(
        self, request: frames.BatchEvaluatePodsFrame, call: Call
    ) -> pb.BatchEvaluatePodsResponse:
        """DecisionService.BatchEvaluatePods."""
        pods = [_readable(pod, f"pods[{number}]") for number, pod in enumerate(request.pods)]
        try:
            ask = batch_ask_of(request, call)
            batch = evaluate_batch(self._engine, ask, pods, request.top_k)
        except InvalidRequest as wrong:
            tell_everything(wrong, request, self._engine)
            raise
        response = pb.BatchEvaluatePodsResponse(meta=meta_of(batch.view, batch.replica))
        for number, answer in enumerate(batch.answers):
            checkpoint()
            if isinstance(answer, InvalidPod):
                answer = in_pod(answer, request.pods[number], f"pods[{number}]")
            response.results.append(self._result(answer, request.top_k))
        self._observer.batch_evaluated(batch.answers, ask, call)
        return response

    def _result(
        self, answer: Evaluation | TopospreadError, top_k: int
    ) -> pb.BatchEvaluatePodsResult:
        if isinstance(answer, TopospreadError):
            return pb.BatchEvaluatePodsResult(error=failure_of(answer).status())
        encoded = self._encoder.evaluation(answer, top_k, with_meta=False)
        return pb.BatchEvaluatePodsResult(response=pb.EvaluatePodResponse.FromString(encoded))

    def _narrowed(self, request: frames.FilterFrame | frames.ScoreFrame, call: Call) -> Ask:
        return ask_of(
            request,
            call,
            self._engine,
            cycle=request.cycle,
            nodes=candidates_of(request.candidates) if request.HasField("candidates") else None,
            node_table=request.node_table_id,
        )


def _numbered(unread: Unread) -> frames.StreamEvaluatePodsFrame:
    """A question with nothing but its id, which stands first: libraries write fields in order.

    Raises:
        TooLarge: it begins otherwise.
    """
    tag, rest = unread.beginning[:1], unread.beginning[1:]
    if tag == _ID:
        for size, byte in enumerate(rest[:10], 2):
            if byte < 0x80:
                return frames.StreamEvaluatePodsFrame.FromString(unread.beginning[:size])
    elif tag and tag in _LATER:
        return frames.StreamEvaluatePodsFrame()
    raise too_large(unread.limit)


def _readable(pod: frames.PodSourceFrame, path: str) -> bytes | PodRef | InvalidRequest:
    """A pod of a batch, or why it is none."""
    try:
        return source_of(pod, path)
    except InvalidRequest as refused:
        return refused
