"""Decisions are answered by the very threads that take them from gRPC.

grpcio's own server hands a call from its polling thread to a pool's and back three times; each time
two threads meet at the interpreter's lock, which costs more than most decisions do. Here the pool's
threads wait for gRPC's events themselves: one takes a call, has its message brought, decides and
answers, and nobody else is woken. It is the same server and port; only the methods that are
registered here take this way.

gRPC's core keeps calls that nobody has taken from it in a list of its own, and when that grows it
drops some. So a thread takes in what has come before it goes on with the next call, and what waits
does so in a queue of ours: bounded, counted, and fair to each caller.

docs/decisions/0025 has the reasons and the figures, and what this leans on: some names of grpcio's
Cython layer that are not public. :mod:`topospread.transports.grpc.self_check` looks at start-up
whether they do what is expected of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from contextvars import Context as Variables
from typing import TYPE_CHECKING, Any, Final, NoReturn

from grpc._cython import cygrpc  # type: ignore[attr-defined] # has no stubs
from typing_extensions import override

from topospread.access.callers import ANONYMOUS
from topospread.errors import LimitExceeded, QueueFull, TopospreadError
from topospread.threads.call_queue import CallQueue
from topospread.threads.executor import PATIENCE
from topospread.threads.pool import DEFAULT_WAITING, LendingPool, Worker
from topospread.transports.grpc.streams import call_ended

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

    import grpc

    from topospread.transports.grpc.transport import Handler

LOG: Final = logging.getLogger(__name__)

REQUESTED: Final = 64
"""Calls of each method that gRPC is asked for at once, and so may hand over in one turn."""

WAITED: Final = 0.00005
"""Seconds that tell a thread that waited for an event from one that found it there."""

MAX_TAKING_IN: Final = 0.001
"""Seconds after which a thread that takes in what has come begins no further turn of that."""

TAKE_IN_EVERY: Final = 0.0005
"""Seconds after which a thread looks what has come before it goes on with the queue."""

MAX_SILENT: Final = 4096
"""Calls whose message has not come; past it, the one that is silent for longest is refused."""

LATE: Final = 0.25
"""Seconds after which a message should have come."""

LATE_LOOKS: Final = 12
"""Times that the minder finds a call without its message before it calls that late. On a busy
machine its looks come late, as all else does.
"""

MAX_LATE: Final = 16
"""Calls whose message is late: what has come of it is in memory, up to the largest request each."""

MAX_RELIEF: Final = 16
"""Threads that join while others compute for long or wait for the store."""

MAX_HELP: Final = 64
"""Calls that a thread carries out beside one that waits for events: two at work cost more."""

_PAST: Final = 0.0
"""A deadline that is over, so that nothing is waited for."""

_NO_FLAGS: Final = 0
_OK: Final = 0


class CompletionQueueTransport(LendingPool):
    """A pool whose threads wait for gRPC's events: a transport of its own.

    Args:
        name: of its threads.
        workers: threads that compute.
        queue: requests that may wait in the queue.
        waiting: calls that may wait for revisions and first loads at once.

    Attributes:
        awaited: calls whose message has not come, and since when, the longest silent first.
    """

    def __init__(self, name: str, workers: int, queue: int, waiting: int = DEFAULT_WAITING) -> None:
        super().__init__(name, waiting)
        self._count = workers
        self._queue: CallQueue[IncomingCall] = CallQueue(queue)
        self._methods: list[_Method] = []
        self._events = cygrpc.CompletionQueue()
        self._server: Any = None
        # gRPC's core aborts the process when something is begun on a queue that is shut.
        self._beginning = threading.Lock()
        self._shut = False
        self._stopping = False
        self._paused = False
        # The methods of calls that gRPC has brought since it was asked for more.
        self._brought: deque[_Method] = deque()
        # A call of gRPC's, on which an empty operation marks the end of what has come.
        self._last_call: Any = None
        self._taken_in = 0.0
        # When all that had come was taken in, on the monotonic clock.
        self._caught_up = 0.0
        self._looks: deque[float] = deque((0.0,), maxlen=LATE_LOOKS)
        self._minding = False
        self._wanted = threading.Event()
        self._closing = threading.Event()
        self._on_broken: Callable[[], object] = lambda: None
        self.awaited: dict[IncomingCall, float] = {}

    @property
    @override
    def depth(self) -> int:
        return len(self._queue)

    # ------------------------------ as a transport

    def register(self, server: grpc.Server, service: str, handlers: Sequence[Handler]) -> None:
        """See :class:`~topospread.transports.grpc.transport.Transport`; all for one server."""
        inner = server._cy_server  # type: ignore[attr-defined] # noqa: SLF001 - see above
        if self._server is None:
            inner.register_completion_queue(self._events)
            self._server = inner
        assert self._server is inner, "the calls are one server's"
        for handler in handlers:
            path = f"/{service}/{handler.name}"
            inner.register_method(path)
            self._methods.append(_Method(self, path, handler))

    def start(self, on_broken: Callable[[], object] = lambda: None) -> None:
        """See :class:`~topospread.transports.grpc.transport.Transport`."""
        self._on_broken = on_broken
        with self._lock:
            for _ in range(self._count):
                self.start_worker(self._serve)
            self.start_worker(self._mind, lent=True)
        for method in self._methods:
            for _ in range(REQUESTED):
                self.request(method)

    def stop(self) -> None:
        """See :class:`~topospread.transports.grpc.transport.Transport`."""
        # A server that ends while it is asked for a call ends the process: gRPC looks whether it is
        # stopping, lets other threads run, and then uses it.
        with self._beginning:
            self._stopping = True

    @override
    @contextmanager
    def paused(self) -> Iterator[None]:
        """Carry out no calls meanwhile, but let them come in; those begun go on."""
        self._paused = True
        try:
            yield
        finally:
            self._paused = False
            with suppress(LimitExceeded):  # no more threads: the queue is worked off all the same
                self._start_helper()

    @override
    def shutdown(self) -> None:
        """End the threads; after the server has stopped. Calls that still compute send nothing."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._closing.set()
        self._wanted.set()
        with self._beginning:
            self._shut = True
            # What was begun is reported to the end, and then to each thread that there is no more.
            self._events.shutdown()
        self.join_workers()

    # ------------------------------ what calls ask

    def request(self, method: _Method) -> None:
        """Ask gRPC for the method's next call."""
        failed: object = None
        with self._beginning:
            if self._shut or self._stopping:
                return
            try:
                failed = self._server.request_registered_call(
                    self._events, self._events, method.path, method
                )
            except ValueError as error:
                failed = error
        if failed and not self._stopping:
            LOG.error("gRPC brings no more calls of %s: %s", method.path, failed)
            self._on_broken()

    def begin(self, call: Any, operations: tuple[Any, ...], tag: Callable[[Any], object]) -> None:
        """Start a gRPC operation of a call, unless all is over; `tag` is called when it is done."""
        with self._beginning:
            if not self._shut:
                call.start_server_batch(operations, tag)

    def arrive(self, method: _Method, event: Any) -> None:
        """Note a call that has just come in."""
        self._brought.append(method)
        if len(self._brought) > REQUESTED // 2:
            self._request_again()
        self._last_call = event.call
        self.arrived += 1
        if not self._minding:
            self._minding = True
            self._wanted.set()

    def may_enter(self, call: IncomingCall) -> bool:
        """Whether a call that has just come in may go on to be queued."""
        return len(self._queue) < self._queue.bound or self._queue.may_enter(call.key)

    def bound_awaited(self) -> None:
        """End calls whose message does not come when there are too many of them."""
        if len(self.awaited) > MAX_SILENT:
            self._end_silent(tuple(self.awaited)[:1])

    def _end_silent(self, calls: Sequence[IncomingCall]) -> None:
        for call in calls:
            if self.awaited.pop(call, None) is not None:
                self._turn_away(call)

    def withdraw(self, call: IncomingCall) -> bool:
        """Take a call out of the queue; returns whether it was in it."""
        return self._queue.remove(call.key, call)

    def take_in(self) -> bool:
        """Handle the events that gRPC has by now; calls that are ready are queued.

        For a thread in the middle of a call, which must not wait.

        Returns:
            Whether no more were there.
        """
        thread = threading.current_thread()
        if isinstance(thread, Worker) and thread.lent and thread.busy:
            return False  # another thread waits for them
        until = time.perf_counter() + MAX_TAKING_IN
        while time.perf_counter() < until:
            if (event := self._events.poll(_PAST)).tag is None:
                return True
            self._queue_ready(event)
        return False

    def _request_again(self) -> None:
        """Ask gRPC for as many calls as it has brought; no answer waits for that."""
        with suppress(IndexError):
            while True:
                self.request(self._brought.popleft())

    # ------------------------------ threads

    @override
    def _serve(self, worker: Worker) -> None:
        # Whether the thread has waited since the last call: then no others were there.
        waited = False
        while not worker.lent:
            event = None
            if not self._queue or self._paused:
                began = time.perf_counter()
                event = self._events.poll()
                waited = waited or time.perf_counter() - began > WAITED
                if event.tag is None:  # the queue is shut
                    break
            worker.busy = True
            ready = self._queue.pop() if event is None else self._handle(event)
            if ready is not None:
                if event is not None and (self._queue or self._paused):
                    self._enqueue(ready)
                else:
                    # What an event holds must be let go before the next one is waited for.
                    event = None
                    ready.carry_out()
                    self._request_again()
                    if not waited:
                        self._take_in_now_and_then(worker)
                    waited = False
            event = ready = None
            worker.busy = worker.long = False
            worker.turns += 1
        self._leave(worker)

    def _take_in_now_and_then(self, worker: Worker) -> None:
        """Take in what has come, for a thread that is between two calls."""
        now = time.perf_counter()
        if worker.lent or now - self._taken_in < TAKE_IN_EVERY:
            return
        self._taken_in = now
        arrived = -1
        while time.perf_counter() < now + MAX_TAKING_IN:
            if arrived == self.arrived:
                self._caught_up = time.monotonic()
                return
            arrived = self.arrived
            worker.turns += 1
            self._request_again()
            # An operation without parts is done at once, and its event comes behind all that are
            # there. So the thread need not ask whether there are more: to ask costs it a turn of
            # the scheduler.
            mark = _Mark()
            self.begin(self._last_call, (), mark)
            while not mark.came:
                # The mark is there. That another thread takes it is rare, and noticed soon.
                event = self._events.poll(time.time() + MAX_TAKING_IN)
                if event.tag is None:
                    return
                self._queue_ready(event)

    def _queue_ready(self, event: Any) -> None:
        ready = self._handle(event)
        if ready is not None:
            self._enqueue(ready)

    @staticmethod
    def _handle(event: Any) -> IncomingCall | None:
        """Take a call one step further; what goes wrong there ends no thread."""
        try:
            ready: IncomingCall | None = event.tag(event)
        except Exception:
            LOG.exception("a call was dropped")
            call = getattr(event.tag, "__self__", None)
            if isinstance(call, IncomingCall):
                call.drop()
            return None
        return ready

    def _enqueue(self, call: IncomingCall) -> None:
        call.watch()
        refused = self._queue.put(call.key, call)
        if refused is not None:
            self._turn_away(refused)

    @staticmethod
    def _turn_away(call: IncomingCall) -> None:
        try:
            call.turn_away()
        except Exception:
            LOG.exception("a call was dropped")
            call.drop()

    def _help(self, worker: Worker) -> None:
        """Work off the queue beside those who wait for events, for a while."""
        for _ in range(MAX_HELP):
            if self._paused or self._closed or (call := self._queue.pop()) is None:
                break
            worker.busy = True
            call.carry_out()
            call = None
            worker.busy = worker.long = False
            worker.turns += 1
        self._leave(worker)

    def _start_helper(self) -> None:
        with self._lock:
            if self._queue and self._may_grow():
                self.start_worker(self._help, lent=True)

    def _may_grow(self) -> bool:
        """Whether one more thread may join to relieve the others; under the lock."""
        bound = self._count + self._waiting + self._long() + MAX_RELIEF
        return not self._closed and len(self._workers) < bound

    def _mind(self, worker: Worker) -> None:
        """While calls come in, see whether a thread is there to take them."""
        while not self._closing.is_set():
            self._wanted.wait()
            self._wanted.clear()
            turns: Mapping[Worker, int] = {}
            arrived = -1
            while not self._closing.wait(PATIENCE):
                if arrived == self.arrived and not (self.awaited or self._queue or self.busy):
                    # In this order: a call that comes in between is seen here or wakes us again.
                    self._minding = False
                    if arrived == self.arrived:
                        break
                    self._minding = True
                arrived = self.arrived
                try:
                    turns = self._relieve(turns)
                except LimitExceeded:
                    pass  # no more threads: the next look may find some
                except Exception:
                    LOG.exception("calls cannot be minded")
        self._leave(worker)

    def _relieve(self, before: Mapping[Worker, int]) -> Mapping[Worker, int]:
        """Take in what has come if all threads are in the middle of something long.

        Args:
            before: at which turn each thread was the last time.
        """
        self._end_late()
        with self._lock:
            places = [worker for worker in self._workers if not worker.lent]
        turns = {worker: worker.turns for worker in places}
        still = [worker for worker, turn in turns.items() if before.get(worker) == turn]
        stuck = [worker for worker in still if worker.busy]
        if len(stuck) < len(places):
            if len(still) == len(places):  # those that are not stuck wait for events
                self._start_helper()
            return turns
        self.take_in()
        with self._lock:
            relieved = bool(stuck) and bool(self._queue) and self._may_grow()
        if relieved:
            self._lend(stuck[0])
        return turns

    def _end_late(self) -> None:
        """Refuse the calls whose message is late, but for the newest of them.

        A message that has come and that no thread has taken yet is not late.
        """
        now = time.monotonic()
        self._looks.append(now)
        since = min(now - LATE, self._looks[0])
        if len(self._awaited_since(since)) > MAX_LATE and not self.take_in():
            since = min(since, self._caught_up - LATE)
        self._end_silent(self._awaited_since(since)[:-MAX_LATE])

    def _awaited_since(self, since: float) -> Sequence[IncomingCall]:
        return [call for call, begun in tuple(self.awaited.items()) if begun < since]


