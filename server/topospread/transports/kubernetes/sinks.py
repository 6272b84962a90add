"""Where facts go: the seam between the feed and whatever keeps the state."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

from topospread.codec.stored import ends_reservation
from topospread.service.write import Incoming
from topospread.store.api import Outcome, Remove

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.service.leases import Leases
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

    def leave(self, fence: int) -> None:
        """Give the lease with this fence back."""
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
            How many objects of the state are newer than the list, and were left alone.

        Raises:
            InvalidRequest: an object cannot be stored.
        """
        ...

    def write(
        self,
        facts: Sequence[Fact],
        absences: Sequence[Absence],
        *,
        observed: Mapping[Kind, str],
        fence: int,
    ) -> None:
        """Write changes, at most 500 of each sort, each object once.

        With the last of them it is noted how far the API server was read by then.

        Raises:
            InvalidRequest: an object cannot be stored; none of the facts was written.
        """
        ...


class ServiceSink:
    """The state of this very process's store.

    Args:
        writes: the use case that writes.
        leases: the use case that lends the lease.
        cluster: which is fed.
        holder: who we are.
    """

    def __init__(self, writes: Writes, leases: Leases, cluster: str, holder: str) -> None:
        self._writes = writes
        self._leases = leases
        self._cluster = cluster
        self._holder = holder

    def hold(self, seconds: float) -> int:
        """See Sink."""
        lease = self._leases.acquire(self._cluster, self._holder, seconds, timeout=HOLD_SECONDS)
        return lease.fence if lease.holder == self._holder else 0

    def leave(self, fence: int) -> None:
        """See Sink."""
        self._leases.release(self._cluster, self._holder, fence, timeout=HOLD_SECONDS)

    def replace(
        self, kind: Kind, facts: Sequence[Fact], version: str, *, force: bool, fence: int
    ) -> int:
        """See Sink."""
        replaced = self._writes.replace(
            self._cluster,
            kind,
            [[_incoming(fact) for fact in facts]],
            resource_version=version,
            force=force,
            timeout=REPLACE_SECONDS,
            traced=_untraced,
            fence=fence,
        )
        return replaced.outcomes[Outcome.IGNORED_STALE]

    def write(
        self,
        facts: Sequence[Fact],
        absences: Sequence[Absence],
        *,
        observed: Mapping[Kind, str],
        fence: int,
    ) -> None:
        """See Sink."""
        ends = time.monotonic() + WRITE_SECONDS
        if facts or not absences:
            self._writes.apply(
                self._cluster,
                [_incoming(fact) for fact in facts],
                force=False,
                timeout=ends - time.monotonic(),
                traced=_untraced,
                fence=fence,
                observed={} if absences else observed,
            )
        if absences:
            self._writes.delete(
                self._cluster,
                [Remove(gone.key, up_to_version=gone.version) for gone in absences],
                timeout=max(1.0, ends - time.monotonic()),
                traced=_untraced,
                fence=fence,
                observed=observed,
            )


def _incoming(fact: Fact) -> Incoming:
    # What is odd about an object is for the person who writes one, not for a feed.
    return Incoming(fact.stored, ends_reservation=ends_reservation(fact.message))


def _untraced(operation: str, changes: int) -> AbstractContextManager[object]:
    """A feed has no caller whose trace its writes could join."""
    del operation, changes
    return nullcontext()
