"""One cluster's replica: list, then follow."""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from topospread.errors import (
    DeadlineExceeded,
    IdentityChanged,
    NotFound,
    RevisionUnavailable,
    StoreUnavailable,
    Unavailable,
)
from topospread.index.builder import Builder
from topospread.replica.decoding import Decoder
from topospread.replica.view import Token, View
from topospread.store.api import Follower, Reader, Revision, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from topospread.index.changes import IndexChange
    from topospread.spread.topology import GroupKey

LOG: Final = logging.getLogger(__name__)

FOLLOW_WAIT: Final = 5.0
"""Seconds that one follow() blocks; afterwards the head is compared, which finds a lost tail."""

FIRST_BACKOFF: Final = 0.05
LAST_BACKOFF: Final = 1.0
"""Seconds between two tries to reach the store: doubling, and short at the end, so that writes go
on soon.
"""

BATCH: Final = 1000
"""Log entries asked for at once: bounds how long one fold takes."""

REMEMBERED_TAGS: Final = 4096
"""Transactions whose tags are remembered, to tell a token of another history."""


class Source(Reader, Follower, Protocol):
    """What a replica needs of the store."""


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """How a replica works.

    Attributes:
        coalesce: seconds for which changes are gathered while nobody waits for a revision.
        max_groups: distinct (namespace, selector) pairs that are kept.
    """

    coalesce: float = 0.015
    max_groups: int = 4096


