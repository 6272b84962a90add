"""The channel that a client's calls are made on: another one when its TLS files have changed."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakSet

from topospread_client._errors import Closed
from topospread_client._tls import TlsFiles

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from topospread_client._connection import Connection
    from topospread_client._rpcs import Rpc

_C = TypeVar("_C")

LOOK_EVERY: Final = 1.0
"""Seconds between looks at the files: a look costs more than the rest of making a call."""

CLOSED: Final = "the client is closed: open another one"


class Stubs(Generic[_C]):
    """A channel and what calls are made with on it."""

    def __init__(self, channel: _C) -> None:
        self.channel: Final = channel
        self._made: dict[str, Callable[..., Any]] = {}

    def of(self, rpc: Rpc, kind: str) -> Callable[..., Any]:
        """What makes a call.

        Args:
            rpc: which.
            kind: ``unary_unary`` or another of the channel's methods.
        """
        stub = self._made.get(rpc.path)
        if stub is None:
            stub = self._made[rpc.path] = getattr(self.channel, kind)(
                rpc.path,
                request_serializer=rpc.request.SerializeToString,
                response_deserializer=rpc.response.FromString,
            )
        return stub


class Channels(Generic[_C]):
    """The channels of one client.

    Calls that are under way when the files change end on the channel that they began on: whoever
    makes a call holds its `Stubs` until it has ended, and gRPC closes a channel that nobody holds.

    Args:
        connection: how to connect.
        opened: opens a channel with credentials, or in plain text with None.
    """

    def __init__(
        self, connection: Connection, opened: Callable[[grpc.ChannelCredentials | None], _C]
    ) -> None:
        self._opened = opened
        self._files = None if connection.tls is None else TlsFiles(connection.tls)
        # Reentrant: a signal's handler may close in the thread that looks.
        self._lock = threading.RLock()
        self._looked = time.monotonic()
        self._closed = False
        first = opened(None if self._files is None else self._files.first)
        self._newest: Stubs[_C] = Stubs(first)
        self._all: WeakSet[Stubs[_C]] = WeakSet((self._newest,))

    def newest(self) -> Stubs[_C]:
        """What a call that begins now is made with.

        Raises:
            Closed: there will be no more calls.
        """
        if self._files is not None and time.monotonic() - self._looked > LOOK_EVERY:
            self._look(self._files)
        if self._closed:
            raise Closed(CLOSED)
        return self._newest

    @property
    def closed(self) -> bool:
        """Whether there will be no more calls."""
        return self._closed

    def close(self) -> list[_C]:
        """There are no more calls from now on; returns the channels to close."""
        with self._lock:
            self._closed = True
            return [stubs.channel for stubs in self._all]

    def _look(self, files: TlsFiles) -> None:
        if not self._lock.acquire(blocking=False):
            return  # somebody else is looking
        try:
            self._looked = time.monotonic()
            if self._closed:
                return
            credentials = files.changed()
            if credentials is not None:
                self._newest = Stubs(self._opened(credentials))
                self._all.add(self._newest)
        finally:
            self._lock.release()
