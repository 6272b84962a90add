"""How a server is reached: address, TLS, time-outs, and how a connection is looked after."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from typing import Final

import grpc
import grpc.aio

from topospread_client._channels import Channels
from topospread_client._errors import BadConnection
from topospread_client._tls import FilePath, Tls
from topospread_client._token import Token

__all__ = ["DEFAULT_BULK_TIMEOUT", "DEFAULT_TIMEOUT", "Connection", "Tls", "is_local"]

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds for one call: far above any answer's time, short enough for a person to wait for."""

DEFAULT_BULK_TIMEOUT: Final = 600.0
"""Seconds for a ReplaceObjects: a large cluster is written in many pieces."""

_LONGEST: Final = 86400
"""Seconds of an option for connecting."""

MAX_MESSAGE_BYTES: Final = 128 * 1024 * 1024
"""Largest answer taken: a page of objects or the names of tens of thousands of nodes."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Where and how to connect.

    Attributes:
        address: ``HOST:PORT`` or any gRPC target (``dns:///…``, ``ipv4:HOST:PORT,HOST:PORT``,
            ``unix:///…``).
        tls: None speaks plain text.
        insecure: allow plain text to an address that is not this machine's own.
        retries: whether calls are repeated when the server was out of reach: those that change
            nothing, PlacePod, ReserveNode and those of one's own lease, an ApplyObjects whose
            objects all have a resourceVersion, and a ReleaseReservation that names the
            reservation.
        token: shown with each call, where the server asks who calls.
        token_file: a file with the token instead; read again when it changes.
        retry_timeout: seconds after which a call is not repeated any more, though its own time-out
            would allow it.
        connect_timeout: seconds until a try to connect has failed.
        max_reconnect_backoff: seconds at most, give or take a fifth, between tries to connect.
        keepalive: seconds without a word from the server after which it is asked for one, whether
            or not calls are under way; servers take it for abuse below 5.
        keepalive_timeout: seconds for its answer; then the connection is given up, calls under way
            end with Unavailable, and the next ones connect anew.
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

    def shown(self) -> Token:
        """What tells the server who calls.

        Raises:
            BadConnection: there is no token where one should be.
        """
        return Token(self.token, self.token_file)

    def open(self) -> Channels[grpc.Channel]:
        """Channels; they connect at the first call.

        Raises:
            BadConnection: the options cannot be used.
        """
        self._check()

        def opened(credentials: grpc.ChannelCredentials | None) -> grpc.Channel:
            if credentials is None:
                return grpc.insecure_channel(self.address, options=self._options())
            return grpc.secure_channel(self.address, credentials, options=self._options())

        return Channels(self, opened)

    def open_aio(self) -> Channels[grpc.aio.Channel]:
        """The same for asyncio; must be called where an event loop runs."""
        self._check()

        def opened(credentials: grpc.ChannelCredentials | None) -> grpc.aio.Channel:
            if credentials is None:
                return grpc.aio.insecure_channel(self.address, options=self._options())
            return grpc.aio.secure_channel(self.address, credentials, options=self._options())

        return Channels(self, opened)

    def _check(self) -> None:
        if not self.address.strip():
            raise BadConnection("the server's address is empty: write HOST:PORT")
        if "://" not in self.address and ":" not in self.address:
            raise BadConnection(f"{self.address} has no port: write HOST:PORT")
        if self.tls is None and not self.insecure and not is_local(self.address):
            raise BadConnection(
                f"{self.address} is not on this machine and no TLS is set up: "
                "give TLS options, or ask for insecure plain text explicitly"
            )

        for name in ("connect_timeout", "max_reconnect_backoff", "keepalive", "keepalive_timeout"):
            if not 0.001 <= getattr(self, name) <= _LONGEST:
                raise BadConnection(
                    f"{name}: {getattr(self, name)}: must be from 0.001 to {_LONGEST} seconds"
                )
        if not self.retry_timeout >= 0:
            raise BadConnection(f"retry_timeout: {self.retry_timeout}: must not be negative")

    def _options(self) -> list[tuple[str, str | int]]:
        options: list[tuple[str, str | int]] = [
            ("grpc.primary_user_agent", "topospread-client"),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            # A connection of this client's own: others in the process may have given theirs up.
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.keepalive_time_ms", _ms(self.keepalive)),
            ("grpc.keepalive_timeout_ms", _ms(self.keepalive_timeout)),
            # A ping of gRPC's own (it measures the network) stands for one that asks.
            ("grpc.http2.ping_timeout_ms", _ms(self.keepalive_timeout)),
            ("grpc.keepalive_permit_without_calls", 1),
            # A watch may be silent for hours; gRPC would stop to ask after two pings.
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


def is_local(address: str) -> bool:
    """Whether plain text to this address stays on this machine."""
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


def _has_port(address: str) -> bool:
    return address.rpartition(":")[2].isdigit() and (address.count(":") == 1 or "]:" in address)
