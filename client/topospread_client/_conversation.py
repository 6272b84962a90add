"""Questions over one stream: what the blocking and the awaited stream have in common.

A question is an operation of :mod:`topospread_client._decisions`, carried by StreamEvaluatePods
instead of a call of its own, so that both build the same request and read the same answer. Nothing
here waits:
:mod:`topospread_client._stream` and :mod:`topospread_client._aio_stream` read the call and tell.
"""

from __future__ import annotations

import math
import re
import threading
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
    ServerFault,
    TopospreadClientError,
    Unavailable,
    invalid,
)
from topospread_client._operations import Operation, Reply, resume
from topospread_client._repeats import Repeats, seconds
from topospread_client._status import AWAY, FailedCall, error_in_answer, error_of
from topospread_client._tracing import outgoing, traceparent_in
from topospread_proto.v1 import decision_service_pb2 as engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topospread_client._tracing import Metadata

DEFAULT_WINDOW: Final = 16
"""Questions under way at once: while one is answered, the next are on their way."""

_CANCELLED: Final[int] = grpc.StatusCode.CANCELLED.value[0]

_TOO_LARGE: Final = re.compile(r"larger than max \(\d+ vs\. (\d{1,18})\)")
"""How gRPC's libraries say that a message is larger than their server takes, and how much it takes.
"""

Outcome: TypeAlias = EvaluatePodResponse | TopospreadClientError
"""What became of one question: its answer, or what a call about it would have raised."""


@dataclass(slots=True, eq=False)
class Question:
    """A question, and its outcome once there is one.

    Attributes:
        operation: waits for the reply; None when there was nothing to ask.
        request: numbered, so that its answer is known.
        timeout: seconds.
        broken: streams that broke without a word from their server while it waited.
        lost: why no server has answered it, once a server has gone away.
        until: when it is repeated no more, on the clock of `time.monotonic`.
        told: called when there is an outcome.
    """

    operation: Operation[EvaluatePodResponse] | None
    request: engine.StreamEvaluatePodsRequest
    timeout: float
    broken: int = 0
    lost: TopospreadClientError | None = None
    until: float = math.inf
    outcome: Outcome | None = None
    told: Callable[[], object] = lambda: None

    def reply(self, reply: Reply[engine.EvaluatePodResponse]) -> None:
        """Take the answer, if it is not too late."""
        if self.outcome is None and self.operation is not None:
            try:
                resume(self.operation, reply)
            except StopIteration as done:
                self._end(done.value)
            except TopospreadClientError as unreadable:
                self._end(unreadable)

    def fail(self, error: TopospreadClientError) -> None:
        """Take the failure, if it is not too late."""
        if self.outcome is None and self.operation is not None:
            try:
                self.operation.throw(error)
            except TopospreadClientError as raised:
                self._end(raised)

    def result(self) -> EvaluatePodResponse:
        """The evaluation.

        Raises:
            TopospreadClientError: what became of it instead.
        """
        if isinstance(self.outcome, EvaluatePodResponse):
            return self.outcome
        assert self.outcome is not None, "asked before the answer was there"
        raise self.outcome

    def _end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.told()


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """An open call, and what puts a question on its way; None ends the questions.

    Attributes:
        call: gRPC's.
        send: takes the next question.
        stubs: keep the channel open.
    """

    call: Any
    send: Callable[[engine.StreamEvaluatePodsRequest | None], None]
    stubs: object = field(default=None, repr=False)


