"""Queues and threads of calls: bounded, callers in turn, refusals on the caller's thread."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, OrderedDict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TypeVar

from typing_extensions import override

from topospread.calls.call import Call
from topospread.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Hashable, Iterator

    from topospread.checkpoints import Turn

_T = TypeVar("_T")

LOG: Final = logging.getLogger(__name__)

JOIN_SECONDS: Final = 5.0
"""How long a shutdown waits for threads that are in the middle of something."""

_local: Final = threading.local()


class CallQueue(Generic[_T]):
    """Calls that wait to be carried out: each caller's in order, the callers in turn.

    So a caller with a thousand calls in the queue delays another's by one call, not by a thousand.
    Where there is no room, the newest call of the caller with the most has to go.
    It has no lock: whoever shares one between threads brings it.

    Attributes:
        bound: calls at most.
        length: calls in it.
    """

    def __init__(self, bound: int) -> None:
        self.bound = bound
        # The caller whose turn it is comes first, with its calls from the oldest on.
        self._callers: OrderedDict[Hashable, OrderedDict[_T, None]] = OrderedDict()
        self.length = 0

    def __len__(self) -> int:
        return self.length

    def put(self, caller: Hashable, call: _T, more: int = 0) -> _T | None:
        """Add a call; returns the one that there is no room for, which may be this one.

        There is room for `more` calls beyond the bound just now.
        """
        own = self._callers.get(caller)
        refused = None
        if self.length < self.bound + more:
            self.length += 1
        elif not self._may_replace(own):
            return call
        else:
            largest = max(self._callers, key=lambda each: len(self._callers[each]))
            refused = self._callers[largest].popitem()[0]
            if not self._callers[largest]:
                del self._callers[largest]
        if own is None:
            own = self._callers[caller] = OrderedDict()
        own[call] = None
        return refused

    def may_enter(self, caller: Hashable) -> bool:
        """Whether there is room for a call of this caller, or another's would have to go for it."""
        return self.length < self.bound or self._may_replace(self._callers.get(caller))

    def _may_replace(self, own: OrderedDict[_T, None] | None) -> bool:
        """Whether a caller has less than its share of a full queue."""
        callers = len(self._callers) + (own is None)
        return (len(own) if own else 0) < self.bound // callers

    def is_idle(self, full: Container[Hashable] = ()) -> bool:
        """Whether there are no calls but those of callers that have all that they may have."""
        return all(caller in full for caller in self._callers)

    def pop(self, full: Container[Hashable] = ()) -> _T | None:
        """Take the next call of a caller that is not full; None when there is none."""
        caller = next((each for each in self._callers if each not in full), None)
        if caller is None:
            return None
        self.length -= 1
        calls = self._callers.pop(caller)
        call = calls.popitem(last=False)[0]
        if calls:
            self._callers[caller] = calls
        return call

    def remove(self, caller: Hashable, call: _T) -> bool:
        """Take out a call that is not to be carried out; returns whether it was in the queue."""
        calls = self._callers.get(caller)
        if calls is None or call not in calls:
            return False
        del calls[call]
        if not calls:
            del self._callers[caller]
        self.length -= 1
        return True


class QueuedCall(Protocol):
    """A call that waits for a thread."""

    @property
    def owner(self) -> Hashable:
        """Whose turn it is."""

    def carry_out(self) -> None:
        """Answer it; raises nothing."""

    def refuse(self) -> None:
        """Answer it where there is no room for it."""


class Work:
    """A call as it was submitted.

    Attributes:
        refused: it is carried out on the thread that brought it, and must not wait for anything.
        arrived: when, on the clock of time.perf_counter.
        owner: see :func:`_owner`; "" where that is not known.
        future: gets what comes of it.
    """

    __slots__ = ("_call", "arrived", "future", "owner", "refused")

    def __init__(self, call: Callable[[], Any], owner: Hashable) -> None:
        self.future: Future[Any] = Future()
        self.refused = False
        self.arrived = time.perf_counter()
        self.owner = owner
        self._call = call

    def carry_out(self) -> None:
        """Make the call; its future gets what comes of it."""
        if not self.future.set_running_or_notify_cancel():
            return
        _local.work = self
        try:
            self.future.set_result(self._call())
        except BaseException as failure:  # noqa: BLE001 - the future carries it, as in the standard pool
            self.future.set_exception(failure)
        finally:
            _local.work = None

    def refuse(self) -> None:
        """Make the call on this thread, so that a refusal waits for none."""
        self.refused = True
        self.carry_out()


def current_work() -> Work | None:
    """What this thread carries out, for the callable that was submitted."""
    work: Work | None = getattr(_local, "work", None)
    return work


def _owner(arguments: tuple[Any, ...]) -> Hashable:
    """Whose a call is that is submitted with these.

    Of one of HTTP the :class:`~topospread.calls.call.Call` is among them. Of one of grpcio, whose
    credential is not checked yet, it is the connection: its event is among them, which is not
    public; where grpcio does otherwise one day, callers share one turn.
    """
    for argument in arguments:
        if isinstance(argument, Call):
            return argument.owner
        peer = getattr(getattr(argument, "call", None), "peer", None)
        if peer is not None:
            return peer()  # type: ignore[no-any-return] # str
    return ""


