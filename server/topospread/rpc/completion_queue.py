"""Decisions are answered by the very thread that takes them from gRPC: the fast lane.

grpcio's own server hands a call from its polling thread to a pool's and back three times; each time
two threads meet at the interpreter's lock, which costs more than most decisions do. Here a thread
waits for gRPC's events itself: it takes a call, has its message brought, decides and answers, and
nobody else is woken. It is the same server and port; only the methods that are registered here
take this way.

In this lane nothing waits or takes long. What would is preempted, and carried out in the
slow lane, an :class:`~topospread.calls.executor.Executor` with a turn; so the thread that takes
events is always free.

gRPC's core keeps calls that nobody has taken from it in a list of its own, and when that grows it
drops some. So the thread takes in what has come before it goes on with the next call, and what
waits does so in a queue of ours: bounded, counted, and fair to each caller.

docs/decisions/0027 has the reasons and the figures, and what this leans on: some names of grpcio's
Cython layer that are not public. :mod:`topospread.rpc.self_check` looks at start-up whether they do
what is expected of them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from contextlib import contextmanager, suppress
from contextvars import Context as Variables
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from grpc._cython import cygrpc  # type: ignore[attr-defined] # has no stubs

from topospread.calls.call import Call, call_ended
from topospread.calls.executor import JOIN_SECONDS, CallQueue
from topospread.calls.memory import MAX_PENDING
from topospread.calls.pipeline import LARGE
from topospread.calls.sizes import FIRST_PACKED, decompressed
from topospread.calls.status import code_number, status_of, trailers
from topospread.checkpoints import Preempted
from topospread.errors import LimitExceeded, QueueFull
from topospread.rpc.threads import certificate_names

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence

    import grpc

    from topospread.access.certificates import CertificateNames
    from topospread.calls.call import Metadata, ServedMethod
    from topospread.calls.executor import Executor
    from topospread.calls.memory import Held, Sweeper
    from topospread.calls.pipeline import Pipeline
    from topospread.calls.sizes import SizeLimit
    from topospread.errors import TopospreadError
    from topospread.telemetry.spans import CallSpan

LOG: Final = logging.getLogger(__name__)

REQUESTED: Final = 64
"""Calls of each method that gRPC is asked for at once, and so may hand over in one turn."""

WAITED: Final = 0.00005
"""Seconds that tell an event that was waited for from one that was there."""

MARK_SECONDS: Final = 0.001
"""For the mark of the end of what has come: it is there, and its event is on its way."""

TAKE_IN_EVERY: Final = 0.001
"""Seconds after which it takes in what has come before it goes on with the queue."""

WATCHED_BEHIND: Final = 64
"""Calls in the queue past which one that joins is taken out when its caller goes. Before, it costs
less to answer it: its end would be one event more.
"""

PAUSE: Final = 0.02
"""Seconds between two looks whether the server still pauses."""

_NO_FLAGS: Final = 0
_OK: Final = 0


class CompletionQueue:
    """The fast lane, in which so many calls may wait; what does not fit goes to the slow one.

    Attributes:
        arrived: calls so far.
        deciding: calls in this lane that are decided now.
    """

    pipeline: Pipeline

    def __init__(self, queue: int, slow: Executor, sweeper: Sweeper) -> None:
        self.slow: Final = slow
        self.sweeper: Final = sweeper
        self.arrived = 0
        self.deciding = 0
        self._queue: CallQueue[IncomingCall] = CallQueue(queue)
        self._methods: Sequence[ServedMethod] = ()
        self._events = cygrpc.CompletionQueue()
        self._server: Any = None
        # gRPC's core aborts the process when something is begun on a queue that is shut.
        self._beginning = threading.Lock()
        self._shut = False
        self._stopping = False
        self._paused = False
        # The methods of calls that gRPC has brought since it was asked for more.
        self._brought: deque[ServedMethod] = deque()
        # A call of gRPC's, on which an empty operation marks the end of what has come.
        self._last_call: Any = None
        self._taken_in = 0.0
        self._on_broken: Callable[[], object] = lambda: None
        self._thread = threading.Thread(target=self._run, name="decide", daemon=True)

    @property
    def depth(self) -> int:
        """Calls that wait in either lane."""
        return len(self._queue) + self.slow.depth

    @property
    def busy(self) -> int:
        """Calls that are decided now."""
        return self.deciding + max(0, self.slow.busy - self.slow.blocked)

    @property
    def blocked(self) -> int:
        """Calls that wait for a revision, a first load or the store."""
        return self.slow.blocked

    # ------------------------------ the server's part

    def register(
        self, server: grpc.Server, methods: Sequence[ServedMethod], pipeline: Pipeline
    ) -> None:
        """Have these methods' calls brought here; once, before the server starts."""
        assert not self._methods, "the calls are one service's"
        self._server = server._cy_server  # type: ignore[attr-defined] # noqa: SLF001 - see above
        self._server.register_completion_queue(self._events)
        for method in methods:
            self._server.register_method(method.path)
        self._methods, self.pipeline = methods, pipeline

    def start(self, on_broken: Callable[[], object] = lambda: None) -> None:
        """Begin to bring calls, or say that they come no more; after the server has started."""
        self._on_broken = on_broken
        self._thread.start()
        for method in self._methods:
            for _ in range(REQUESTED):
                self._request(method)

    def stop(self) -> None:
        """Note that the server stops: that no more calls come is no failure from now on."""
        # A server that ends while it is asked for a call ends the process: gRPC looks whether it is
        # stopping, lets other threads run, and then uses it.
        with self._beginning:
            self._stopping = True

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Carry out no calls meanwhile, but let them come in; those begun go on."""
        self._paused = True
        try:
            with self.slow.paused():
                yield
        finally:
            self._paused = False

    def shutdown(self) -> None:
        """End the threads; after the server has stopped. Calls that still compute send nothing."""
        with self._beginning:
            if self._shut:
                return
            self._shut = True
            self._events.shutdown()
        self.slow.shutdown(cancel_futures=True)
        if self._thread.is_alive():
            self._thread.join(JOIN_SECONDS)

    # ------------------------------ what calls ask

    def begin(self, call: Any, operations: tuple[Any, ...], tag: Callable[[Any], object]) -> None:
        """Start a gRPC operation of a call, unless all is over; `tag` is called when it is done."""
        with self._beginning:
            if not self._shut:
                call.start_server_batch(operations, tag)

    def accepts(self, call: IncomingCall) -> bool:
        """Whether a call that has just come in may go on to be queued."""
        return self._queue.length < self._queue.bound or self._queue.may_enter(call.owner)

    def withdraw(self, call: IncomingCall) -> bool:
        """Take a call out of the queues; returns whether it was in one."""
        return self._queue.remove(call.owner, call) or self.slow.remove(call)

    def _request(self, method: ServedMethod) -> None:
        """Ask gRPC for the method's next call."""
        failed: object = None
        with self._beginning:
            if self._shut or self._stopping:
                return
            try:
                failed = self._server.request_registered_call(
                    self._events, self._events, method.path, partial(self._arrived, method)
                )
            except ValueError as error:
                failed = error
        if failed and not self._stopping:
            LOG.error("gRPC brings no more calls of %s: %s", method.path, failed)
            self._on_broken()

    def _request_again(self) -> None:
        """Ask gRPC for as many calls as it has brought; no answer waits for that."""
        with suppress(IndexError):
            while True:
                self._request(self._brought.popleft())

    def _arrived(self, method: ServedMethod, event: Any) -> None:
        """A call came in; or the server stops, then the event is no success."""
        if not event.success:
            return
        self._brought.append(method)
        if len(self._brought) > REQUESTED // 2:
            self._request_again()
        self._last_call = event.call
        self.arrived += 1
        call = IncomingCall(self, method, event)
        try:
            call.begin()
        except Exception:
            call.drop()
            raise

    # ------------------------------ the thread

    def _run(self) -> None:
        while True:
            if self._queue.length and not self._paused:
                ready, waited = self._queue.pop(), False
            else:
                began = time.perf_counter()
                event = self._events.poll(time.time() + PAUSE if self._paused else None)
                waited = time.perf_counter() - began > WAITED
                if event.tag is None:
                    if self._shut and not self._paused:
                        return
                    continue
                ready = self._handle(event)
                event = None  # what it holds must be let go before the next one is waited for
                if ready is not None and (self._queue.length or self._paused):
                    self._enqueue(ready)
                    ready = None
            if ready is None:
                continue
            self._decide(ready)
            ready = None
            self._request_again()
            if not waited:
                self._take_in()

    def _decide(self, call: IncomingCall) -> None:
        """Answer a call here, or have it answered in the slow lane."""
        self.deciding = 1
        try:
            if call.is_large or not call.decide():
                call.watch()
                self.slow.put(call)
        except Exception:
            LOG.exception("a call was dropped")
            call.drop()
        self.deciding = 0

    def _take_in(self) -> None:
        """Queue what has come since it was last looked for, so that callers take turns."""
        now = time.perf_counter()
        if now - self._taken_in < TAKE_IN_EVERY:
            return
        self._taken_in = now
        # An operation without parts is done at once, and its event comes behind all that are
        # there. To ask gRPC whether there are more would cost a turn of the scheduler.
        came = list[object]()
        self.begin(self._last_call, (), came.append)
        while not came:
            event = self._events.poll(time.time() + MARK_SECONDS)
            if event.tag is None:
                return
            if (ready := self._handle(event)) is not None:
                self._enqueue(ready)

    def _enqueue(self, call: IncomingCall) -> None:
        if len(self._queue) >= WATCHED_BEHIND:
            call.watch()
        refused = self._queue.put(call.owner, call)
        if refused is not None:
            refused.refuse()

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


