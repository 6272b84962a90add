"""Values of the store's contract: objects, changes, log entries, heads, leases, and limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


MAX_CHANGES: Final = 500
"""Changes in one apply, those of Kind.PROGRESS aside: bounds how long the store is held by one
script or transaction.
"""

MAX_OBJECT_BYTES: Final = 1_572_864
"""Payload of one object: what etcd takes by default, so whatever the API server holds fits."""

MAX_APPLY_BYTES: Final = 16 * 1024 * 1024
"""Payloads of one apply together, for the reason of MAX_CHANGES."""

MAX_ENDED: Final = 100
"""Reservations that one transaction ends because they are due, for the reason of MAX_CHANGES."""

DEFAULT_LIFETIME: Final = 60_000
"""Milliseconds that a reservation lasts where nothing is said: some times what a scheduler needs to
bind a pod.
"""

MAX_LIFETIME: Final = 7 * 86_400_000
"""Milliseconds that a reservation may last at most: a week outlasts any pod's way to its node."""

MAX_LEASE: Final = 3_600_000
"""Milliseconds of a cluster's lease at most: a leader that died is missed no longer than that."""


class Kind(IntEnum):
    """Kinds of stored objects. The numbers are part of the stored format."""

    NODE = 1
    POD = 2
    SERVICE = 3
    REPLICATION_CONTROLLER = 4
    REPLICA_SET = 5
    STATEFUL_SET = 6
    RESERVATION = 7
    PROGRESS = 8
    """How far the API server was read; the store's own, see :mod:`topospread.store.values`."""
    PERSISTENT_VOLUME = 9
    PERSISTENT_VOLUME_CLAIM = 10
    STORAGE_CLASS = 11
    CSI_NODE = 12
    CSI_DRIVER = 13
    CSI_STORAGE_CAPACITY = 14
    VOLUME_ATTACHMENT = 15
    NAMESPACE = 16
    RESOURCE_CLAIM = 17
    DEVICE_CLASS = 18
    RESOURCE_SLICE = 19
    JOB = 20


CLUSTER_SCOPED: Final = frozenset(
    {
        Kind.NODE,
        Kind.PROGRESS,
        Kind.PERSISTENT_VOLUME,
        Kind.STORAGE_CLASS,
        Kind.CSI_NODE,
        Kind.CSI_DRIVER,
        Kind.VOLUME_ATTACHMENT,
        Kind.NAMESPACE,
        Kind.DEVICE_CLASS,
        Kind.RESOURCE_SLICE,
    }
)
"""Kinds whose objects have no namespace."""

NODES_SCOPE: Final = "nodes/"
VOLUMES_SCOPE: Final = "volumes/"
NAMESPACES_SCOPE: Final = "namespaces/"
DEVICES_SCOPE: Final = "devices/"
JOBS_SCOPE: Final = "jobs/"

SCOPES: Final[Mapping[Kind, str]] = {
    Kind.NODE: NODES_SCOPE,
    Kind.PERSISTENT_VOLUME: VOLUMES_SCOPE,
    Kind.PERSISTENT_VOLUME_CLAIM: VOLUMES_SCOPE,
    Kind.STORAGE_CLASS: VOLUMES_SCOPE,
    Kind.CSI_NODE: VOLUMES_SCOPE,
    Kind.CSI_DRIVER: VOLUMES_SCOPE,
    Kind.CSI_STORAGE_CAPACITY: VOLUMES_SCOPE,
    Kind.VOLUME_ATTACHMENT: VOLUMES_SCOPE,
    Kind.NAMESPACE: NAMESPACES_SCOPE,
    Kind.RESOURCE_CLAIM: DEVICES_SCOPE,
    Kind.DEVICE_CLASS: DEVICES_SCOPE,
    Kind.RESOURCE_SLICE: DEVICES_SCOPE,
    Kind.JOB: JOBS_SCOPE,
}
"""Scopes of kinds whose changes concern others than the pods of their namespace."""


