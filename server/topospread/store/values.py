"""The encoding of objects and log entries: the same bytes in every backend.

A stored value (format 2; the format number stands in the cluster's meta, or in SQLite's
``user_version``)::

    offset  length  content
    0       1       v: length of the resourceVersion (0..255)
    1       v       resourceVersion: decimal digits without leading zeros
    1+v     8       digest of the fields that matter to spreading
    9+v     1       u: length of the uid (0..255)
    10+v    u       uid
    10+v+u  13      of a reservation only: when it is due, milliseconds since 1970 (0: never)
            rest    payload: trimmed protobuf bytes

The version and the digest come first because writes look at them on every change, in Lua as well.
An object is named ``<kind>/<namespace>/<name>`` with the number of its Kind; the namespace is empty
for CLUSTER_SCOPED kinds. A log entry is such a name behind one mark, and the stored value: ``=`` a
relevant write, ``~`` a write of the same digest, ``-`` a deletion (its value is what stood before
the payload of what was deleted; empty when an older version wrote it, or that cannot be read).

Servers of several versions may share a store. A newer one may add fields to payloads, kinds, and
names behind which a reader finds nothing that it knows: readers pass over what they do not know.
All else takes another format, which they refuse.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.errors import StoreUnavailable
from topospread.kube.versions import parse_version
from topospread.store.model import Key, Kind, LogEntry, Put, StoredObject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from topospread.kube.versions import KubernetesVersion


FORMAT: Final = 2
DIGEST_BYTES: Final = 8
EXPIRY_DIGITS: Final = 13

RELEVANT: Final = b"="
IRRELEVANT: Final = b"~"
DELETED: Final = b"-"

_KINDS: Final = {str(kind.value): kind for kind in Kind}
_LENGTHS: Final = struct.Struct(">HI")

# No decision looks at it: all digests are equal.
_NO_DIGEST: Final = bytes(DIGEST_BYTES)

OBSERVABLE: Final[tuple[Kind, ...]] = tuple(
    kind for kind in Kind if kind not in (Kind.RESERVATION, Kind.PROGRESS)
)
"""Kinds of objects that an API server has; their reading is recorded in Kind.PROGRESS."""

OBJECT_KINDS: Final = tuple(kind for kind in OBSERVABLE if kind > Kind.PROGRESS)
"""Volumes, what decides about them, and namespaces: a cluster may do without them."""

VERSION: Final = re.compile(r"0|[1-9][0-9]{0,254}")
"""What can be compared with others: numbers as decimal strings."""

UNREAD: Final = "0"
"""The version of a kind of which it is not known how far it was read: older than any that is."""

KUBERNETES_VERSION: Final = "kubernetes"
"""The object of Kind.PROGRESS that has the version of the API server."""

_OBSERVABLE_BY_NAME: Final = {str(kind.value): kind for kind in OBSERVABLE}

Observed = tuple[tuple[Kind, str], ...]
"""The resourceVersion that was read up to, for each kind that a sync reports; sorted by kind."""


class Header(NamedTuple):
    """The front of a stored value; ``end`` is where the payload begins."""

    version: str
    digest: bytes
    uid: str
    end: int


NO_HEADER: Final = Header("", b"", "", 0)


def pack(stored: StoredObject) -> bytes:
    """The stored form of an object whose fields were checked."""
    if stored.key.kind is Kind.RESERVATION:
        return b"%b%013d%b" % (header_of(stored), stored.expires_at, stored.payload)
    return header_of(stored) + stored.payload


def header_of(stored: StoredObject) -> bytes:
    """The header of an object's stored form."""
    version, uid = stored.resource_version.encode(), stored.uid.encode()
    return b"%c%b%b%c%b" % (len(version), version, stored.digest, len(uid), uid)


def header_bytes(value: bytes) -> bytes:
    """The bytes before the payload of a stored value; empty when it cannot be read."""
    read = header(value)
    return b"" if read is None else value[: read.end]


def header(value: bytes) -> Header | None:
    """The header of a stored value; None when it cannot be one."""
    if not value:
        return None
    digest_at = 1 + value[0]
    uid_at = digest_at + DIGEST_BYTES + 1
    if len(value) < uid_at:
        return None
    end = uid_at + value[uid_at - 1]
    version = value[1:digest_at]
    if len(value) < end or (version and not version.isdigit()):
        return None
    try:
        uid = value[uid_at:end].decode()
    except UnicodeDecodeError:
        return None
    return Header(version.decode(), value[digest_at : uid_at - 1], uid, end)


