"""Places that are asked for, and what became of them."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import Beneficiary, beneficiary
from topospread.errors import DeadlineExceeded
from topospread.spread.verdicts import SUCCESS, Status

if TYPE_CHECKING:
    from topospread.index.changes import ReservationRow
    from topospread.kube.demands import Demand
    from topospread.service.asks import Ask
    from topospread.service.cycle import Cycle
    from topospread.service.shapes import ShapedPod
    from topospread.service.write import Traced

DEFAULT_LIFETIME: Final = 60_000
"""Milliseconds that a place is held: some times what a scheduler needs to bind a pod."""

GIVE_UP: Final = 0.05
"""Seconds before the deadline at which the last try is made, so that its end can still be told."""


@dataclass(slots=True)
class Wanted:
    """A place that is asked for.

    Attributes:
        ask: about the pod; its nodes are the candidates.
        pod: the pod, as its shape.
        demand: what it takes.
        node: that the caller says it is bound to; otherwise empty.
        lifetime: milliseconds that the place is held for.
        request_id: random, of the call.
        is_repeat: the call was made before, and its answer was lost.
        conflicts: how often others' changes made a judgement void.
    """

    ask: Ask
    pod: ShapedPod
    demand: Demand
    node: str = ""
    lifetime: int = DEFAULT_LIFETIME
    request_id: int = 0
    is_repeat: bool = False
    conflicts: int = 0

    @property
    def namespace(self) -> str:
        """Of the pod."""
        return self.pod.shape.pod.namespace

    @property
    def place(self) -> tuple[str, str]:
        """Cluster and namespace: where only one server at a time can hold places."""
        return self.ask.cluster, self.namespace


@dataclass(slots=True)
class Held:
    """What became of it.

    Attributes:
        token: of the revision: that of the write, or else the one it was judged at.
        node: the place; empty when it was refused.
        status: Success, or why it was refused.
        message: as kube-scheduler words it on a pod that fits nowhere.
        already_bound: the pod is bound there and counts; nothing was written.
        expires_at: milliseconds since 1970 on the store's clock.
        id: of what is held.
    """

    token: str
    node: str = ""
    status: Status = SUCCESS
    message: str = ""
    already_bound: bool = False
    expires_at: int = 0
    id: str = ""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why no place is held."""

    status: Status
    message: str = ""


Choose = Callable[["Cycle", "ReservationRow | None"], str | Refusal]
"""Chooses a node, or says why none, given the cycle and what is held for the pod already."""


@dataclass(slots=True, eq=False)
class Job:
    """A place that a thread waits for, and that its own or another thread seeks.

    Attributes:
        abandoned: its caller stopped waiting; if `writing`, it still waits for that write.
        writing: a write has begun, or has ended well; False again after a conflict. Whoever writes
            sets this before the look at `abandoned`, and whoever waits sets that before the look at
            this: one of them sees it.
        caller: for whom it is sought, by whichever thread does it.
        woken: set when there is a result, or when its thread may lead the line.
    """

    wanted: Wanted
    choose: Choose
    traced: Traced
    abandoned: bool = False
    writing: bool = False
    caller: Beneficiary | None = field(default_factory=beneficiary)
    woken: threading.Event = field(default_factory=threading.Event, init=False)
    _held: Held | None = field(default=None, init=False)
    _failure: BaseException | None = field(default=None, init=False)

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return self._held is not None or self._failure is not None

    @property
    def give_up_at(self) -> float:
        """When no more tries are made, on the monotonic clock."""
        return self.wanted.ask.deadline - GIVE_UP

    @property
    def is_late(self) -> bool:
        """Whether no more tries are made."""
        return time.monotonic() >= self.give_up_at

    def ends_with_write(self) -> bool:
        """Wait until the deadline for a write that has begun; whether there is a result."""
        while self.writing and not self.done:
            left = self.wanted.ask.deadline - time.monotonic()
            if left <= 0:
                break
            self.woken.wait(left)
            self.woken.clear()
        return self.done

    def answer(self, held: Held) -> None:
        """The place, or that there is none."""
        self._held = held
        self.woken.set()

    def fail(self, failure: BaseException) -> None:
        """Neither is known."""
        self._failure = failure
        self.woken.set()

    def result(self) -> Held:
        """The answer; raises what it failed with."""
        if self._failure is not None:
            try:
                raise self._failure
            finally:
                self._failure = None  # and no cycle with this frame in its traceback
        assert self._held is not None, "it is done"
        return self._held


def too_late(wanted: Wanted) -> DeadlineExceeded:
    """What a caller is answered for whom there was no time left."""
    return DeadlineExceeded(
        f"others were placed in namespace {wanted.namespace!r} until the deadline"
    )


@dataclass(slots=True, eq=False)
class Line:
    """Those who want places in some namespaces, one of whom seeks places for all of them.

    Attributes:
        lock: of the thread that leads the line: it seeks places for those in it.
        jobs: who stands in line; whoever has the lock takes them out.
        behind: by cluster and namespace, the number of a write of this server that its view lacked.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    jobs: deque[Job] = field(default_factory=deque)
    behind: dict[tuple[str, str], int] = field(default_factory=dict)

    def lead(self, job: Job, until: float) -> bool:
        """Wait for a job's result, or for the lock.

        Args:
            job: stands in line; of the calling thread.
            until: when the wait ends, on the monotonic clock.

        Returns:
            Whether the lock was acquired; if not, the job is done, or the time is over.
        """
        while not job.done:
            if self.lock.acquire(blocking=False):
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            job.woken.wait(left)
            job.woken.clear()  # before the looks above: what happens after them sets it again
        return False

    def release(self) -> None:
        """Release the lock and have the next in line lead."""
        self.lock.release()
        self.wake_next()

    def wake_next(self) -> None:
        """Wake the first who still waits.

        To be called after whatever may have used up a wake: a release of the lock, or a caller that
        stops waiting. One wake too many is harmless.
        """
        for job in self.jobs.copy():  # others join meanwhile
            if not (job.done or job.abandoned):
                job.woken.set()
                return

    def take(self, first: Job, most: int) -> list[Job]:
        """A job and those of its namespace, in the order they came; only with the lock."""
        taken, left = list[Job](), list[Job]()
        room = most - 1  # beside the job itself
        while self.jobs:
            job = self.jobs.popleft()
            if job.done or job.abandoned:
                continue
            if job is first:
                taken.append(job)
            elif room and job.wanted.place == first.wanted.place:
                taken.append(job)
                room -= 1
            else:
                left.append(job)
        self.jobs.extendleft(reversed(left))
        return taken
