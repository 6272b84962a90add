"""One cluster's replica: a published view, and how callers wait for a newer one."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from topospread.errors import (
    DeadlineExceeded,
    NoFeedProgress,
    RevisionOfOtherHistory,
    RevisionUnavailable,
    StoreUnavailable,
    Unavailable,
)
from topospread.replica.follower import LogFollower
from topospread.replica.state import ReplicaState
from topospread.store.values import older

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.replica.state import ReplicaOptions
    from topospread.replica.view import Token, View
    from topospread.store.api import Reader
    from topospread.store.values import Observed

DEADLINE_MARGIN: Final = 0.25
"""Seconds before a caller's deadline at which a wait ends, so that its reason reaches the caller; a
tenth of what is left if that is less.
"""

LONG_WAIT: Final = 0.25
"""Seconds after which a wait for a revision asks the store whether it will ever come. It comes
within some 30 ms unless the store is slow, or lost it.
"""


def wait_deadline(deadline: float) -> float:
    """The time to end a caller's wait at, early enough for the reason to reach it."""
    return deadline - min(DEADLINE_MARGIN, max(0.0, deadline - time.monotonic()) / 10)


# Inherits the state instead of holding it: decisions read ``replica.view``, and a property or one
# attribute more would cost each of them.
class Replica(ReplicaState):
    """A followed cluster, from start() on; :attr:`view` is None until the first load is done."""

    def __init__(
        self,
        cluster: str,
        source: Reader,
        options: ReplicaOptions,
        *,
        on_gone: Callable[[ReplicaState], None] = lambda _: None,
    ) -> None:
        super().__init__(cluster, source, options)
        self._follower = LogFollower(self, source, options, on_gone=on_gone)

    def start(self) -> None:
        """Begin to load and follow, in a thread of its own; see ReplicaOptions."""
        self._follower.start()

    def stop(self) -> None:
        """End the thread; callers that wait get Unavailable."""
        self.stopping.set()
        self.poll_now()
        self.wake_waiters()
        self._follower.join()

    def poll_now(self) -> None:
        """Ask the store at once, instead of waiting for news or for the next try."""
        self._follower.poll_now()

    # ------------------------------ freshness

    @property
    def stale_for(self) -> float:
        """Seconds since the store last answered; 0 while it does."""
        return self.health.stale_for

    @property
    def lag(self) -> int:
        """Transactions that the store's head, as last seen, is ahead of the view."""
        view = self.view
        return 0 if view is None else max(0, self._follower.head_number - view.revision.number)

    @property
    def age(self) -> float:
        """Seconds since the view was last known to be the newest state; 0 before the first load."""
        return self.health.age

    # ------------------------------ waiting

    def wait_loaded(self, deadline: float) -> View:
        """Wait for the first load.

        Raises:
            DeadlineExceeded: it took longer than the caller's deadline.
            NotFound: the cluster does not exist.
            StoreUnavailable: it cannot be loaded now.
        """
        if self.view is None:
            deadline = wait_deadline(deadline)
            self.wait_until(lambda: self.view is not None or self.failure is not None, deadline)
        if self.view is None and self.failure is not None:
            raise self.failure.again()
        return self.current_view()

    def wait_for(self, token: Token, deadline: float) -> View:
        """A view at least as new as a token.

        Raises:
            DeadlineExceeded: the revision did not arrive in time.
            RevisionUnavailable: the token belongs to another history, or the cluster was deleted,
                or the log does not reach back to it.
            StoreUnavailable: only the store knows whether the token belongs to this history.
            Unavailable: the view is being made anew.
        """
        view, tags = self.checked_view()
        if view.identity == token.identity and view.revision.number < token.revision.number:
            self._wait_for_revision(token, wait_deadline(deadline))
            view, tags = self.checked_view()
        if view.identity != token.identity:
            raise RevisionOfOtherHistory(
                "the revision belongs to another store or a deleted cluster: read again without it"
            )
        tags.check(token)
        return view

    def wait_observed(self, wanted: Observed, deadline: float) -> View:
        """A view of a state whose sync had read the API server up to these versions.

        Raises:
            NoFeedProgress: no sync reports how far one of the kinds was read.
            DeadlineExceeded: the sync did not come so far in time.
            RevisionUnavailable: the cluster was deleted.
            Unavailable: the view is being made anew.
        """

        def reached() -> bool:
            observed = dict(self.current_view().observed)
            for kind, _ in wanted:
                if kind not in observed:
                    raise NoFeedProgress(
                        f"no sync of cluster {self.cluster!r} reports how far it has read the API"
                        f" server's objects of kind {kind.name}: ask without notOlderThan",
                        f"KIND_{kind.name}",
                    )
            return not any(older(observed[kind], version) for kind, version in wanted)

        if not reached():
            self.wait_until(reached, wait_deadline(deadline), "what is to be observed")
        return self.current_view()

    def _wait_for_revision(self, token: Token, deadline: float) -> None:
        def reached() -> bool:
            return self.current_view().revision.number >= token.revision.number

        try:
            self.wait_until(reached, min(deadline, time.monotonic() + LONG_WAIT))
        except DeadlineExceeded:
            if time.monotonic() >= deadline:
                raise
            # Out of reach, it may come back before the deadline.
            with suppress(StoreUnavailable):
                self.revision_tags.verify(token)
            self.wait_until(reached, deadline)

    def catch_up(self) -> View:
        """Fetch what the store has beyond the view, for callers that cannot wait for the follower.

        Raises:
            StoreUnavailable: it is out of reach.
            RevisionUnavailable, IdentityChanged: the view cannot be continued; it is made anew.
        """
        view = self.current_view()
        transactions = self._follower.next_transactions(view.identity, view.revision, 0.0)
        self.fold_and_publish(transactions, of=view.identity)
        return self.current_view()

    def wait_replaced(self, lost: View, deadline: float) -> None:
        """Wait until a view that the store's log does not continue has given way to another one.

        Also until the log continues it again, as when its history is back.

        Raises:
            DeadlineExceeded: it takes longer.
            Unavailable: the server is going away.
        """
        began = time.monotonic()
        self.poll_now()

        def reached() -> bool:
            view = self.current_view()
            return self.loaded and (
                view.snapshot.origin is not lost.snapshot.origin
                or view.revision != lost.revision
                or self.health.confirmed_since(began)
            )

        while not (self.gone or reached()):
            try:
                self.wait_until(reached, min(deadline, time.monotonic() + LONG_WAIT))
            except RevisionUnavailable:
                return  # dropped: the next call finds out
            except DeadlineExceeded:
                if time.monotonic() >= deadline:
                    raise
                if self.identity_changed:
                    return  # likewise; no other view comes before that history is complete
            except Unavailable:  # it has begun
                if self.stopping.is_set():
                    raise
