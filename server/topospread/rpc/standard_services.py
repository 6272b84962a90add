"""Standard services that are not part of the API: reflection, and the answer to unknown methods."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2
from typing_extensions import override

from topospread.access.callers import Role
from topospread.calls.call import Bidirectional, ClientStreaming
from topospread.calls.rules import MethodRules, Permission
from topospread.errors import MethodNotServed
from topospread.rpc.threads import thread_handler

# Imported so that reflection finds it: no service's file imports the error reasons.
from topospread_proto.v1 import error_reason_pb2  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pool import DescriptorPool

    from topospread.calls.call import Call
    from topospread.calls.executor import Executor
    from topospread.calls.pipeline import Pipeline

LIMIT: Final = 16 << 10
"""Bytes of a request of health or reflection: names of services and symbols."""


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
