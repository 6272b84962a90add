"""Coordination of placements, so that schedulers that share the engine keep maxSkew together.

Places of one namespace are sought by one thread of a server at a time, for all that stand in line:
threads would only make one another's judgements void. Other servers do so all the same, see
:mod:`~topospread.service.placement.batch`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from topospread.errors import InvalidPod
from topospread.kube.violations import required
from topospread.service.decisions.request import PodRef
from topospread.service.placement.batch import PlacementBatches
from topospread.service.placement.requests import (
    Choose,
    NamespaceQueue,
    PlacementRequest,
    PlacementResult,
    PlacementTask,
    too_late,
)
from topospread.store.checks import wrong_words
from topospread.store.model import Key, Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.request import DecisionRequest
    from topospread.service.state.write import Traced
    from topospread.store.api import Store
    from topospread.store.model import Applied, LogEntry

LINES: Final = 256
"""Lines that namespaces share: more than there are threads to meet in one by accident."""

MOST: Final = 16
"""Places of one write: past it, those in line would rather wait for the next than share a fate."""


class PlacementCoordinator:
    """Holds places in the clusters of one store.

    Args:
        engine: judges pods.
        store: keeps what is held.
        thread_time: processor time of the calling thread, in seconds.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        thread_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self.engine = engine
        self.store = store
        self._batches = PlacementBatches(engine, store, thread_time)
        self._queues = [NamespaceQueue() for _ in range(LINES)]

    def new_request(
        self,
        request: DecisionRequest,
        pod: bytes | PodRef,
        lifetime: int,
        *,
        request_id: int = 0,
        is_repeat: bool = False,
    ) -> PlacementRequest:
        """A request to hold a place for a pod.

        Args:
            request: without its pod; its nodes are the candidates.
            pod: the bytes of a v1.Pod, or a pod of the state.
            lifetime: milliseconds.
            request_id: the hash of the call's own id; 0 for none.
            is_repeat: the call was made before, and its answer was lost.

        Raises:
            InvalidRequest: no pod, or one without a name, for which no place can be held.
            NotFound: the pod is not in the state.
        """
        subject, demand, node = self.engine.with_requests(request.cluster, pod)
        if not subject.name:
            raise InvalidPod.of([required("metadata.name", "name is required")])
        key = Key(Kind.RESERVATION, subject.shape.pod.namespace, subject.name)
        if wrong := wrong_words(key, subject.uid):
            raise InvalidPod.of([each.below("metadata") for each in wrong])
        if isinstance(pod, PodRef):
            node = ""  # read from the state when the pod is judged
        return PlacementRequest(
            request._replace(pod=subject),
            subject,
            demand,
            node,
            lifetime,
            request_id,
            is_repeat=is_repeat,
        )

    def hold(self, placement: PlacementRequest, choose: Choose, traced: Traced) -> PlacementResult:
        """Choose a node and hold it for the pod.

        Args:
            placement: for which pod.
            choose: the node.
            traced: wraps writes to the store in spans.

        Raises:
            Conflict: others changed the state again and again until the deadline.
            DeadlineExceeded: others stood in the queue before it until then.
            InvalidRequest, NotFound, Unavailable: see Engine.new_cycle and Writer.apply.
        """
        task = PlacementTask(placement, choose, traced)
        queue = self._queues[hash(placement.place) % LINES]
        queue.tasks.append(task)
        if self._leads(queue, task):
            try:
                if not task.done:
                    self._batches.run(task, queue.take(task, MOST), queue)
            finally:
                queue.release()
        return task.result()

    @staticmethod
    def _leads(queue: NamespaceQueue, task: PlacementTask) -> bool:
        """Wait until the task is done or may be carried out by this thread.

        Returns:
            Whether the queue's lock was acquired; if not, the task is done.
        """
        leads = queue.lead(task, task.give_up_at)
        if leads or task.done:
            return leads
        task.abandoned = True
        queue.wake_next()
        if not task.ends_with_write():
            raise too_late(task.placement)
        return False

    def show(self, cluster: str, applied: Applied, entries: Sequence[LogEntry]) -> None:
        """Have a write of this server seen by its next decision."""
        self._batches.show(cluster, applied, entries)
