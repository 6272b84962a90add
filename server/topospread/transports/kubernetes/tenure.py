"""One tenure of a feeder: from taking the lease to losing it, all under one fence."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from topospread.errors import Fenced, IdentityChanged, InvalidRequest, LimitExceeded, Unavailable
from topospread.store.api import MAX_CHANGES
from topospread.transports.kubernetes.facts import Absence, Fact
from topospread.transports.kubernetes.pending import Pending
from topospread.transports.kubernetes.reflector import Reflector
from topospread.transports.kubernetes.resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from topospread.errors import TopospreadError
    from topospread.store.api import Kind
    from topospread.telemetry.feeding import KindGauges, KindTallies
    from topospread.transports.kubernetes.api_server import ApiServer
    from topospread.transports.kubernetes.pending import Change
    from topospread.transports.kubernetes.sinks import Sink

LOG: Final = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between attempts to write while the state is out of reach, doubling."""

LEAVING_SECONDS: Final = 5.0
"""How long the end waits for threads that a silent API server holds: they write nothing more."""

_NOTHING: Final[Mapping[Kind, str]] = {}


class Tenure:
    """A reflector for each kind, and one thread that writes what they see.

    Args:
        api: where the cluster is read.
        sink: where it goes.
        fence: of the lease.
        excluded_namespaces: namespaces whose objects are not fed.
        tallies: count what happens, by kind.
        tell: called after each list that went into the state.
        lost: called when a write was refused because another holds the lease.
    """

    def __init__(
        self,
        api: ApiServer,
        sink: Sink,
        fence: int,
        excluded_namespaces: Collection[str],
        tallies: Mapping[Kind, KindTallies],
        tell: Callable[[], None],
        lost: Callable[[], None],
    ) -> None:
        self._sink = sink
        self._fence = fence
        self._tallies = tallies
        self._lost = lost
        self._told = threading.Event()
        self._pending = Pending()
        self._reflectors = [
            Reflector(
                one,
                api,
                sink,
                fence,
                self._pending,
                excluded_namespaces,
                tallies[one.kind],
                tell,
                lost,
            )
            for one in RESOURCES
        ]
        self._threads = [
            threading.Thread(target=self._write_changes, name="feed-writer", daemon=True),
            *(
                threading.Thread(target=one.run, name=f"feed-{one.resource.name}", daemon=True)
                for one in self._reflectors
            ),
        ]

    def start(self) -> None:
        """Begin, in threads of its own."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; what was seen and is not written yet is found by whoever feeds next."""
        self._told.set()
        self._pending.close()
        for reflector in self._reflectors:
            reflector.stop()
        ends = time.monotonic() + LEAVING_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))

    @property
    def lacking(self) -> Sequence[str]:
        """The kinds that have not been listed yet."""
        return [one.resource.name for one in self._reflectors if not one.listed.is_set()]

    def gauges(self) -> tuple[KindGauges, ...]:
        """How each kind is fed."""
        return tuple(one.gauges() for one in self._reflectors)

    # ------------------------------ writing

    def _write_changes(self) -> None:
        while self._pending.open:
            changes = self._pending.take(MAX_CHANGES)
            observed = self._pending.observed()
            try:
                if changes or observed:
                    self._write(changes, observed)
            except IdentityChanged as other:
                LOG.warning("listing all kinds again: %s", other)
                for reflector in self._reflectors:
                    reflector.list_again()
            except Fenced:
                self._lost()
                return
            finally:
                self._pending.done()

    def _write(self, changes: Sequence[Change], observed: Mapping[Kind, str]) -> None:
        """Write changes, and how far was read, however long the state is out of reach.

        Raises:
            IdentityChanged: the store has another history; only lists go there.
            Fenced: another holds the lease.
        """
        facts = [change for change in changes if isinstance(change, Fact)]
        absences = [change for change in changes if isinstance(change, Absence)]
        pause = FIRST_PAUSE
        while not self._told.is_set():
            try:
                self._sink.write(facts, absences, observed=observed, fence=self._fence)
            except (InvalidRequest, LimitExceeded) as error:
                if not changes:
                    LOG.warning("how far was read is not noted: %s", error)
                    return
                self._write_apart(changes, error)
                if observed:
                    self._write((), observed)
                return
            except Unavailable as error:
                LOG.warning("changes wait: %s", error)
                self._told.wait(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
            else:
                for change in changes:
                    result = "applied" if isinstance(change, Fact) else "deleted"
                    self._tallies[change.key.kind].changes[result].add_one()
                return

    def _write_apart(self, changes: Sequence[Change], error: TopospreadError) -> None:
        """Halve until what cannot be stored stands alone, and leave it out."""
        if len(changes) > 1:
            middle = len(changes) // 2
            self._write(changes[:middle], _NOTHING)
            self._write(changes[middle:], _NOTHING)
            return
        key = changes[0].key
        self._tallies[key.kind].changes["refused"].add_one()
        LOG.warning("%s %s/%s left out: %s", key.kind.name, key.namespace, key.name, error)
