"""The store's contract: objects, a change log, and atomic conditional writes.

One cluster is one history: a totally ordered log of transactions. A transaction is one atomic step
that writes objects and appends its changes; it has a number ``n`` (dense, growing by one) and a
random tag, and names the tag of the transaction before it, so that two histories that used the same
numbers can be distinguished. Followers list the objects once, then follow the log.

The protocols are narrow and composed: take the smallest that does. Their arguments and results are
in :mod:`~topospread.store.model`. Every method raises
:class:`~topospread.errors.StoreUnavailable` when the backend cannot answer within the time-out;
nothing was written then *as far as the caller can know*: a write that timed out may have happened
and is safe to repeat, because identical bytes are not written twice. Other errors stand at the
method.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from topospread.store.model import (
        Applied,
        Change,
        Head,
        Key,
        Kind,
        Lease,
        Revision,
        StoredObject,
        Transaction,
        Unchanged,
    )


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

        Pages are not one snapshot: for one, note head() before, and follow the log to the head seen
        after the last page. An object may come twice while others write; the later
        one is the newer. A value that cannot be read is yielded with an empty digest and its raw
        bytes as payload; it is the caller's to count and skip. After StoreUnavailable begin again:
        a scan cannot be resumed.
        """
        ...

    def get(self, cluster: str, key: Key) -> StoredObject | None:
        """Read one object as it is now.

        Raises:
            CorruptValue: it is there and cannot be read.
        """
        ...

    def clusters(self) -> Sequence[str]:
        """Names of the clusters that exist, sorted."""
        ...


class Lister(Protocol):
    """Reads a kind in the order of its keys, or objects by their keys, as it is and as it was."""

    def read_range(
        self,
        cluster: str,
        kind: Kind,
        namespace: str,
        after: tuple[str, str],
        limit: int,
        max_bytes: int,
    ) -> tuple[Sequence[StoredObject], bool]:
        """Objects of one kind by namespace and name as bytes, each as new as the call or newer.

        It costs what it returns, however many objects there are. For those of one revision, take
        back with :meth:`read_undo` what has changed since. Of kinds that ListObjects has alone.

        Args:
            cluster: its name; one that is not there has no objects.
            kind: of the objects.
            namespace: empty for all.
            after: namespace and name that the objects come after; empty ones for the first.
            limit: objects at most.
            max_bytes: of payloads, about, after which it ends early.

        Returns:
            The objects, and whether there may be more after them. A value that cannot be read is as
            in :meth:`scan`.
        """
        ...

    def read_keys(self, cluster: str, keys: Sequence[Key]) -> Sequence[StoredObject]:
        """The objects among these that are there, in any order, each as new as the call or newer.

        It costs what it returns, and what it is asked for: Redis serves nobody else meanwhile, so
        ask for some hundreds at once.

        Args:
            cluster: its name; one that is not there has no objects.
            keys: each at most once. A value that cannot be read is as in :meth:`scan`.
        """
        ...

    def read_undo(
        self, cluster: str, identity: str, since: Revision, wanted: Callable[[Key], bool]
    ) -> Mapping[Key, StoredObject | None]:
        """What the objects that have changed since a revision were then; None where there was none.

        It has the changes up to the call, and maybe newer ones. It reaches back over the newest
        changes, a fourth of those in the log, and costs as many as came since.

        Args:
            cluster: its name.
            identity: the identity that ``since`` belongs to.
            since: the revision.
            wanted: which keys to return; of kinds that ListObjects has.

        Raises:
            RevisionUnavailable: too much has changed since, an older version wrote meanwhile, or
                the revision is of a history that lost writes.
            IdentityChanged: the cluster is missing or has another identity.
        """
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
        two calls. It also announces that a caller waits for news: a backend that has to poll does
        so faster for a second. Never blocks, never fails.
        """
        ...


class Purger(Protocol):
    """Ends reservations that are due."""

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
        """Check all changes, write objects and append a transaction to the log, in one atomic step.

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
        """Forget a cluster: objects, log, tombstones, the cluster's lease.

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


class HistoryConfirmer(Protocol):
    """Confirms that a cluster's history is intended, so that replicas give up a lost one."""

    def confirm_history(
        self,
        cluster: str,
        kinds: Collection[Kind],
        *,
        identity: str = "",
        instead_of: str = "",
    ) -> None:
        """Record that the stored content of these kinds is the truth, by a full list or a person.

        A replica that still holds another history waits for this before it follows the present one,
        see Head.confirmed. Nothing is logged. Without a cluster it is remembered for a day.

        Args:
            cluster: its name.
            kinds: the confirmed ones.
            identity: when given, refuse unless the store's identity is this one.
            instead_of: a lost identity whose place the present history takes: from now on it counts
                as dropped.

        Raises:
            IdentityChanged: the identity differs.
        """
        ...


class Leaser(Protocol):
    """Lets one of many processes sync a cluster."""

    def lease(
        self,
        cluster: str,
        holder: str,
        lifetime: int,
        *,
        fence: int = 0,
        timeout: float | None = None,
    ) -> Lease:
        """Take the lease of a cluster if it is free, or renew one's own.

        A new holder gets a greater token than any before, on the store's clock, so that tokens from
        before the store was emptied stay void, too. The lease of a cluster that does not exist is
        forgotten an hour after its end (MAX_LEASE).

        Args:
            cluster: its name; it need not exist.
            holder: the caller's name; unique among all that ever ask.
            lifetime: milliseconds until it ends; 0 ends one's own now.
            fence: when given, nothing is taken: only one's own lease that has this token and has
                not ended is renewed, or ended.
            timeout: seconds; None is the backend's default.

        Returns:
            The lease as it is now: one's own if ``holder`` is the same, and ``fence`` where given.
        """
        ...

    def leased(self, cluster: str, *, timeout: float | None = None) -> Lease:
        """The lease of a cluster as it is now; it is not acquired.

        Args:
            cluster: its name; it need not exist.
            timeout: seconds; None is the backend's default.
        """
        ...


class ReplicaSource(Reader, Follower, Purger, HistoryConfirmer, Protocol):
    """What a replica needs."""


class ReadStore(Reader, Lister, Follower, Protocol):
    """What is needed to read a cluster in all ways."""


class Store(ReadStore, Writer, HistoryConfirmer, Leaser, Protocol):
    """The whole contract of a store."""

    @property
    def address(self) -> str:
        """The store's address without secrets, for `status` and logs."""
        ...

    def ping(self) -> None:
        """Raise StoreUnavailable when it cannot be reached."""
        ...

    def close(self) -> None:
        """Release connections. Blocked follow() calls return empty, later calls are refused."""
        ...
