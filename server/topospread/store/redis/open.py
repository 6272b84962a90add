"""Opens Redis stores, and checks that their servers can hold one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from redis import exceptions

from topospread.errors import ConfigError, StoreUnavailable
from topospread.store.model import StoreSettings
from topospread.store.redis.client import RedisClients
from topospread.store.redis.connections import url_options
from topospread.store.redis.failures import UnfitServer, unavailable
from topospread.store.redis.script import Script
from topospread.store.redis.sentinel import SentinelMonitor
from topospread.store.redis.store import RedisStore
from topospread.store.redis.topology import ClusterNodes, SingleNode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.store.redis.client import RedisClient
    from topospread.store.redis.topology import RedisTopology
    from topospread.store.urls import RedisURL

DEFAULTS: Final = StoreSettings()
OLDEST_REDIS: Final = (6, 2)

RIGHTS: Final = "~ts:* +@read +@write +@connection +@scripting +time +info +wait +cluster|slots"
"""Least rights of the Redis user: WAIT for --wait-replicas, CLUSTER SLOTS for a Redis Cluster."""

_NO_AOF: Final = (
    "Redis runs without AOF (appendonly no): a restart loses the writes since its last snapshot; "
    "set it with CONFIG SET appendonly yes"
)

_UNSEEN: Final = "the Redis user may not run INFO: eviction and AOF could not be checked"

_SECTIONS: Final = ("server", "persistence", "replication")


def open_store(url: RedisURL, settings: StoreSettings = DEFAULTS) -> RedisStore:
    """Open a store and check its servers.

    Raises:
        ConfigError: this Redis would lose data or cannot run the store; says what to change.
        StoreUnavailable: it cannot be reached, or refuses the user.
    """
    clients = RedisClients(_topology_of(url, settings), settings)
    try:
        if not url.kind and _is_node(url, clients):
            clients.close()
            return open_store(_as_cluster(url), settings)
        warnings = _inspect(clients)
    except StoreUnavailable as error:
        clients.close()
        if isinstance(error.__cause__, (UnfitServer, exceptions.ReadOnlyError)):
            raise ConfigError(f"store: {error}") from error
        raise
    except BaseException:
        clients.close()
        raise
    return RedisStore(url.address, settings, clients, warnings)


def _topology_of(url: RedisURL, settings: StoreSettings) -> RedisTopology:
    if url.kind == "sentinel":
        return SentinelMonitor(url, settings)
    if not url.kind:
        return SingleNode(url_options(url, settings), settings)
    try:
        return ClusterNodes(url, settings)
    except (exceptions.RedisError, OSError) as error:
        raise unavailable(error) from error


def _is_node(url: RedisURL, clients: RedisClients) -> bool:
    """Whether the server of a URL for one server is a node of a Redis Cluster."""
    (client,) = clients.for_all_masters()
    try:
        info = _info(client, ("server",))
    except StoreUnavailable as error:
        if not isinstance(error.__cause__, exceptions.ReadOnlyError):
            raise
        # A replica: of a Redis Cluster it knows the masters.
        try:
            ClusterNodes(_as_cluster(url), clients.settings).close()
        except (exceptions.RedisError, OSError, ConfigError):
            raise error from error.__cause__
        return True
    return info is not None and info.get("redis_mode") == "cluster"


def _as_cluster(url: RedisURL) -> RedisURL:
    if url.socket or url.database:
        raise ConfigError(
            "store: this is a node of a Redis Cluster, which has database 0 only and is reached "
            "over TCP; write redis+cluster://HOST:PORT"
        )
    return replace(url, kind="cluster")


def _inspect(clients: RedisClients) -> tuple[str, ...]:
    """Refuse a Redis that cannot hold the store; warn of one that may lose it."""
    warnings: dict[str, None] = {}
    denied: set[str] = set()
    script = Script(clients)
    for client in clients.for_all_masters():
        if clients.settings.wait_replicas and client.try_call("WAIT", 0, 1) is None:
            denied.add("wait")
        info = _info(client, _SECTIONS)
        if info is not None and info.get("loading") == "1":
            # AOF seems to be off until it is loaded; whatever reads is put off until then.
            client.try_call("DBSIZE")
            info = _info(client, _SECTIONS)
        if info is None:
            warnings[_UNSEEN] = None
        else:
            warnings |= dict.fromkeys(_check_info(info, clients.settings))
        client.try_call("SCRIPT", "LOAD", script.text)
    denied |= {word.decode() for word in script.run("probe", ("probe",))}
    if denied:
        raise ConfigError(
            f"store: the Redis user may not run {', '.join(sorted(denied))} on ts:*; grant it with "
            f"ACL SETUSER … {RIGHTS}"
        )
    return tuple(warnings)


def _check_info(info: Mapping[str, str], settings: StoreSettings) -> list[str]:
    """Warnings about a server, from the fields of INFO; refuses an unfit one."""
    version = info.get("redis_version", "0")
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        raise ConfigError(f"store: Redis {version} is too old; use 6.2 or newer")
    if info.get("redis_mode") == "sentinel":
        raise ConfigError(
            "store: this is a Sentinel; write redis+sentinel://HOST:PORT/NAME with the name that "
            "it gives the master"
        )
    warnings = []
    if info.get("aof_enabled") == "0":
        warnings.append(_NO_AOF)
    replicas = int(info.get("connected_slaves", "0"))
    if replicas < settings.wait_replicas:
        warnings.append(
            f"writes are to wait for {settings.wait_replicas} replicas and Redis has {replicas}: "
            "every write will be answered UNAVAILABLE although it happens"
        )
    return warnings


def _info(client: RedisClient, sections: tuple[str, ...]) -> dict[str, str] | None:
    """The fields of INFO, or None when this user may not see them."""
    found: dict[str, str] = {}
    for section in sections:
        reply = client.try_call("INFO", section)
        if reply is None:
            return None
        for line in reply.decode(errors="replace").splitlines():
            name, _, value = line.partition(":")
            found[name] = value
    return found
