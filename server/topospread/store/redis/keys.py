"""The key names of a cluster. What they hold stands at the top of store.lua."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.errors import StoreUnavailable
from topospread.store.model import Key
from topospread.store.values import FORMAT

if TYPE_CHECKING:
    from topospread.store.model import Kind

META_PATTERN: Final = "ts:{*}:meta"

# In the order of KEYS in store.lua.
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


def key(cluster: str, part: str) -> str:
    """The name of a key; the braces keep all keys of a cluster in one hash slot."""
    return f"ts:{{{cluster}}}:{part}"


def script_keys(cluster: str) -> tuple[str, ...]:
    """The names of the keys that the script may touch."""
    return tuple(key(cluster, part) for part in _PARTS)


def names_after(kind: Kind, namespace: str, after: tuple[str, str]) -> tuple[bytes, bytes]:
    """Bounds, for ZRANGEBYLEX, of the names of a kind, or of a namespace's, that come after one."""
    prefix = f"{kind.value}\0{namespace}\0" if namespace else f"{kind.value}\0"
    begin = "\0".join((f"({kind.value}", *after)) if any(after) else f"[{prefix}"
    # All that begin with the prefix are smaller than it with its last byte one greater.
    return begin.encode(), f"({prefix[:-1]}\1".encode()


def key_of(kind: Kind, name: bytes) -> Key:
    """The key of an object by its name among all names."""
    _, namespace, rest = name.decode(errors="replace").split("\0", 2)
    return Key(kind, namespace, rest)


def cluster_of(meta: str) -> str:
    """The cluster that a meta key belongs to."""
    return meta.removeprefix("ts:{").removesuffix("}:meta")


def check_format(found: bytes | None) -> None:
    """Refuse a cluster that another version wrote in a format unknown here."""
    if found is not None and found != str(FORMAT).encode():
        name = found[:20].decode(errors="replace")
        raise StoreUnavailable(
            f"the cluster is stored in format {name}, this version knows {FORMAT}; use the version "
            "that wrote it, or drop the cluster with that one and load it again"
        )
