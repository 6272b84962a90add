"""store.lua from outside: its keys, its arguments, and its answers."""

from __future__ import annotations

import hashlib
import secrets
import time
from importlib import resources
from typing import TYPE_CHECKING, Final
from uuid import uuid4

from redis import exceptions

from topospread.errors import StoreUnavailable
from topospread.store import rules, values
from topospread.store.model import Applied, Key, Kind, Put, Revision, WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.model import Change, Listed, StoreSettings, Unchanged
    from topospread.store.redis.client import RedisClients
    from topospread.store.redis.connections import Arg, Reply

META_PATTERN: Final = "ts:{*}:meta"

# In the order of KEYS in store.lua, at whose top stands what they hold.
_PARTS: Final = (
    "meta",
    "object",
    "names",
    "log",
    "touched",
    "tombstone",
    "buried",
    "expiry",
    "lease",
)

_OUTCOMES: Final = {
    "C": WriteOutcome.CREATED,
    "U": WriteOutcome.UPDATED,
    "=": WriteOutcome.UNCHANGED,
    "S": WriteOutcome.IGNORED_STALE,
    "D": WriteOutcome.DELETED,
    "N": WriteOutcome.NOT_FOUND,
}

_LONGEST_NUMBER: Final = 20
"""Digits of a stream's largest number, which has 64 bits."""


class Script:
    """store.lua, wherever a cluster's keys are."""

    def __init__(self, clients: RedisClients) -> None:
        self._clients = clients
        self.text = resources.files(__package__).joinpath("store.lua").read_text("utf-8")
        self._sha = hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    def run(
        self,
        cluster: str,
        args: Sequence[Arg],
        *,
        timeout: float | None = None,
        repeat: bool = True,
        writes: bool = True,
    ) -> Reply:
        """Run it on the keys of one cluster; see RedisClient.call().

        Args:
            cluster: its name.
            args: the script's.
            timeout: seconds for all tries together.
            repeat: whether it may run twice.
            writes: whether replicas may have to have what it does.
        """
        client = self._clients.for_cluster(cluster)
        names = script_keys(cluster)
        tail = (len(names), *names, *args)
        settings = self._clients.settings
        replicas = settings.wait_replicas if writes else 0
        deadline = time.monotonic() + (settings.timeout if timeout is None else timeout)

        def run(command: str, script: str) -> Reply:
            left = deadline - time.monotonic()
            return client.call(
                command, script, *tail, timeout=left, repeat=repeat, replicas=replicas
            )

        try:
            return run("EVALSHA", self._sha)
        except exceptions.NoScriptError:
            return run("EVAL", self.text)


# ------------------------------ keys


def key(cluster: str, part: str) -> str:
    """The name of a key; the braces keep all keys of a cluster in one hash slot."""
    return f"ts:{{{cluster}}}:{part}"


def script_keys(cluster: str) -> tuple[str, ...]:
    """The names of the keys that the script may touch."""
    return tuple(key(cluster, part) for part in _PARTS)


def cluster_of(meta: str) -> str:
    """The cluster that a meta key belongs to."""
    return meta.removeprefix("ts:{").removesuffix("}:meta")


def key_of(kind: Kind, name: bytes) -> Key:
    """The key of an object by its name among all names."""
    _, namespace, rest = name.decode(errors="replace").split("\0", 2)
    return Key(kind, namespace, rest)


def check_format(found: bytes | None) -> None:
    """Refuse a cluster that another version wrote in a format unknown here."""
    if found is not None and found != str(values.FORMAT).encode():
        name = found[:20].decode(errors="replace")
        raise StoreUnavailable(
            f"the cluster is stored in format {name}, this version knows {values.FORMAT}; use the "
            "version that wrote it, or drop the cluster with that one and load it again"
        )


def word_of(cluster: str, field: str, found: bytes | None) -> str:
    """A text of the cluster's meta; empty where there is none.

    Raises:
        StoreUnavailable: it is none of ours.
    """
    word = found or b""
    if not word.isascii():
        raise values.unreadable(cluster, f"{field} is {word[:20]!r}")
    return word.decode()


