"""Connections to Redis servers: how they are made, and as much of the driver's as is used here."""

from __future__ import annotations

import re
import ssl
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry
from typing_extensions import override

from topospread.errors import ConfigError
from topospread.store.redis.failures import UnfitServer

if TYPE_CHECKING:
    from collections.abc import Sequence
    from socket import socket

    from topospread.store.model import StoreSettings
    from topospread.store.urls import TLS, RedisURL

Reply = Any
"""What a RESP2 parser gives: bytes, int, None, or a list of these."""

Arg = str | bytes | int

Options = dict[str, Any]
"""Keyword arguments of the driver's pools and connections."""

CHECKS: Final = (("INFO", "replication"), ("INFO", "memory"))
"""Commands for what check_role() and check_policy() look at. (One INFO for both: since 7.0.)"""

_POLICY: Final = re.compile(rb"maxmemory_policy:(\S+)")
_BLOCKING_CONNECTIONS: Final = 1024
"""More threads than ever follow: a bound only against a leak."""


class RedisConnection(Protocol):
    """A connection of the driver, with the methods that are used here."""

    def send_command(self, *words: Arg) -> None:
        """Send one command, connecting first if need be."""

    def pack_commands(self, commands: Sequence[Sequence[Arg]]) -> list[bytes]:
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


class RedisPool(Protocol):
    """A pool of connections to one Redis.

    Attributes:
        connection_kwargs: of its connections, with the server's host and port.
    """

    connection_kwargs: Options

    def get_connection(self) -> RedisConnection:
        """Take a connection that has no answer pending, connecting it if need be."""

    def release(self, connection: RedisConnection) -> None:
        """Give a connection back."""

    def disconnect(self) -> None:
        """Close all connections."""


class ServerPool(redis.BlockingConnectionPool):
    """The connections to one server: for commands, where a thread waits when all are in use.

    Attributes:
        commands: the same as a RedisPool.
        blocking: a pool beside it for blocking reads, one connection for each thread that follows.
    """

    def __init__(self, *, max_connections: int, timeout: float, **options: Any) -> None:
        super().__init__(  # type: ignore[no-untyped-call] # the driver has no types here
            max_connections=max_connections, timeout=timeout, **options
        )
        self.commands = cast("RedisPool", self)
        blocking: object = redis.ConnectionPool(max_connections=_BLOCKING_CONNECTIONS, **options)
        self.blocking = cast("RedisPool", blocking)

    @override
    def close(self) -> None:
        """Close all connections."""
        self.commands.disconnect()
        self.blocking.disconnect()


def make_connection(options: Options) -> RedisConnection:
    """A connection of its own, opened at its first use."""
    rest = dict(options)
    made: object = rest.pop("connection_class")(**rest)
    return cast("RedisConnection", made)


def pool_options(settings: StoreSettings) -> Options:
    """Options of a ServerPool beside those of its connections."""
    return {"max_connections": settings.connections, "timeout": settings.timeout}


def check_role(replication: Reply) -> None:
    """Refuse a replica: its data may be old.

    Raises:
        redis.ReadOnlyError: the server is a replica.
    """
    if b"role:slave" in _seen(replication):
        raise exceptions.ReadOnlyError("the server is a replica")


def check_policy(memory: Reply) -> None:
    """Refuse a server that evicts keys when it is full.

    Raises:
        UnfitServer: it would; the text has the setting to change.
    """
    policy = _POLICY.search(_seen(memory))
    if policy is not None and policy[1] != b"noeviction":
        raise UnfitServer(
            f"Redis evicts keys when it is full (maxmemory-policy {policy[1].decode()}), which "
            "would lose cluster state without a word; set it with CONFIG SET maxmemory-policy "
            "noeviction"
        )


def _seen(section: Reply) -> bytes:
    """A section of INFO; empty when this user may not see it."""
    if isinstance(section, exceptions.NoPermissionError):
        return b""
    if isinstance(section, Exception):
        raise section
    return cast("bytes", section)


def only_masters(connection: redis.Connection) -> None:
    """A `redis_connect_func`: log in, and refuse a server that cannot be the store."""
    any_node(connection)
    check_role(_info(connection, "replication"))


def any_node(connection: redis.Connection) -> None:
    """A `redis_connect_func` for a Redis Cluster, where replicas know the masters, too."""
    connection.on_connect()  # type: ignore[no-untyped-call] # the driver has no types here
    check_policy(_info(connection, "memory"))


def _info(connection: redis.Connection, section: str) -> Reply:
    line = cast("RedisConnection", connection)
    line.send_command("INFO", section)
    try:
        return line.read_response()
    except exceptions.NoPermissionError as refused:
        return refused


def url_options(url: RedisURL, settings: StoreSettings) -> Options:
    """Options to connect to the one server that a URL names."""
    options = login_options(url.username, url.password, settings)
    options |= {"db": url.database, "redis_connect_func": only_masters}
    if url.socket:
        return options | {
            "connection_class": redis.UnixDomainSocketConnection,
            "path": url.socket,
        }
    ((host, port),) = url.hosts
    return options | network_options(url.tls) | {"host": host, "port": port}


def login_options(username: str, password: str, settings: StoreSettings) -> Options:
    """Options for user, password and time-outs."""
    return {
        "username": username or None,
        "password": password or None,
        "socket_timeout": settings.timeout,
        "socket_connect_timeout": settings.connect_timeout,
        # Retries are counted in one place, see RedisClient.
        "retry": Retry(NoBackoff(), 0),
        # RESP3 was no faster, and its maps would need other parsing.
        "protocol": 2,
        "client_name": "topospread",
    }


def network_options(tls: TLS | None) -> Options:
    """Options for TCP and TLS, without host and port.

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
