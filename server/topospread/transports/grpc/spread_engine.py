"""topospread.v1.SpreadEngine: decode, call the use case, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.codec.frames import evaluate_frame, pod_from_bytes, shape_key
from topospread.codec.pods import pod_from_proto
from topospread.errors import TopospreadError
from topospread.service.asks import DEFAULT_CLUSTER, Ask
from topospread.service.evaluate import Evaluation, evaluate, evaluate_batch
from topospread.service.filter import filter_
from topospread.service.pre_filter import pre_filter
from topospread.service.score import score
from topospread.transports.grpc.calls import Call, Method, Unary, UnaryBytes, parse
from topospread.transports.grpc.decode import ask_of, batch_ask_of, nodes_of
from topospread.transports.grpc.encode import Encoder
from topospread.transports.grpc.failures import failure_of
from topospread_proto.v1 import spread_engine_pb2 as pb

if TYPE_CHECKING:
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
            "PreFilter": (Unary(pb.PreFilterRequest, self.pre_filter), "decisions"),
            "Filter": (Unary(pb.FilterRequest, self.filter), "decisions"),
            "Score": (Unary(pb.ScoreRequest, self.score), "decisions"),
            "Evaluate": (UnaryBytes(self.evaluate), "decisions"),
            "BatchEvaluate": (Unary(pb.BatchEvaluateRequest, self.batch_evaluate), "decisions"),
        }

    def pre_filter(self, request: pb.PreFilterRequest, call: Call) -> pb.PreFilterResponse:
        """SpreadEngine.PreFilter."""
        ask = ask_of(request, call, moves=(request.add_pods, request.remove_pods))
        answer = pre_filter(self._engine, ask, with_counts=request.with_counts)
        self._observer.pre_filtered(answer, ask, call)
        return self._encoder.pre_filter(answer)

    def filter(self, request: pb.FilterRequest, call: Call) -> bytes:
        """SpreadEngine.Filter."""
        ask = _narrowed(request, call)
        answer = filter_(self._engine, ask)
        self._observer.filtered(answer, ask, call)
        return self._encoder.filter(answer, request.node_table)

    def score(self, request: pb.ScoreRequest, call: Call) -> bytes:
        """SpreadEngine.Score."""
        ask = _narrowed(request, call)
        answer = score(self._engine, ask)
        self._observer.scored(answer, ask, call)
        return self._encoder.score(answer, request.node_table)

    def evaluate(self, raw: bytes, call: Call) -> bytes:
        """SpreadEngine.Evaluate; a plain question is read no further than its pod's shape."""
        frame = evaluate_frame(raw)
        if frame is None:
            request = parse(pb.EvaluateRequest, raw)
            nodes = nodes_of(request.nodes) if request.HasField("nodes") else None
            moves = (request.add_pods, request.remove_pods)
            ask, top_k = ask_of(request, call, moves=moves, nodes=nodes), request.top_k
        else:
            pod = frame.pod[0]
            shape = self._engine.known_shape(shape_key(pod), lambda: pod_from_bytes(pod))
            cluster = frame.cluster or DEFAULT_CLUSTER
            ask, top_k = Ask(call.deadline, cluster, shape), frame.top_k
        answer = evaluate(self._engine, ask, top_k)
        self._observer.evaluated(answer, ask, call)
        return self._encoder.evaluation(answer)

    def batch_evaluate(
        self, request: pb.BatchEvaluateRequest, call: Call
    ) -> pb.BatchEvaluateResponse:
        """SpreadEngine.BatchEvaluate."""
        ask = batch_ask_of(request, call)
        pods = [pod_from_proto(pod) for pod in request.pods]
        answers = evaluate_batch(self._engine, ask, pods, request.top_k)
        response = pb.BatchEvaluateResponse()
        for answer in answers:
            response.results.append(self._result(answer, ask, call))
            if isinstance(answer, Evaluation):
                response.revision = answer.resolved.cycle.view.token
        return response

    def _result(
        self, answer: Evaluation | TopospreadError, ask: Ask, call: Call
    ) -> pb.BatchEvaluateResult:
        if isinstance(answer, TopospreadError):
            return pb.BatchEvaluateResult(error=failure_of(answer).status())
        self._observer.evaluated(answer, ask, call)
        return pb.BatchEvaluateResult(
            response=pb.EvaluateResponse.FromString(self._encoder.evaluation(answer))
        )


def _narrowed(request: pb.FilterRequest | pb.ScoreRequest, call: Call) -> Ask:
    return ask_of(
        request,
        call,
        cycle=request.cycle,
        moves=(request.add_pods, request.remove_pods),
        nodes=nodes_of(request.nodes) if request.HasField("nodes") else None,
        node_table=request.node_table,
    )
