"""The key names of a cluster. What they hold stands at the top of store.lua."""

from __future__ import annotations

from typing import Final

from topospread.errors import StoreUnavailable
from topospread.store.model import Key, Kind
from topospread.store.values import FORMAT

META_PATTERN: Final = "ts:{*}:meta"

# In the order of KEYS in store.lua.
_PARTS: Final = (
    "meta",
    "node",
    "pod",
    "workload",
    "reservation",
    "log",
    "touched",
    "tombstone",
    "buried",
    "expiry",
    "feeder",
    "names",
    "undo",
)
COUNTED: Final = ("node", "pod", "workload", "reservation", "touched")
"""Keys whose numbers of entries are noted in meta, in the order of COUNTED in store.lua."""

_HASHES: Final = {Kind.NODE: "node", Kind.POD: "pod", Kind.RESERVATION: "reservation"}
_PREFIXES: Final = {"node": b"1//", "workload": b"", "pod": b"2/", "reservation": b"7/"}


def key(cluster: str, part: str) -> str:
    """The name of a key; the braces keep all keys of a cluster in one hash slot."""
    return f"ts:{{{cluster}}}:{part}"


def script_keys(cluster: str) -> tuple[str, ...]:
    """The names of the keys that the script may touch."""
    return tuple(key(cluster, part) for part in _PARTS)


def place(cluster: str, wanted: Key) -> tuple[str, str]:
    """Key of the hash that holds an object, and its field there."""
    part = _HASHES.get(wanted.kind, "workload")
    if wanted.kind is Kind.NODE:
        return key(cluster, part), wanted.name
    field = f"{wanted.namespace}/{wanted.name}"
    if part == "workload":
        field = f"{wanted.kind.value}/{field}"
    return key(cluster, part), field


def hashes(cluster: str, kind: Kind | None = None) -> tuple[tuple[str, bytes, str], ...]:
    """The hashes of objects, or the one that has those of a kind.

    Each with what turns a field of it into a written name, and with a pattern of the fields meant.
    """
    if kind is None:
        return tuple((key(cluster, part), _PREFIXES[part], "*") for part in _PREFIXES)
    part = _HASHES.get(kind, "workload")
    pattern = f"{kind.value}/*" if part == "workload" else "*"
    return ((key(cluster, part), _PREFIXES[part], pattern),)


def names_after(kind: Kind, namespace: str, after: tuple[str, str]) -> tuple[bytes, bytes]:
    """Bounds, for ZRANGEBYLEX, of the names of a kind, or of a namespace's, that come after one."""
    prefix = f"{kind.value}\0{namespace}\0" if namespace else f"{kind.value}\0"
    begin = "\0".join((f"({kind.value}", *after)) if any(after) else f"[{prefix}"
    # All that begin with the prefix are smaller than it with its last byte one greater.
    return begin.encode(), f"({prefix[:-1]}\1".encode()


def listed_key(kind: Kind, name: bytes) -> Key:
    """The key of an object by its name among the listed ones."""
    _, namespace, rest = name.decode(errors="replace").split("\0", 2)
    return Key(kind, namespace, rest)


def cluster_of(meta: str) -> str:
    """The cluster that a meta key belongs to."""
    return meta.removeprefix("ts:{").removesuffix("}:meta")


def check_format(found: bytes | None) -> None:
    """Refuse a cluster that another version wrote in a format unknown here."""
    if found is not None and found != str(FORMAT).encode():
        raise StoreUnavailable(
            f"the cluster is stored in format {found[:20]!r}, this version knows {FORMAT}; "
            "use the version that wrote it, or drop the cluster with it and load it again"
        )
