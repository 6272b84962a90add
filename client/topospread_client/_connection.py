"""Connections to a server: address, TLS, time-outs, keepalive, and channels."""

from __future__ import annotations

import ipaddress
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from topospread_client._credentials import FilePath, Tls, WatchedFiles, check_types
from topospread_client._errors import BadConnection, Closed

if TYPE_CHECKING:
    from collections.abc import Callable

    import grpc

    from topospread_client._methods import Method

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds for one call: far longer than any takes, short enough for a person to wait for."""

DEFAULT_BULK_TIMEOUT: Final = 600.0
"""Seconds for a ReplaceObjects: a large cluster is written in many batches."""

_MAX_SECONDS: Final = 86400
"""Longest time in seconds of an option for connecting."""

_TIMES: Final = ("connect_timeout", "max_reconnect_backoff", "keepalive", "keepalive_timeout")

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
            nothing, PlacePod and ReserveNode, an ApplyObjects whose objects all have a
            resourceVersion, and a ReleaseReservation that names the reservation.
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
        check_types(self)

    def check(self) -> None:
        """Check what the types do not say; BadConnection for options that cannot be used."""
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

    def channel_options(self) -> list[tuple[str, str | int]]:
        """Options of gRPC."""
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
    scheme, found, _ = address.partition("://")
    host, colon, port = address.rpartition(":")
    wrong = ""
    if not address.strip():
        wrong = "the server's address is empty"
    elif found:
        if scheme not in _SCHEMES:
            wrong = f"{address}: gRPC has no scheme {scheme}"
    elif not (host and port):
        wrong = f"{address:.200} has no {'host' if colon and port else 'port'}"
    elif address.partition(":")[0] not in _SCHEMES and (
        "/" in port or (port.isdecimal() and not _is_port(port))
    ):
        wrong = f"{address:.200}: {port:.20} is no port"
    if wrong:
        tls = ", and set up TLS" if found and scheme.endswith("s") else ""
        raise BadConnection(f"{wrong}: write HOST:PORT{tls}")


def is_local(address: str) -> bool:
    """Whether an address is on this machine, so that plain text does not leave it."""
    scheme, colon, rest = address.partition(":")
    if colon and scheme in {"unix", "unix-abstract"}:
        return True
    if colon and scheme in {"dns", "ipv4", "ipv6"} and not rest.isdigit():
        address = rest.rpartition("/")[2]
        if scheme != "dns" and "," in address:
            return all(is_local(each) for each in address.split(","))
    host, _, port = address.rpartition(":")
    if not (port.isdigit() and (":" not in host or host.endswith("]"))):
        host = address
    host = host.strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _is_port(text: str) -> bool:
    return text.isascii() and len(text) <= 5 and int(text) < 2**16


def _ms(seconds: float) -> int:
    return round(seconds * 1000)


RELOAD_INTERVAL: Final = 1.0
"""Seconds between checks of the files: one costs more than the rest of making a call."""

CLOSED: Final = "the client is closed: open another one"


class Stubs:
    """A channel and the stubs of the methods that were called on it."""

    def __init__(self, channel: Any) -> None:
        self.channel: Final = channel
        self._stubs: dict[str, Callable[..., Any]] = {}

    def of(self, method: Method) -> Callable[..., Any]:
        """Stub of a method."""
        stub = self._stubs.get(method.path)
        if stub is None:
            stub = self._stubs[method.path] = getattr(self.channel, method.kind)(
                method.path,
                request_serializer=method.request.SerializeToString,
                response_deserializer=method.response.FromString,
            )
        return stub


class Channels:
    """The channels of one client, which connect at the first call: a new one for new TLS files.

    Calls that are under way when the files change end on the channel that they began on: each call
    holds its `Stubs` until it has ended, and gRPC closes a channel without references. `library` is
    `grpc` or `grpc.aio`.
    """

    def __init__(self, connection: Connection, library: Any) -> None:
        connection.check()
        self._connection, self._library = connection, library
        tls = connection.tls
        self._files: WatchedFiles[grpc.ChannelCredentials] | None = None
        if tls is not None:
            self._files = WatchedFiles((tls.ca, tls.cert, tls.key), tls.credentials)
        # Reentrant: a signal's handler may close in the thread that reloads.
        self._lock = threading.RLock()
        self._checked_at = time.monotonic()
        self._all: WeakSet[Stubs] = WeakSet()
        self._current = self._open()
        self.closed = False

    def _open(self) -> Stubs:
        address, options = self._connection.address, self._connection.channel_options()
        if self._files is None:
            channel = self._library.insecure_channel(address, options=options)
        else:
            channel = self._library.secure_channel(address, self._files.value, options=options)
        stubs = Stubs(channel)
        self._all.add(stubs)
        return stubs

    def current(self) -> Stubs:
        """Stubs for a call that begins now; Closed where the client is closed."""
        if self._files is not None and time.monotonic() - self._checked_at > RELOAD_INTERVAL:
            self._reload(self._files)
        if self.closed:
            raise Closed(CLOSED)
        return self._current

    def close(self) -> list[Any]:
        """Refuse further calls; returns the channels to close."""
        with self._lock:
            self.closed = True
            return [stubs.channel for stubs in self._all]

    def _reload(self, files: WatchedFiles[grpc.ChannelCredentials]) -> None:
        if not self._lock.acquire(blocking=False):
            return  # another thread reloads
        try:
            self._checked_at = time.monotonic()
            if not self.closed and files.changed():
                self._current = self._open()
        finally:
            self._lock.release()
