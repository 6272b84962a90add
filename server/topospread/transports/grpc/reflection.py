"""Reflection that finds methods by name, and names fields as JSON does.

A caller may ask for the file that declares any symbol, methods included, and ghz asks for the
method at once. The runtime's descriptor pool looks among messages, enums and services only, so that
grpcio's servicer by itself answers NOT_FOUND. Nor do its descriptors say what protoc's do of each
field's name in JSON, without which grpcurl prints that of the `.proto` file.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, cast

import grpc
from google.protobuf import descriptor_pool
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from grpc_reflection.v1alpha import reflection, reflection_pb2

from topospread.access.callers import Role
from topospread.transports.grpc.standard import Door, next_message
from topospread_proto.v1 import error_reason_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from google.protobuf.descriptor import Descriptor, FileDescriptor
    from google.protobuf.descriptor_pool import DescriptorPool

    from topospread.transports.grpc.pool import Pool

ALSO: Final = (error_reason_pb2.DESCRIPTOR,)
"""Files that are found although no service's imports lead to them: sent are the reasons' names."""


def reflection_handlers(services: Iterable[str], pool: Pool, door: Door) -> grpc.GenericRpcHandler:
    """Describes services, by full name, to whoever asks and may read.

    Args:
        services: that are offered.
        pool: whose threads the streams hold.
        door: in front of it.
    """
    names = (*services, reflection.SERVICE_NAME)
    symbols = cast("DescriptorPool", _Symbols(descriptor_pool.Default()))
    servicer = reflection.ReflectionServicer(names, symbols)

    def describe(raws: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[Any]:
        door.admit("reflection", Role.READ, context)
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
        files[:] = map(_named, files)
    return answer


@cache
def _named(file: bytes) -> bytes:
    """A file of the pool with the names that its fields have in JSON."""
    made = FileDescriptorProto.FromString(file)
    known = descriptor_pool.Default().FindFileByName(made.name)
    for message in made.message_type:
        _name(message, known.message_types_by_name[message.name])
    return made.SerializeToString()


def _name(message: DescriptorProto, known: Descriptor) -> None:
    for field in message.field:
        field.json_name = known.fields_by_name[field.name].json_name
    for inner in message.nested_type:
        _name(inner, known.nested_types_by_name[inner.name])


class _Symbols:
    """A descriptor pool that also finds the file of a method."""

    def __init__(self, pool: DescriptorPool) -> None:
        self._pool = pool

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def FindFileContainingSymbol(self, symbol: str) -> FileDescriptor:  # noqa: N802 - the pool's name for it
        """The file that declares a symbol.

        Raises:
            KeyError: nobody declares it.
        """
        try:
            return self._pool.FindFileContainingSymbol(symbol)
        except KeyError:
            file: FileDescriptor = self._pool.FindMethodByName(symbol).containing_service.file
            return file
