"""Evaluations over one stream: the part that the blocking and the asyncio stream share.

An evaluation is an operation of :mod:`topospread_client._decisions`, carried by StreamEvaluatePods
instead of a call of its own, so that both build the same request and read the same response.
Nothing here waits: :mod:`topospread_client._stream` and :mod:`topospread_client._aio_stream` read
the call and pass on what they read.
"""

from __future__ import annotations

import math
import re
import time
from copy import copy
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import grpc

from topospread_client._answers import EvaluatePodResponse
from topospread_client._errors import (
    Closed,
    DeadlineExceeded,
    InvalidRequest,
    LimitExceeded,
    ServerFault,
    TopospreadClientError,
    Unavailable,
    invalid,
)
from topospread_client._locks import InterruptibleRLock
from topospread_client._operations import Operation, RpcReply, resume
from topospread_client._retries import MAX_CANCELS, MAX_REFUSALS, RetryTimer, seconds
from topospread_client._status import CANCELLED, GrpcFailure, error_in_answer, error_of
from topospread_client._tracing import outgoing, traceparent_in
from topospread_proto.v1 import decision_service_pb2 as engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topospread_client._tracing import Metadata

DEFAULT_WINDOW: Final = 16
"""Number of evaluations under way at once: one is computed while the next are sent."""

MAX_BROKEN_STREAMS: Final = 3
"""Broken streams after which an evaluation is sent once more, though it was the only one on them:
the connection may have broken instead.
"""

_TOO_LARGE: Final = re.compile(r"larger than max \(\d+ vs\. (\d{1,18})\)")
"""Message of gRPC's libraries for a request larger than their server takes, with its limit."""

Outcome: TypeAlias = EvaluatePodResponse | TopospreadClientError
"""Response to one evaluation, or the error that a call of its own would have raised."""


@dataclass(slots=True, eq=False)
class PendingEvaluation:
    """An evaluation under way, and its outcome once there is one.

    Attributes:
        operation: waits for the reply; None where its arguments were refused.
        request: with the id that its response has.
        timeout: seconds.
        alone: whether it is sent while no other is under way: it was one of several on a stream
            that broke, any of which may be the cause.
        broken_streams: number of streams that broke while it was the only one on them.
        cancels: number of times that a server cancelled it, or its stream.
        refusals: number of times that a server refused its stream.
        lost_error: error of the last stream that ended without a response.
        retry_until: time of the last retry, on the clock of `time.monotonic`.
        on_done: called when there is an outcome.
    """

    operation: Operation[EvaluatePodResponse] | None
    request: engine.StreamEvaluatePodsRequest
    timeout: float
    alone: bool = False
    broken_streams: int = 0
    cancels: int = 0
    refusals: int = 0
    lost_error: TopospreadClientError | None = None
    retry_until: float = math.inf
    outcome: Outcome | None = None
    on_done: Callable[[], object] = lambda: None

    def reply(self, reply: RpcReply[engine.EvaluatePodResponse]) -> None:
        """Set the outcome from a reply, unless there is one already."""
        if self.outcome is None and self.operation is not None:
            try:
                resume(self.operation, reply)
            except StopIteration as done:
                self._end(done.value)
            except TopospreadClientError as unreadable:
                self._end(unreadable)

    def fail(self, error: TopospreadClientError) -> None:
        """Set the outcome from an error, unless there is one already."""
        if self.outcome is None and self.operation is not None:
            try:
                self.operation.throw(error)
            except TopospreadClientError as raised:
                self._end(raised)

    def result(self) -> EvaluatePodResponse:
        """Response of the server.

        Raises:
            TopospreadClientError: the evaluation failed.
        """
        if isinstance(self.outcome, EvaluatePodResponse):
            return self.outcome
        assert self.outcome is not None, "the outcome is not there yet"
        raise self.outcome

    def _end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.on_done()


@dataclass(frozen=True, slots=True, eq=False)
class StreamCall:
    """An open StreamEvaluatePods call.

    Attributes:
        rpc: gRPC's call.
        send: takes the next request; None ends the requests.
        stubs: keep the channel open.
    """

    rpc: Any
    send: Callable[[engine.StreamEvaluatePodsRequest | None], None]
    stubs: object = field(default=None, repr=False)


