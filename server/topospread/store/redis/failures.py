"""Translates the driver's errors into ours.

The driver's text, which may quote arguments, stays in ``__cause__``.
"""

from __future__ import annotations

import re
import ssl
from importlib import resources
from typing import Final

from redis import exceptions

from topospread.errors import StoreUnavailable

_RIGHTS: Final = "the Redis user may not run a command or use a key that the store needs"
_LOADING: Final = "Redis is still loading its data; retry"
_OOM: Final = "Redis is out of memory (maxmemory); give it more or drop clusters"
_READONLY: Final = "this Redis is a read-only replica; name the master, or Sentinels that know it"
_MOVED: Final = "another node of the Redis Cluster has the keys; retry, or write redis+cluster://"
_MOVING: Final = "the Redis Cluster is moving the keys to another node; retry"

_DENIED: Final = re.compile(r"permissions to run the '([a-z|]+)' command")
_LINE: Final = re.compile(r"user_script:\s*([0-9]+)")
_CALL: Final = re.compile(r"call\('([A-Z]+)'")

# The first class that fits.
_CLASSES: Final[tuple[tuple[type[Exception], str], ...]] = (
    (exceptions.BusyLoadingError, _LOADING),
    (exceptions.AuthenticationError, "Redis refused the user or password; check both"),
    (exceptions.AuthorizationError, "Redis refused the user or password; check both"),
    (exceptions.NoPermissionError, _RIGHTS),
    (exceptions.OutOfMemoryError, _OOM),
    (exceptions.ReadOnlyError, _READONLY),
    (exceptions.MovedError, _MOVED),
    (exceptions.AskError, _MOVING),
    (exceptions.TryAgainError, _MOVING),
    (exceptions.ClusterDownError, "the Redis Cluster is down or changing its masters; retry"),
    (exceptions.TimeoutError, "Redis did not answer in time; retry"),
    (TimeoutError, "Redis did not answer in time; retry"),
    (exceptions.MaxConnectionsError, "all connections to Redis are in use; retry"),
    (exceptions.ConnectionError, "Redis cannot be reached; retry"),
    (OSError, "Redis cannot be reached; retry"),
)
# For answers that the driver has no class for. Looked for anywhere, because Redis 6.2 puts its own
# words before the code of an error inside a script.
_REPLIES: Final = (
    ("OOM ", _OOM),
    ("LOADING", _LOADING),
    ("BUSY ", "Redis is busy with another script; retry"),
    ("READONLY", _READONLY),
    ("MISCONF", "Redis cannot save to its disk and refuses writes; look at its log"),
    ("NOREPLICAS", "Redis has fewer replicas than min-replicas-to-write asks for; retry"),
    ("WRONGTYPE", "a key of this cluster holds something else; drop the cluster and load it again"),
    ("equal or smaller", "the cluster's log is ahead of its meta; drop the cluster and load it"),
    ("cluster support disabled", "this Redis is no node of a Redis Cluster; write redis://"),
    ("SELECT is not allowed", "a Redis Cluster has database 0 only; leave it out"),
    ("NOPERM", _RIGHTS),
    ("permissions", _RIGHTS),
)


class MasterUnknown(exceptions.ConnectionError):
    """Raised while it is not known which server is the master; a retry may help."""


class UnfitServer(exceptions.ConnectionError):
    """Raised for a server that must not hold the store; the text has what to change."""


def unavailable(error: Exception) -> StoreUnavailable:
    """The StoreUnavailable for a driver's error."""
    if _distrusts(error):
        return StoreUnavailable(
            "Redis' certificate does not verify; check cacert and the host's name"
        )
    if isinstance(error, (MasterUnknown, UnfitServer)):
        return StoreUnavailable(str(error))
    text = str(error)
    if denied := _denied(text):
        return StoreUnavailable(f"{_RIGHTS}: {denied}")
    for kind, message in _CLASSES:
        if isinstance(error, kind):
            return StoreUnavailable(message)
    for code, message in _REPLIES:
        if code in text:
            return StoreUnavailable(message)
    return StoreUnavailable("Redis refused to answer; see the log")


def _denied(text: str) -> str:
    """The command that the user may not run, from Redis' text; empty when there is none."""
    if named := _DENIED.search(text):
        return named[1].upper()
    line = _LINE.search(text)
    if line is None or "can't run this command" not in text:
        return ""
    # For a command in a script Redis gives only the line.
    script = resources.files(__package__).joinpath("store.lua").read_text("utf-8").splitlines()
    called = _CALL.search(script[int(line[1]) - 1])
    return "a command of its script" if called is None else called[1]


def _distrusts(error: BaseException | None) -> bool:
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error is not None