def number_of(cluster: str, field: str, found: bytes | None) -> int:
    """A number of the cluster's meta; 0 where there is none.

    Raises:
        StoreUnavailable: it is none.
    """
    word = found or b"0"
    if not word.isdigit() or len(word) > _LONGEST_NUMBER:
        raise values.unreadable(cluster, f"{field} is {word[:20]!r}")
    return int(word)


# ------------------------------ arguments


def names_after(kind: Kind, namespace: str, after: tuple[str, str]) -> tuple[bytes, bytes]:
    """Bounds, for ZRANGEBYLEX, of the names of a kind, or of a namespace's, that come after one."""
    prefix = f"{kind.value}\0{namespace}\0" if namespace else f"{kind.value}\0"
    begin = "\0".join((f"({kind.value}", *after)) if any(after) else f"[{prefix}"
    # All that begin with the prefix are smaller than it with its last byte one greater.
    return begin.encode(), f"({prefix[:-1]}\1".encode()


def apply_args(
    changes: Sequence[Change],
    precondition: Unchanged | None,
    identity: str,
    listed: Listed | None,
    settings: StoreSettings,
    *,
    force: bool,
    fence: int,
) -> list[Arg]:
    """The arguments of a write; their order stands at the top of store.lua."""
    scopes = precondition.scopes if precondition else ()
    args: list[Arg] = [
        "apply",
        values.FORMAT,
        uuid4().hex,
        identity,
        secrets.token_hex(8),
        int(force),
        settings.log_limit,
        round(settings.tombstone_seconds * 1000),
        settings.tombstone_limit,
        precondition.revision.number if precondition else "",
        precondition.revision.tag if precondition else "",
        fence or "",
        *rules.with_listed(0, 0, listed),
        f"{listed.kind.value}/" if listed else "",
        listed.version if listed else "",
        len(scopes),
        *scopes,
    ]
    for change in changes:
        if isinstance(change, Put):
            args += _put_args(change)
        else:
            args += ("r", values.name_of(change.key), change.uid, change.up_to_version, "")
    return args


def _put_args(put: Put) -> tuple[Arg, ...]:
    stored = put.object
    name = values.name_of(stored.key)
    if stored.key.kind is not Kind.RESERVATION:
        return "e" if put.ends_reservation else "p", name, values.pack(stored), "", ""
    lifetime = "" if put.lifetime is None else put.lifetime
    return "v", name, values.header_of(stored), stored.payload, lifetime


# ------------------------------ answers


def applied_of(reply: Reply) -> Applied:
    """The result of a write."""
    texts = (word.decode(errors="replace") for word in reply)
    _, number, tag, before, before_tag, outcomes, at, identity, *ended = texts
    return Applied(
        Revision(int(number), tag),
        Revision(int(before), before_tag),
        tuple(_OUTCOMES[letter] for letter in outcomes),
        tuple(key for name in ended if (key := values.key_of(name.encode())) is not None),
        int(at),
        identity,
    )


def check_accepted(cluster: str, reply: Reply, precondition: Unchanged | None = None) -> None:
    """Raise the error for a refusal of the script; an answer passes."""
    reason, *rest = reply
    if reason == b"OK":
        return
    words = [word.decode(errors="replace") for word in rest]
    number = precondition.revision.number if precondition else 0
    match reason:
        case b"FENCED":
            raise rules.fenced(cluster, words[0])
        case b"FORMAT":
            check_format(rest[0])
        case b"IDENTITY":
            raise rules.other_identity(words[0])
        case b"TRIMMED":
            raise rules.trimmed_past(number)
        case b"DIVERGED":
            raise rules.other_history(number)
        case b"CONFLICT":
            raise rules.conflict(words[0], int(words[1]), number)
        case b"UNREADABLE":
            raise values.unreadable(cluster, f"{words[0]} is {words[1]!r:.20}")
    raise AssertionError(f"store.lua answered {reason!r}")
