"""Reflection that finds methods by name.

A caller may ask for the file that declares any symbol, methods included, and ghz asks for the
method at once. The runtime's descriptor pool looks among messages, enums and services only, so that
grpcio's servicer by itself answers NOT_FOUND.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection

if TYPE_CHECKING:
    from collections.abc import Iterable

    import grpc
    from google.protobuf.descriptor import FileDescriptor
    from google.protobuf.descriptor_pool import DescriptorPool


def add_reflection(services: Iterable[str], server: grpc.Server) -> None:
    """Describe services, by full name, to whoever asks."""
    names = (*services, reflection.SERVICE_NAME)
    pool = cast("DescriptorPool", _Symbols(descriptor_pool.Default()))
    reflection.enable_server_reflection(names, server, pool)


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
