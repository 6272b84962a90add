"""A gRPC server that fails on demand: for what a healthy server never does on demand."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.rpc.status_pb2 import Status

from topospread_proto.v1.common_pb2 import VERDICT_CODE_SUCCESS, ResponseMeta, Verdict
from topospread_proto.v1.decision_service_pb2 import EvaluatePodResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from google.protobuf.message import Message

    from topospread_client._methods import Method


@dataclass
class Failure:
    """An end of a call other than an answer."""

    code: grpc.StatusCode
    text: str = ""
    details: tuple[tuple[str, Message], ...] = ()
    trailers: tuple[tuple[str, str | bytes], ...] = ()

    def end(self, context: grpc.ServicerContext) -> NoReturn:
        trailers = list(self.trailers)
        if self.details:
            status = Status(code=self.code.value[0], message=self.text)
            for name, message in self.details:
                url = f"type.googleapis.com/google.rpc.{name}"
                status.details.append(Packed(type_url=url, value=message.SerializeToString()))
            trailers.append(("grpc-status-details-bin", status.SerializeToString()))
        context.set_trailing_metadata(tuple(trailers))
        # A status without any answer before it: a client repeats no call that was answered in part.
        context.abort(self.code, self.text)


@dataclass
class Script:
    """What each call is answered with, in turn; the last of a method's answers stays.

    Attributes:
        address: of the server.
        seen: each call: its method, its request's bytes and its metadata.
    """

    address: str = ""
    answers: dict[str, list[Any]] = field(default_factory=dict)
    seen: list[tuple[str, bytes, dict[str, str | bytes]]] = field(default_factory=list)

    def answer(self, method: Method, *answers: Message | Failure | Callable[..., Any]) -> None:
        self.answers[method.path] = list(answers)

    def calls(self, method: Method) -> int:
        return sum(path == method.path for path, _, _ in self.seen)

    def serve(self, path: str, request: bytes, context: grpc.ServicerContext) -> bytes:
        self.seen.append((path, request, dict(context.invocation_metadata())))
        answers = self.answers[path]
        answer = answers[0] if len(answers) == 1 else answers.pop(0)
        if isinstance(answer, Failure):
            answer.end(context)
        if callable(answer):
            answer = answer(context)
        return answer.SerializeToString()


def evaluation(revision: str) -> EvaluatePodResponse:
    """An answer about a pod without constraints."""
    passes = Verdict(code=VERDICT_CODE_SUCCESS)
    return EvaluatePodResponse(
        meta=ResponseMeta(revision=revision),
        pre_filter_verdict=passes,
        pre_score_verdict=passes,
    )


class _Handler(grpc.GenericRpcHandler):
    def __init__(self, script: Script) -> None:
        self._script = script

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        path = details.method
        if path not in self._script.answers:
            return None
        return grpc.unary_unary_rpc_method_handler(
            lambda request, context: self._script.serve(path, request, context)
        )


@contextmanager
def scripted(credentials: grpc.ServerCredentials | None = None) -> Iterator[Script]:
    """A server on a port of its own."""
    script = Script()
    with ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, handlers=[_Handler(script)])
        if credentials is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            port = server.add_secure_port("127.0.0.1:0", credentials)
        script.address = f"127.0.0.1:{port}"
        server.start()
        try:
            yield script
        finally:
            server.stop(None).wait()
