"""Redis' errors as ours; the driver's text, which may quote arguments, stays in ``__cause__``."""

from __future__ import annotations

from typing import Final

from redis import exceptions

from topospread.errors import StoreUnavailable

# Looked for anywhere: Redis 6.2 puts its own words before the code of an error inside a script.
_REPLIES: Final = (
    ("OOM ", "Redis is out of memory (maxmemory); give it more or drop clusters"),
    ("LOADING", "Redis is still loading its data; retry"),
    ("BUSY ", "Redis is busy with another script; retry"),
    ("READONLY", "this Redis is a read-only replica; name the master"),
    ("MISCONF", "Redis cannot save to its disk and refuses writes; look at its log"),
    ("NOREPLICAS", "Redis has fewer replicas than min-replicas-to-write asks for; retry"),
    ("WRONGTYPE", "a key of this cluster holds something else; drop the cluster and load it again"),
    (
        "equal or smaller",
        "the cluster's log is ahead of its meta; drop the cluster and load it again",
    ),
    ("NOPERM", "the Redis user may not run a command or use a key that the store needs"),
    ("permissions", "the Redis user may not run a command or use a key that the store needs"),
    ("MOVED", "this Redis is one node of a cluster and does not hold the key"),
)


def unavailable(error: Exception) -> StoreUnavailable:
    """What callers are told about a driver's error."""
    if isinstance(error, exceptions.BusyLoadingError):
        return StoreUnavailable("Redis is still loading its data; retry")
    if isinstance(error, (exceptions.AuthenticationError, exceptions.AuthorizationError)):
        return StoreUnavailable("Redis refused the user or password; check both")
    if isinstance(error, (exceptions.TimeoutError, TimeoutError)):
        return StoreUnavailable("Redis did not answer in time; retry")
    if isinstance(error, exceptions.MaxConnectionsError):
        return StoreUnavailable("all connections to Redis are in use; retry")
    if isinstance(error, (exceptions.ConnectionError, OSError)):
        return StoreUnavailable("Redis cannot be reached; retry")
    if isinstance(error, exceptions.NoPermissionError):
        return StoreUnavailable(
            "the Redis user may not run a command or use a key that the store needs"
        )
    if isinstance(error, exceptions.OutOfMemoryError):
        return StoreUnavailable(_REPLIES[0][1])
    text = str(error)
    for code, told in _REPLIES:
        if code in text:
            return StoreUnavailable(told)
    return StoreUnavailable("Redis refused to answer; see the log")
