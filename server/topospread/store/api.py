"""The store's contract: objects, a change log, and atomic conditional writes.

One cluster is one history: a totally ordered log of transactions. A transaction is one atomic step
that writes objects and appends its changes; it has a number ``n`` (dense, growing by one) and a
random tag, and names the tag of the transaction before it, so that two histories that used the same
numbers can be told apart. Followers list the objects once, then follow the log.

The protocols are narrow and composed: take the smallest that does. Every method raises
:class:`~topospread.errors.StoreUnavailable` when the backend cannot answer within the time-out;
nothing was written then *as far as the caller can know*: a write that timed out may have happened
and is safe to repeat, because identical bytes are not written twice. Other errors stand at the
method.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

MAX_CHANGES: Final = 500
"""Changes in one apply, those of Kind.PROGRESS aside: bounds how long the store is held by one
script or transaction.
"""

MAX_OBJECT_BYTES: Final = 1_572_864
"""Payload of one object: what etcd takes by default, so whatever the API server holds fits."""

MAX_APPLY_BYTES: Final = 16 * 1024 * 1024
"""Payloads of one apply together, for the reason of MAX_CHANGES."""

MAX_PURGED: Final = 100
"""Reservations that one transaction ends because they are due, for the reason of MAX_CHANGES."""

MAX_LIFETIME: Final = 7 * 86_400_000
"""Milliseconds that a reservation may last at most: a week outlasts any pod's way to its node."""

MAX_LEASE: Final = 3_600_000
"""Milliseconds of a feeder's lease at most: who died is missed no longer than that."""


class Kind(IntEnum):
    """What can be stored. The numbers are part of the stored format."""

    NODE = 1
    POD = 2
    SERVICE = 3
    REPLICATION_CONTROLLER = 4
    REPLICA_SET = 5
    STATEFUL_SET = 6
    RESERVATION = 7
    PROGRESS = 8
    """How far the API server was read; the store's own, see :mod:`topospread.store.progress`."""


class Outcome(StrEnum):
    """What became of one change."""

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


@dataclass(frozen=True, slots=True)
class Key:
    """Names an object within a cluster; ``namespace`` is empty for nodes and progress."""

    kind: Kind
    namespace: str
    name: str

    @property
    def scope(self) -> str:
        """Where a change of this object is relevant: its namespace, or ``nodes/`` for nodes."""
        return "nodes/" if self.kind is Kind.NODE else self.namespace


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object in the form in which it is stored.

    Attributes:
        resource_version: decimal string of up to 255 digits, far above any integer type, or empty
            (then the object is always applied). Compared only with versions of the same key.
        digest: 8 bytes over the fields that matter to spreading decisions; equal digests mean that
            no decision can differ, so the write does not count as relevant.
        uid: for tombstones, and to tell the pods of one name apart.
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
            again brings it back. Nor is one of a reservation, which nobody writes late.
    """

    key: Key
    uid: str = ""
    up_to_version: str = ""


Change = Put | Remove


@dataclass(frozen=True, slots=True)
class Unchanged:
    """Precondition: nothing relevant to ``scopes`` came after ``revision``, still in the log.

    Attributes:
        revision: the state that the decision was made at.
        scopes: scopes (see Key.scope) whose last relevant change must be at most
            ``revision.number``.
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
            counted from; 0 unless a change has one. purge() tells it for every known cluster.
        identity: of the cluster; empty when it does not exist, because nothing was written.
    """

    revision: Revision
    previous: Revision
    outcomes: tuple[Outcome, ...]
    ended: tuple[Key, ...] = ()
    at: int = 0
    identity: str = ""


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One change of one transaction; ``object`` is None for a deletion.

    Attributes:
        relevant: False when only fields changed that no spreading decision looks at.
        uid: of what was deleted; empty when it had none, or an older version wrote the entry.
        version: the resourceVersion of what was deleted; likewise.
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
class Head:
    """The newest point of a cluster's history.

    Attributes:
        identity: random, made once when the cluster is created in a store; empty when it does not
            exist.
        oldest: number of the oldest transaction that the log still holds; follow() works after
            ``oldest - 1``.
        dropped: identities that drop() ended here within the last day, newest first, at most 8:
            whoever holds one of them lost its history on purpose, not by an accident of the store.
        vouched: when somebody last said, of each kind, that what is stored is the truth; see
            vouch(). Milliseconds on the store's clock, but each time more than before, whatever the
            clock does; it begins anew with the cluster.
        at: the store's clock in milliseconds, not later than the look; only of a cluster that does
            not exist. What is vouched for later has at least this number.
    """

    identity: str
    revision: Revision
    oldest: int = 0
    dropped: tuple[str, ...] = ()
    vouched: Mapping[Kind, int] = field(default_factory=dict)
    at: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may feed a cluster, and until when.

    Attributes:
        holder: who has it; empty when nobody does.
        fence: the fencing token: a number that grows with each new holder, 0 when there never was
            one. Writes with any but the newest are refused.
        left: milliseconds until it ends unless it is renewed; 0 when it ended. Until somebody else
            takes it, its last holder's token stays good. Never more than it was asked for, also
            when the store's clock was set back meanwhile.
        granted_for: milliseconds that it was asked for; 0 when an older version wrote it.
        until: when that is, milliseconds since 1970 on the store's clock.
    """

    holder: str
    fence: int
    left: int
    granted_for: int = field(default=0, compare=False)
    until: int = field(default=0, compare=False)


