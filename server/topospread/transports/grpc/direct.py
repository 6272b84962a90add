"""Calls that are answered by the very threads that take them from gRPC.

grpcio's own server hands a call from its polling thread to a pool's and back three times; each time
two threads meet at the interpreter's lock, which costs more than most decisions do. Here the
pool's threads wait for gRPC's events themselves: one takes a call, has its message brought, judges
and answers, and nobody else is woken. It is the same server and port; only the methods that are
registered here take this way. docs/decisions/0018 has the figures, and what it leans on: some names
of grpcio's Cython layer that are not public (:func:`supported` looks whether they are there).
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from grpc._cython import cygrpc  # type: ignore[attr-defined] # has no stubs
from typing_extensions import override

from topospread.errors import LimitExceeded
from topospread.transports.grpc.direct_call import DirectCall
from topospread.transports.grpc.executor import PATIENCE
from topospread.transports.grpc.pool import DEFAULT_WAITING, Pool, Worker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import grpc

    from topospread.transports.grpc.direct_call import Answers

LOG: Final = logging.getLogger(__name__)

MAX_SILENT: Final = 4096
"""Calls whose message has not come; past it, the one that is silent for longest is cancelled."""

LATE: Final = 1.0
"""Seconds after which a message should have come."""

MAX_LATE: Final = 16
"""Calls whose message is late: what has come of it is in memory, up to the largest request each."""

MAX_RELIEF: Final = 16
"""Threads that join while others compute for long or wait for the store."""


_NEEDED: Final = (
    *("CompletionQueue", "ReceiveMessageOperation", "ReceiveCloseOnServerOperation"),
    *("SendInitialMetadataOperation", "SendMessageOperation", "SendStatusFromServerOperation"),
    *("auth_context",),
)


def supported() -> bool:
    """Whether this version of grpcio has what is used here."""
    return all(hasattr(cygrpc, name) for name in _NEEDED) and all(
        hasattr(cygrpc.Server, name)
        for name in ("register_completion_queue", "register_method", "request_registered_call")
    )


class _Method:
    """A method, of which gRPC is always asked for the next call."""

    def __init__(self, calls: DirectCalls, path: str, answers: Answers) -> None:
        self.calls = calls
        self.path = path
        self.answers = answers

    def __call__(self, event: Any) -> None:
        """A call came in; or the server stops, then the event is no success."""
        if event.success:
            self.calls.request(self)
            DirectCall(self.calls, self.answers, event).begin()


class DirectCalls(Pool):
    """A pool whose threads wait for gRPC's events.

    Args:
        name: of its threads.
        workers: threads that compute.
        queue: calls that may stand in line while all threads are busy.
        waiting: calls that may wait at once.

    Attributes:
        arrived: calls so far.
        awaited: calls whose message has not come, and since when, the longest silent first.
    """

    def __init__(self, name: str, workers: int, queue: int, waiting: int = DEFAULT_WAITING) -> None:
        super().__init__(name, waiting)
        self._count = workers
        self._bound = queue
        self._methods: list[_Method] = []
        self._events = cygrpc.CompletionQueue()
        self._server: Any = None
        # gRPC's core aborts the process when something is begun on a queue that is shut.
        self._beginning = threading.Lock()
        self._shut = False
        self._line: deque[DirectCall] = deque()
        self._paused = False
        self._minding = False
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self.arrived = 0
        self.awaited: dict[DirectCall, float] = {}

    @property
    @override
    def depth(self) -> int:
        return len(self._line)

    def attach(self, server: grpc.Server, methods: Mapping[str, Answers]) -> None:
        """Take these methods' calls, by /service/name; before the server starts."""
        assert self._server is None, "the calls are one server's"
        self._server = server._cy_server  # type: ignore[attr-defined] # noqa: SLF001 - see above
        self._server.register_completion_queue(self._events)
        for path, answers in methods.items():
            self._server.register_method(path)
            self._methods.append(_Method(self, path, answers))

    def begin(self) -> None:
        """Ask for calls; after the server has started."""
        with self._lock:
            for _ in range(self._count):
                self.start_worker(self._serve)
            self.start_worker(self._mind, lent=True)
        for method in self._methods:
            self.request(method)

    def request(self, method: _Method) -> None:
        """Ask gRPC for the method's next call."""
        with self._beginning:
            if self._shut:
                return
            try:
                failed = self._server.request_registered_call(
                    self._events, self._events, method.path, method
                )
            except ValueError:
                # The server stops, and says so in no other way.
                return
        if failed:
            LOG.error("gRPC brings no more calls of %s: error %s", method.path, failed)

    def start(self, call: Any, operations: tuple[Any, ...], tag: Callable[[Any], object]) -> None:
        """Have gRPC do something for a call, unless all is over; `tag` is told when it is done."""
        with self._beginning:
            if not self._shut:
                call.start_server_batch(operations, tag)

    def note(self, call: DirectCall) -> bool:
        """A call came in; returns whether there is room for it."""
        self.arrived += 1
        if not self._minding:
            self._minding = True
            self._wanted.set()
        if len(self._line) >= self._bound:
            return False
        self.awaited[call] = time.monotonic()
        if len(self.awaited) > MAX_SILENT:
            for longest in tuple(self.awaited)[:1]:
                self.awaited.pop(longest, None)
                longest.cancel()
        return True

    def take_in(self) -> None:
        """Handle what gRPC has to tell by now; calls that are ready stand in line."""
        thread = threading.current_thread()
        if isinstance(thread, Worker) and thread.lent and thread.busy:
            return  # somebody else waits for them: here they would stand in line
        while (event := self._events.poll(time.time())).tag is not None:
            ready = _handled(event.tag, event)
            if ready is not None:
                self._stand_in_line(ready)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Carry out no calls meanwhile, but let them come in; those begun go on."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            self._start_helper()

    @override
    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the threads; after the server has stopped. Calls that still compute send nothing."""
        del cancel_futures
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._closing.set()
        self._wanted.set()
        with self._beginning:
            self._shut = True
            # What was begun is told to the end, and then to each thread that there is no more.
            self._events.shutdown()
        if wait:
            self.join_workers()

    @override
    def _lend(self, worker: Worker) -> None:
        with self._lock:
            if worker.lent or self._closed:
                return
            self.start_worker(self._serve)
            worker.lent = True

    # ------------------------------ threads

    def _serve(self, worker: Worker) -> None:
        while not worker.lent:
            if self._line and not self._paused:
                self._answer_next(worker)
                continue
            event = self._events.poll()
            if event.tag is None:  # the queue is shut
                break
            worker.busy = True
            ready = _handled(event.tag, event)
            # What an event holds must be let go before the next one is waited for.
            event = None
            if ready is not None:
                if self._paused:
                    self._stand_in_line(ready)
                else:
                    ready.carry_out()
                ready = None
            worker.busy = worker.long = False
            worker.turns += 1
        self._leave(worker)

    def _stand_in_line(self, call: DirectCall) -> None:
        if len(self._line) >= self._bound:
            call.turn_away()
        else:
            call.stand_in_line()
            self._line.append(call)

    def _answer_next(self, worker: Worker) -> None:
        """Carry out the call that stands first in line, if there still is one."""
        worker.busy = True
        with suppress(IndexError):
            self._line.popleft().carry_out()
        worker.busy = worker.long = False
        worker.turns += 1

    def _help(self, worker: Worker) -> None:
        """Work off the line beside those who wait for events."""
        while self._line and not self._paused and not self._closed:
            self._answer_next(worker)
        self._leave(worker)

    def _start_helper(self) -> None:
        with self._lock:
            if self._line and self._may_grow():
                self.start_worker(self._help, lent=True)

    def _may_grow(self) -> bool:
        """Whether one more thread may join to relieve the others; under the lock."""
        bound = self._count + self._waiting + self._long() + MAX_RELIEF
        return not self._closed and len(self._workers) < bound

    def _leave(self, worker: Worker) -> None:
        with self._lock:
            self._workers.discard(worker)

    def _mind(self, worker: Worker) -> None:
        """While calls come in, see whether somebody is there to take them."""
        while not self._closing.is_set():
            self._wanted.wait()
            self._wanted.clear()
            turns: Mapping[Worker, int] = {}
            arrived = -1
            while not self._closing.wait(PATIENCE):
                if arrived == self.arrived and not (self.awaited or self._line or self.busy):
                    # In this order: a call that comes in between is seen here or wakes us again.
                    self._minding = False
                    if arrived == self.arrived:
                        break
                    self._minding = True
                arrived = self.arrived
                with suppress(LimitExceeded):  # no more threads: the next look may find some
                    turns = self._relieve(turns)
        self._leave(worker)

    def _relieve(self, before: Mapping[Worker, int]) -> Mapping[Worker, int]:
        """Take in what has come if all threads are in the middle of something long.

        Args:
            before: at which turn each busy thread was the last time.
        """
        self._end_late()
        with self._lock:
            places = [worker for worker in self._workers if not worker.lent]
        turns = {worker: worker.turns for worker in places if worker.busy}
        stuck = [worker for worker, turn in turns.items() if before.get(worker) == turn]
        if len(stuck) < len(places):
            self._start_helper()
            return turns
        self.take_in()
        with self._lock:
            relieved = bool(stuck) and bool(self._line) and self._may_grow()
        if relieved:
            self._lend(stuck[0])
        return turns

    def _end_late(self) -> None:
        """Cancel the calls whose message is late, but for the newest of them."""
        since = time.monotonic() - LATE
        late = [call for call, begun in tuple(self.awaited.items()) if begun < since]
        for call in late[:-MAX_LATE]:
            self.awaited.pop(call, None)
            call.cancel()


def _handled(step: Callable[[Any], DirectCall | None], event: Any) -> DirectCall | None:
    """Take a call one step further; what goes wrong there ends no thread."""
    try:
        return step(event)
    except Exception:
        LOG.exception("a call was dropped")
        return None
