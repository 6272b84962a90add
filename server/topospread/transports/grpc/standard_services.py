"""Standard services that are not part of the API: reflection, and the answer to unknown methods."""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.message import DecodeError, Message
from grpc_reflection.v1alpha import reflection, reflection_pb2
from typing_extensions import override

from topospread.access.callers import Role
from topospread.errors import (
    InvalidRequest,
    MethodNotServed,
    QueueFull,
    TopospreadError,
)
from topospread.servicers.limits import SizeLimit, decompressed
from topospread.servicers.status import status_of
from topospread.threads.pool import away, overloaded
from topospread.transports.grpc.transport import abort, end_call

# Imported so that reflection finds it: no service's file imports the error reasons.
from topospread_proto.v1 import error_reason_pb2  # noqa: F401

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pool import DescriptorPool

    from topospread.threads.pool import Pool
    from topospread.transports.grpc.authorization import AccessControl


LIMIT: Final = SizeLimit(16 << 10)
"""The limit of a request of health or reflection: names of services and symbols."""

_Request = TypeVar("_Request", bound=Message)


class UnimplementedHandler(grpc.GenericRpcHandler):
    """The handler of unknown methods, behind all others: UNIMPLEMENTED for authenticated callers.

    Args:
        access: authenticates callers.
        pool: whose threads end the calls.
    """

    def __init__(self, access: AccessControl, pool: Pool) -> None:
        def refuse(raws: Iterator[bytes], context: grpc.ServicerContext) -> bytes:
            del raws
            access.admit_or_abort("unknown", None, context)
            abort(context, status_of(MethodNotServed("this server does not have the method")))

        refuse.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
        self._handler: grpc.RpcMethodHandler[bytes, bytes] = grpc.stream_unary_rpc_method_handler(
            refuse
        )

    @override
    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes]:
        """The handler for any method."""
        del handler_call_details
        return self._handler


def first_message(
    kind: type[_Request], raws: Iterator[bytes], context: grpc.ServicerContext
) -> _Request:
    """The next message; the call ends when there is none, or it does not parse."""
    message = next_message(kind, raws, context)
    if message is None:
        abort(context, status_of(InvalidRequest("the call has no request message")))
    return message


def next_message(
    kind: type[_Request], raws: Iterator[bytes], context: grpc.ServicerContext
) -> _Request | None:
    """The next message, None after the last; the call ends when it does not parse."""
    if overloaded():
        abort(context, status_of(QueueFull("too many calls at once: try again later")))
    with away(partial(end_call, context)):
        raw = next(raws, None)
    if raw is None:
        return None
    try:
        return kind.FromString(decompressed(raw, LIMIT))
    except TopospreadError as refused:
        abort(context, status_of(refused))
    except DecodeError:
        name = kind.DESCRIPTOR.full_name
        abort(context, status_of(InvalidRequest(f"the request does not parse as {name}")))


def reflection_handler(
    services: Iterable[str], pool: Pool, access: AccessControl
) -> grpc.GenericRpcHandler:
    """The reflection service, for callers with the read role somewhere.

    grpcio's servicer alone finds no method by its name, which ghz asks for: the runtime's
    descriptor pool looks among messages, enums and services only. Nor do its descriptors carry each
    field's name in JSON, without which grpcurl prints that of the `.proto` file.

    Args:
        services: full names of those that are described.
        pool: whose threads the streams hold.
        access: authenticates callers.
    """
    names = (*services, reflection.SERVICE_NAME)
    symbols = cast("DescriptorPool", _Symbols(descriptor_pool.Default()))
    servicer = reflection.ReflectionServicer(names, symbols)

    def describe(raws: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Any]:
        access.admit_or_abort("reflection", Role.READ, context)
        kind = reflection_pb2.ServerReflectionRequest
        asked = iter(lambda: next_message(kind, raws, context), None)
        yield from map(_with_json_names, servicer.ServerReflectionInfo(asked, context))

    describe.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
    written = reflection_pb2.ServerReflectionResponse.SerializeToString
    return grpc.method_handlers_generic_handler(
        reflection.SERVICE_NAME,
        {"ServerReflectionInfo": grpc.stream_stream_rpc_method_handler(describe, None, written)},
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
        """The file that declares a symbol.

        Raises:
            KeyError: no file declares it.
        """
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            file: FileDescriptor = self._pool.FindMethodByName(symbol).containing_service.file
            return file