class Executor(ThreadPoolExecutor):
    """Threads that are started when they are needed, and a queue in which callers take turns.

    grpcio hands a call over when its headers are there, before any message was read, and never
    minds how many are queued: so the bound is kept here. It accepts no executor that is not a
    ThreadPoolExecutor; nothing of that class but the type is used.

    Args:
        name: of its threads.
        threads: at most; with a turn, calls that may wait for something else at once.
        queue: calls that may wait for a thread.
        share: calls of one owner that are carried out at once; 0: as many as come.
        turn: one computes at a time. A thread takes the turn before it takes a call, so that what
            waits is in the queue, where callers take turns. One that waits for something else gives
            the turn to another thread, which is started if need be.

    Attributes:
        arrived: calls so far.
        busy: calls that are carried out.
        blocked: of these, calls that wait for something else; known where there is a turn.
    """

    def __init__(
        self, name: str, threads: int, queue: int, turn: Turn | None = None, share: int = 0
    ) -> None:
        self.name: Final = name
        self.turn: Final = turn
        self.arrived = self.busy = self.blocked = 0
        self._most = threads
        self._share = share
        self._owners: Counter[Hashable] = Counter()
        self._queue: CallQueue[QueuedCall] = CallQueue(queue)
        self._changed = threading.Condition(threading.Lock())
        self._running: set[threading.Thread] = set()
        self._made = 0
        self._closed = False
        self._paused = False

    @property
    def depth(self) -> int:
        """Calls in the queue."""
        return len(self._queue)

    @override
    def submit(self, fn: Callable[..., _T], /, *args: Any, **kwargs: Any) -> Future[_T]:
        """Queue a call; one that there is no room for is refused on this thread."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        work = Work(partial(fn, *args, **kwargs), _owner(args))
        self.put(work)
        return work.future

    def put(self, call: QueuedCall) -> None:
        """Queue a call; one that there is no room for is refused on this thread."""
        refused: QueuedCall | None = call
        with self._changed:
            self.arrived += 1
            if not self._closed:
                refused = self._queue.put(call.owner, call, self._limit - self.busy)
            if refused is not call and not self._wake():
                self._queue.remove(call.owner, call)
                refused = call
        if refused is not None:
            refused.refuse()

    def remove(self, call: QueuedCall) -> bool:
        """Take a call out of the queue; returns whether it was in it."""
        with self._changed:
            return self._queue.remove(call.owner, call)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Begin no calls meanwhile; those begun go on."""
        self._paused = True
        try:
            yield
        finally:
            with self._changed:
                self._paused = False
                self._changed.notify_all()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a wait of a call that gives the turn away meanwhile.

        Raises:
            LimitExceeded: too many calls wait already.
        """
        with self._changed:
            if self.blocked >= self._most:
                raise QueueFull(f"{self._most} calls wait for revisions or first loads already")
            self.blocked += 1
            self._wake()
        try:
            yield
        finally:
            with self._changed:
                self.blocked -= 1

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads after what is queued, or refuse that."""
        cancelled: list[QueuedCall] = []
        with self._changed:
            self._closed = True
            while cancel_futures and (call := self._queue.pop()) is not None:
                cancelled.append(call)
            self._changed.notify_all()
            running = self._running.copy()
        for call in cancelled:
            call.refuse()
        deadline = time.monotonic() + JOIN_SECONDS
        for thread in running if wait else ():
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))

    # ------------------------------ threads

    @property
    def _limit(self) -> int:
        """Threads that there may be now."""
        return self._most if self.turn is None else self.blocked + 1

    @property
    def _full(self) -> set[Hashable]:
        """Owners that have their share of threads."""
        if not self._share:
            return set()
        return {owner for owner, calls in self._owners.items() if calls >= self._share}

    def _wake(self) -> bool:
        """Have a thread take what is queued; False: there can be none. Under the lock."""
        running = len(self._running)
        needed = running - self.busy < len(self._queue) and running < self._limit
        if needed and not self._start_thread():
            return bool(running) and len(self._queue) <= self._queue.bound
        self._changed.notify()
        return True

    def _start_thread(self) -> bool:
        """Start a thread, under the lock; False: the system allows no more."""
        self._made += 1
        name = f"{self.name}-{self._made}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._running.add(thread)
        try:
            thread.start()
        except RuntimeError:
            self._running.discard(thread)
            return False
        return True

    def _run(self) -> None:
        while self._await_call():
            with self.turn or nullcontext():
                self._carry_out_next()

    def _await_call(self) -> bool:
        """Wait until there is a call; False: the thread is not needed any more."""
        with self._changed:
            while (idle := self._queue.is_idle(self._full)) or self._paused:
                over = self._closed and idle
                if over or len(self._running) > self._limit:
                    self._running.discard(threading.current_thread())
                    return False
                self._changed.wait()
            return True

    def _carry_out_next(self) -> None:
        with self._changed:
            call = None if self._paused else self._queue.pop(self._full)
            if call is None:  # another thread was faster
                return
            self.busy += 1
            owner = call.owner  # an answered call has none
            self._owners[owner] += 1
        try:
            call.carry_out()
        except Exception:
            LOG.exception("a call was dropped")
        finally:
            with self._changed:
                self.busy -= 1
                self._owners -= Counter((owner,))
