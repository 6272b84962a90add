"""topospread.v1.SpreadEngine: decode, call the use case, encode."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import TopospreadError
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
    parse,
)
from topospread.transports.grpc.decode import ask_of, batch_ask_of, nodes_of
from topospread.transports.grpc.encode import Encoder, stream_answer
from topospread.transports.grpc.failures import failure_of
from topospread.transports.grpc.pool import decided
from topospread_proto.v1 import frames_pb2 as frames
from topospread_proto.v1 import spread_engine_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.service.asks import Ask
    from topospread.service.engine import Engine
    from topospread.transports.grpc.observe import Observer

SERVICE: Final = "topospread.v1.SpreadEngine"


class SpreadEngineServicer:
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
            "Evaluate": (Unary(frames.EvaluateFrame, self.evaluate), "decisions"),
            "EvaluateStream": (
                StreamBoth(frames.EvaluateStreamFrame, self.evaluate_stream),
                "streams",
            ),
            "BatchEvaluate": (Unary(frames.BatchEvaluateFrame, self.batch_evaluate), "decisions"),
        }

    def pre_filter(self, request: frames.PreFilterFrame, call: Call) -> pb.PreFilterResponse:
        """SpreadEngine.PreFilter."""
        ask = ask_of(request, call, self._engine)
        answer = pre_filter(self._engine, ask, with_counts=request.with_counts)
        self._observer.pre_filtered(answer, ask, call)
        return self._encoder.pre_filter(answer)

    def filter(self, request: frames.FilterFrame, call: Call) -> bytes:
        """SpreadEngine.Filter."""
        ask = self._narrowed(request, call)
        answer = filter_(self._engine, ask)
        self._observer.filtered(answer, ask, call)
        return self._encoder.filter(answer, request.node_table)

    def score(self, request: frames.ScoreFrame, call: Call) -> bytes:
        """SpreadEngine.Score."""
        ask = self._narrowed(request, call)
        answer = score(self._engine, ask)
        self._observer.scored(answer, ask, call)
        return self._encoder.score(answer, request.node_table)

    def evaluate(self, request: frames.EvaluateFrame, call: Call) -> bytes:
        """SpreadEngine.Evaluate."""
        nodes = nodes_of(request.nodes) if request.HasField("nodes") else None
        ask = ask_of(request, call, self._engine, nodes=nodes)
        answer = evaluate(self._engine, ask, request.top_k)
        self._observer.evaluated(answer, ask, call)
        return self._encoder.evaluation(answer)

    def evaluate_stream(
        self, requests: Iterator[frames.EvaluateStreamFrame], call: Call
    ) -> Iterator[bytes]:
        """SpreadEngine.EvaluateStream; a question that fails is answered with its error."""
        for request in requests:
            yield self._asked(request, call)
            if not call.active():
                return

    def _asked(self, request: frames.EvaluateStreamFrame, call: Call) -> bytes:
        """The answer to one question."""
        assert call.question is not None, "the frame of a stream starts spans for its questions"
        span = call.question(request.traceparent, request.tracestate)
        one = Call(span, min(call.deadline, time.monotonic() + DEFAULT_DEADLINE), call.active)
        try:
            raw = b"".join(request.request)
            if call.permit is not None:
                call.permit(raw)
            question = parse(frames.EvaluateFrame, raw)
            answer = decided(
                partial(self.evaluate, question, one), one.left, one.deadline, one.active
            )
        except Exception as error:  # noqa: BLE001 - one question's failure ends no other's stream
            failure = failure_of(error)
            span.end(failure.code.value[0], error)
            error_bytes = failure.status().SerializeToString()
            return stream_answer(request.id, b"", error_bytes, span.traceparent)
        span.end(0)
        return stream_answer(request.id, answer, b"", span.traceparent)

    def batch_evaluate(
        self, request: frames.BatchEvaluateFrame, call: Call
    ) -> pb.BatchEvaluateResponse:
        """SpreadEngine.BatchEvaluate."""
        ask = batch_ask_of(request, call)
        answers = evaluate_batch(self._engine, ask, request.pods, request.top_k)
        response = pb.BatchEvaluateResponse()
        for answer in answers:
            checkpoint()
            response.results.append(self._result(answer))
            if isinstance(answer, Evaluation):
                response.revision = answer.resolved.cycle.view.token
        self._observer.batch_evaluated(answers, ask, call)
        return response

    def _result(self, answer: Evaluation | TopospreadError) -> pb.BatchEvaluateResult:
        if isinstance(answer, TopospreadError):
            return pb.BatchEvaluateResult(error=failure_of(answer).status())
        return pb.BatchEvaluateResult(
            response=pb.EvaluateResponse.FromString(self._encoder.evaluation(answer))
        )

    def _narrowed(self, request: frames.FilterFrame | frames.ScoreFrame, call: Call) -> Ask:
        return ask_of(
            request,
            call,
            self._engine,
            cycle=request.cycle,
            nodes=nodes_of(request.nodes) if request.HasField("nodes") else None,
            node_table=request.node_table,
        )
