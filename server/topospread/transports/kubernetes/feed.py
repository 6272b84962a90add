"""Feeds one cluster whenever nobody else does."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Final

from topospread.errors import TopospreadError
from topospread.telemetry.feeding import FeedGauges, KindGauges, KindTallies
from topospread.transports.kubernetes.resources import RESOURCES
from topospread.transports.kubernetes.tenure import Tenure

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from topospread.transports.kubernetes.api_server import ApiServer
    from topospread.transports.kubernetes.sinks import Sink

LOG: Final = logging.getLogger(__name__)

RENEWALS: Final = 3
"""Attempts to renew a lease before it ends."""


class Feed:
    """Keeps a cluster's state as its API server says, from :meth:`start` to :meth:`stop`.

    Of many feeds of one cluster the one that holds the lease is active; the others stand by. What
    makes that safe is not the lease but its fence: the store refuses the writes of a feeder that
    has lost it, whatever that one believes.

    Args:
        cluster: the name that it has in the state.
        api: where it is read.
        sink: where it goes.
        lease: seconds that the lease outlives a feeder that died.
        excluded_namespaces: namespaces whose objects are not fed.
        listed: called, in a thread of the feed, when all kinds were listed for the first time.
        stands_by: called, in a thread of the feed, each time that another turns out to have the
            lease.
    """

    def __init__(
        self,
        cluster: str,
        api: ApiServer,
        sink: Sink,
        *,
        lease: float,
        excluded_namespaces: Collection[str],
        listed: Callable[[], None],
        stands_by: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self._api = api
        self._sink = sink
        self._lease = lease
        self._excluded_namespaces = excluded_namespaces
        self._listed = listed
        self._stands_by = stands_by
        self._tallies = {resource.kind: KindTallies() for resource in RESOURCES}
        self._tenure: Tenure | None = None
        self._turn = threading.Lock()
        self._said_listed = False
        self._stopping = False
        # Set when there is something to look at before the lease's next renewal.
        self._bell = threading.Event()
        self._lost = False
        self._stood_by = False
        self._thread = threading.Thread(target=self._run, name="feed", daemon=True)

    def start(self) -> None:
        """Begin, in threads of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End, and let the next one feed at once."""
        self._stopping = True
        self._bell.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._api.close()

    @property
    def lacking(self) -> Sequence[str]:
        """The kinds that have not been listed yet; none while another feeds."""
        tenure = self._tenure
        return () if tenure is None else tenure.lacking

    def gauges(self) -> FeedGauges:
        """How it goes, for metrics."""
        tenure = self._tenure
        if tenure is None:
            kinds = (
                KindGauges(one.name, False, 0.0, 0, self._tallies[one.kind]) for one in RESOURCES
            )
            return FeedGauges(self.cluster, active=False, kinds=tuple(kinds))
        return FeedGauges(self.cluster, active=True, kinds=tenure.gauges())

    # ------------------------------ the lease

    def _run(self) -> None:
        fence = 0
        while not self._stopping:
            held = self._hold(fence)
            if held != fence or self._lost:
                self._end_tenure()
                if held:
                    self._begin_tenure(held)
            fence = held
            self._bell.wait(self._lease / RENEWALS)
            if not self._stopping:
                self._bell.clear()
        self._end_tenure()
        if fence:
            self._leave(fence)

    def _hold(self, fence: int) -> int:
        """Take or renew the lease; returns the fence that is held now, 0 for none."""
        try:
            held = self._sink.hold(self._lease)
        except TopospreadError as error:
            LOG.warning("cluster %s: the feeder's lease: %s", self.cluster, error)
            # Going on is safe: if somebody else takes the lease, the fence is void.
            return 0 if self._lost else fence
        if not held:
            if fence or not self._stood_by:
                LOG.info("cluster %s is fed by another: standing by", self.cluster)
            self._stood_by = True
            self._stands_by()
        return held

    def _leave(self, fence: int) -> None:
        try:
            self._sink.leave(fence)
        except TopospreadError as error:
            LOG.info("cluster %s: the lease ends by itself: %s", self.cluster, error)

    def _begin_tenure(self, fence: int) -> None:
        LOG.info("cluster %s is fed from %s, fence %d", self.cluster, self._api.address, fence)
        self._lost = False
        self._tenure = Tenure(
            self._api,
            self._sink,
            fence,
            self._excluded_namespaces,
            self._tallies,
            self._note_listed,
            self._note_lost,
        )
        self._tenure.start()

    def _end_tenure(self) -> None:
        tenure = self._tenure
        if tenure is not None:
            LOG.info("cluster %s is fed from here no more", self.cluster)
            tenure.stop()
            self._tenure = None

    def _note_lost(self) -> None:
        self._lost = True
        self._bell.set()

    def _note_listed(self) -> None:
        with self._turn:
            if not self._said_listed and self._tenure is not None and not self._tenure.lacking:
                self._said_listed = True
                self._listed()
