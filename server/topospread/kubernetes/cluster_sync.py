"""The sync of one cluster: leader election, reflectors and the writer of changes."""

from __future__ import annotations

import logging
import threading
import time
from typing import TYPE_CHECKING, Final

from topospread.errors import (
    Fenced,
    IdentityChanged,
    InvalidRequest,
    LimitExceeded,
    TopospreadError,
    Unavailable,
)
from topospread.kubernetes.delta_queue import DeltaQueue
from topospread.kubernetes.feed import Feed
from topospread.kubernetes.objects import RESOURCES, DeletedObject, ObservedObject
from topospread.kubernetes.reflector import Reflector
from topospread.store.model import MAX_CHANGES
from topospread.telemetry.families import KindCounters, KindGauges, SyncGauges

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from topospread.kubernetes.api_server import ApiServer
    from topospread.kubernetes.delta_queue import Change
    from topospread.kubernetes.sink import Sink
    from topospread.store.model import Kind


LOG: Final = logging.getLogger(__name__)

RENEWALS: Final = 3
"""Attempts to renew a lease before it ends."""

FIRST_PAUSE: Final = 0.1
LONGEST_PAUSE: Final = 5.0
"""Seconds between attempts to write while the state is out of reach, doubling."""

STOP_SECONDS: Final = 5.0
"""How long the end waits for threads that a silent API server holds: they write nothing more."""

LISTS_AT_ONCE: Final = 3
"""Kinds that are listed at one time: an API server that has just started has others to serve, too;
and one list that hangs holds up none but itself."""

_NOTHING: Final[Mapping[Kind, str]] = {}


class ClusterSync:
    """Keeps a cluster's state as its API server says, from :meth:`start` to :meth:`stop`.

    Of several processes that sync one cluster, the one that holds the lease is the leader; the
    others stand by. What makes that safe is not the lease but its fencing token: the store refuses
    the writes of a leader that has lost its lease without knowing it.

    Args:
        cluster: the name that it has in the state.
        lease_duration: seconds that the lease outlives a leader that died.
        excluded_namespaces: whose objects are not synced.
        on_listed: called once, in a thread of the sync, when all kinds were listed.
        on_standby: called, in a thread of the sync, each time that another process turns out to
            have the lease.
    """

    def __init__(
        self,
        cluster: str,
        api: ApiServer,
        sink: Sink,
        *,
        lease_duration: float,
        excluded_namespaces: Collection[str],
        on_listed: Callable[[], None],
        on_standby: Callable[[], None],
    ) -> None:
        self.cluster = cluster
        self._api = api
        self._sink = sink
        self._lease_duration = lease_duration
        self._excluded_namespaces = frozenset(excluded_namespaces)
        self._on_listed = on_listed
        self._on_standby = on_standby
        self._counters = {resource.kind: KindCounters() for resource in RESOURCES}
        self._term: LeaderTerm | None = None
        self._lock = threading.Lock()
        self._has_listed = False
        self._stopping = False
        # Set when there is something to do before the lease's next renewal.
        self._wakeup = threading.Event()
        self._lease_lost = False
        self._stood_by = False
        self._thread = threading.Thread(target=self._run, name="sync", daemon=True)

    def start(self) -> None:
        """Begin, in threads of its own."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and release the lease, so that another process takes over at once."""
        self._stopping = True
        self._wakeup.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._api.close()

    @property
    def unsynced_kinds(self) -> Sequence[str]:
        """The kinds that have not been listed yet; none while standing by."""
        term = self._term
        return () if term is None else term.unsynced_kinds

    def gauges(self) -> SyncGauges:
        """The state of the sync, for metrics."""
        term = self._term
        if term is None:
            kinds = (
                KindGauges(one.name, False, 0.0, 0, self._counters[one.kind]) for one in RESOURCES
            )
            return SyncGauges(self.cluster, active=False, kinds=tuple(kinds))
        return SyncGauges(self.cluster, active=True, kinds=term.gauges())

    # ------------------------------ the lease

    def _run(self) -> None:
        fence = 0
        while not self._stopping:
            held = self._acquire(fence)
            if held != fence or self._lease_lost:
                self._end_term()
                if held:
                    self._begin_term(held)
            fence = held
            self._wakeup.wait(self._lease_duration / RENEWALS)
            if not self._stopping:
                self._wakeup.clear()
        self._end_term()
        if fence:
            self._release()

    def _acquire(self, fence: int) -> int:
        """Acquire or renew the lease; returns the fencing token held now, 0 for none."""
        try:
            held = self._sink.acquire(self._lease_duration)
        except TopospreadError as error:
            LOG.warning("cluster %s: the sync's lease: %s", self.cluster, error)
            # Going on is safe: if another process takes the lease, the token is void.
            return 0 if self._lease_lost else fence
        if not held:
            if fence or not self._stood_by:
                LOG.info("cluster %s is synced by another process: standing by", self.cluster)
            self._stood_by = True
            self._on_standby()
        return held

    def _release(self) -> None:
        try:
            self._sink.release()
        except TopospreadError as error:
            LOG.info("cluster %s: the lease is left to expire: %s", self.cluster, error)

    def _begin_term(self, fence: int) -> None:
        LOG.info(
            "cluster %s is synced from %s, fencing token %d", self.cluster, self._api.address, fence
        )
        self._lease_lost = False
        feed = Feed(
            self._api,
            self._sink,
            fence,
            self._excluded_namespaces,
            threading.Semaphore(LISTS_AT_ONCE),
            self._needed_are_read,
            self._on_kind_listed,
            self._on_lease_lost,
        )
        self._term = LeaderTerm(feed, self._counters)
        self._term.start()

    def _end_term(self) -> None:
        term = self._term
        if term is not None:
            LOG.info("cluster %s is no longer synced by this process", self.cluster)
            term.stop()
            self._term = None

    def _on_lease_lost(self) -> None:
        self._lease_lost = True
        self._wakeup.set()

    def _needed_are_read(self) -> bool:
        return self._term is not None and self._term.needed_are_read

    def _on_kind_listed(self) -> None:
        if self._term is not None and self._term.needed_are_read:
            self._term.retry()
        with self._lock:
            if not self._has_listed and self._term is not None and not self._term.unsynced_kinds:
                self._has_listed = True
                self._on_listed()


