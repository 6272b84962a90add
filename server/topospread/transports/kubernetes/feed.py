"""Feeds one cluster: a reflector for each kind, and one thread that writes what they see."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from topospread.errors import IdentityChanged, InvalidRequest, LimitExceeded, Unavailable
from topospread.store.api import MAX_CHANGES
from topospread.telemetry.feeding import FeedGauges, KindTallies
from topospread.transports.kubernetes.facts import Absence, Fact
from topospread.transports.kubernetes.pending import Pending
from topospread.transports.kubernetes.reflector import Reflector
from topospread.transports.kubernetes.resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from topospread.errors import TopospreadError
    from topospread.transports.kubernetes.api_server import ApiServer
    from topospread.transports.kubernetes.pending import Change
    from topospread.transports.kubernetes.sinks import Sink

LOG: Final = logging.getLogger(__name__)

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between attempts to write while the state is out of reach, doubling."""


class Feed:
    """Keeps a cluster's state as its API server says, from :meth:`start` to :meth:`stop`.

    Args:
        cluster: the name that it has in the state.
        api: where it is read.
        sink: where it goes.
        left_out: namespaces whose objects are not fed.
        listed: called, in a thread of the feed, once all kinds were listed for the first time.
    """

    def __init__(
        self,
        cluster: str,
        api: ApiServer,
        sink: Sink,
        left_out: Collection[str] = (),
        listed: Callable[[], None] = lambda: None,
    ) -> None:
        self.cluster = cluster
        self._api = api
        self._sink = sink
        self._pending = Pending()
        self._told = threading.Event()
        self._listed = listed
        self._said_listed = False
        self._turn = threading.Lock()
        self._tallies = {resource.kind: KindTallies() for resource in RESOURCES}
        self._reflectors = [
            Reflector(
                resource,
                api,
                sink,
                self._pending,
                left_out,
                self._tallies[resource.kind],
                self._note_listed,
            )
            for resource in RESOURCES
        ]
        self._threads = [
            threading.Thread(target=self._write_changes, name="feed-writer"),
            *(
                threading.Thread(target=one.run, name=f"feed-{one.resource.name}")
                for one in self._reflectors
            ),
        ]

    def start(self) -> None:
        """Begin, in threads of its own."""
        LOG.info("cluster %s is fed from %s", self.cluster, self._api.address)
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End; what was seen and is not written yet is found by whoever feeds next."""
        self._told.set()
        self._pending.close()
        for reflector in self._reflectors:
            reflector.stop()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._api.close()

    @property
    def lacking(self) -> Sequence[str]:
        """The kinds that have not been listed yet."""
        return [one.resource.name for one in self._reflectors if not one.listed.is_set()]

    def gauges(self) -> FeedGauges:
        """How it goes, for metrics."""
        kinds = tuple(one.gauges() for one in self._reflectors)
        return FeedGauges(self.cluster, active=True, kinds=kinds)

    def _note_listed(self) -> None:
        with self._turn:
            if not self._said_listed and not self.lacking:
                self._said_listed = True
                self._listed()

    # ------------------------------ writing

    def _write_changes(self) -> None:
        while changes := self._pending.take(MAX_CHANGES):
            try:
                self._write(changes)
            except IdentityChanged as lost:
                LOG.warning("cluster %s: listing all kinds again: %s", self.cluster, lost)
                for reflector in self._reflectors:
                    reflector.list_again()
            finally:
                self._pending.done()

    def _write(self, changes: Sequence[Change]) -> None:
        """Write changes, however long the state is out of reach.

        Raises:
            IdentityChanged: the store has another history; only lists go there.
        """
        facts = [change for change in changes if isinstance(change, Fact)]
        absences = [change for change in changes if isinstance(change, Absence)]
        pause = FIRST_PAUSE
        while not self._told.is_set():
            try:
                self._sink.write(facts, absences)
            except (InvalidRequest, LimitExceeded) as error:
                self._write_apart(facts, absences, error)
                return
            except Unavailable as error:
                LOG.warning("cluster %s: %s", self.cluster, error)
                self._told.wait(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
            else:
                for change in changes:
                    result = "applied" if isinstance(change, Fact) else "deleted"
                    self._tallies[change.key.kind].changes[result].add_one()
                return

    def _write_apart(
        self, facts: Sequence[Fact], absences: Sequence[Absence], error: TopospreadError
    ) -> None:
        """Halve until what cannot be stored stands alone, and leave it out."""
        changes: Sequence[Change] = [*facts, *absences]
        if len(changes) > 1:
            middle = len(changes) // 2
            self._write(changes[:middle])
            self._write(changes[middle:])
            return
        key = changes[0].key
        self._tallies[key.kind].changes["refused"].add_one()
        LOG.warning("%s %s/%s left out: %s", key.kind.name, key.namespace, key.name, error)