class IncomingCall:
    """A call with one request and one response; its own :class:`~topospread.calls.call.Context`.

    What is handed to gRPC as an event's tag is a bound method of the call, so the call lives until
    its last event: gRPC cancels calls that nobody holds.
    """

    __slots__ = (
        "_call",
        "_callback",
        "_event",
        "_gone",
        "_held",
        "_over",
        "_raw",
        "_transport",
        "_watched",
    )

    def __init__(self, transport: CompletionQueue, method: ServedMethod, event: Any) -> None:
        self._call = Call(method, self, time.perf_counter())
        self._transport = transport
        self._event = event
        self._raw: bytes | None = None
        self._held: Held | None = None
        self._gone = self._over = False
        self._watched = False
        self._callback: Callable[[], None] | None = None

    @property
    def owner(self) -> Hashable:
        """Whose turn the call is, and what is kept for it."""
        return self._call.owner

    @property
    def is_large(self) -> bool:
        """Whether it takes long to read the message."""
        return len(self._raw or b"") > self._call.method.fast_bytes

    # ------------------------------ from its arrival to its answer

    def begin(self) -> None:
        """Check whether the call may be made, and request its message from gRPC."""
        # Before anything is read: strangers learn nothing, and send nothing.
        pipeline = self._transport.pipeline
        if pipeline.guarded and not pipeline.admit(self._call):
            self._answer()
            return
        if not self._transport.accepts(self):
            self.refuse()
            return
        reading = self._transport.sweeper.reading
        if len(reading) >= MAX_PENDING:
            self.refuse()
            return
        reading[self] = time.monotonic(), self._refuse_unread, _never
        receive = (cygrpc.ReceiveMessageOperation(_NO_FLAGS),)
        self._transport.begin(self._event.call, receive, self.received)

    def received(self, event: Any) -> IncomingCall | None:
        """Take the message; the call is ready, unless it is refused, or was meanwhile."""
        if self._transport.sweeper.reading.pop(self, None) is None:
            return None
        raw = event.batch_operations[0].message()
        if raw is not None and len(raw) >= LARGE:
            # It may wait in a queue, with others of its kind.
            try:
                self._held = self._transport.pipeline.parts.guard.hold(self.owner, len(raw))
            except LimitExceeded as refused:
                self._call.refused = refused
                self._answer()
                return None
        self._raw = raw
        return self

    def decide(self) -> bool:
        """Answer the call here and now; False: it takes long, or would have to wait."""
        self._call.brief = True
        try:
            self._answer()
        except Preempted:
            return False
        finally:
            self._call.brief = False
        return True

    def carry_out(self) -> None:
        """Answer the call in the slow lane."""
        if self._gone:
            self._call.refused = call_ended(self)
        slow = self._transport.slow
        self._call.turn, self._call.waits = slow.turn, slow.waiting
        try:
            self._answer()
        except Exception:
            LOG.exception("a call was dropped")
            self.drop()

    def refuse(self) -> None:
        """Refuse the call: there is no room for it."""
        self._call.refused = QueueFull.of(self._call.method.executor)
        self._answer()

    def _refuse_unread(self, error: TopospreadError) -> None:
        """Refuse the call because its message does not come; from another thread."""
        if self._transport.sweeper.reading.pop(self, None) is not None:
            self._call.refused = error
            self._answer()

    def watch(self) -> None:
        """Request an event from gRPC for the call's end, if that is not done yet."""
        if not self._watched:
            self._watched = True
            close = (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)
            self._transport.begin(self._event.call, close, self.closed)

    def closed(self, event: Any) -> None:
        """Note that the call is over: its caller has gone, or has its answer.

        One that waits in a queue is not begun.
        """
        self._gone = not event.success or event.batch_operations[0].cancelled()
        if self._gone and not self._over and self._transport.withdraw(self):
            self._call.refused = call_ended(self)
            self._answer()

    def drop(self) -> None:
        """End a call that cannot be answered, for a reason that is in the log."""
        self._event.call.cancel()
        self._let_go()
        self._run_callback()

    def _answer(self) -> None:
        """Carry out the call and send its answer or status."""
        payload = Variables().run(self._transport.pipeline.respond, self._call)
        self._let_go()
        failed = self._call.error is not None
        self._transport.begin(
            self._event.call,
            (
                *(() if failed else (cygrpc.SendMessageOperation(payload, _NO_FLAGS),)),
                cygrpc.SendInitialMetadataOperation(None, _NO_FLAGS),
                self._failed()
                if failed
                else cygrpc.SendStatusFromServerOperation((), _OK, b"", _NO_FLAGS),
                # The operation for the call's end, unless it is under way.
                *(() if self._watched else (cygrpc.ReceiveCloseOnServerOperation(_NO_FLAGS),)),
            ),
            self.ended,
        )

    def _let_go(self) -> None:
        """Keep the message no longer."""
        self._raw = None
        if self._held is not None:
            self._held.release()

    def _failed(self) -> Any:
        """The operation that ends the call with its error; not in a frame that the error holds."""
        error, traceparent = self._call.take_error(), self._call.span.traceparent
        assert error is not None
        status = status_of(error, traceparent)
        return cygrpc.SendStatusFromServerOperation(
            trailers(status, traceparent, error), status.code, status.message.encode(), _NO_FLAGS
        )

    def ended(self, event: Any) -> None:
        """Note that the status is sent, or that the caller is gone."""
        self._run_callback()
        self._over = True
        del self._call  # which refers to this

    def _run_callback(self) -> None:
        # Let go of it: it holds the call.
        callback, self._callback = self._callback, None
        if callback is not None:
            callback()

    # ------------------------------ what the pipeline asks

    def is_active(self) -> bool:
        """Whether the caller still waits, as far as that is watched."""
        return not self._gone and self.time_remaining() > 0

    def time_remaining(self) -> float:
        """Seconds until the caller's deadline."""
        left: float = self._event.call_details.deadline - time.time()
        return max(left, 0.0)

    def end(self, error: TopospreadError) -> None:
        """End a call whose answer is not taken."""
        status = status_of(error)
        self._event.call.cancel(status.code, status.message)

    def add_callback(self, callback: Callable[[], None], /) -> bool:
        """Add a callback for when the response is sent, or the caller is gone."""
        self._callback = callback
        return True

    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """The metadata that the caller sent."""
        metadata: Sequence[tuple[str, str | bytes]] = self._event.invocation_metadata
        return metadata

    def peer(self) -> str:
        """The caller's address, as gRPC writes it."""
        peer: bytes = self._event.call.peer()
        return peer.decode()

    def names(self) -> CertificateNames:
        """The names in the caller's verified certificate."""
        known = cygrpc.auth_context(self._event.call) or {}
        return certificate_names({key.decode(): values for key, values in known.items()})

    def receive(self, limit: SizeLimit) -> bytes | None:
        """The message, unpacked; None: the caller sends none."""
        raw = self._raw
        if raw is not None and (raw[:1] in FIRST_PACKED or len(raw) > limit.max_bytes):
            return decompressed(raw, limit)
        return raw

    def send_headers(self, headers: Metadata) -> None:
        """No call with one answer sends any."""
        raise NotImplementedError

    def end_span(self, span: CallSpan, error: Exception | None) -> None:
        """End the call's span."""
        span.end(0 if error is None else code_number(error), error)


def _never() -> bool:
    return False