def unpack(key: Key, value: bytes) -> StoredObject:
    """The object of a stored value; one that cannot be read is raw, with an empty digest."""
    read = header(value)
    if read is None:
        return StoredObject(key, value, b"")
    version, digest, uid, end = read
    if key.kind is not Kind.RESERVATION:
        return StoredObject(key, value[end:], digest, version, uid)
    expiry = value[end : end + EXPIRY_DIGITS]
    if len(expiry) < EXPIRY_DIGITS or not expiry.isdigit():
        return StoredObject(key, value, b"")
    return StoredObject(key, value[end + EXPIRY_DIGITS :], digest, version, uid, int(expiry))


def name_of(key: Key) -> str:
    """The written name of a key."""
    return f"{key.kind.value}/{key.namespace}/{key.name}"


def key_of(name: bytes) -> Key | None:
    """The key of a written name; None when it is not one."""
    try:
        kind, namespace, rest = name.decode().split("/", 2)
    except ValueError:  # UnicodeDecodeError is one, too
        return None
    found = _KINDS.get(kind)
    return None if found is None else Key(found, namespace, rest)


def entry(field: bytes, value: bytes) -> LogEntry | None:
    """Decode a change of the log; None when its name cannot be read."""
    key = key_of(field[1:])
    if key is None:
        return None
    mark = field[:1]
    if mark == DELETED:
        deleted = header(value)
        if deleted is None:
            return LogEntry(key, None)
        return LogEntry(key, None, uid=deleted.uid, version=deleted.version)
    return LogEntry(key, unpack(key, value), mark == RELEVANT)


def entries(changes: Iterable[tuple[bytes, bytes]]) -> tuple[LogEntry, ...]:
    """The changes of a transaction that can be read."""
    decoded = [entry(field, value) for field, value in changes]
    return tuple([each for each in decoded if each is not None])


def unreadable(cluster: str, what: str) -> StoreUnavailable:
    """The error for unreadable metadata of a cluster."""
    return StoreUnavailable(
        f"what the store notes of cluster {cluster!r} cannot be read ({what}): put it right, or "
        "drop the cluster and load it again"
    )


def join(pairs: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The changes of one transaction, (marked name, value) each, as one blob."""
    parts: list[bytes] = []
    for field, value in pairs:
        parts += (_LENGTHS.pack(len(field), len(value)), field, value)
    return b"".join(parts)


def split(blob: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The changes that :func:`join` put together; ends early where the blob is cut."""
    at, size = 0, len(blob)
    while at + _LENGTHS.size <= size:
        field, value = _LENGTHS.unpack_from(blob, at)
        at += _LENGTHS.size
        middle = at + field
        yield blob[at:middle], blob[middle : middle + value]
        at = middle + value


def progress(observed: Mapping[Kind, str]) -> list[Put]:
    """Changes that record how far each kind was read.

    The objects' resourceVersion is the one that a sync has read up to, so that a write keeps the
    highest by the rules that hold for any object, and its log entry comes in the transaction of
    what was read.
    """
    return [listed(kind, version=version) for kind, version in observed.items()]


def version_record(version: KubernetesVersion) -> Put:
    """The change that records the Kubernetes version of a cluster; the last one holds."""
    key = Key(Kind.PROGRESS, "", KUBERNETES_VERSION)
    return Put(StoredObject(key, str(version).encode(), _NO_DIGEST))


def recorded_version(stored: StoredObject) -> KubernetesVersion | None:
    """The version in a stored object of that name; None where it cannot be read."""
    return parse_version(stored.payload.decode(errors="replace")) if stored.digest else None


def progress_key(kind: Kind) -> Key:
    """Of the object that records how far a kind was read."""
    return Key(Kind.PROGRESS, "", str(kind.value))


def listed(kind: Kind, unknown: str = "", version: str = "") -> Put:
    """The change that records whether a feed reads all objects of a kind, and up to where.

    Args:
        kind: of OBSERVABLE.
        unknown: why it does not; empty where it does.
        version: the list's resourceVersion.
    """
    return Put(StoredObject(progress_key(kind), unknown.encode(), _NO_DIGEST, version))


def kind_of_progress(stored: StoredObject) -> tuple[Kind, str] | None:
    """The kind of a stored object of Kind.PROGRESS, and why a feed does not read it.

    None for a kind that is unknown here.
    """
    kind = _OBSERVABLE_BY_NAME.get(stored.key.name)
    if kind is None or not stored.digest:
        return None
    return kind, stored.payload.decode(errors="replace")


def observed_version(stored: StoredObject) -> tuple[Kind, str] | None:
    """The kind and version in a stored object of Kind.PROGRESS; None for one unknown here."""
    kind = _OBSERVABLE_BY_NAME.get(stored.key.name)
    if kind is None or not stored.digest or not stored.resource_version:
        return None
    return kind, stored.resource_version


def older(version: str, than: str) -> bool:
    """Whether a decimal string is the smaller number, however many digits it has."""
    return (len(version), version) < (len(than), than)