class Reader(Protocol):
    """Reads a cluster."""

    def head(self, cluster: str, *, timeout: float | None = None) -> Head:
        """The newest revision. An unknown cluster has an empty identity and revision 0.

        Args:
            cluster: its name.
            timeout: seconds; None is the backend's default.
        """
        ...

    def verify(self, cluster: str, identity: str, revision: Revision) -> None:
        """Check that a revision is part of the cluster's history.

        Raises:
            RevisionUnavailable: the log no longer reaches back to it, or holds another tag there,
                or has not come so far: it is of a history that lost writes.
            IdentityChanged: the cluster is missing or has another identity.
        """
        ...

    def scan(
        self, cluster: str, page: int = 2000, *, kind: Kind | None = None
    ) -> Iterator[Sequence[StoredObject]]:
        """All objects in pages of about ``page``, in no order, each as new as the call or newer.

        With a kind only its objects, for about what these cost.

        Pages are not one snapshot: whoever needs one notes head() before, and follows the log to
        the head seen after the last page. An object may come twice while others write; the later
        one is the newer. A value that cannot be read is yielded with an empty digest and its raw
        bytes as payload; it is the caller's to count and skip. After StoreUnavailable begin again:
        a scan cannot be resumed.
        """
        ...

    def get(self, cluster: str, key: Key) -> StoredObject | None:
        """One object as it is now.

        Raises:
            CorruptValue: it is there and cannot be read.
        """
        ...

    def clusters(self) -> Sequence[str]:
        """Names of the clusters that exist, sorted."""
        ...


class Follower(Protocol):
    """Follows a cluster's log."""

    def follow(
        self, cluster: str, identity: str, after: Revision, *, wait: float, limit: int = 1000
    ) -> Sequence[Transaction]:
        """Whole transactions after a revision, in order; none when none came in ``wait`` seconds.

        Args:
            cluster: its name.
            identity: the identity that ``after`` belongs to.
            after: the revision the follower has; the first transaction returned names its tag.
            wait: seconds to block for; 0 asks once. May return early and empty (see wake()). A
                cluster that is dropped meanwhile is noticed within a second.
            limit: about how many log entries at once; a transaction is never split.

        Raises:
            RevisionUnavailable: the log was trimmed past ``after``, or holds another tag there (a
                history that lost writes). Rebuild.
            IdentityChanged: the cluster is missing or has another identity.
        """
        ...

    def wake(self, cluster: str) -> None:
        """Make a follow() of this cluster that blocks in another thread return soon.

        With none under way, the next one returns without blocking, so that no wake is lost between
        two calls. It also says that somebody waits for news: a backend that has to poll does so
        faster for a second. Never blocks, never fails.
        """
        ...


class Purger(Protocol):
    """Ends what is due."""

    def purge(self, cluster: str, *, timeout: float | None = None) -> Applied:
        """End the reservations that are due on the store's clock, at most MAX_PURGED of them.

        A reservation counts until this, or another write, has logged its end. Nothing is appended
        when none is due; an unknown cluster is no error.

        Args:
            cluster: its name.
            timeout: seconds; None is the backend's default.
        """
        ...