class Conversation:
    """The questions of one stream that have no answer yet, over one call after the other.

    Threads may ask at any time. One reader takes what comes in; it ends when nothing is left to be
    answered and no call is open, and the next question wants a new one.

    Args:
        open_line: makes a call.
        timeout: seconds for a question that names none.
        lasts: seconds for which a question is repeated after a server went away; 0 for never.
        metadata: of the calls; its trace context is that of failures of the stream as a whole.
    """

    def __init__(
        self,
        open_line: Callable[[], Line],
        *,
        timeout: float,
        lasts: float,
        metadata: Metadata,
    ) -> None:
        self._open_line = open_line
        self._timeout = timeout
        self._lasts = lasts
        self._traceparent = traceparent_in(metadata)
        self._lock = threading.RLock()
        self._numbers = count(1)
        self._unanswered: dict[int, Question] = {}
        self._line: Line | None = None
        self._repeats: Repeats | None = None
        self._pause = 0.0
        self._read = False
        self._closed: str | None = None
        self.on_close: Callable[[], object] = lambda: None
        """Wakes a reader that pauses."""

    def ask(
        self, operation: Operation[EvaluatePodResponse], told: Callable[[], object]
    ) -> Question:
        """Put a question on its way.

        Args:
            operation: what asks.
            told: called when there is an outcome.

        Raises:
            InvalidRequest: what was given is no question.
            Closed: the stream is closed.
        """
        asked = next(operation)
        assert isinstance(asked.request, engine.EvaluatePodRequest), (
            "an evaluation asks nothing else"
        )
        number = next(self._numbers)
        request = engine.StreamEvaluatePodsRequest(
            id=number, evaluate=asked.request, **dict(outgoing(asked.traceparent))
        )
        timeout = seconds(asked.timeout, self._timeout)
        question = Question(operation, request, timeout, told=told)
        with self._lock:
            if self._closed is not None:
                raise Closed(self._closed)
            if self._line is not None and not self._unanswered and self._line.call.done():
                self._hang_up()  # it ended while nobody asked anything
            if not self._unanswered:
                # Nobody waits: what went wrong before says nothing about this question.
                self._repeats, self._pause = None, 0.0
            self._unanswered[number] = question
            if self._line is not None:
                self._send(self._line, question)
        return question

    def try_to_ask(
        self, operation: Operation[EvaluatePodResponse], told: Callable[[], object]
    ) -> Question:
        """The same; what is no question has its error for an outcome."""
        try:
            return self.ask(operation, told)
        except InvalidRequest as error:
            return Question(None, engine.StreamEvaluatePodsRequest(), 1.0, outcome=error)

    def wants_reader(self) -> bool:
        """Whether the caller is to start a reader: nobody reads."""
        with self._lock:
            return not self._read and self._closed is None

    def begin_to_read(self) -> bool:
        """For the reader itself, so that one which never runs keeps no other from it.

        Returns:
            Whether it is to read: not when another was quicker.
        """
        with self._lock:
            if self._read or self._closed is not None:
                return False
            self._read = True
            return True

    def next_line(self) -> Line | float | None:
        """For the reader: the call to read; or seconds to wait before; None: there is no need.

        A new call gets all questions that wait.
        """
        with self._lock:
            if self._line is not None:
                return self._line
            if not self._unanswered:
                self._read = False
                return None
            if self._pause:
                pause, self._pause = self._pause, 0.0
                return pause
            try:
                self._line = self._open_line()
            except (TopospreadClientError, ValueError) as error:
                if not isinstance(error, TopospreadClientError):
                    error = invalid("metadata", str(error))
                self._fail_all(error)
                return self.next_line()
            for question in self._unanswered.values():
                self._send(self._line, question)
            return self._line

    def answered(self, line: Line, message: engine.StreamEvaluatePodsResponse) -> None:
        """An answer came; one on a call that was given up already says nothing."""
        with self._lock:
            if line is not self._line:
                return
            if message.error.code == _CANCELLED and self._lasts:
                # Nobody here cancelled it: its server stops, and says so to this question first.
                self._hang_up()
                self._again_after(error_in_answer(message.error))
                return
            if self._repeats is not None:
                self._repeats = None
                for waiting in self._unanswered.values():
                    waiting.lost = None
            traceparent = message.traceparent or self._traceparent
            question = self._unanswered.pop(message.id, None)
            if question is None:
                self._fault("the server answered a question that was not asked")
            elif message.WhichOneof("answer") == "error":
                error = error_in_answer(message.error)
                error.traceparent = traceparent
                question.fail(error)
            else:
                question.reply(Reply(message.evaluate, traceparent))

    def ended(self, line: Line, failed: FailedCall | None) -> None:
        """A call ended; questions that may be repeated wait for the next one, the others fail.

        Args:
            line: the call; one that was given up already says nothing.
            failed: how it ended; None when the server took its leave in good order.
        """
        with self._lock:
            if line is not self._line:
                return
            if failed is None:
                self._fault("the server ended the stream without an answer")
                return
            self._hang_up()
            error = error_of(failed)
            error.__cause__ = cast("grpc.RpcError", failed)
            if failed.code() in AWAY:
                self._again_after(error)
                return
            # INTERNAL without a word from the server is gRPC's own: a question was being sent when
            # the call ended, or the connection broke. It may be its fault, too.
            broken = failed.code() is grpc.StatusCode.INTERNAL and not failed.trailing_metadata()
            most = _most_bytes(failed)
            failing: dict[int, Question] = {}
            for number, question in list(self._unanswered.items()):
                question.broken += broken
                once = broken and question.broken == 1
                small = most is not None and question.request.ByteSize() <= most
                if not (self._lasts and (once or small)):
                    failing[number] = self._unanswered.pop(number)
            self._fail(failing, error)
            if most is not None and not failing:
                # It was none of the questions: an answer is larger than this client takes.
                self._fail_all(error)

    def broke(self, line: Line) -> None:
        """A call was cancelled on this side."""
        with self._lock:
            if line is self._line:
                self._hang_up()
                self._again_after(Unavailable("the stream was cancelled"))

    def forget(self, questions: Iterable[Question]) -> None:
        """Nobody waits for these any more; those behind them are asked anew, not to be held up."""
        with self._lock:
            forgotten = {q.request.id for q in questions} & self._unanswered.keys()
            if not forgotten:
                return
            self._hang_up()
            for number in forgotten:
                del self._unanswered[number]

    def time_out(self, question: Question) -> None:
        """The caller waits no more."""
        with self._lock:
            self.forget((question,))
            question.fail(
                question.lost or DeadlineExceeded(f"no answer within {question.timeout:g} s")
            )

    def close(self, why: str = "the stream is closed: open another one") -> None:
        """End the call; there will be no other, and no answers."""
        with self._lock:
            if self._closed is not None:
                return
            self._closed = why
            self._hang_up()
            self._fail_all(Closed(why))
            self.on_close()

    @staticmethod
    def _send(line: Line, question: Question) -> None:
        line.send(question.request)

    def _again_after(self, error: TopospreadClientError) -> None:
        """A server went away: at first ask another one at once, then less and less often."""
        if not self._lasts:
            self._fail_all(error)
            return
        pause = 0.0
        if self._repeats is None:
            self._repeats = Repeats(
                math.inf, math.inf
            )  # for the pauses; questions end by their own
        else:
            pause = self._repeats.pause_after(error) or 0.0
        now = time.monotonic()
        failing: dict[int, Question] = {}
        for number, question in list(self._unanswered.items()):
            if question.lost is None:
                question.until = now + self._lasts
            question.lost = error
            if now + pause >= question.until:
                failing[number] = self._unanswered.pop(number)
        self._pause = pause
        self._fail(failing, error)

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.send(None)
            line.call.cancel()

    def _fault(self, text: str) -> None:
        self._hang_up()
        self._fail_all(ServerFault(text, traceparent=self._traceparent))

    def _fail_all(self, error: TopospreadClientError) -> None:
        questions, self._unanswered = self._unanswered, {}
        self._fail(questions, error)

    @staticmethod
    def _fail(questions: dict[int, Question], error: TopospreadClientError) -> None:
        for question in questions.values():
            # Each is raised by itself, maybe in several threads at once.
            own = copy(error)
            own.__cause__ = error.__cause__
            question.fail(own)


def _most_bytes(failed: FailedCall) -> int | None:
    """Of a question, where that is why gRPC itself ended the stream: those within were not why."""
    if failed.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED or failed.trailing_metadata():
        return None
    found = _TOO_LARGE.search(failed.details() or "")
    return None if found is None else int(found[1])
