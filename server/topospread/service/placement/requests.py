"""Requests to hold a place for a pod, their results, and the queue of a namespace."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import Computation, current_computation
from topospread.errors import DeadlineExceeded
from topospread.spread.verdicts import SUCCESS, Status
from topospread.store.model import DEFAULT_LIFETIME

if TYPE_CHECKING:
    from topospread.index.changes import ReservationRow
    from topospread.kube.demands import Demand
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.decisions.pods import ShapedPod
    from topospread.service.decisions.request import DecisionRequest
    from topospread.service.state.write import Traced

GIVE_UP: Final = 0.05
"""Seconds before the deadline of the last try, so that its result still reaches the caller."""


@dataclass(slots=True)
class PlacementRequest:
    """A request to hold a place for a pod.

    Attributes:
        decision: about the pod; its nodes are the candidates.
        pod: the pod, as its shape.
        demand: what it takes.
        node: that the pod is bound to according to the caller; otherwise empty.
        lifetime: milliseconds that the place is held for.
        request_id: random, of the call.
        is_repeat: the call was made before, and its answer was lost.
        conflicts: how often others' changes made a judgement void.
    """

    decision: DecisionRequest
    pod: ShapedPod
    demand: Demand
    node: str = ""
    lifetime: int = DEFAULT_LIFETIME
    request_id: int = 0
    is_repeat: bool = False
    conflicts: int = 0

    @property
    def namespace(self) -> str:
        """The namespace of the pod."""
        return self.pod.shape.pod.namespace

    @property
    def place(self) -> tuple[str, str]:
        """Cluster and namespace: where only one server at a time can hold places."""
        return self.decision.cluster, self.namespace


@dataclass(slots=True)
class PlacementResult:
    """The result of a PlacementRequest.

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
class Rejection:
    """The reason why no place is held."""

    status: Status
    message: str = ""


Choose = Callable[["Cycle", "ReservationRow | None"], str | Rejection]
"""Chooses a node, or returns why none, given the cycle and the reservation of the pod."""


@dataclass(slots=True, eq=False)
class PlacementTask:
    """A place that a thread waits for, and that its own or another thread seeks.

    Attributes:
        abandoned: its caller stopped waiting; if `writing`, it still waits for that write.
        writing: a write has begun, or has ended well; False again after a conflict. The writer
            sets this before the look at `abandoned`, and the waiter sets that before the look at
            this: one of them sees it.
        caller: for whom it is sought, by whichever thread does it.
        woken: set when there is a result, or when its thread may lead the queue.
    """

    placement: PlacementRequest
    choose: Choose
    traced: Traced
    abandoned: bool = False
    writing: bool = False
    caller: Computation | None = field(default_factory=current_computation)
    woken: threading.Event = field(default_factory=threading.Event, init=False)
    _held: PlacementResult | None = field(default=None, init=False)
    _failure: BaseException | None = field(default=None, init=False)

    @property
    def done(self) -> bool:
        """Whether there is a result."""
        return self._held is not None or self._failure is not None

    @property
    def give_up_at(self) -> float:
        """The moment of the last try, on the monotonic clock."""
        return self.placement.decision.deadline - GIVE_UP

    @property
    def is_late(self) -> bool:
        """Whether no more tries are made."""
        return time.monotonic() >= self.give_up_at

    def ends_with_write(self) -> bool:
        """Wait until the deadline for a write that has begun; whether there is a result."""
        while self.writing and not self.done:
            left = self.placement.decision.deadline - time.monotonic()
            if left <= 0:
                break
            self.woken.wait(left)
            self.woken.clear()
        return self.done

    def answer(self, held: PlacementResult) -> None:
        """Set the result: the place, or the reason for none."""
        self._held = held
        self.woken.set()

    def fail(self, failure: BaseException) -> None:
        """Set an error as the result."""
        self._failure = failure
        self.woken.set()

    def result(self) -> PlacementResult:
        """The result; raises the error that was set."""
        if self._failure is not None:
            try:
                raise self._failure
            finally:
                self._failure = None  # and no cycle with this frame in its traceback
        assert self._held is not None, "it is done"
        return self._held


def too_late(placement: PlacementRequest) -> DeadlineExceeded:
    """The error of a caller whose deadline passed in the queue."""
    return DeadlineExceeded(
        f"others were placed in namespace {placement.namespace!r} until the deadline"
    )


@dataclass(slots=True, eq=False)
class NamespaceQueue:
    """The tasks of some namespaces; the thread of one of them works for all.

    Attributes:
        lock: of the thread that leads the queue: it seeks places for those in it.
        tasks: that wait; the holder of the lock takes them out.
        behind: by cluster and namespace, the number of a write of this server that its view lacked.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    tasks: deque[PlacementTask] = field(default_factory=deque)
    behind: dict[tuple[str, str], int] = field(default_factory=dict)

    def lead(self, task: PlacementTask, until: float) -> bool:
        """Wait for a task's result, or for the lock.

        Args:
            task: stands in the queue; of the calling thread.
            until: when the wait ends, on the monotonic clock.

        Returns:
            Whether the lock was acquired; if not, the task is done, or the time is over.
        """
        while not task.done:
            if self.lock.acquire(blocking=False):
                return True
            left = until - time.monotonic()
            if left <= 0:
                return False
            task.woken.wait(left)
            task.woken.clear()  # before the looks above: what happens after them sets it again
        return False

    def release(self) -> None:
        """Release the lock and wake the next task's thread."""
        self.lock.release()
        self.wake_next()

    def wake_next(self) -> None:
        """Wake the first thread that still waits.

        To be called after whatever may have used up a wake: a release of the lock, or a caller that
        stops waiting. One wake too many is harmless.
        """
        for task in self.tasks.copy():  # others join meanwhile
            if not (task.done or task.abandoned):
                task.woken.set()
                return

    def take(self, first: PlacementTask, most: int) -> list[PlacementTask]:
        """A task and those of its namespace, in the order they came; only with the lock."""
        taken, left = list[PlacementTask](), list[PlacementTask]()
        space_left = most - 1  # beside the task itself
        while self.tasks:
            task = self.tasks.popleft()
            if task.done or task.abandoned:
                continue
            if task is first:
                taken.append(task)
            elif space_left and task.placement.place == first.placement.place:
                taken.append(task)
                space_left -= 1
            else:
                left.append(task)
        self.tasks.extendleft(reversed(left))
        return taken
