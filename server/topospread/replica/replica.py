"""One cluster's replica: list, then follow."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

from topospread.bounded import USUAL
from topospread.errors import (
    ClusterLoading,
    ClusterNotFound,
    DeadlineExceeded,
    IdentityChanged,
    NoFeedProgress,
    NotFound,
    RevisionOfOtherHistory,
    RevisionUnavailable,
    StoreUnavailable,
    TopospreadError,
    Unavailable,
)
from topospread.index.builder import Builder
from topospread.replica.contact import FIRST_PAUSE, LAST_PAUSE, Contact
from topospread.replica.decoding import Decoder
from topospread.replica.disuse import Disuse
from topospread.replica.dues import StoreClock
from topospread.replica.history import History
from topospread.replica.succession import Fate, Succession
from topospread.replica.view import Token, View
from topospread.store.api import (
    Applied,
    Follower,
    Purger,
    Reader,
    Revision,
    Transaction,
    Voucher,
)
from topospread.store.rules import older

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from topospread.bounded import Budgets
    from topospread.index.changes import IndexChange
    from topospread.index.snapshot import Snapshot
    from topospread.spread.topology import GroupKey
    from topospread.store.api import Head
    from topospread.store.progress import Observed

LOG: Final = logging.getLogger(__name__)

FOLLOW_WAIT: Final = 5.0
"""Seconds that one follow() blocks; afterwards the head is compared, which finds a lost tail."""

BATCH: Final = 1000
"""Log entries asked for at once: bounds how long one fold takes."""

TELLING: Final = 0.25
"""Seconds before a caller's deadline at which it is told why a wait was in vain; a tenth of what is
left if that is less.
"""

LONG_WAIT: Final = 0.25
"""Seconds after which a wait for a revision asks the store whether it will ever come. It comes
within some 20 ms unless the store is slow, or lost it.
"""

NOTHING_ENDED: Final = Applied(Revision(), Revision(), ())

OWN_WRITES: Final = 1024
"""Writes of this process that are kept until the view reaches up to them."""


class Source(Reader, Follower, Purger, Voucher, Protocol):
    """What a replica needs of the store."""


@dataclass(frozen=True, slots=True)
class ReplicaOptions:
    """How a replica works.

    Attributes:
        coalesce: seconds for which changes are gathered while nobody waits for a revision.
        max_groups: distinct (namespace, selector) pairs that are kept,
        max_group_idle: and for how many seconds after their last use.
        budgets: bytes of what each cluster keeps.
    """

    coalesce: float = 0.015
    max_groups: int = 4096
    max_group_idle: float = 600.0
    budgets: Budgets = field(default_factory=lambda: USUAL)


def told_by(deadline: float) -> float:
    """When to end a wait on behalf of a caller with a deadline, so that the reason reaches it."""
    return deadline - min(TELLING, max(0.0, deadline - time.monotonic()) / 10)


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
        self._builder = self._empty()
        self._history = History(cluster, source)
        self._decoder = Decoder(cluster, options.budgets)
        self._contact = Contact()
        self._clock = StoreClock()
        self._disuse = Disuse(options.max_group_idle)
        self._own: dict[int, Transaction] = {}
        self._seen = 0
        self._rebuilds = 0
        self._loaded = False
        self._failure: TopospreadError | None = None
        self._changed = threading.Condition()
        self._waiting = 0
        self._hurry = threading.Event()
        self._nudged = threading.Event()
        self._stopping = threading.Event()
        self._succession: Succession | None = None
        self._judging = threading.Lock()
        self._thread = threading.Thread(target=self._run, name=f"follow-{cluster}", daemon=True)

    def start(self) -> None:
        """Begin to load and follow, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; callers that wait get Unavailable."""
        self._stopping.set()
        self.look()
        with self._changed:
            self._changed.notify_all()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def look(self) -> None:
        """Ask the store at once whatever there is to ask."""
        self._hurry.set()
        self._nudged.set()
        self._source.wake(self.cluster)

    # ------------------------------ other histories

    def judge(self) -> tuple[Fate, Head]:
        """What became of the history that is followed, and what the store has now.

        Raises:
            StoreUnavailable: the store cannot be looked at.
        """
        # One at a time, so that heads are judged in the order in which they were.
        with self._judging:
            head = self._source.head(self.cluster)
            return self._held().judge(head), head

    def accept(self, identity: str, deadline: float) -> None:
        """Take the store's history with this identity (empty: that there is none) as meant.

        Raises:
            DeadlineExceeded: it is not loaded yet.
            StoreUnavailable: it cannot be loaded now.
        """
        with self._judging:
            self._held().accept(identity)
        self.look()

        def followed() -> bool:
            return self._stopping.is_set() or self.loaded().identity == identity

        while not followed():
            with suppress(Unavailable):
                self._await(followed, deadline)

    def _held(self) -> Succession:
        if self._succession is None:
            self._succession = Succession(self.loaded().identity)
        return self._succession

    # ------------------------------ reading

    @property
    def stale_for(self) -> float:
        """Seconds since the store was last heard of; 0 while it answers."""
        return self._contact.stale_for

    @property
    def lag(self) -> int:
        """Transactions that the store's head, as last seen, is ahead of the view."""
        view = self.view
        return 0 if view is None else max(0, self._seen - view.revision.number)

    @property
    def age(self) -> float:
        """Seconds since the view was last known to be the newest state; 0 before the first load."""
        return self._contact.age

    @property
    def corrupt(self) -> int:
        """Stored values that could not be read and were left out."""
        return len(self._decoder.corrupt)

    def is_counted(self, namespace: str, name: str) -> bool:
        """Whether a pod is bound and counts; may be a little newer than the view."""
        return self._builder.is_counted(namespace, name)

    def keep(self, groups: Iterable[GroupKey]) -> View:
        """Count groups that the view lacks; returns a view that has them."""
        # Under the condition, so that the view's revision and the builder's state belong together.
        with self._changed:
            return self._republish(self._builder.keep(groups))

    def loaded(self) -> View:
        """The newest view.

        Raises:
            Unavailable: nothing was loaded yet.
        """
        view = self.view
        if view is None:
            raise ClusterLoading(f"cluster {self.cluster!r} is still being loaded: try again")
        return view

    def wait_loaded(self, deadline: float) -> View:
        """Wait for the first load.

        Raises:
            DeadlineExceeded: it took longer than the caller's deadline.
            NotFound: the cluster does not exist.
            StoreUnavailable: it cannot be loaded now.
        """
        if self.view is None:
            loaded = told_by(deadline)
            self._await(lambda: self.view is not None or self._failure is not None, loaded)
        if self.view is None and self._failure is not None:
            raise self._failure.again()
        return self.loaded()

    def wait_for(self, token: Token, deadline: float) -> View:
        """A view at least as new as a token.

        Raises:
            DeadlineExceeded: the revision did not arrive in time.
            RevisionUnavailable: the token belongs to another history, or the cluster was deleted,
                or the log no longer tells.
            StoreUnavailable: only the store could tell whether the token belongs to this history.
            Unavailable: the view is being made anew.
        """
        view = self.loaded()
        if view.identity == token.identity and view.revision.number < token.revision.number:
            self._await_revision(token, told_by(deadline))
            view = self.loaded()
        if view.identity != token.identity:
            raise RevisionOfOtherHistory(
                "the revision belongs to another store or a deleted cluster: read again without it"
            )
        self._history.check(token)
        return view

    def wait_observed(self, wanted: Observed, deadline: float) -> View:
        """A view of a state whose feed had read the API server up to these versions.

        Raises:
            NoFeedProgress: nobody tells how far one of the kinds was read.
            DeadlineExceeded: the feed did not come so far in time.
            RevisionUnavailable: the cluster was deleted.
            Unavailable: the view is being made anew.
        """

        def reached() -> bool:
            observed = dict(self.loaded().observed)
            for kind, _ in wanted:
                if kind not in observed:
                    raise NoFeedProgress(
                        f"no feed of cluster {self.cluster!r} says how far it has read the API"
                        f" server's objects of kind {kind.name}: ask without notOlderThan",
                        f"KIND_{kind.name}",
                    )
            return not any(older(observed[kind], version) for kind, version in wanted)

        if not reached():
            self._await(reached, told_by(deadline), "what is to be observed")
        return self.loaded()

    def _await_revision(self, token: Token, deadline: float) -> None:
        def reached() -> bool:
            return self.loaded().revision.number >= token.revision.number

        try:
            self._await(reached, min(deadline, time.monotonic() + LONG_WAIT))
        except DeadlineExceeded:
            if time.monotonic() >= deadline:
                raise
            # Out of reach, it may come back before the deadline.
            with suppress(StoreUnavailable):
                self._history.ask(token)
            self._await(reached, deadline)

    # ------------------------------ own writes

    def take(self, identity: str, transaction: Transaction) -> bool:
        """Take in a write of this process at once, if the view reaches up to it.

        Otherwise it is kept until what came between is there.

        Args:
            identity: of the history that it was written to.
            transaction: the whole of it, in the order of the log.

        Returns:
            Whether the view has it now.
        """
        with self._changed:
            view = self.view
            if not self._loaded or view is None or view.identity != identity:
                return False
            if len(self._own) >= OWN_WRITES:
                self._own.clear()
            self._own[transaction.revision.number] = transaction
            self._take_in(())
            return self.loaded().revision.number >= transaction.revision.number

    def pull(self) -> View:
        """Fetch what the store has beyond the view, for callers that cannot wait to be told.

        Raises:
            StoreUnavailable: it is out of reach.
            RevisionUnavailable, IdentityChanged: the view cannot be continued; it is made anew.
        """
        view = self.loaded()
        found = self._next(view.identity, view.revision, 0.0)
        with self._changed:
            if self._loaded and self.loaded().identity == view.identity:
                self._take_in(found)
        return self.loaded()

    def renewed(self, lost: View, deadline: float) -> None:
        """Wait until a view that the store's log does not continue has given way to another one.

        Raises:
            DeadlineExceeded: it takes longer.
            Unavailable: the server is going away.
        """
        self.look()

        def reached() -> bool:
            view = self.loaded()
            return self._loaded and (view.identity, view.revision) != (lost.identity, lost.revision)

        while not (self.gone or reached()):
            try:
                self._await(reached, min(deadline, time.monotonic() + LONG_WAIT))
            except RevisionUnavailable:
                return  # dropped: whoever asks next finds out
            except DeadlineExceeded:
                if time.monotonic() >= deadline:
                    raise
                if self.identity_changed:
                    return  # likewise; no other view comes before that is accepted
            except Unavailable:  # it has begun
                if self._stopping.is_set():
                    raise

    def _await(
        self,
        reached: Callable[[], bool],
        deadline: float,
        what: str = "the wanted revision",
    ) -> None:
        with self._changed:
            self._waiting += 1
            rebuilds = self._rebuilds
            try:
                self._hurry.set()
                while not reached():
                    if self.gone:
                        raise RevisionOfOtherHistory(
                            "the cluster was deleted: read again without it"
                        )
                    if self._stopping.is_set():
                        raise ClusterLoading("the server stopped following the cluster: try again")
                    if rebuilds != self._rebuilds:
                        raise ClusterLoading("the state is being loaded anew: try again")
                    left = deadline - time.monotonic()
                    if left <= 0:
                        raise DeadlineExceeded(
                            f"cluster {self.cluster!r} did not reach {what} in time"
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
                if not self._contact.broken:
                    LOG.warning("cluster %s: the store is out of reach: %s", self.cluster, cause)
                self._lost(cause)
            except RevisionUnavailable as cause:
                LOG.warning("cluster %s: rebuilding aside: %s", self.cluster, cause)
                self._rebuild()
                self._pause(FIRST_PAUSE)
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
                head = self._followable()
                if head is None:
                    self._pause(LAST_PAUSE)
                    return
                self._publish(*self._load(head))
            self._follow()
        except IdentityChanged:
            self._rebuild()
            if self.view is None:
                self._pause(FIRST_PAUSE)

    def _followable(self) -> Head | None:
        """The store's head, if its history is the one followed so far, or its heir.

        Raises:
            NotFound: the cluster was deleted; what is there now begins with another replica.
        """
        if self.view is None:
            return self._source.head(self.cluster)
        fate, head = self.judge()
        if fate is Fate.DROPPED:
            raise ClusterNotFound(self.cluster, "was deleted")
        if fate is Fate.LOST:
            self._keep_view(self.view)
            return None
        if fate is Fate.SUCCEEDED:
            lost = self.view.identity
            LOG.warning("cluster %s: %s takes the place of %s", self.cluster, head.identity, lost)
            self._source.vouch(self.cluster, (), identity=head.identity, instead_of=lost)
        elif self.identity_changed:
            LOG.warning("cluster %s: the store has its history again", self.cluster)
        return head

    def _load(self, head: Head) -> tuple[Builder, str, Revision]:
        """Build the index anew, aside; the old view answers meanwhile."""
        old = self.view
        if not head.identity:
            raise ClusterNotFound(self.cluster)
        builder = self._empty()
        self._decoder = Decoder(self.cluster, self._options.budgets)
        self._disuse = Disuse(self._options.max_group_idle)
        self._history.begin(head.revision)
        for page in self._source.scan(self.cluster):
            builder.fold(self._decoder.objects(page))
        target = self._source.head(self.cluster)
        if target.identity != head.identity:
            raise RevisionOfOtherHistory("the cluster was deleted while it was loaded")
        revision = head.revision
        while revision.number < target.revision.number:
            revision = self._fold(builder, self._next(head.identity, revision, 0.0), revision)
        if old is not None:
            builder.keep(list(old.snapshot.groups))
        return builder, head.identity, revision

    def _empty(self) -> Builder:
        options = self._options
        return Builder(max_groups=options.max_groups, budgets=options.budgets, breathe=_let_go)

    def _follow(self) -> None:
        wait = 0.0  # the first answer tells at once that the store is back
        while not self._stopping.is_set():
            view = self.loaded()
            transactions = self._next(view.identity, view.revision, wait)
            behind = self._heard(view.revision, transactions)
            if transactions:
                self._take_in(transactions)
                if not behind:
                    self._gather()
            wait = min(FOLLOW_WAIT, self._purge_due(), self._release_unused())

    def _take_in(self, transactions: Iterable[Transaction]) -> None:
        """Fold what the view lacks of these, and of this process's own writes right behind them."""
        with self._changed:
            view = self.loaded()
            revision, lacking = view.revision, []
            for transaction in transactions:
                if transaction.revision.number > revision.number:
                    if transaction.previous_tag != revision.tag:
                        raise RevisionOfOtherHistory("the log does not continue what is loaded")
                    lacking.append(transaction)
                    revision = transaction.revision
            while (own := self._own.get(revision.number + 1)) and own.previous_tag == revision.tag:
                lacking.append(own)
                revision = own.revision
            self._own = {n: own for n, own in self._own.items() if n > revision.number}
            if lacking:
                self._fold(self._builder, lacking, view.revision)
                self._publish(self._builder, view.identity, revision)

    def _purge_due(self) -> float:
        """End what is due, or see to it that another replica has; seconds until it is time again.

        What ends is seen as all see it: by following the log.
        """
        with self._changed:
            due = self._decoder.dues.next()
        if not due:
            return FOLLOW_WAIT
        if not self._clock.seconds_until(due):
            try:
                applied = self._source.purge(self.cluster)
            except StoreUnavailable:
                # A store that takes no writes, as without memory, is still followed; one that is
                # out of reach fails the next look.
                applied = NOTHING_ENDED
            self._clock.looked()
            if applied.at:
                self._clock.told(applied.at)
        return self._clock.seconds_until(due)

    def _release_unused(self) -> float:
        """Let go of groups that nobody has asked for in long; seconds until it is time again."""
        if not self._disuse.left():
            with self._changed:
                builder = self._builder
                before = self._disuse.before(builder.snapshot.sequence)
                self._republish(builder.release(before))
        return self._disuse.left()

    def _republish(self, snapshot: Snapshot) -> View:
        """Show other groups of the same state; holding the condition."""
        view = self.loaded()
        view = replace(view, snapshot=snapshot)
        self.view = view
        return view

    def _heard(self, revision: Revision, transactions: Sequence[Transaction]) -> bool:
        """The store answered: note how far ahead it is, and when it was not.

        Returns:
            Whether more is there already than one answer holds.
        """
        self._contact.heard()
        behind = sum(len(transaction.entries) for transaction in transactions) >= BATCH
        if behind:
            self._seen = self._source.head(self.cluster).revision.number
        else:
            self._seen = transactions[-1].revision.number if transactions else revision.number
            self._contact.confirmed()
        return behind

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
            self._history.add(revision)
        if changes:
            builder.fold(changes)
        return revision

    def _publish(self, builder: Builder, identity: str, revision: Revision) -> None:
        with self._changed:
            token = Token(identity, revision).encode()
            self._builder = builder
            self._loaded = True
            observed = self._decoder.observed
            now = time.monotonic()
            self.view = View(builder.snapshot, identity, revision, token, now, observed)
            self._failure = None
            self.identity_changed = False
            self._succession = None
            self._changed.notify_all()

    # ------------------------------ trouble

    def _lost(self, cause: TopospreadError) -> None:
        """Say that the view may be old, and let some time pass."""
        self._contact.missed()
        if self.view is None:
            self._fail(cause)
        self._pause(self._contact.pause())

    def _pause(self, seconds: float) -> None:
        """Let time pass, unless somebody asks to look."""
        self._nudged.wait(seconds)
        self._nudged.clear()

    def _rebuild(self) -> None:
        """Load anew, aside; whoever waits for a revision is told at once."""
        with self._changed:
            self._loaded = False
            self._rebuilds += 1
            self._changed.notify_all()

    def _keep_view(self, view: View) -> None:
        """The store is another one, or was emptied: the view is kept, and says so."""
        self._contact.missed()
        if not self.identity_changed:
            self.identity_changed = True
            LOG.error(
                "cluster %s: the store has another history of it, or none: kept as it was at %s; "
                "accept the store's with `topospread store accept`, or replace all kinds",
                self.cluster,
                view.revision.number,
            )

    def _end(self, cause: TopospreadError) -> None:
        """There is nothing to follow any more."""
        with self._changed:
            # At once, or whoever waits would see a replica that stopped for no reason.
            self.gone = True
            self._stopping.set()
            self._fail(cause)
        self._on_gone(self)

    def _fail(self, cause: TopospreadError) -> None:
        with self._changed:
            self._failure = cause.again()
            self._changed.notify_all()


def _let_go() -> None:
    """Give other threads the interpreter."""
    time.sleep(0)
