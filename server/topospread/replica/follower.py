"""Follows one cluster's log in a thread: list, then follow, and rebuild when the log is cut."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from topospread.errors import (
    ClusterNotFound,
    IdentityChanged,
    NotFound,
    RevisionUnavailable,
    StoreUnavailable,
    TopospreadError,
    Unavailable,
)
from topospread.replica.timers import FIRST_PAUSE, LAST_PAUSE, IdleTracker, StoreClock
from topospread.replica.view import HistoryStatus, check_continued, log_until, status_of
from topospread.store.api import scan_all
from topospread.store.model import Applied, Kind, Revision, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.index.builder import Builder
    from topospread.replica.state import ReplicaOptions, ReplicaState
    from topospread.replica.view import View
    from topospread.store.api import Reader
    from topospread.store.model import Head

LOG: Final = logging.getLogger(__name__)

FOLLOW_WAIT: Final = 5.0
"""Seconds that one follow() blocks; afterwards the head is compared, which finds a lost tail."""

BATCH: Final = 1000
"""Log entries asked for at once: bounds how long one fold takes."""

NOTHING_ENDED: Final = Applied(Revision(), Revision(), ())


class LogFollower:
    """The thread that loads a cluster, follows its log and publishes each state.

    Attributes:
        head_number: number of the store's newest transaction, as last seen.
    """

    def __init__(
        self,
        state: ReplicaState,
        source: Reader,
        options: ReplicaOptions,
        *,
        on_gone: Callable[[ReplicaState], None],
    ) -> None:
        self.head_number = 0
        self._cluster = state.cluster
        self._state = state
        self._source = source
        self._options = options
        self._on_gone = on_gone
        self._health = state.health
        self._waiter_present = state.waiter_present
        self._clock = StoreClock()
        self._idle_groups = IdleTracker(options.max_group_idle)
        self._poll_requested = threading.Event()
        name = f"follow-{state.cluster}"
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin to load and follow; without following, load now."""
        if self._options.follows:
            self._thread.start()
            return
        try:
            self._state.publish(*self._load(self._source.head(self._cluster)))
        except NotFound as cause:
            self._state.end(cause)
            self._on_gone(self._state)

    def poll_now(self) -> None:
        """Ask the store at once, instead of waiting for news or for the next try."""
        self._waiter_present.set()
        self._poll_requested.set()
        self._source.wake(self._cluster)

    def join(self) -> None:
        """Wait for the thread to end, unless it is the calling one."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()

    def next_transactions(
        self, identity: str, after: Revision, wait: float
    ) -> Sequence[Transaction]:
        """Transactions of the log after a revision; errors as of the store's follow()."""
        return self._source.follow(self._cluster, identity, after, wait=wait, limit=BATCH)

    # ------------------------------ the thread

    def _run(self) -> None:
        try:
            self._follow_until_stopped()
        finally:
            # The state refers to its follower: without the circle its memory is freed at once.
            del self._state

    def _follow_until_stopped(self) -> None:
        """Load, follow, and go on whatever happens, until there is nothing to follow any more."""
        cluster, state = self._cluster, self._state
        while not state.stopping.is_set():
            try:
                self._load_and_follow()
            except StoreUnavailable as cause:
                if not self._health.failing:
                    LOG.warning("cluster %s: the store is out of reach: %s", cluster, cause)
                self._on_unavailable(cause)
            except RevisionUnavailable as cause:
                LOG.warning("cluster %s: rebuilding aside: %s", cluster, cause)
                state.begin_rebuild()
                self._pause(FIRST_PAUSE)
            except NotFound as cause:
                state.end(cause)
                self._on_gone(state)
            except Exception:
                # It must not end in silence: callers would read a view that is never renewed.
                LOG.exception("cluster %s: following it failed: loading anew", cluster)
                state.begin_rebuild()
                self._on_unavailable(
                    Unavailable(f"cluster {cluster!r} cannot be loaded: see the log")
                )

    def _load_and_follow(self) -> None:
        state = self._state
        try:
            if not state.loaded:
                head = self._head_to_follow()
                if head is None:
                    self._pause(LAST_PAUSE)
                    return
                state.publish(*self._load(head))
            self._follow()
        except IdentityChanged:
            state.begin_rebuild()
            if state.view is None:
                self._pause(FIRST_PAUSE)

    def _head_to_follow(self) -> Head | None:
        """The store's head, if its history is the one followed so far or may replace it."""
        state, cluster = self._state, self._cluster
        if state.view is None:
            return self._source.head(cluster)
        head = self._source.head(cluster)
        status = status_of(state.view.identity, head)
        if status is HistoryStatus.DROPPED:
            raise ClusterNotFound(cluster, "was deleted")
        if status is HistoryStatus.LOST:
            self._keep_view(state.view)
            return None
        if status is HistoryStatus.REPLACED:
            lost = state.view.identity
            LOG.warning("cluster %s: %s takes the place of %s", cluster, head.identity, lost)
        elif state.identity_changed:
            LOG.warning("cluster %s: the store has its history again", cluster)
        state.identity_changed = False
        return head

    def _load(self, head: Head) -> tuple[Builder, str, Revision]:
        """Build the index anew, aside; the old view answers meanwhile."""
        state, cluster = self._state, self._cluster
        old = state.view
        if not head.identity:
            raise ClusterNotFound(cluster)
        builder = state.new_builder()
        self._idle_groups = IdleTracker(self._options.max_group_idle)
        state.start_decoding_anew(head.revision)
        for kind in Kind:
            for page in scan_all(self._source, cluster, kind):
                builder.fold(state.decoder.objects(page))
        target = self._source.head(cluster)
        check_continued(head.identity, head.revision, target)
        revision = head.revision
        for transactions in log_until(
            lambda after: self.next_transactions(head.identity, after, 0.0),
            revision,
            target.revision.number,
        ):
            revision = state.fold(builder, transactions, revision)
        if old is not None:
            builder.ensure_counted(list(old.snapshot.groups))
        return builder, head.identity, revision

    def _follow(self) -> None:
        state = self._state
        wait = 0.0  # the first answer shows at once that the store is back
        while not state.stopping.is_set():
            view = state.current_view()
            transactions = self.next_transactions(view.identity, view.revision, wait)
            behind = self._on_response(view.revision, transactions)
            if transactions:
                state.fold_and_publish(transactions)
                LOG.debug(
                    "cluster %s: %d transactions followed, up to number %d of %d",
                    self._cluster,
                    len(transactions),
                    transactions[-1].revision.number,
                    self.head_number,
                )
                if not behind:
                    self._coalesce()
            wait = min(FOLLOW_WAIT, self._end_due(view.identity), self._drop_idle_groups())

    def _on_response(self, revision: Revision, transactions: Sequence[Transaction]) -> bool:
        """Note that the store answered; returns whether it has more than one answer holds."""
        self._health.succeeded()
        behind = sum(len(transaction.entries) for transaction in transactions) >= BATCH
        if behind:
            self.head_number = self._source.head(self._cluster).revision.number
        else:
            self.head_number = transactions[-1].revision.number if transactions else revision.number
            self._health.view_confirmed()
        return behind

    def _coalesce(self) -> None:
        """Let changes come together while no caller waits for one."""
        state = self._state
        if not state.has_waiters:
            state.waiter_present.wait(self._options.coalesce)
        if not state.has_waiters:
            state.waiter_present.clear()

    def _end_due(self, identity: str) -> float:
        """End reservations that are due; returns the seconds until it is time again.

        Their end is seen by following the log, here as by other replicas.
        """
        due = self._state.next_due()
        end_due = self._options.end_due
        if not due or end_due is None:
            return FOLLOW_WAIT
        if not self._clock.seconds_until(due):
            try:
                applied = end_due(self._cluster, identity)
            except StoreUnavailable:
                # A store that takes no writes, as without memory, is still followed; one that is
                # out of reach fails the next look.
                applied = NOTHING_ENDED
            self._clock.checked()
            if applied.at:
                self._clock.observe(applied.at)
        return self._clock.seconds_until(due)

    def _drop_idle_groups(self) -> float:
        """Drop groups that no caller asked for lately; returns the seconds until the next check."""
        if not self._idle_groups.seconds_until_check():
            self._state.drop_idle(self._idle_groups.idle_before)
        return self._idle_groups.seconds_until_check()

    # ------------------------------ failures

    def _on_unavailable(self, cause: TopospreadError) -> None:
        """Note that the view may be old, and let some time pass."""
        self._health.failed()
        if self._state.view is None:
            self._state.fail(cause)
        self._pause(self._health.next_backoff())

    def _pause(self, seconds: float) -> None:
        """Let time pass, unless poll_now() is called."""
        self._poll_requested.wait(seconds)
        self._poll_requested.clear()

    def _keep_view(self, view: View) -> None:
        """Keep the view because the store has another history or was emptied, and log that."""
        self._health.failed()
        if not self._state.identity_changed:
            self._state.identity_changed = True
            LOG.error(
                "cluster %s: the store has another history of it, or none: kept as it was at %s, "
                "and writes are refused, until each kind is listed into the store (ReplaceObjects) "
                "or this server is restarted",
                self._cluster,
                view.revision.number,
            )