class _Mark:
    """Marks the end of what has come.

    Attributes:
        came: all that was there is taken in.
    """

    def __init__(self) -> None:
        self.came = False

    def __call__(self, event: object) -> None:
        """Note that the mark came."""
        self.came = True


class _Method:
    """A method, of which gRPC is always asked for the next calls."""

    def __init__(self, transport: CompletionQueueTransport, path: str, handler: Handler) -> None:
        self.path = path
        self._transport = transport
        self._handler = handler

    def __call__(self, event: Any) -> None:
        """A call came in; or the server stops, then the event is no success."""
        if event.success:
            self._transport.arrive(self, event)
            call = IncomingCall(self._transport, self._handler, event)
            try:
                call.begin()
            except Exception:
                call.drop()
                raise


class _AbortedError(Exception):
    """Raised to leave the answering of a call that ends with a status."""


class IncomingCall:
    """A call with one request and one response.

    It is the pipeline's :class:`~topospread.transports.grpc.transport.Context`. What is handed to
    gRPC as an event's tag is a bound method of the call, so the call lives until its last event:
    gRPC cancels calls that nobody holds.

    Attributes:
        arrived: when it came in, on the clock of time.perf_counter.
    """

    __slots__ = (
        "_callback",
        "_caller",
        "_code",
        "_details",
        "_event",
        "_gone",
        "_handler",
        "_key",
        "_raw",
        "_reception",
        "_trailers",
        "_watched",
        "arrived",
    )

    def __init__(self, reception: CompletionQueueTransport, handler: Handler, event: Any) -> None:
        """Take a call from gRPC.

        Args:
            reception: where it came in.
            handler: of its method.
            event: that brought it.
        """
        self.arrived = time.perf_counter()
        self._reception = reception
        self._handler = handler
        self._event = event
        self._caller = ANONYMOUS
        self._key: Hashable = None
        self._raw: bytes | None = None
        self._trailers: tuple[tuple[str, str | bytes], ...] | None = None
        self._code = _OK
        self._details = b""
        self._gone = False
        self._watched = False
        self._callback: Callable[[], None] | None = None

    @property
    def key(self) -> Hashable:
        """Whose turn the call is: its caller's credential, or else its connection."""
        if self._key is None:
            self._key = self._caller.credential or self._event.call.peer()
        return self._key

    # ------------------------------ what the transport and its queue ask

    def begin(self) -> None:
        """Check whether the call may be made, and request its message from gRPC."""
        try:
            if self._handler.guarded:
                # Before anything is read: strangers learn nothing, and send nothing.
                self._caller = self._handler.admit(self)
        except TopospreadError as refused:
            self._answer(refused)
            return
        if not self._reception.may_enter(self):
            self.turn_away()
            return
        self._reception.awaited[self] = time.monotonic()
        self._reception.bound_awaited()
        receive = (cygrpc.ReceiveMessageOperation(_NO_FLAGS),)
        self._reception.begin(self._event.call, receive, self.received)

    def received(self, event: Any) -> IncomingCall | None:
        """Take the message; the call is ready, unless it was turned away meanwhile."""
        if self._reception.awaited.pop(self, None) is None:
            return None
        self._raw = event.batch_operations[0].message()
        return self

    def carry_out(self) -> None:
        """Answer the call."""
        try:
            self._answer(call_ended(self) if self._gone else None)
        except Exception:
            LOG.exception("a call was dropped")
            self.drop()

    def turn_away(self) -> None:
        """Refuse the call: there is no room for it."""
        self._answer(QueueFull.of("decisions"))

    def watch(self) -> None:
        """Request an event from gRPC for the call's end, if that is not done yet."""
        if not self._watched:
            self._watched = True
            close = (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)
            self._reception.begin(self._event.call, close, self.closed)

    def closed(self, event: Any) -> None:
        """Note that the call is over: its caller has gone, or has its answer.

        One that waits in the queue is not begun.
        """
        self._gone = not event.success or event.batch_operations[0].cancelled()
        if self._gone and self._reception.withdraw(self):
            self._answer(call_ended(self))

    # ------------------------------ what the pipeline asks

    def is_active(self) -> bool:
        """Whether the caller still waits; only for the thread that carries out the call.

        The event for the call's end is requested from gRPC at the first use of this method, so
        that calls that are answered at once need not wait for one more event.
        """
        self.watch()
        if not self._gone:
            # Other calls are no part of this one's context.
            Variables().run(self._reception.take_in)
        return not self._gone and self.time_remaining() > 0

    def time_remaining(self) -> float:
        """Seconds until the caller's deadline."""
        left: float = self._event.call_details.deadline - time.time()
        return max(left, 0.0)

    def cancel(self) -> object:
        """End the call from this side."""
        return self._event.call.cancel()

    def add_callback(self, callback: Callable[[], None], /) -> bool:
        """Add a callback for when the response is sent, or the caller is gone."""
        self._callback = callback
        return True

    def invocation_metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """The metadata that the caller sent."""
        metadata: Sequence[tuple[str, str | bytes]] = self._event.invocation_metadata
        return metadata

    def peer(self) -> str:
        """The caller's address, as gRPC writes it."""
        peer: bytes = self._event.call.peer()
        return peer.decode()

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """The TLS properties of the caller."""
        known = cygrpc.auth_context(self._event.call) or {}
        return {key.decode(): values for key, values in known.items()}

    def set_trailing_metadata(
        self, trailing_metadata: tuple[tuple[str, str | bytes], ...], /
    ) -> None:
        """Set the metadata that is sent with the status."""
        self._trailers = trailing_metadata

    def abort(self, code: grpc.StatusCode, details: str) -> NoReturn:
        """End the call with this status."""
        self._code, self._details = code.value[0], details.encode()
        raise _AbortedError

    def drop(self) -> None:
        """End a call that cannot be answered, for a reason that is in the log."""
        self.cancel()
        self._run_callback()

    def _run_callback(self) -> None:
        # Let go of it: it holds the call.
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    def _answer(self, refused: TopospreadError | None) -> None:
        """Carry out the call and send its answer or status."""
        message: tuple[Any, ...] = ()
        with suppress(_AbortedError):
            payload = Variables().run(
                self._handler.respond, self, self._caller, self._raw, refused, self.arrived
            )
            message = (cygrpc.SendMessageOperation(payload, _NO_FLAGS),)
        self._reception.begin(
            self._event.call,
            (
                *message,
                cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),
                cygrpc.SendStatusFromServerOperation(
                    self._trailers, self._code, self._details, _NO_FLAGS
                ),
                # The operation for the call's end, unless it is under way.
                *(() if self._watched else (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)),
            ),
            self.ended,
        )

    def ended(self, event: Any) -> None:
        """Note that the status is sent, or that the caller is gone."""
        self._run_callback()
