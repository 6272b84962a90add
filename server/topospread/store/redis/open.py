"""Opens Redis stores: connections, and a look at whether this Redis can keep the promises."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.errors import ConfigError
from topospread.store.redis import connections
from topospread.store.redis.script import Script
from topospread.store.redis.store import RedisStore
from topospread.store.redis.wire import Wire
from topospread.store.settings import StoreSettings

if TYPE_CHECKING:
    from topospread.store.urls import RedisURL

DEFAULTS: Final = StoreSettings()
OLDEST_REDIS: Final = (6, 2)

_NO_AOF: Final = (
    "Redis runs without AOF (appendonly no): a restart loses the writes since its last snapshot; "
    "set it with CONFIG SET appendonly yes"
)

_UNSEEN: Final = "the Redis user may not run INFO: eviction and AOF could not be checked"


def open_store(url: RedisURL, settings: StoreSettings = DEFAULTS) -> RedisStore:
    """Open a store and look at its server.

    Raises:
        ConfigError: this Redis would lose data or cannot run the store; says what to change.
        StoreUnavailable: it cannot be reached, or refuses the user.
    """
    pool = connections.call_pool(url, settings)
    try:
        warnings = _inspect(Wire(pool, settings))
    except BaseException:
        pool.disconnect()
        raise
    return RedisStore(url, settings, pool, connections.tail_pool(url, settings), warnings)


def _inspect(wire: Wire) -> tuple[str, ...]:
    """Refuse a Redis that cannot hold the store; warn of one that may lose it."""
    info = _info(wire)
    warnings = (_UNSEEN,) if info is None else _judge(info)
    denied = Script(wire).run("probe", ("probe",))
    if denied:
        names = ", ".join(sorted({word.decode() for word in denied}))
        raise ConfigError(
            f"store: the Redis user may not run {names} on ts:*; grant it with ACL SETUSER … ~ts:* "
            "+@read +@write +@connection +@transaction +@scripting +time +info"
        )
    return warnings


def _judge(info: dict[str, str]) -> tuple[str, ...]:
    """Warnings, or a refusal, for what INFO tells."""
    version = info.get("redis_version", "0")
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_REDIS:
        raise ConfigError(f"store: Redis {version} is too old; use 6.2 or newer")
    mode = info.get("redis_mode", "standalone")
    if mode != "standalone":
        raise ConfigError(f"store: this is a Redis in {mode} mode; name a single Redis master")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise ConfigError(
            f"store: Redis evicts keys when it is full (maxmemory-policy {policy}), which would "
            "lose cluster state without a word; set it with CONFIG SET maxmemory-policy noeviction"
        )
    if info.get("aof_enabled") == "0":
        return (_NO_AOF,)
    return ()


def _info(wire: Wire) -> dict[str, str] | None:
    """The fields of INFO, or None when this user may not see them."""
    found: dict[str, str] = {}
    for section in ("server", "memory", "persistence"):
        reply = wire.allowed("INFO", section)
        if reply is None:
            return None
        for line in reply.decode(errors="replace").splitlines():
            name, _, value = line.partition(":")
            found[name] = value
    return found