class LeaderTerm:
    """One term of a leader, under one fencing token: a reflector for each kind, and a writer."""

    def __init__(self, feed: Feed, counters: Mapping[Kind, KindCounters]) -> None:
        self._feed = feed
        self._counters = counters
        self._stopping = threading.Event()
        self._queue = DeltaQueue()
        self._reflectors = [
            Reflector(one, feed, self._queue, counters[one.kind]) for one in RESOURCES
        ]
        self._threads = [
            threading.Thread(target=self._write_changes, name="sync-writer", daemon=True),
            *(
                threading.Thread(target=one.run, name=f"sync-{one.resource.name}", daemon=True)
                for one in self._reflectors
            ),
        ]

    def start(self) -> None:
        """Begin, in threads of its own."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop; changes that are not written yet are found by the next leader's list."""
        self._stopping.set()
        self._queue.close()
        for reflector in self._reflectors:
            reflector.stop()
        ends = time.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, ends - time.monotonic()))

    @property
    def unsynced_kinds(self) -> Sequence[str]:
        """The kinds that have not been listed yet."""
        return [one.resource.name for one in self._reflectors if not one.listed.is_set()]

    @property
    def needed_are_read(self) -> bool:
        """Whether all kinds that a state is not whole without are read at this moment."""
        return all(one.is_read for one in self._reflectors if not one.resource.is_optional)

    def retry(self) -> None:
        """Have kinds tried at once that could not be listed yet."""
        for reflector in self._reflectors:
            reflector.retry()

    def gauges(self) -> tuple[KindGauges, ...]:
        """The state of each kind's sync, but of those that are done without."""
        return tuple(one.gauges() for one in self._reflectors if not one.unread)

    # ------------------------------ writing

    def _write_changes(self) -> None:
        while self._queue.open:
            changes = self._queue.take(MAX_CHANGES)
            observed = self._queue.observed()
            try:
                if changes or observed:
                    self._write(changes, observed)
            except IdentityChanged as other:
                LOG.warning("listing all kinds again: %s", other)
                for reflector in self._reflectors:
                    reflector.list_again()
            except Fenced:
                self._feed.on_lost()
                return
            finally:
                self._queue.done()

    def _write(self, changes: Sequence[Change], observed: Mapping[Kind, str]) -> None:
        """Write changes, and how far was read, however long the state is out of reach.

        Raises:
            IdentityChanged: the store has another history; only lists go there.
            Fenced: another holds the lease.
        """
        objects = [change for change in changes if isinstance(change, ObservedObject)]
        deleted = [change for change in changes if isinstance(change, DeletedObject)]
        pause = FIRST_PAUSE
        while not self._stopping.is_set():
            try:
                self._feed.sink.write(objects, deleted, observed=observed, fence=self._feed.fence)
            except (InvalidRequest, LimitExceeded) as error:
                if not changes:
                    LOG.warning("the resourceVersion read is not stored: %s", error)
                    return
                self._bisect_and_write(changes, error)
                if observed:
                    self._write((), observed)
                return
            except Unavailable as error:
                LOG.warning("changes wait: %s", error)
                self._stopping.wait(pause)
                pause = min(LONGEST_PAUSE, pause * 2)
            else:
                LOG.debug("%d objects and %d deletions written", len(objects), len(deleted))
                for change in changes:
                    result = "applied" if isinstance(change, ObservedObject) else "deleted"
                    self._counters[change.key.kind].changes[result].add_one()
                return

    def _bisect_and_write(self, changes: Sequence[Change], error: TopospreadError) -> None:
        """Halve until the object that cannot be stored is alone, and leave it out."""
        if len(changes) > 1:
            middle = len(changes) // 2
            self._write(changes[:middle], _NOTHING)
            self._write(changes[middle:], _NOTHING)
            return
        key = changes[0].key
        self._counters[key.kind].changes["refused"].add_one()
        LOG.warning("%s %s/%s left out: %s", key.kind.name, key.namespace, key.name, error)
