"""Opens Redis stores: connections, and a look at whether this Redis can keep the promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from redis import exceptions

from topospread.errors import ConfigError, StoreUnavailable
from topospread.store.redis.cluster import Nodes
from topospread.store.redis.connections import url_options
from topospread.store.redis.failures import Unfit, unavailable
from topospread.store.redis.script import Script
from topospread.store.redis.sentinel import Sentinels
from topospread.store.redis.store import RedisStore
from topospread.store.redis.ways import OneWay
from topospread.store.redis.wire import Wires
from topospread.store.settings import StoreSettings
from topospread.store.urls import ClusterURL, RedisURL, SentinelURL

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.store.redis.ways import Ways
    from topospread.store.redis.wire import Wire
    from topospread.store.urls import AnyRedisURL

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


def open_store(url: AnyRedisURL, settings: StoreSettings = DEFAULTS) -> RedisStore:
    """Open a store and look at its servers.

    Raises:
        ConfigError: this Redis would lose data or cannot run the store; says what to change.
        StoreUnavailable: it cannot be reached, or refuses the user.
    """
    wires = Wires(_way(url, settings), settings)
    try:
        if isinstance(url, RedisURL) and _is_node(url, wires):
            wires.close()
            return open_store(_as_cluster(url), settings)
        warnings = _inspect(wires)
    except StoreUnavailable as error:
        wires.close()
        if isinstance(error.__cause__, (Unfit, exceptions.ReadOnlyError)):
            raise ConfigError(f"store: {error}") from error
        raise
    except BaseException:
        wires.close()
        raise
    return RedisStore(url.address, settings, wires, warnings)


def _way(url: AnyRedisURL, settings: StoreSettings) -> Ways:
    if isinstance(url, SentinelURL):
        return Sentinels(url, settings)
    if isinstance(url, RedisURL):
        return OneWay(url_options(url, settings), settings)
    try:
        return Nodes(url, settings)
    except (exceptions.RedisError, OSError) as error:
        raise unavailable(error) from error


def _is_node(url: RedisURL, wires: Wires) -> bool:
    """Whether what was named as one server is a node of a Redis Cluster."""
    (wire,) = wires.each()
    try:
        info = _info(wire, ("server",))
    except StoreUnavailable as error:
        if not isinstance(error.__cause__, exceptions.ReadOnlyError):
            raise
        # A replica: of a Redis Cluster it knows the masters.
        try:
            Nodes(_as_cluster(url), wires.settings).close()
        except (exceptions.RedisError, OSError, ConfigError):
            raise error from error.__cause__
        return True
    return info is not None and info.get("redis_mode") == "cluster"


def _as_cluster(url: RedisURL) -> ClusterURL:
    if url.socket or url.database:
        raise ConfigError(
            "store: this is a node of a Redis Cluster, which has database 0 only and is reached "
            "over TCP; write redis+cluster://HOST:PORT"
        )
    return ClusterURL(((url.host, url.port),), url.username, url.password, url.tls)


def _inspect(wires: Wires) -> tuple[str, ...]:
    """Refuse a Redis that cannot hold the store; warn of one that may lose it."""
    warnings: dict[str, None] = {}
    denied: set[str] = set()
    for wire in wires.each():
        if wires.settings.wait_replicas and wire.allowed("WAIT", 0, 1) is None:
            denied.add("wait")
        info = _info(wire, _SECTIONS)
        if info is not None and info.get("loading") == "1":
            # AOF seems to be off until it is loaded; whatever reads is put off until then.
            wire.allowed("DBSIZE")
            info = _info(wire, _SECTIONS)
        if info is None:
            warnings[_UNSEEN] = None
        else:
            warnings |= dict.fromkeys(_judge(info, wires.settings))
    denied |= {word.decode() for word in Script(wires).run("probe", ("probe",))}
    if denied:
        raise ConfigError(
            f"store: the Redis user may not run {', '.join(sorted(denied))} on ts:*; grant it with "
            f"ACL SETUSER … {RIGHTS}"
        )
    return tuple(warnings)


def _judge(info: Mapping[str, str], settings: StoreSettings) -> list[str]:
    """Warnings, or a refusal, for what INFO tells."""
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


def _info(wire: Wire, sections: tuple[str, ...]) -> dict[str, str] | None:
    """The fields of INFO, or None when this user may not see them."""
    found: dict[str, str] = {}
    for section in sections:
        reply = wire.allowed("INFO", section)
        if reply is None:
            return None
        for line in reply.decode(errors="replace").splitlines():
            name, _, value = line.partition(":")
            found[name] = value
    return found
