"""Standard services that are not part of the API: health, reflection, unknown methods.

They pass the pipeline as all calls do, but that health is for callers whom nobody knows.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2
from typing_extensions import override

from topospread.access.callers import Role
from topospread.calls.call import Bidirectional, ClientStreaming, ServerStreaming, Unary
from topospread.calls.rules import MethodRules, Permission
from topospread.errors import MethodNotServed, ObjectNotFound, ShuttingDown
from topospread.rpc.threads import thread_handler

# Imported so that reflection finds it: no service's file imports the error reasons.
from topospread_proto.v1 import error_reason_pb2  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pool import DescriptorPool

    from topospread.calls.call import Call, Method
    from topospread.calls.executor import Executor
    from topospread.calls.pipeline import Pipeline

LIMIT: Final = 16 << 10
"""Bytes of a request of health or reflection: names of services and symbols."""


HEALTH: Final = health.SERVICE_NAME

WATCH_SECONDS: Final = 0.5
"""Between two checks of a watch whether its caller is still there."""

NOTIFY_SECONDS: Final = 1.0
"""How long a server that stops waits until its watches have been sent NOT_SERVING."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health:
    """The health service, of services by full name; NOT_SERVING until :meth:`set_serving`.

    grpcio's own servicer is not used. It holds a lock while it sends, and takes the same lock when
    a watch ends, on the one thread that also completes sends: a few clients that open watches and
    leave block all of gRPC. Here a watch is a stream on a thread of its own.
    """

    def __init__(self, services: Sequence[str]) -> None:
        self._services = frozenset(("", *services, HEALTH))
        self._status: int = _NOT_SERVING
        self._changed = threading.Condition()
        self._stopping = self._closed = False
        # The last status that each watch was sent; None before the first.
        self._sent: dict[Call, int | None] = {}

    def methods(self) -> dict[str, Method]:
        """The methods by name."""
        return {
            "Check": Unary(health_pb2.HealthCheckRequest, self.check),
            "Watch": ServerStreaming(health_pb2.HealthCheckRequest, self.watch),
        }

    def set_serving(self) -> None:
        """Report SERVING, unless the server stops."""
        if not self._stopping:
            self._status = _SERVING
            self._wake()

    def set_not_serving(self) -> None:
        """Report NOT_SERVING for good, and wait until the watches have been sent it."""
        self._stopping = True
        self._status = _NOT_SERVING
        self._wake()
        with self._changed:
            self._changed.wait_for(self._all_sent, NOTIFY_SECONDS)

    def close(self) -> None:
        """End the watches."""
        self._closed = True
        self._wake()
        for call in self._sent.copy():
            call.context.end(ShuttingDown())  # it may be that its caller takes nothing

    def check(
        self, request: health_pb2.HealthCheckRequest, _: Call
    ) -> health_pb2.HealthCheckResponse:
        """Return the status of a service.

        Raises:
            ObjectNotFound: there is no such service.
        """
        if request.service not in self._services:
            raise ObjectNotFound("there is no such service", "Service", request.service)
        return health_pb2.HealthCheckResponse(status=self._status)

    def watch(
        self, request: health_pb2.HealthCheckRequest, call: Call
    ) -> Iterator[health_pb2.HealthCheckResponse]:
        """Yield the status of a service, and again each time that it changes."""
        known = request.service in self._services
        sent = self._sent[call] = None
        call.context.add_callback(self._wake)
        try:
            while not self._closed and call.active():
                status = self._status if known else _UNKNOWN
                if status != sent:
                    yield health_pb2.HealthCheckResponse(status=status)
                with self._changed:
                    self._sent[call] = sent = status
                    self._changed.notify_all()
                    if not known or sent == self._status:
                        self._changed.wait(WATCH_SECONDS)
        finally:
            self._sent.pop(call, None)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _all_sent(self) -> bool:
        known = (self._status, _UNKNOWN)
        return all(status in known for status in self._sent.copy().values())


class UnimplementedHandler(grpc.GenericRpcHandler):
    """The handler of unknown methods, behind all others: UNIMPLEMENTED for authenticated callers.

    No request of theirs is read.
    """

    def __init__(self, pipeline: Pipeline, executor: Executor) -> None:
        def refuse(_: object, __: Call) -> NoReturn:
            raise MethodNotServed("this server does not have the method")

        kind = reflection_pb2.ServerReflectionRequest
        method = pipeline.method(
            "unknown", ClientStreaming(kind, refuse), MethodRules(Permission(None), "other")
        )
        self._handler = thread_handler(method, pipeline, executor)

    @override
    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """The handler for any method."""
        del handler_call_details
        return self._handler


def reflection_handler(
    services: Iterable[str], pipeline: Pipeline, executor: Executor
) -> grpc.GenericRpcHandler:
    """The reflection service, for callers with the read role somewhere.

    grpcio's servicer alone finds no method by its name, which ghz asks for: the runtime's
    descriptor pool looks among messages, enums and services only. Nor do its descriptors carry each
    field's name in JSON, without which grpcurl prints that of the `.proto` file.
    """
    names = (*services, reflection.SERVICE_NAME)
    symbols = cast("DescriptorPool", _Symbols(descriptor_pool.Default()))
    servicer = reflection.ReflectionServicer(names, symbols)

    def describe(requests: Iterator[Any], _: Call) -> Iterator[Any]:
        unused = cast("grpc.ServicerContext", None)
        return map(_with_json_names, servicer.ServerReflectionInfo(requests, unused))

    method = pipeline.method(
        "reflection",
        Bidirectional(reflection_pb2.ServerReflectionRequest, describe),
        MethodRules(Permission(Role.READ, None), "streams"),
    )
    handler = thread_handler(method, pipeline, executor)
    return grpc.method_handlers_generic_handler(
        reflection.SERVICE_NAME, {"ServerReflectionInfo": handler}
    )


def _with_json_names(answer: Any) -> Any:
    if answer.HasField("file_descriptor_response"):
        files = answer.file_descriptor_response.file_descriptor_proto
        files[:] = map(_file_with_json_names, files)
    return answer


@cache
def _file_with_json_names(file: bytes) -> bytes:
    """A file's descriptor with the names that its fields have in JSON."""
    made = FileDescriptorProto.FromString(file)
    known = descriptor_pool.Default().FindFileByName(made.name)
    for message in made.message_type:
        _add_json_names(message, known.message_types_by_name[message.name])
    return made.SerializeToString()


def _add_json_names(message: DescriptorProto, known: Descriptor) -> None:
    for field in message.field:
        field.json_name = known.fields_by_name[field.name].json_name
    for inner in message.nested_type:
        _add_json_names(inner, known.nested_types_by_name[inner.name])


class _Symbols:
    """A descriptor pool that also finds the file of a method."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802 - the pool's name for it
        """The file that declares a symbol, or KeyError."""
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            file: FileDescriptor = self._pool.FindMethodByName(symbol).containing_service.file
            return file