class Replica:
    """Follows one cluster from start() on; :attr:`view` is None until the first load is done."""

    def __init__(
        self,
        cluster: str,
        source: Source,
        options: ReplicaOptions,
        *,
        on_gone: Callable[[Replica], None] = lambda _: None,
    ) -> None:
        self.cluster = cluster
        self.view: View | None = None
        self.identity_changed = False
        self.gone = False
        self._source = source
        self._options = options
        self._on_gone = on_gone
        self._builder = Builder(max_groups=options.max_groups, breathe=_let_go)
        self._tags: dict[int, str] = {}
        self._decoder = Decoder(cluster)
        self._stale_since: float | None = None
        self._backoff = FIRST_BACKOFF
        self._seen = 0
        self._confirmed_at: float | None = None
        self._rebuilds = 0
        self._loaded = False
        self._failure: Exception | None = None
        self._changed = threading.Condition()
        self._waiting = 0
        self._hurry = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow-{cluster}", daemon=True)

    def start(self) -> None:
        """Begin to load and follow, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; callers that wait get Unavailable."""
        self._stopping.set()
        self._hurry.set()
        self._source.wake(self.cluster)
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    # ------------------------------ reading

    @property
    def stale_for(self) -> float:
        """Seconds since the store was last heard of; 0 while it answers."""
        since = self._stale_since
        return 0.0 if since is None else max(0.0, time.monotonic() - since)

    @property
    def lag(self) -> int:
        """Transactions that the store's head, as last seen, is ahead of the view."""
        view = self.view
        return 0 if view is None else max(0, self._seen - view.revision.number)

    @property
    def age(self) -> float:
        """Seconds since the view was last known to be the newest state; 0 before the first load."""
        confirmed = self._confirmed_at
        return 0.0 if confirmed is None else max(0.0, time.monotonic() - confirmed)

    @property
    def corrupt(self) -> int:
        """Stored values that could not be read and were left out."""
        return len(self._decoder.corrupt)

    def keep(self, groups: Iterable[GroupKey]) -> View:
        """Count groups that the view lacks; returns a view that has them."""
        # Under the condition, so that the view's revision and the builder's state belong together.
        with self._changed:
            view = self.loaded()
            snapshot = self._builder.keep(groups)
            view = View(snapshot, view.identity, view.revision, view.token, view.published_at)
            self.view = view
            return view

    def loaded(self) -> View:
        """The newest view.

        Raises:
            Unavailable: nothing was loaded yet.
        """
        view = self.view
        if view is None:
            raise Unavailable(f"cluster {self.cluster!r} is still being loaded: try again")
        return view

    def wait_loaded(self, deadline: float) -> View:
        """Wait for the first load.

        Raises:
            DeadlineExceeded: it took longer than the caller's deadline.
            NotFound: the cluster does not exist.
            StoreUnavailable: it cannot be loaded now.
        """
        if self.view is None:
            self._await(lambda: self.view is not None or self._failure is not None, deadline)
        if self.view is None and self._failure is not None:
            raise self._failure
        return self.loaded()

    def wait_for(self, token: Token, deadline: float) -> View:
        """A view at least as new as a token.

        Raises:
            DeadlineExceeded: the revision did not arrive in time.
            RevisionUnavailable: the token belongs to another history, or the cluster was dropped.
            Unavailable: the view is being made anew.
        """
        view = self.loaded()
        if token.identity != view.identity:
            raise RevisionUnavailable(
                "the revision belongs to another store or a dropped cluster: read again without it"
            )
        if view.revision.number < token.revision.number:
            self._await(lambda: self.loaded().revision.number >= token.revision.number, deadline)
            view = self.loaded()
        self._same_history(token)
        return view

    def _same_history(self, token: Token) -> None:
        tag = self._tags.get(token.revision.number, token.revision.tag)
        if tag != token.revision.tag:
            raise RevisionUnavailable(
                "the revision was lost when the store failed over: read again without it"
            )

    def _await(self, reached: Callable[[], bool], deadline: float) -> None:
        with self._changed:
            self._waiting += 1
            rebuilds = self._rebuilds
            try:
                self._hurry.set()
                while not reached():
                    if self.gone:
                        raise RevisionUnavailable("the cluster was dropped: read again without it")
                    if self._stopping.is_set():
                        raise Unavailable("the server stopped following the cluster: try again")
                    if rebuilds != self._rebuilds:
                        raise Unavailable("the state is being loaded anew: try again")
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise DeadlineExceeded(
                            f"cluster {self.cluster!r} did not reach the wanted revision in time"
                        )
                    self._changed.wait(left)
            finally:
                self._waiting -= 1

    # ------------------------------ following

    def _run(self) -> None:
        """Load, follow, and go on whatever happens, until there is nothing to follow any more."""
        while not self._stopping.is_set():
            try:
                self._load_and_follow()
            except StoreUnavailable as cause:
                if self._stale_since is None:
                    LOG.warning("cluster %s: the store is out of reach: %s", self.cluster, cause)
                self._lost(cause)
            except RevisionUnavailable as cause:
                LOG.warning("cluster %s: rebuilding aside: %s", self.cluster, cause)
                self._rebuild()
                self._stopping.wait(FIRST_BACKOFF)
            except NotFound as cause:
                self._end(cause)
            except Exception:
                # It must not end in silence: callers would read a view that is never renewed.
                LOG.exception("cluster %s: following it failed: loading anew", self.cluster)
                self._rebuild()
                self._lost(Unavailable(f"cluster {self.cluster!r} cannot be loaded: see the log"))

    def _load_and_follow(self) -> None:
        try:
            if not self._loaded:
                self._publish(*self._load())
            self._follow()
        except IdentityChanged as cause:
            self._rebuild()
            self._replaced(cause)

    def _load(self) -> tuple[Builder, str, Revision]:
        """Build the index anew, aside; the old view answers meanwhile."""
        head = self._source.head(self.cluster)
        old = self.view
        if old is not None and head.identity != old.identity:
            raise IdentityChanged("the store holds another history of this cluster, or none")
        if not head.identity:
            raise NotFound(f"cluster {self.cluster!r} is not known: apply objects to it first")
        builder = Builder(max_groups=self._options.max_groups, breathe=_let_go)
        self._decoder = Decoder(self.cluster)
        self._tags = {head.revision.number: head.revision.tag}
        for page in self._source.scan(self.cluster):
            builder.fold(self._decoder.objects(page))
        target = self._source.head(self.cluster)
        if target.identity != head.identity:
            raise RevisionUnavailable("the cluster was dropped while it was loaded")
        self.identity_changed = False
        revision = head.revision
        while revision.number < target.revision.number:
            revision = self._fold(builder, self._next(head.identity, revision, 0.0), revision)
        if old is not None:
            builder.keep(list(old.snapshot.groups))
        return builder, head.identity, revision

    def _follow(self) -> None:
        assert self.view is not None, "it was loaded"
        identity, revision = self.view.identity, self.view.revision
        wait = 0.0  # the first answer tells at once that the store is back
        while not self._stopping.is_set():
            transactions = self._next(identity, revision, wait)
            wait = FOLLOW_WAIT
            self._heard(revision, transactions)
            if transactions:
                with self._changed:
                    revision = self._fold(self._builder, transactions, revision)
                    self._publish(self._builder, identity, revision)
                self._gather()

    def _heard(self, revision: Revision, transactions: Sequence[Transaction]) -> None:
        """The store answered: note how far ahead it is, and when it was not."""
        self._stale_since = None
        self._backoff = FIRST_BACKOFF
        if sum(len(transaction.entries) for transaction in transactions) < BATCH:
            self._seen = transactions[-1].revision.number if transactions else revision.number
            self._confirmed_at = time.monotonic()
        else:
            self._seen = self._source.head(self.cluster).revision.number

    def _gather(self) -> None:
        """Let changes come together while nobody waits for one."""
        if not self._waiting:
            self._hurry.wait(self._options.coalesce)
        if not self._waiting:
            self._hurry.clear()

    def _next(self, identity: str, after: Revision, wait: float) -> Sequence[Transaction]:
        return self._source.follow(self.cluster, identity, after, wait=wait, limit=BATCH)

    def _fold(
        self, builder: Builder, transactions: Iterable[Transaction], revision: Revision
    ) -> Revision:
        changes: list[IndexChange] = []
        for transaction in transactions:
            changes.extend(self._decoder.entries(transaction.entries))
            revision = transaction.revision
            self._tags[revision.number] = revision.tag
            self._tags.pop(revision.number - REMEMBERED_TAGS, None)
        if changes:
            builder.fold(changes)
        return revision

    def _publish(self, builder: Builder, identity: str, revision: Revision) -> None:
        with self._changed:
            token = Token(identity, revision).encode()
            self._builder = builder
            self._loaded = True
            self.view = View(builder.snapshot, identity, revision, token, time.monotonic())
            self._failure = None
            self._changed.notify_all()

    # ------------------------------ trouble

    def _lost(self, cause: Exception) -> None:
        """Say that the view may be old, and let some time pass."""
        if self._stale_since is None:
            self._stale_since = time.monotonic()
        if self.view is None:
            self._fail(cause)
        self._stopping.wait(self._backoff)
        self._backoff = min(self._backoff * 2, LAST_BACKOFF)

    def _rebuild(self) -> None:
        """Load anew, aside; whoever waits for a revision is told at once."""
        with self._changed:
            self._loaded = False
            self._rebuilds += 1
            self._changed.notify_all()

    def _replaced(self, cause: IdentityChanged) -> None:
        """The cluster was dropped, or else the store is another one, or was emptied.

        A dropped one is followed no more. Otherwise the view is kept and says so.
        """
        view = self.view
        head = self._source.head(self.cluster)
        if view is None or view.identity in head.dropped:
            self._end(cause)
            return
        if not self.identity_changed:
            LOG.error("cluster %s: kept as it was at %s: %s", self.cluster, view.revision, cause)
            self.identity_changed = True
        if self._stale_since is None:
            self._stale_since = time.monotonic()
        self._stopping.wait(LAST_BACKOFF)

    def _end(self, cause: Exception) -> None:
        """There is nothing to follow any more."""
        self._stopping.set()
        with self._changed:
            self.gone = True
            self._fail(cause)
        self._on_gone(self)

    def _fail(self, cause: Exception) -> None:
        with self._changed:
            self._failure = cause
            self._changed.notify_all()


def _let_go() -> None:
    """Give other threads the interpreter."""
    time.sleep(0)
