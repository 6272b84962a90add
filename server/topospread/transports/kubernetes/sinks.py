"""Where facts go: the seam between the feed and whatever keeps the state."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Final, Protocol

from topospread.codec.oddities import oddities
from topospread.codec.stored import ends_reservation
from topospread.service.write import Incoming
from topospread.store.api import Outcome, Remove

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.service.write import Writes
    from topospread.store.api import Kind
    from topospread.transports.kubernetes.facts import Absence, Fact

WRITE_SECONDS: Final = 10.0
REPLACE_SECONDS: Final = 600.0


class Sink(Protocol):
    """Keeps one cluster's state.

    Every method raises Unavailable when the state cannot be written now (try again), and
    IdentityChanged when the store has another history than before (list all kinds again).
    """

    def replace(self, kind: Kind, facts: Sequence[Fact], version: str, *, force: bool) -> int:
        """Make these the full content of a kind, as of a list's resourceVersion.

        Args:
            kind: of all the facts.
            facts: each object once.
            version: of the list.
            force: overwrite and remove also what is newer than the list.

        Returns:
            How many objects were left alone because the state has newer ones.

        Raises:
            InvalidRequest: an object cannot be stored.
        """
        ...

    def write(self, facts: Sequence[Fact], absences: Sequence[Absence]) -> None:
        """Write changes, at most 500 of each sort, each object once.

        Raises:
            InvalidRequest: an object cannot be stored; none of the facts was written.
        """
        ...


class ServiceSink:
    """The state of this very process's store.

    Args:
        writes: the use cases.
        cluster: which is fed.
    """

    def __init__(self, writes: Writes, cluster: str) -> None:
        self._writes = writes
        self._cluster = cluster

    def replace(self, kind: Kind, facts: Sequence[Fact], version: str, *, force: bool) -> int:
        """See Sink."""
        replaced = self._writes.replace(
            self._cluster,
            kind,
            map(_incoming, facts),
            resource_version=version,
            force=force,
            timeout=REPLACE_SECONDS,
            traced=_untraced,
        )
        return replaced.outcomes[Outcome.IGNORED_STALE]

    def write(self, facts: Sequence[Fact], absences: Sequence[Absence]) -> None:
        """See Sink."""
        ends = time.monotonic() + WRITE_SECONDS
        if facts:
            self._writes.apply(
                self._cluster,
                [_incoming(fact) for fact in facts],
                force=False,
                timeout=ends - time.monotonic(),
                traced=_untraced,
            )
        if absences:
            self._writes.delete(
                self._cluster,
                [Remove(gone.key, up_to_version=gone.version) for gone in absences],
                timeout=max(1.0, ends - time.monotonic()),
                traced=_untraced,
            )


def _incoming(fact: Fact) -> Incoming:
    return Incoming(fact.stored, tuple(oddities(fact.message)), ends_reservation(fact.message))


def _untraced(operation: str, changes: int) -> AbstractContextManager[object]:
    """A feed has no caller whose trace its writes could join."""
    del operation, changes
    return nullcontext()
