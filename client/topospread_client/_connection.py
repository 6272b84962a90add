"""Connections to a server: address, TLS, time-outs, keepalive, and channels."""

from __future__ import annotations

import ipaddress
import time
from dataclasses import dataclass, field
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar
from weakref import WeakSet

import grpc
import grpc.aio

from topospread_client._credentials import (
    PATH_TYPES,
    TEXT_TYPES,
    FilePath,
    Tls,
    TlsFiles,
    TokenProvider,
    check_types,
)
from topospread_client._errors import BadConnection, Closed
from topospread_client._locks import InterruptibleRLock

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from topospread_client._rpcs import Rpc


__all__ = ["DEFAULT_BULK_TIMEOUT", "DEFAULT_TIMEOUT", "Connection", "Tls", "is_local"]

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds for one call: far longer than any takes, short enough for a person to wait for."""

DEFAULT_BULK_TIMEOUT: Final = 600.0
"""Seconds for a ReplaceObjects: a large cluster is written in many batches."""

_MAX_SECONDS: Final = 86400
"""Longest time in seconds of an option for connecting."""

_MAX_PORT: Final = 65535

_TIMES: Final = ("connect_timeout", "max_reconnect_backoff", "keepalive", "keepalive_timeout")
_OPTION_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "address": (str,),
    "tls": (Tls, NoneType),
    "insecure": (bool,),
    "retries": (bool,),
    "token": TEXT_TYPES,
    "token_file": PATH_TYPES,
    **dict.fromkeys((*_TIMES, "retry_timeout"), (float, int)),
}

MAX_MESSAGE_BYTES: Final = 128 * 1024 * 1024
"""Size of the largest response: a page of objects, or the names of all nodes."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Address of a server, and options for connecting to it.

    Attributes:
        address: ``HOST:PORT`` or any gRPC target (``dns:///…``, ``ipv4:HOST:PORT,HOST:PORT``,
            ``unix:///…``).
        tls: None speaks plain text.
        insecure: allow plain text to an address that is not this machine's own.
        retries: whether calls are repeated when the server was out of reach: those that change
            nothing, PlacePod, ReserveNode and those of one's own lease, an ApplyObjects whose
            objects all have a resourceVersion, and a ReleaseReservation that names the
            reservation.
        token: sent with each call, where the server authenticates its callers.
        token_file: a file with the token instead; read again when it changes.
        retry_timeout: seconds after which a call is not repeated any more, though its own time-out
            would allow it.
        connect_timeout: seconds until a try to connect has failed.
        max_reconnect_backoff: seconds at most, give or take a fifth, between tries to connect.
        keepalive: seconds without data from the server after which it is sent a ping, whether or
            not calls are under way; servers take it for abuse below 5.
        keepalive_timeout: seconds for the reply; then the connection is closed, calls under way end
            with Unavailable, and the next ones connect anew.

    Raises:
        BadConnection: an option of a wrong type.
    """

    address: str
    tls: Tls | None = None
    insecure: bool = False
    retries: bool = True
    token: str | None = field(default=None, repr=False)
    token_file: FilePath | None = None
    retry_timeout: float = 30.0
    connect_timeout: float = 5.0
    max_reconnect_backoff: float = 2.0
    keepalive: float = 10.0
    keepalive_timeout: float = 5.0

    def __post_init__(self) -> None:
        check_types(self, _OPTION_TYPES)

    def token_provider(self) -> TokenProvider:
        """Provider of the token for each call.

        Raises:
            BadConnection: the token or its file cannot be used.
        """
        return TokenProvider(self.token, self.token_file)

    def open(self) -> Channels[grpc.Channel]:
        """Open channels, which connect at the first call.

        Raises:
            BadConnection: the options cannot be used.
        """
        self._check()

        def open_channel(credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
            if credentials is None:
                return grpc.insecure_channel(self.address, options=self._options())
            return grpc.secure_channel(self.address, credentials, options=self._options())

        return Channels(self, open_channel)

    def open_aio(self) -> Channels[grpc.aio.Channel]:
        """Open channels for asyncio; must be called where an event loop runs."""
        self._check()

        def open_channel(credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
            if credentials is None:
                return grpc.aio.insecure_channel(self.address, options=self._options())
            return grpc.aio.secure_channel(self.address, credentials, options=self._options())

        return Channels(self, open_channel)

    def _check(self) -> None:
        _check_address(self.address)
        if self.tls is None and not self.insecure and not is_local(self.address):
            raise BadConnection(
                f"{self.address} is not on this machine and no TLS is set up: "
                "give TLS options, or `insecure` to allow plain text"
            )

        for name in _TIMES:
            if not 0.001 <= getattr(self, name) <= _MAX_SECONDS:
                raise BadConnection(
                    f"{name}: {getattr(self, name)}: must be from 0.001 to {_MAX_SECONDS} seconds"
                )
        if not self.retry_timeout >= 0:
            raise BadConnection(f"retry_timeout: {self.retry_timeout}: must not be negative")

    def _options(self) -> list[tuple[str, str | int]]:
        options: list[tuple[str, str | int]] = [
            ("grpc.primary_user_agent", "topospread-client"),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            # A connection of this client's own: others in the process may have closed theirs.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.keepalive_time_ms", _ms(self.keepalive)),
            ("grpc.keepalive_timeout_ms", _ms(self.keepalive_timeout)),
            # Pings with which gRPC measures the network serve as keepalive, too.
            ("grpc.http2.ping_timeout_ms", _ms(self.keepalive_timeout)),
            ("grpc.keepalive_permit_without_calls", 1),
            # A watch may be silent for hours; gRPC would send no more than two pings.
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.initial_reconnect_backoff_ms", _ms(min(0.2, self.max_reconnect_backoff))),
            ("grpc.max_reconnect_backoff_ms", _ms(self.max_reconnect_backoff)),
            # gRPC's name for the time that a try to connect may take.
            ("grpc.min_reconnect_backoff_ms", _ms(self.connect_timeout)),
            ("grpc.dns_min_time_between_resolutions_ms", _ms(self.max_reconnect_backoff)),
        ]
        if is_local(self.address):
            options.append(("grpc.enable_http_proxy", 0))
        if self.tls is not None and self.tls.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        return options


_SCHEMES: Final = frozenset(
    {"dns", "ipv4", "ipv6", "unix", "unix-abstract", "vsock", "xds", "google-c2p"}
)
"""Schemes of gRPC's targets."""


def _check_address(address: str) -> None:
    if not address.strip():
        raise BadConnection("the server's address is empty: write HOST:PORT")
    scheme, found, _ = address.partition("://")
    if found and scheme not in _SCHEMES:
        tls = ", and set up TLS" if scheme.endswith("s") else ""
        raise BadConnection(f"{address}: gRPC has no scheme {scheme}: write HOST:PORT{tls}")
    if found:
        return
    host, colon, port = address.rpartition(":")
    if not (colon and port):
        raise BadConnection(f"{address:.200} has no port: write HOST:PORT")
    if not host:
        raise BadConnection(f"{address:.200} has no host: write HOST:PORT")
    if address.partition(":")[0] not in _SCHEMES and (
        "/" in port or (port.isdigit() and not _is_port(port))
    ):
        raise BadConnection(f"{address:.200}: {port:.20} is no port: write HOST:PORT")


def is_local(address: str) -> bool:
    """Whether an address is on this machine, so that plain text does not leave it."""
    scheme, colon, rest = address.partition(":")
    if colon and scheme in {"unix", "unix-abstract"}:
        return True
    if colon and scheme in {"dns", "ipv4", "ipv6"} and not rest.isdigit():
        address = rest.rpartition("/")[2]
        if scheme != "dns" and "," in address:
            return all(is_local(each) for each in address.split(","))
    host = address.rpartition(":")[0] if _has_port(address) else address
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


def _is_port(text: str) -> bool:
    digits = text.isascii() and text.isdigit() and len(text) <= len(str(_MAX_PORT))
    return digits and int(text) <= _MAX_PORT


def _has_port(address: str) -> bool:
    return address.rpartition(":")[2].isdigit() and (address.count(":") == 1 or "]:" in address)


_C = TypeVar("_C")

RELOAD_INTERVAL: Final = 1.0
"""Seconds between checks of the files: one costs more than the rest of making a call."""

CLOSED: Final = "the client is closed: open another one"


class Stubs(Generic[_C]):
    """A channel and the stubs of the methods that were called on it."""

    def __init__(self, channel: _C) -> None:
        self.channel: Final = channel
        self._stubs: dict[str, Callable[..., Any]] = {}

    def of(self, rpc: Rpc, kind: str) -> Callable[..., Any]:
        """Stub of a method.

        Args:
            rpc: the method.
            kind: ``unary_unary`` or another of the channel's methods.
        """
        stub = self._stubs.get(rpc.path)
        if stub is None:
            stub = self._stubs[rpc.path] = getattr(self.channel, kind)(
                rpc.path,
                request_serializer=rpc.request.SerializeToString,
                response_deserializer=rpc.response.FromString,
            )
        return stub


class Channels(Generic[_C]):
    """The channels of one client: a new one when its TLS files have changed.

    Calls that are under way when the files change end on the channel that they began on: each call
    holds its `Stubs` until it has ended, and gRPC closes a channel without references.

    Args:
        connection: options.
        open_channel: opens a channel with credentials, or in plain text with None.
    """

    def __init__(
        self, connection: Connection, open_channel: Callable[[grpc.ChannelCredentials | None], _C]
    ) -> None:
        self._open_channel = open_channel
        self._files = None if connection.tls is None else TlsFiles(connection.tls)
        # Reentrant: a signal's handler may close in the thread that reloads.
        self._lock = InterruptibleRLock()
        self._checked_at = time.monotonic()
        self._closed = False
        first = open_channel(None if self._files is None else self._files.first)
        self._current: Stubs[_C] = Stubs(first)
        self._all: WeakSet[Stubs[_C]] = WeakSet((self._current,))

    def current(self) -> Stubs[_C]:
        """Stubs for a call that begins now.

        Raises:
            Closed: the client is closed.
        """
        if self._files is not None and time.monotonic() - self._checked_at > RELOAD_INTERVAL:
            self._reload(self._files)
        if self._closed:
            raise Closed(CLOSED)
        return self._current

    @property
    def closed(self) -> bool:
        """Whether the client is closed."""
        return self._closed

    def close(self) -> list[_C]:
        """Refuse further calls; returns the channels to close."""
        with self._lock:
            self._closed = True
            return [stubs.channel for stubs in self._all]

    def _reload(self, files: TlsFiles) -> None:
        if not self._lock.acquire(blocking=False):
            return  # another thread reloads
        try:
            self._checked_at = time.monotonic()
            if self._closed:
                return
            credentials = files.changed()
            if credentials is not None:
                self._current = Stubs(self._open_channel(credentials))
                self._all.add(self._current)
        finally:
            self._lock.release()