class WriteOutcome(StrEnum):
    """The outcome of one change of a write."""

    CREATED = "created"
    UPDATED = "updated"
    UNCHANGED = "unchanged"
    IGNORED_STALE = "ignored_stale"
    DELETED = "deleted"
    NOT_FOUND = "not_found"


@dataclass(frozen=True, slots=True)
class Revision:
    """The state after transaction ``number`` of a cluster. 0 with an empty tag: nothing yet."""

    number: int = 0
    tag: str = ""


class Key(NamedTuple):
    """Names an object within a cluster; ``namespace`` is empty for CLUSTER_SCOPED kinds."""

    kind: Kind
    namespace: str
    name: str

    @property
    def scope(self) -> str:
        """The scope of a change of the object: its namespace, unless SCOPES has one of its kind.

        Volumes, claims and all that decides about them share one, claims too: whose pod has no
        claim does not name it, and so is not disturbed by claims that come and go in its namespace.
        So do devices, their classes and the claims to them. No decision looks at jobs, so that no
        write names theirs.
        A write on behalf of a pod that has claims names it, one that looked at the labels of
        namespaces that of namespaces.
        """
        return SCOPES.get(self.kind, self.namespace)


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in the form in which it is stored.

    Attributes:
        resource_version: decimal string of up to 255 digits, far above any integer type, or empty
            (then the object is always applied). Compared only with versions of the same key.
        digest: 8 bytes over the fields that matter to spreading decisions; equal digests mean that
            no decision can differ, so the write does not count as relevant.
        uid: for tombstones, and to distinguish the pods of one name.
        payload: trimmed protobuf bytes; opaque to the store.
        expires_at: of a reservation, milliseconds since 1970 on the store's clock; 0 for never. The
            store sets it from Put.lifetime.
    """

    key: Key
    payload: bytes
    digest: bytes
    resource_version: str = ""
    uid: str = ""
    expires_at: int = 0


@dataclass(frozen=True, slots=True)
class Put:
    """Write this object.

    Attributes:
        ends_reservation: of a pod that is bound, terminating or has ended: what was reserved for it
            ends in the same transaction, unless the pod is IGNORED_STALE or the reservation is for
            a pod of another uid. So a pod never counts twice, and never not at all.
        lifetime: of a reservation, milliseconds from this write on after which it is due; None for
            never. With a lifetime it is always written, so that writing it again renews it.
    """

    object: StoredObject
    ends_reservation: bool = False
    lifetime: int | None = None

    @property
    def key(self) -> Key:
        """The object's."""
        return self.object.key


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the object with this key; with a pod, the reservation that is for it.

    A reservation is for the pod if one of the two has no uid or they are equal. It ends also when
    the pod itself is not there, but not when the removal is IGNORED_STALE.

    Attributes:
        uid: when given, only an object with this uid is deleted (else NOT_FOUND, and no tombstone).
        up_to_version: when given, only an object whose version is empty or at most this is deleted
            (else IGNORED_STALE; ``force`` deletes it all the same). A tombstone with this version
            is left for a bounded time, also when there was nothing to delete, so that an older Put
            that comes late is IGNORED_STALE. Without it no tombstone is left: writing the object
            again brings it back. Nor is one of a reservation, which is never written late.
    """

    key: Key
    uid: str = ""
    up_to_version: str = ""


Change = Put | Remove


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Precondition: nothing relevant to ``scopes`` (see Key.scope) came after ``revision``.

    The revision, which the decision was made at, must still be in the log.
    """

    revision: Revision
    scopes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of a write.

    Attributes:
        revision: contains the write; the head when nothing needed writing.
        previous: the head just before; equals ``revision`` when nothing was written.
        outcomes: one for each change, in order.
        ended: reservations that ended in the same transaction without being among the changes:
            with their pods, in the order of the log, then those that were due.
        at: the store's clock at this write, in milliseconds since 1970, which lifetimes are
            counted from.
        identity: of the cluster; empty when it does not exist, because nothing was written.
    """

    revision: Revision
    previous: Revision
    outcomes: tuple[WriteOutcome, ...]
    ended: tuple[Key, ...] = ()
    at: int = 0
    identity: str = ""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """A change of a transaction; ``object`` is None for a deletion.

    Attributes:
        relevant: False when only fields changed that no spreading decision looks at.
        uid: of what was deleted, as ``version``; empty when it had none, could not be read, or an
            older version wrote the entry.
    """

    key: Key
    object: StoredObject | None
    relevant: bool = True
    uid: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The changes that one write made, in order."""

    revision: Revision
    previous_tag: str
    entries: tuple[LogEntry, ...]


