"""Holding places, so that schedulers that share the engine keep maxSkew together.

Places of one namespace are sought by one thread of a server at a time, for all that stand in line:
threads would only make one another's judgements void. Other servers do so all the same, see
:mod:`~topospread.service.rounds`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import will_write
from topospread.errors import InvalidPod
from topospread.kube.violations import required
from topospread.service.asks import PodRef
from topospread.service.rounds import Rounds
from topospread.service.wanted import Choose, Held, Job, Line, Wanted, too_late
from topospread.store.api import Key, Kind
from topospread.store.checks import wrong_words

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.service.asks import Ask
    from topospread.service.engine import Engine
    from topospread.service.write import Traced
    from topospread.store.api import Applied, LogEntry, Store

LINES: Final = 256
"""Lines that namespaces share: more than there are threads to meet in one by accident."""

USUAL: Final = 0.005
"""Seconds that callers stand in line without lending their threads to others."""

MOST: Final = 16
"""Places of one write: past it, those in line would rather wait for the next than share a fate."""


class Holding:
    """Holds places in the clusters of one store.

    Args:
        engine: judges pods.
        store: keeps what is held.
        entering_wait: called before a caller waits for longer than usual and may refuse it; the
            returned callable ends the wait.
        thread_time: processor time of the calling thread, in seconds.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        *,
        entering_wait: Callable[[], Callable[[], None]] = lambda: _nothing,
        thread_time: Callable[[], float] = time.thread_time,
    ) -> None:
        self.engine = engine
        self.store = store
        self._entering_wait = entering_wait
        self._rounds = Rounds(engine, store, entering_wait, thread_time)
        self._lines = [Line() for _ in range(LINES)]

    def wanted(self, ask: Ask, pod: bytes | PodRef, lifetime: int) -> Wanted:
        """A place for a pod.

        Args:
            ask: all but its subject.
            pod: the bytes of a v1.Pod, or a pod of the state.
            lifetime: milliseconds.

        Raises:
            InvalidRequest: no pod, or one without a name: it could not be held for anybody.
            NotFound: the pod is not in the state.
        """
        subject, demand, node = self.engine.demanding(ask.cluster, pod)
        if not subject.name:
            raise InvalidPod.of([required("metadata.name", "name is required")])
        key = Key(Kind.RESERVATION, subject.shape.pod.namespace, subject.name)
        if wrong := wrong_words(key, subject.uid):
            raise InvalidPod.of([each.below("metadata") for each in wrong])
        ask.subject = subject
        if isinstance(pod, PodRef):
            node = ""  # the state tells, at the moment of the judgement
        return Wanted(ask, subject, demand, node, lifetime)

    def hold(self, wanted: Wanted, choose: Choose, traced: Traced) -> Held:
        """Choose a node and hold it for the pod.

        Args:
            wanted: for which pod.
            choose: the node.
            traced: wraps writes to the store in spans.

        Raises:
            Conflict: others changed the state again and again until the deadline.
            DeadlineExceeded: others stood in line before it until then.
            InvalidRequest, NotFound, Unavailable: see Engine.begin and Writer.apply.
        """
        will_write()
        job = Job(wanted, choose, traced)
        line = self._lines[hash(wanted.place) % LINES]
        line.jobs.append(job)
        leads = line.lead(job, time.monotonic() + USUAL)
        if not leads and not job.done:
            leads = self._leads_after_wait(line, job)
        if leads:
            try:
                if not job.done:
                    self._rounds.run(job, line.take(job, MOST), line)
            finally:
                line.release()
        return job.result()

    def _leads_after_wait(self, line: Line, job: Job) -> bool:
        """Wait for long, so that it does not hold up others.

        Returns:
            Whether the line's lock was acquired; if not, the job is done.
        """
        leads = False
        try:
            leave = self._entering_wait()
            try:
                leads = line.lead(job, job.give_up_at)
            finally:
                leave()
        except BaseException as refused:
            job.abandoned = True
            if leads:
                line.lock.release()
            line.wake_next()
            if isinstance(refused, Exception) and job.ends_with_write():
                return False  # what is held must not be answered with a refusal
            raise
        if leads or job.done:
            return leads
        job.abandoned = True
        line.wake_next()
        if not job.ends_with_write():
            raise too_late(job.wanted)
        return False

    def show(self, cluster: str, applied: Applied, entries: Sequence[LogEntry]) -> None:
        """Have a write of this server seen by its next decision."""
        self._rounds.show(cluster, applied, entries)


def _nothing() -> None:
    return None
