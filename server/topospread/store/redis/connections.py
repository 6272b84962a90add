"""Connections to one Redis: how they are made, and as much of the driver's as is used here."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from topospread.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket

    from topospread.store.settings import StoreSettings
    from topospread.store.urls import TLS, RedisURL

Reply = Any
"""What a RESP2 parser gives: bytes, int, None, or a list of these."""

Word = str | bytes | int

_TAILS: Final = 1024
"""More threads than ever follow: a bound only against a leak."""


class Line(Protocol):
    """One connection, as much of it as is used here."""

    def send_command(self, *words: Word) -> None:
        """Send one command, connecting first if need be."""

    def pack_commands(self, commands: Sequence[Sequence[Word]]) -> list[bytes]:
        """The bytes of several commands."""

    def send_packed_command(self, command: list[bytes]) -> None:
        """Send what pack_commands made."""

    def read_response(self) -> Reply:
        """The next answer; an error answer is raised."""

    def can_read(self, timeout: float) -> bool:
        """Whether an answer comes within ``timeout`` seconds."""

    def disconnect(self) -> None:
        """Close it; the next use connects again."""

    def _get_socket(self) -> socket | None: ...


class Pool(Protocol):
    """Connections of one Redis."""

    def get_connection(self) -> Line:
        """One that is connected and has no answer pending."""

    def release(self, connection: Line) -> None:
        """Give one back."""

    def disconnect(self) -> None:
        """Close all."""


def call_pool(url: RedisURL, settings: StoreSettings) -> Pool:
    """Connections for calls; whoever finds all in use waits for one."""
    made: object = redis.BlockingConnectionPool(  # type: ignore[no-untyped-call]
        max_connections=settings.connections,
        timeout=settings.timeout,
        **_options(url, settings),
    )
    return cast("Pool", made)


def tail_pool(url: RedisURL, settings: StoreSettings) -> Pool:
    """Connections that wait, one for each thread that follows."""
    made: object = redis.ConnectionPool(max_connections=_TAILS, **_options(url, settings))
    return cast("Pool", made)


def _options(url: RedisURL, settings: StoreSettings) -> dict[str, Any]:
    options: dict[str, Any] = {
        "db": url.database,
        "username": url.username or None,
        "password": url.password or None,
        "socket_timeout": settings.timeout,
        "socket_connect_timeout": settings.connect_timeout,
        # Tries are counted in one place, see Wire.
        "retry": Retry(NoBackoff(), 0),
        # RESP3 was no faster, and its maps would need other parsing.
        "protocol": 2,
        "client_name": "topospread",
    }
    if url.socket:
        return options | {
            "connection_class": redis.UnixDomainSocketConnection,
            "path": url.socket,
        }
    options |= {"host": url.host, "port": url.port, "socket_keepalive": True}
    if url.tls is None:
        return options | {"connection_class": redis.Connection}
    _check_files(url.tls)
    return options | {
        "connection_class": redis.SSLConnection,
        "ssl_ca_certs": url.tls.cacert or None,
        "ssl_certfile": url.tls.cert or None,
        "ssl_keyfile": url.tls.key or None,
        "ssl_cert_reqs": "none" if url.tls.insecure else "required",
        "ssl_check_hostname": not url.tls.insecure,
    }


def _check_files(tls: TLS) -> None:
    """Refuse certificate files that cannot be used, before a connection fails for lack of them."""
    context = ssl.create_default_context()
    try:
        if tls.cacert:
            context.load_verify_locations(tls.cacert)
        if tls.cert:
            context.load_cert_chain(tls.cert, tls.key)
    except OSError as error:
        named = ", ".join(path for path in (tls.cacert, tls.cert, tls.key) if path)
        raise ConfigError(
            f"store: one of {named} cannot be used ({error.strerror or 'not PEM'}); "
            "name readable PEM files, key and cert of one pair"
        ) from error