class Writer(Purger, Protocol):
    """Writes a cluster."""

    def apply(
        self,
        cluster: str,
        changes: Sequence[Change],
        *,
        precondition: Unchanged | None = None,
        identity: str = "",
        force: bool = False,
        fence: int = 0,
        timeout: float | None = None,
    ) -> Applied:
        """One atomic step: check everything, write the objects, append one transaction to the log.

        Identical bytes are not written (UNCHANGED). A Put whose version is older than the stored
        one, or not newer than a tombstone's, is IGNORED_STALE unless ``force``; a Put without a
        version is always applied. Other bytes with the stored version are written: the same object
        in another form. Nothing is appended when no change had an effect. The cluster is
        created by the first write that has one, and by one without any changes, at revision 0.
        Deletions and new objects are always relevant.
        A write that has an effect also ends what is due, as :meth:`purge` does, after its own
        changes; a due reservation that is among the changes is left to them.

        Args:
            cluster: a DNS label.
            changes: at most MAX_CHANGES, each key at most once.
            precondition: refuse unless it holds; also checked when no change has an effect.
            identity: when given, refuse unless the store's identity is this one.
            force: write older versions, too.
            fence: when given, refuse unless it is the token of the cluster's lease (see Leaser);
                checked before anything else, also when no change has an effect.
            timeout: seconds; None is the backend's default.

        Raises:
            Fenced: the token is not the lease's.
            Conflict: the precondition did not hold.
            RevisionUnavailable: the precondition's revision is not part of the log any more, or
                never was (another history).
            IdentityChanged: the identity differs.
            LimitExceeded: too many changes, or MAX_OBJECT_BYTES or MAX_APPLY_BYTES exceeded.
            InvalidRequest: a cluster name, key, version, uid or lifetime that cannot be stored; a
                key given twice; a reservation and the pod that ends it.
        """
        ...

    def drop(self, cluster: str, *, identity: str = "") -> int | None:
        """Forget a cluster: objects, log, tombstones, the feeder's lease.

        A later write makes a new identity and begins at 1. The old identity is remembered for a day
        (see Head.dropped).

        Args:
            cluster: its name.
            identity: when given, refuse unless the store's identity is this one.

        Returns:
            How many objects there were; None when there was no such cluster.

        Raises:
            IdentityChanged: the identity differs.
        """
        ...


class Voucher(Protocol):
    """Says that a cluster's present history is meant, so that nobody holds on to another one."""

    def vouch(
        self,
        cluster: str,
        kinds: Collection[Kind],
        *,
        identity: str = "",
        instead_of: str = "",
    ) -> None:
        """Note that what is stored of these kinds was made the truth, by a full list or a person.

        Whoever still holds another history waits for this before it follows the present one, see
        Head.vouched. Nothing is logged. Without a cluster it is remembered for a day.

        Args:
            cluster: its name.
            kinds: what is vouched for.
            identity: when given, refuse unless the store's identity is this one.
            instead_of: a lost identity whose place the present history takes: from now on it counts
                as dropped.

        Raises:
            IdentityChanged: the identity differs.
        """
        ...


class Leaser(Protocol):
    """Lets one of many feed a cluster."""

    def lease(
        self,
        cluster: str,
        holder: str,
        lifetime: int,
        *,
        fence: int = 0,
        timeout: float | None = None,
    ) -> Lease:
        """Take the feeder's lease of a cluster if it is free, or renew one's own.

        Whoever takes it from another gets a greater token than any before, on the store's clock, so
        that tokens from before the store was emptied stay void, too.

        Args:
            cluster: its name; it need not exist.
            holder: who asks; unique among all that ever ask.
            lifetime: milliseconds until it ends; 0 ends one's own now.
            fence: when given, nothing is taken: only one's own lease that has this token and has
                not ended is renewed, or ended.
            timeout: seconds; None is the backend's default.

        Returns:
            The lease as it is now: one's own if ``holder`` is the same, and ``fence`` where given.
        """
        ...

    def leased(self, cluster: str, *, timeout: float | None = None) -> Lease:
        """The feeder's lease of a cluster as it is now; nothing is taken.

        Args:
            cluster: its name; it need not exist.
            timeout: seconds; None is the backend's default.
        """
        ...


class Store(Reader, Follower, Writer, Voucher, Leaser, Protocol):
    """All of it."""

    @property
    def address(self) -> str:
        """Where it is, without secrets: for `status` and logs."""
        ...

    def ping(self) -> None:
        """Raise StoreUnavailable when it cannot be reached."""
        ...

    def close(self) -> None:
        """Release connections. Blocked follow() calls return empty, later calls are refused."""
        ...