class StreamSession:
    """The pending evaluations of one stream, over one call after the other.

    Threads may start evaluations at any time. One reader reads the responses; it ends when nothing
    is pending and no call is open, and the next evaluation needs a new one.

    Args:
        open_call: makes a call.
        timeout: seconds for an evaluation that names none.
        retry_timeout: seconds for which an evaluation is retried after a server went away; 0 for
            never.
        metadata: of the calls; its trace context is that of failures of the stream as a whole.
    """

    def __init__(
        self,
        open_call: Callable[[], StreamCall],
        *,
        timeout: float,
        retry_timeout: float,
        metadata: Metadata,
    ) -> None:
        self._open_call = open_call
        self._timeout = timeout
        self._retry_timeout = retry_timeout
        self._traceparent = traceparent_in(metadata)
        self._lock = InterruptibleRLock()
        self._ids = count(1)
        self._pending: dict[int, PendingEvaluation] = {}
        self._call: StreamCall | None = None
        self._retries: RetryTimer | None = None
        self._pause = 0.0
        self._one_by_one = False
        self._has_reader = False
        self._closed: str | None = None
        self.on_close: Callable[[], object] = lambda: None
        """Called by :meth:`close`: wakes a reader that pauses."""

    def start(
        self, operation: Operation[EvaluatePodResponse], on_done: Callable[[], object]
    ) -> PendingEvaluation:
        """Send an evaluation.

        Args:
            operation: makes the request.
            on_done: called when there is an outcome.

        Raises:
            InvalidRequest: arguments that cannot be sent.
            Closed: the stream is closed.
        """
        request_call = next(operation)
        assert isinstance(request_call.request, engine.EvaluatePodRequest), (
            "evaluations make this request only"
        )
        number = next(self._ids)
        request = engine.StreamEvaluatePodsRequest(
            id=number, evaluate=request_call.request, **dict(outgoing(request_call.traceparent))
        )
        timeout = seconds(request_call.timeout, self._timeout)
        evaluation = PendingEvaluation(operation, request, timeout, on_done=on_done)
        with self._lock:
            if self._closed is not None:
                raise Closed(self._closed)
            if self._call is not None and not self._pending and self._call.rpc.done():
                self._drop_call()  # it ended while nothing was pending
            if not self._pending:
                # Earlier failures say nothing about this evaluation: nothing else waits.
                self._retries, self._pause = None, 0.0
            self._pending[number] = evaluation
            if self._call is not None and not self._one_by_one:
                self._call.send(request)
        return evaluation

    def try_start(
        self, operation: Operation[EvaluatePodResponse], on_done: Callable[[], object]
    ) -> PendingEvaluation:
        """Send an evaluation as :meth:`start` does, with refused arguments as its outcome."""
        try:
            return self.start(operation, on_done)
        except InvalidRequest as error:
            return PendingEvaluation(None, engine.StreamEvaluatePodsRequest(), 1.0, outcome=error)

    def needs_reader(self) -> bool:
        """Whether the caller must start a reader."""
        with self._lock:
            return not self._has_reader and self._closed is None

    def claim_reader(self) -> bool:
        """Become the reader; called by the reader itself, which may never get to run.

        Returns:
            False where another one reads already.
        """
        with self._lock:
            if self._has_reader or self._closed is not None:
                return False
            self._has_reader = True
            return True

    def next_call(self) -> StreamCall | float | None:
        """Call for the reader to read, or seconds to wait for one; None ends the reader.

        All pending evaluations are sent over a new call, or the first one after a stream broke.
        """
        with self._lock:
            if self._call is not None:
                return self._call
            if not self._pending:
                self._has_reader = False
                return None
            if self._pause:
                pause, self._pause = self._pause, 0.0
                return pause
            try:
                self._call = self._open_call()
            except (TopospreadClientError, ValueError) as error:
                if not isinstance(error, TopospreadClientError):
                    error = invalid("metadata", str(error))
                self._fail_all(error)
                return self.next_call()
            self._send_pending(self._call)
            return self._call

    def on_response(self, call: StreamCall, message: engine.StreamEvaluatePodsResponse) -> None:
        """Take a response, unless its call was dropped meanwhile."""
        with self._lock:
            if call is not self._call:
                return
            evaluation = self._pending.get(message.id)
            failed = message.WhichOneof("answer") == "error"
            if failed and self._retry_timeout and evaluation is not None:
                error = error_in_answer(message.error)
                if error.code is CANCELLED:
                    # This client did not cancel it: the server is about to stop.
                    self._drop_call()
                    self._retry_after(error)
                    return
            if self._retries is not None:
                self._retries = None
                for waiting in self._pending.values():
                    waiting.lost_error = None
            traceparent = message.traceparent or self._traceparent
            if evaluation is None:
                self._fail_with_fault("the server answered a question that was not asked")
                return
            del self._pending[message.id]
            if failed:
                error = error_in_answer(message.error)
                error.traceparent = traceparent
                evaluation.fail(error)
            else:
                evaluation.reply(RpcReply(message.evaluate, traceparent))
            if self._one_by_one:
                self._send_pending(call)

    def on_end(self, call: StreamCall, failed: GrpcFailure | None) -> None:
        """Take the end of a call: evaluations that may be retried wait for the next call.

        Args:
            call: the call; ignored where it was dropped already.
            failed: its error; None for the status OK.
        """
        with self._lock:
            if call is not self._call:
                return
            if failed is None:
                self._fail_with_fault("the server ended the stream without an answer")
                return
            self._drop_call()
            error = error_of(failed)
            error.__cause__ = cast("grpc.RpcError", failed)
            refused = isinstance(error, LimitExceeded) and error.retry_after is not None
            if refused or isinstance(error, Unavailable):
                self._retry_after(error)
                return
            # INTERNAL without a status of the server is gRPC's own: a request was being sent when
            # the call ended, or the connection broke. The request may be the cause, too.
            broken = failed.code() is grpc.StatusCode.INTERNAL and not failed.trailing_metadata()
            if broken:
                self._isolate()
            max_bytes = _max_bytes(failed)
            failing: dict[int, PendingEvaluation] = {}
            for number, evaluation in list(self._pending.items()):
                again = broken and evaluation.broken_streams <= MAX_BROKEN_STREAMS
                small = max_bytes is not None and evaluation.request.ByteSize() <= max_bytes
                if not (self._retry_timeout and (again or small)):
                    failing[number] = self._pending.pop(number)
            self._fail(failing, error)
            if max_bytes is not None and not failing:
                # No request is that large: a response is larger than this client takes.
                self._fail_all(error)

    def on_cancel(self, call: StreamCall) -> None:
        """Take a call that was cancelled on this side."""
        with self._lock:
            if call is self._call:
                self._drop_call()
                self._retry_after(Unavailable("the stream was cancelled"))

    def discard(self, evaluations: Iterable[PendingEvaluation]) -> None:
        """Drop evaluations that nothing waits for; those behind them are sent anew."""
        with self._lock:
            discarded = {q.request.id for q in evaluations} & self._pending.keys()
            if not discarded:
                return
            self._drop_call()
            for number in discarded:
                del self._pending[number]

    def time_out(self, evaluation: PendingEvaluation) -> None:
        """Fail an evaluation whose time-out has passed."""
        with self._lock:
            self.discard((evaluation,))
            evaluation.fail(
                evaluation.lost_error
                or DeadlineExceeded(f"no answer within {evaluation.timeout:g} s")
            )

    def close(self, why: str = "the stream is closed: open another one") -> None:
        """End the call, fail what is pending, and open no other call."""
        with self._lock:
            if self._closed is not None:
                return
            self._closed = why
            self._drop_call()
            self._fail_all(Closed(why))
            self.on_close()

    def _send_pending(self, call: StreamCall) -> None:
        """Send all that is pending; the first alone while the cause of a break is not known."""
        self._one_by_one = any(evaluation.alone for evaluation in self._pending.values())
        for evaluation in self._pending.values():
            call.send(evaluation.request)
            if self._one_by_one:
                return

    def _isolate(self) -> None:
        """Have what was sent over a stream that broke sent again one by one."""
        sent = list(self._pending.values())
        if self._one_by_one:
            del sent[1:]
        if len(sent) == 1:
            sent[0].broken_streams += 1
        for evaluation in sent:
            evaluation.alone = True

    def _retry_after(self, error: TopospreadClientError) -> None:
        """Retry at another server: at once the first time, then less and less often.

        A server that cancels is left the time to be gone, and one that refuses what it asks for.
        """
        if not self._retry_timeout:
            self._fail_all(error)
            return
        cancelled, refused = error.code is CANCELLED, isinstance(error, LimitExceeded)
        pause = 0.0
        first = self._retries is None
        # For its pauses alone: each evaluation has its own end.
        self._retries = self._retries or RetryTimer(math.inf, math.inf)
        if cancelled or refused or not first:
            pause = self._retries.pause_after(error)
        now = time.monotonic()
        failing: dict[int, PendingEvaluation] = {}
        for number, evaluation in list(self._pending.items()):
            if evaluation.lost_error is None:
                evaluation.retry_until = now + self._retry_timeout
            evaluation.lost_error = error
            evaluation.cancels += cancelled
            evaluation.refusals += refused
            if (
                now + pause >= evaluation.retry_until
                or evaluation.cancels > MAX_CANCELS
                or evaluation.refusals > MAX_REFUSALS
            ):
                failing[number] = self._pending.pop(number)
        self._pause = pause
        self._fail(failing, error)

    def _drop_call(self) -> None:
        call, self._call = self._call, None
        if call is not None:
            call.send(None)
            call.rpc.cancel()

    def _fail_with_fault(self, text: str) -> None:
        self._drop_call()
        self._fail_all(ServerFault(text, traceparent=self._traceparent))

    def _fail_all(self, error: TopospreadClientError) -> None:
        evaluations, self._pending = self._pending, {}
        self._fail(evaluations, error)

    @staticmethod
    def _fail(evaluations: dict[int, PendingEvaluation], error: TopospreadClientError) -> None:
        for evaluation in evaluations.values():
            # Each may be raised in another thread at the same time.
            own = copy(error)
            own.__cause__ = error.__cause__
            evaluation.fail(own)


def _max_bytes(failed: GrpcFailure) -> int | None:
    """Limit of a request's bytes where exceeding it has ended the stream; None otherwise."""
    if failed.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or failed.trailing_metadata():
        return None
    found = _TOO_LARGE.search(failed.details() or "")
    return None if found is None else int(found[1])
