"""A gRPC server whose streams follow a script, one after the other."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc

from topospread_client import _rpcs as rpcs
from topospread_proto.v1.common_pb2 import VERDICT_CODE_SUCCESS, ResponseMeta, Verdict
from topospread_proto.v1.decision_service_pb2 import (
    EvaluatePodResponse,
    StreamEvaluatePodsRequest,
    StreamEvaluatePodsResponse,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Questions = Iterator[StreamEvaluatePodsRequest]
    Answers = Iterator[StreamEvaluatePodsResponse]
    Behaviour = Callable[[Questions, grpc.ServicerContext], Answers]


@dataclass
class Streams:
    """What each stream does in turn; the last of them stays.

    Attributes:
        address: of the server.
        asked: for each stream the names of the pods that it was asked about, as they came.
        metadata: of each stream.
    """

    address: str = ""
    script: list[Behaviour] = field(default_factory=list)
    asked: list[list[str]] = field(default_factory=list)
    metadata: list[dict[str, str | bytes]] = field(default_factory=list)

    def serve(self, questions: Questions, context: grpc.ServicerContext) -> Answers:
        self.metadata.append(dict(context.invocation_metadata()))
        asked: list[str] = []
        self.asked.append(asked)
        behave = self.script[0] if len(self.script) == 1 else self.script.pop(0)

        def noted() -> Questions:
            for question in questions:
                asked.append(question.evaluate.pod.object.metadata.name)
                yield question

        yield from behave(noted(), context)


def answers(questions: Questions, context: grpc.ServicerContext) -> Answers:
    """Answer each question with its pod's name for a revision."""
    del context
    for question in questions:
        yield answer_to(question)


def answers_then(count: int, end: Callable[[grpc.ServicerContext], object]) -> Behaviour:
    """Answer so many questions, take one more, and end."""

    def behave(questions: Questions, context: grpc.ServicerContext) -> Answers:
        for _ in range(count):
            yield answer_to(next(questions))
        next(questions)
        end(context)

    return behave


def fails(code: grpc.StatusCode, text: str = "") -> Callable[[grpc.ServicerContext], object]:
    """An end with a status."""
    return lambda context: context.abort(code, text)


def evaluation(revision: str) -> EvaluatePodResponse:
    passes = Verdict(code=VERDICT_CODE_SUCCESS)
    return EvaluatePodResponse(
        meta=ResponseMeta(revision=revision),
        pre_filter_verdict=passes,
        pre_score_verdict=passes,
    )


def answer_to(question: StreamEvaluatePodsRequest) -> StreamEvaluatePodsResponse:
    name = question.evaluate.pod.object.metadata.name
    return StreamEvaluatePodsResponse(id=question.id, evaluate=evaluation(name))


@contextmanager
def streaming() -> Iterator[Streams]:
    """A server on a port of its own."""
    streams = Streams()
    handler = grpc.stream_stream_rpc_method_handler(
        streams.serve,
        request_deserializer=StreamEvaluatePodsRequest.FromString,
        response_serializer=StreamEvaluatePodsResponse.SerializeToString,
    )
    method = rpcs.STREAM_EVALUATE_PODS.method
    with ThreadPoolExecutor(8) as pool:
        server = grpc.server(pool)
        handlers = {method.name: handler}
        service = method.containing_service.full_name
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        streams.address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
        server.start()
        try:
            yield streams
        finally:
            server.stop(None).wait()
