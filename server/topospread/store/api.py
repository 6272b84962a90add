"""The store's contract: objects, a change log, and atomic conditional writes.

One cluster is one history: a totally ordered log of transactions. A transaction is one atomic step
that writes objects and appends its changes; it has a number ``n`` (dense, growing by one) and a
random tag, and names the tag of the transaction before it, so that two histories that used the same
numbers can be distinguished. Followers read the objects once, then follow the log.

Twelve methods; arguments and results are in :mod:`~topospread.store.model`. A ``cluster`` is named
by a DNS label, and need not exist; a ``timeout`` is in seconds, None for the backend's default, as
where none can be given; an ``identity`` that is given must be the store's. Every method raises
:class:`~topospread.errors.StoreUnavailable` when the backend cannot answer within the time-out;
nothing was written then *as far as the caller can know*: a write that timed out may have happened
and is safe to repeat, because identical bytes are not written twice. Other errors stand at the
method. What is not guaranteed is said there as well; whoever adds a backend finds the suite that
checks all of it in ``tests/store``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from topospread.errors import CorruptValue

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.store.model import (
        Applied,
        Change,
        Head,
        Key,
        Kind,
        Lease,
        Listed,
        Page,
        Revision,
        StoredObject,
        Transaction,
        Unchanged,
    )


class Reader(Protocol):
    """Reads clusters and follows their logs; what a replica, a list or a plan needs."""

    def head(self, cluster: str, *, timeout: float | None = None) -> Head:
        """The newest revision. An unknown cluster has an empty identity and revision 0."""
        ...

    def scan(
        self,
        cluster: str,
        kind: Kind,
        *,
        namespace: str = "",
        after: tuple[str, str] = ("", ""),
        limit: int = 1000,
        max_bytes: int = 4 << 20,
    ) -> Page:
        """Objects of one kind in the order of namespace and name as bytes.

        It costs what it returns, however many objects there are. Each object is as new as the call
        or newer, and one that is there all the time is returned; pages are not one snapshot: for
        that, note head() before the first one, and follow the log to where it ends after the last.
        A value that cannot be read has an empty digest and its raw bytes as payload; it is the
        caller's to count and skip.

        Args:
            namespace: empty for all.
            after: namespace and name that the objects come after; empty ones for the first.
            limit: objects at most.
            max_bytes: of payloads, about, after which it ends early.
        """
        ...

    def get(self, cluster: str, keys: Sequence[Key]) -> Sequence[StoredObject]:
        """The objects among these that are there, in any order, each as new as the call or newer.

        One round trip. They are not one snapshot. It costs what it is asked for, and Redis serves
        nobody else meanwhile, so ask for some hundreds at once, each at most once. A value that
        cannot be read is as in :meth:`scan`.
        """
        ...

    def clusters(self) -> Sequence[str]:
        """Names of the clusters that exist, sorted. It may cost a look at all keys of the store."""
        ...

    def follow(
        self, cluster: str, identity: str, after: Revision, *, wait: float, limit: int = 1000
    ) -> Sequence[Transaction]:
        """Whole transactions after a revision, in order; none when none came in ``wait`` seconds.

        Args:
            after: the revision the follower has; the first transaction returned names its tag.
            wait: seconds to block for; 0 asks once. May return early and empty (see wake()). A
                cluster that is dropped meanwhile is noticed within a second.
            limit: about how many log entries at once; a transaction is never split. 0 only checks
                that the log reaches back to ``after``.

        Raises:
            RevisionUnavailable: the log was trimmed past ``after``, or holds another tag there, or
                has not come so far (a history that lost writes). Rebuild.
            IdentityChanged: the cluster is missing or has another identity.
        """
        ...

    def lease(self, cluster: str, *, timeout: float | None = None) -> Lease:
        """Who may sync a cluster; see :meth:`Writer.acquire`."""
        ...

    def wake(self, cluster: str) -> None:
        """Make a follow() of this cluster that blocks in another thread return soon.

        With none under way, the next one returns without blocking, so that no wake is lost between
        two calls. It also announces that a caller waits for news: a backend that has to poll does
        so faster for a second. Never blocks, never fails.
        """
        ...


def scan_all(
    reader: Reader, cluster: str, kind: Kind, namespace: str = ""
) -> Iterator[Sequence[StoredObject]]:
    """The objects of a kind, page after page; see :meth:`Reader.scan`."""
    place: tuple[str, str] | None = ("", "")
    while place is not None:
        page = reader.scan(cluster, kind, namespace=namespace, after=place)
        yield page.objects
        place = page.last


def get_one(reader: Reader, cluster: str, key: Key) -> StoredObject | None:
    """One object as it is now.

    Raises:
        CorruptValue: it is there and cannot be read.
    """
    for found in reader.get(cluster, (key,)):
        if not found.digest:
            name = f"{key.kind.name} {key.namespace}/{key.name}"
            raise CorruptValue(f"the stored value of {name} cannot be read: write it anew")
        return found
    return None


class Writer(Protocol):
    """Writes clusters."""

    def apply(
        self,
        cluster: str,
        changes: Sequence[Change],
        *,
        precondition: Unchanged | None = None,
        identity: str = "",
        force: bool = False,
        fence: int = 0,
        listed: Listed | None = None,
        timeout: float | None = None,
    ) -> Applied:
        """Check all changes, write objects and append a transaction to the log, in one atomic step.

        Identical bytes are not written (UNCHANGED). A Put whose version is older than the stored
        one, or not newer than a tombstone's, is IGNORED_STALE unless ``force``; a Put without a
        version is always applied. Other bytes with the stored version are written: the same object
        in another form. Nothing is appended when no change had an effect. The cluster is created by
        the first write that has one, and by one without any changes and identity, at revision 0.
        Deletions and new objects are always relevant.

        Each write also ends the reservations that are due on the store's clock, at most MAX_ENDED
        of them, after its own changes; a due one that is among the changes is left to them. A
        reservation counts until then: nothing ends by itself.

        Args:
            changes: at most MAX_CHANGES, each key at most once; none to end what is due.
            precondition: refuse unless it holds; also checked when no change has an effect.
            force: write older versions, too.
            fence: when given, refuse unless it is the token of the cluster's lease (see acquire());
                checked before anything else, also when no change has an effect.
            listed: note that all objects of a kind have been written; see Listed and Head.complete.

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
        """Forget a cluster: objects, log, tombstones; all tokens of its lease become invalid.

        A later write makes a new identity and begins at 1. The old identity is remembered for a day
        (see Head.replaced).

        Returns:
            How many objects there were; None when there was no such cluster.

        Raises:
            IdentityChanged: the identity differs.
        """
        ...

    def acquire(
        self, cluster: str, holder: str, lifetime: int, *, timeout: float | None = None
    ) -> Lease:
        """Take the lease of a cluster if it is free, or renew one's own, or end it.

        A new holder gets a greater token than any before, on the store's clock, so that tokens from
        before the store was emptied stay void, too. The lease of a cluster that does not exist is
        forgotten an hour after its end (MAX_LEASE).

        Args:
            holder: the caller's name, unique among all that ever ask.
            lifetime: milliseconds until it ends; 0 ends one's own now.

        Returns:
            The lease as it is now: one's own if ``holder`` is the same.
        """
        ...


class Store(Reader, Writer, Protocol):
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