@dataclass(frozen=True, slots=True)
class Page:
    """Objects of a scan, and what the next page comes after; None on the last one."""

    objects: Sequence[StoredObject]
    last: tuple[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Listed:
    """Note that all objects of a kind have been written into the history, whichever they were.

    Attributes:
        kinds: all that the feed lists; those of several feeds are united.
        version: of the list; tombstones of the kind that are newer are forgotten: they are of
            another history of the API server, or what follows the list makes them again.
    """

    kind: Kind
    kinds: frozenset[Kind]
    version: str = ""


@dataclass(frozen=True, slots=True)
class Head:
    """The newest point of a cluster's history.

    Attributes:
        identity: random, made once when the cluster is created in a store; empty when it does not
            exist.
        complete: whether each kind that its feeds list has been listed into this history; see
            :class:`Listed`.
        replaced: identities that drop() ended here within the last day, newest first, at most 8:
            a replica with one of them lost its history on purpose, not by an accident of the store.
    """

    identity: str
    revision: Revision
    complete: bool = False
    replaced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to sync a cluster: its holder, and until when it lasts.

    Attributes:
        holder: its name; empty when there is none.
        fence: the fencing token: a number that grows with each new holder, 0 when there never was
            one. Writes with any but the newest are refused.
        left: milliseconds until it ends unless it is renewed; 0 when it ended. Until the next
            holder takes it, the last one's token stays valid. Never more than it was asked for,
            also when the store's clock was set back meanwhile.
        granted_for: milliseconds that it was asked for; 0 when an older version wrote it.
        until: when that is, milliseconds since 1970 on the store's clock.
    """

    holder: str
    fence: int
    left: int
    granted_for: int = field(default=0, compare=False)
    until: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Limits that both backends keep.

    Attributes:
        timeout: seconds that one call may take when its caller names none. Two seconds outlast a
            fork or a slow fsync of Redis, and stay below the deadlines that callers commonly set.
        connect_timeout: seconds to set up one connection; a reachable server answers in
            milliseconds.
        attempts: tries of one call within its time-out, for failures that a new connection may
            cure.
        connections: connections for reads and writes at most; followers have their own beside them.
        log_limit: changes the log keeps at least; about 1/64 more may be there. 100,000 changes are
            some tens of MB and let a follower be away for minutes at 1,000 changes a second.
        tombstone_seconds: how long a deletion outlives its object. Longer than any sync's queue;
            an older write that comes later still brings the object back until the next list.
        tombstone_limit: deletions remembered at most in one cluster; the oldest go first. 20,000
            are a few MB and outlast a namespace's end.
        wait_replicas: how many replicas of Redis must have a write before it is answered. None by
            default: it costs a round trip to the farthest of them.
    """

    timeout: float = 2.0
    connect_timeout: float = 1.0
    attempts: int = 3
    connections: int = 32
    log_limit: int = 100_000
    tombstone_seconds: float = 600.0
    tombstone_limit: int = 20_000
    wait_replicas: int = 0

    def __post_init__(self) -> None:
        """Refuse what no backend could keep."""
        if min(self.timeout, self.connect_timeout) <= 0:
            raise ValueError("timeout and connect_timeout must be positive")
        if min(self.attempts, self.connections, self.log_limit) < 1:
            raise ValueError("attempts, connections and log_limit must be at least 1")
        if min(self.tombstone_seconds, self.tombstone_limit, self.wait_replicas) < 0:
            raise ValueError(
                "tombstone_seconds, tombstone_limit and wait_replicas must not be negative"
            )
