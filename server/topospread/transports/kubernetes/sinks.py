"""Where facts go: the seam between the feed and whatever keeps the state."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

from topospread.codec.stored import ends_reservation
from topospread.service.write import Incoming
from topospread.store.api import Outcome, Remove

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.service.feeders import Feeders
    from topospread.service.write import Writes
    from topospread.store.api import Kind
    from topospread.transports.kubernetes.facts import Absence, Fact

HOLD_SECONDS: Final = 5.0
WRITE_SECONDS: Final = 10.0
REPLACE_SECONDS: Final = 600.0


class Sink(Protocol):
    """Keeps one cluster's state, for the one that holds the lease to feed it.

    Every method raises Unavailable when the state cannot be reached now (try again). Writes raise
    IdentityChanged when the store has another history than before (list all kinds again), and
    Fenced when another holds the lease.
    """

    def hold(self, seconds: float) -> int:
        """Take or renew the lease; returns the fence to write with, 0 while another has it."""
        ...

    def leave(self) -> None:
        """Give the lease back."""
        ...

    def replace(
        self, kind: Kind, facts: Sequence[Fact], version: str, *, force: bool, fence: int
    ) -> int:
        """Make these the full content of a kind, as of a list's resourceVersion.

        Args:
            kind: of all the facts.
            facts: each object once.
            version: of the list.
            force: overwrite and remove also what is newer than the list.
            fence: of the lease.

        Returns:
            How many objects were left alone because the state has newer ones.

        Raises:
            InvalidRequest: an object cannot be stored.
        """
        ...

    def write(self, facts: Sequence[Fact], absences: Sequence[Absence], *, fence: int) -> None:
        """Write changes, at most 500 of each sort, each object once.

        Raises:
            InvalidRequest: an object cannot be stored; none of the facts was written.
        """
        ...


class ServiceSink:
    """The state of this very process's store.

    Args:
        writes: the use case that writes.
        feeders: the use case that lends the lease.
        cluster: which is fed.
        holder: who we are.
    """

    def __init__(self, writes: Writes, feeders: Feeders, cluster: str, holder: str) -> None:
        self._writes = writes
        self._feeders = feeders
        self._cluster = cluster
        self._holder = holder

    def hold(self, seconds: float) -> int:
        """See Sink."""
        lease = self._feeders.hold(self._cluster, self._holder, seconds, timeout=HOLD_SECONDS)
        return lease.fence if lease.holder == self._holder else 0

    def leave(self) -> None:
        """See Sink."""
        self._feeders.leave(self._cluster, self._holder, timeout=HOLD_SECONDS)

    def replace(
        self, kind: Kind, facts: Sequence[Fact], version: str, *, force: bool, fence: int
    ) -> int:
        """See Sink."""
        replaced = self._writes.replace(
            self._cluster,
            kind,
            map(_incoming, facts),
            resource_version=version,
            force=force,
            timeout=REPLACE_SECONDS,
            traced=_untraced,
            fence=fence,
        )
        return replaced.outcomes[Outcome.IGNORED_STALE]

    def write(self, facts: Sequence[Fact], absences: Sequence[Absence], *, fence: int) -> None:
        """See Sink."""
        ends = time.monotonic() + WRITE_SECONDS
        if facts:
            self._writes.apply(
                self._cluster,
                [_incoming(fact) for fact in facts],
                force=False,
                timeout=ends - time.monotonic(),
                traced=_untraced,
                fence=fence,
            )
        if absences:
            self._writes.delete(
                self._cluster,
                [Remove(gone.key, up_to_version=gone.version) for gone in absences],
                timeout=max(1.0, ends - time.monotonic()),
                traced=_untraced,
                fence=fence,
            )


def _incoming(fact: Fact) -> Incoming:
    # What is odd about an object is for the person who writes one, not for a feed.
    return Incoming(fact.stored, ends_reservation=ends_reservation(fact.message))


def _untraced(operation: str, changes: int) -> AbstractContextManager[object]:
    """A feed has no caller whose trace its writes could join."""
    del operation, changes
    return nullcontext()
