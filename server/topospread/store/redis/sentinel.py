"""Connections to the master that Sentinels name, found anew each time that one is made."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING, Any, Final

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from topospread.store.redis.connections import login_options, network_options

if TYPE_CHECKING:
    from topospread.store.redis.connections import Options
    from topospread.store.settings import StoreSettings
    from topospread.store.urls import SentinelURL


class Master:
    """Where the master is, as the first Sentinel that answers says."""

    def __init__(self, url: SentinelURL, settings: StoreSettings) -> None:
        options = login_options(url.sentinel_username, url.sentinel_password, settings)
        network = network_options(url.tls)
        del network["connection_class"]
        self._service = url.service
        self._sentinel = Sentinel(  # type: ignore[no-untyped-call]
            list(url.sentinels),
            sentinel_kwargs=options
            | network
            | {"ssl": url.tls is not None, "retry": Retry(NoBackoff(), 0)}
            # A Sentinel that hangs must leave time for the others.
            | {"socket_timeout": settings.connect_timeout},
        )
        self._lock = Lock()

    def find(self) -> tuple[str, int]:
        """Host and port.

        Raises:
            redis.ConnectionError: no Sentinel answers and knows a live master of that name.
        """
        # The driver sorts its list of Sentinels meanwhile.
        with self._lock:
            host, port = self._sentinel.discover_master(self._service)  # type: ignore[no-untyped-call]
            return host, port


class _ToMaster:
    """Mixed into a connection: it goes wherever the master is when it connects."""

    _sock: Any

    def __init__(self, *, master: Master, **options: Any) -> None:
        self._master = master
        self.host, self.port = "", 0
        super().__init__(**options)

    def connect(self) -> None:
        """Connect, if it is not connected."""
        if self._sock is None:
            self.host, self.port = self._master.find()
        super().connect()  # type: ignore[misc] # of the class that this is mixed into


class _Connection(_ToMaster, redis.Connection):
    pass


class _TlsConnection(_ToMaster, redis.SSLConnection):
    pass


_NO_MASTER: Final = "the server that Sentinels name is not a master yet, or not any more"


def _check_master(connection: redis.Connection) -> None:
    """Sentinels may name a server that is not promoted yet; a replica's reads may be old."""
    connection.on_connect()  # type: ignore[no-untyped-call]
    connection.send_command("INFO", "replication")  # type: ignore[no-untyped-call]
    try:
        told = connection.read_response()
    except exceptions.NoPermissionError:
        return
    if b"role:master" not in told:
        raise exceptions.ConnectionError(_NO_MASTER)


def sentinel_options(url: SentinelURL, settings: StoreSettings) -> Options:
    """How to connect to whatever is the master.

    Raises:
        ConfigError: a certificate file cannot be used.
    """
    options = login_options(url.username, url.password, settings) | network_options(url.tls)
    return options | {
        "db": url.database,
        "connection_class": _Connection if url.tls is None else _TlsConnection,
        "master": Master(url, settings),
        "redis_connect_func": _check_master,
    }
