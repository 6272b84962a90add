"""Connections to Redis servers: how they are made, and as much of the driver's as is used here."""

from __future__ import annotations

import math
import re
import ssl
import time
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from topospread.errors import ConfigError
from topospread.store.redis.failures import Unfit

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket

    from topospread.store.settings import StoreSettings
    from topospread.store.urls import TLS, RedisURL

Reply = Any
"""What a RESP2 parser gives: bytes, int, None, or a list of these."""

Word = str | bytes | int

Options = dict[str, Any]
"""Keyword arguments of the driver's pools and connections."""

_POLICY: Final = re.compile(rb"maxmemory_policy:(\S+)")
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

    @property
    def is_connected(self) -> bool:
        """Whether it is."""

    def _get_socket(self) -> socket | None: ...


class Pool(Protocol):
    """Connections of one Redis."""

    def get_connection(self) -> Line:
        """One that is connected and has no answer pending."""

    def release(self, connection: Line) -> None:
        """Give one back."""

    def disconnect(self) -> None:
        """Close all."""


def make_connection(options: Options) -> Line:
    """One connection, made at its first use."""
    rest = dict(options)
    made: object = rest.pop("connection_class")(**rest)
    return cast("Line", made)


def call_pool(options: Options, settings: StoreSettings) -> Pool:
    """Connections for calls; whoever finds all in use waits for one."""
    made: object = redis.BlockingConnectionPool(  # type: ignore[no-untyped-call]
        max_connections=settings.connections, timeout=settings.timeout, **options
    )
    return cast("Pool", made)


def tail_pool(options: Options) -> Pool:
    """Connections that wait, one for each thread that follows."""
    made: object = redis.ConnectionPool(max_connections=_TAILS, **options)
    return cast("Pool", made)


def check_role(line: Line, deadline: float = math.inf) -> None:
    """Refuse a replica: what it tells may be old.

    Raises:
        redis.ReadOnlyError: it is one.
        redis.TimeoutError: no answer by then.
    """
    told = _info(line, "replication", deadline)
    if told is not None and b"role:slave" in told:
        raise exceptions.ReadOnlyError("the server is a replica")


def check_policy(line: Line, deadline: float = math.inf) -> None:
    """Refuse a server that throws away what is stored when it is full.

    Raises:
        Unfit: it would; says what to set.
        redis.TimeoutError: no answer by then.
    """
    told = _info(line, "memory", deadline)
    policy = _POLICY.search(told or b"")
    if policy is not None and policy[1] != b"noeviction":
        raise Unfit(
            f"Redis evicts keys when it is full (maxmemory-policy {policy[1].decode()}), which "
            "would lose cluster state without a word; set it with CONFIG SET maxmemory-policy "
            "noeviction"
        )


def _info(line: Line, section: str, deadline: float) -> bytes | None:
    """A section of INFO; None when this user may not see it."""
    line.send_command("INFO", section)
    if deadline < math.inf and not line.can_read(max(0.0, deadline - time.monotonic())):
        raise exceptions.TimeoutError("no answer before the caller's deadline")
    try:
        told: bytes = line.read_response()
    except exceptions.NoPermissionError:
        return None
    return told


def only_masters(connection: redis.Connection) -> None:
    """A `redis_connect_func`: log in, and refuse a server that cannot be the store."""
    any_node(connection)
    check_role(cast("Line", connection))


def any_node(connection: redis.Connection) -> None:
    """A `redis_connect_func` for a Redis Cluster, where replicas know the masters, too."""
    connection.on_connect()  # type: ignore[no-untyped-call]
    check_policy(cast("Line", connection))


def url_options(url: RedisURL, settings: StoreSettings) -> Options:
    """How to connect to the one server that a URL names."""
    options = login_options(url.username, url.password, settings)
    options |= {"db": url.database, "redis_connect_func": only_masters}
    if url.socket:
        return options | {
            "connection_class": redis.UnixDomainSocketConnection,
            "path": url.socket,
        }
    return options | network_options(url.tls) | {"host": url.host, "port": url.port}


def login_options(username: str, password: str, settings: StoreSettings) -> Options:
    """Who we are, and how patient."""
    return {
        "username": username or None,
        "password": password or None,
        "socket_timeout": settings.timeout,
        "socket_connect_timeout": settings.connect_timeout,
        # Tries are counted in one place, see Wire.
        "retry": Retry(NoBackoff(), 0),
        # RESP3 was no faster, and its maps would need other parsing.
        "protocol": 2,
        "client_name": "topospread",
    }


def network_options(tls: TLS | None) -> Options:
    """How to speak over TCP; without host and port.

    Raises:
        ConfigError: a certificate file cannot be used.
    """
    options: Options = {"socket_keepalive": True, "connection_class": redis.Connection}
    if tls is None:
        return options
    _check_files(tls)
    return options | {
        "connection_class": redis.SSLConnection,
        "ssl_ca_certs": tls.cacert or None,
        "ssl_certfile": tls.cert or None,
        "ssl_keyfile": tls.key or None,
        "ssl_cert_reqs": "none" if tls.insecure else "required",
        "ssl_check_hostname": not tls.insecure,
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
