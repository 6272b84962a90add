"""Questions over one stream: what the blocking and the awaited stream have in common.

A question is an operation of :mod:`topospread_client.engine`, carried by EvaluateStream instead of
a call of its own, so that both build the same request and read the same answer. Nothing here waits:
:mod:`topospread_client.stream` and :mod:`topospread_client.aio_stream` read the call and tell.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import grpc

from topospread_client.answers import Evaluation
from topospread_client.errors import (
    DeadlineExceeded,
    InvalidRequest,
    ServerFault,
    TopospreadClientError,
)
from topospread_client.manifests import ManifestError
from topospread_client.operations import Operation, Reply
from topospread_client.status import FailedCall, error_in_answer, error_of
from topospread_client.tracing import traceparent_in
from topospread_proto.v1 import spread_engine_pb2 as engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topospread_client.tracing import Metadata

DEFAULT_WINDOW: Final = 16
"""Questions under way at once: while one is answered, the next are on their way."""

MOST_TRIES: Final = 2
"""Streams that a question is sent on, if the first ends because its server goes away."""

GOING_AWAY: Final = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)
"""How a server that goes away ends its streams: an idle one is cancelled."""

Outcome: TypeAlias = Evaluation | TopospreadClientError | ManifestError
"""What became of one question: its answer, or what a call about it would have raised."""


@dataclass(slots=True, eq=False)
class Question:
    """A question, and its outcome once there is one.

    Attributes:
        operation: waits for the reply; None when there was nothing to ask.
        request: numbered, so that its answer is known.
        timeout: seconds.
        tries: streams that it was sent on.
    """

    operation: Operation[Evaluation] | None
    request: engine.EvaluateStreamRequest
    timeout: float
    tries: int = 0
    outcome: Outcome | None = None

    def reply(self, reply: Reply[engine.EvaluateResponse]) -> None:
        """Take the answer, if it is not too late."""
        if self.outcome is None and self.operation is not None:
            try:
                self.operation.send(reply)
            except StopIteration as done:
                self.outcome = done.value

    def fail(self, error: TopospreadClientError) -> None:
        """Take the failure, if it is not too late."""
        if self.outcome is None and self.operation is not None:
            try:
                self.operation.throw(error)
            except TopospreadClientError as raised:
                self.outcome = raised

    def time_out(self) -> None:
        """Wait no more."""
        self.fail(DeadlineExceeded(f"no answer within {self.timeout:g} s"))

    def result(self) -> Evaluation:
        """The evaluation.

        Raises:
            TopospreadClientError, ManifestError: what became of it instead.
        """
        if isinstance(self.outcome, Evaluation):
            return self.outcome
        assert self.outcome is not None, "asked before the answer was there"
        raise self.outcome


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """An open call, and what puts a question on its way; None ends the questions."""

    call: Any
    send: Callable[[engine.EvaluateStreamRequest | None], None]


class Conversation:
    """The questions of one stream that have no answer yet, over one call after the other.

    Threads may ask at any time; one of them at a time reads answers, whosever they are.

    Args:
        open_line: makes a call.
        timeout: seconds for a question that names none.
        retries: whether questions are repeated when the server goes away.
        metadata: of the calls; its trace context is the answers'.
    """

    def __init__(
        self,
        open_line: Callable[[], Line],
        *,
        timeout: float,
        retries: bool,
        metadata: Metadata,
    ) -> None:
        self._open_line = open_line
        self._timeout = timeout
        self._retries = retries
        self._traceparent = traceparent_in(metadata)
        self._lock = threading.RLock()
        self._numbers = count(1)
        self._unanswered: dict[int, Question] = {}
        self._line: Line | None = None
        self._closed = False

    def ask(self, operation: Operation[Evaluation]) -> Question:
        """Put a question on its way.

        Raises:
            InvalidRequest, ManifestError: what was given is no question.
            ValueError: the stream is closed.
        """
        asked = next(operation)
        if asked.traceparent is not None:
            operation.close()
            raise InvalidRequest("traceparent: a stream has one: give it to evaluate_stream()")
        assert isinstance(asked.request, engine.EvaluateRequest), "an evaluation asks nothing else"
        number = next(self._numbers)
        request = engine.EvaluateStreamRequest(id=number, request=asked.request)
        question = Question(operation, request, asked.timeout or self._timeout)
        with self._lock:
            self._check_open()
            if self._line is not None and not self._unanswered and self._line.call.done():
                self._hang_up()  # it ended while nobody asked anything
            self._unanswered[number] = question
            if self._line is not None:
                self._send(self._line, question)
            self.line()
        return question

    def try_to_ask(self, operation: Operation[Evaluation]) -> Question:
        """The same; what is no question has its error for an outcome."""
        try:
            return self.ask(operation)
        except (InvalidRequest, ManifestError) as error:
            return Question(None, engine.EvaluateStreamRequest(), 0.0, outcome=error)

    def line(self) -> Line:
        """The call to read answers from; a new one gets all questions that wait.

        Raises:
            ValueError: the stream is closed.
        """
        with self._lock:
            self._check_open()
            if self._line is None:
                self._line = self._open_line()
                # Nobody waits any more for those that have timed out.
                waiting = {n: q for n, q in self._unanswered.items() if q.outcome is None}
                self._unanswered = waiting
                for question in waiting.values():
                    self._send(self._line, question)
            return self._line

    def answered(self, message: engine.EvaluateStreamResponse) -> None:
        """An answer came."""
        with self._lock:
            question = self._unanswered.pop(message.id, None)
            if question is None:
                self._fail_all("the server answered a question that was not asked")
            elif message.WhichOneof("result") == "error":
                error = error_in_answer(message.error)
                error.traceparent = self._traceparent
                question.fail(error)
            else:
                question.reply(Reply(message.response, self._traceparent))

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
                self._fail_all("the server ended the stream without an answer")
                return
            self._hang_up()
            again = self._retries and _broke_off(failed)
            for number, question in list(self._unanswered.items()):
                if question.tries and not (again and question.tries < MOST_TRIES):
                    del self._unanswered[number]
                    question.fail(_error_of(failed))

    def forget(self, questions: Iterable[Question]) -> None:
        """Nobody waits for these any more; those behind them are asked anew, not to be held up."""
        with self._lock:
            forgotten = {q.request.id for q in questions} & self._unanswered.keys()
            if not forgotten:
                return
            self._hang_up()
            for number in forgotten:
                del self._unanswered[number]
            for question in self._unanswered.values():
                question.tries = 0

    def close(self) -> None:
        """End the call; there will be no other."""
        with self._lock:
            self._closed = True
            self._hang_up()

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("the stream is closed: open another one with evaluate_stream()")

    @staticmethod
    def _send(line: Line, question: Question) -> None:
        question.tries += 1
        line.send(question.request)

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.send(None)
            line.call.cancel()

    def _fail_all(self, text: str) -> None:
        self._hang_up()
        questions, self._unanswered = self._unanswered, {}
        for question in questions.values():
            question.fail(ServerFault(text, traceparent=self._traceparent))


def _broke_off(failed: FailedCall) -> bool:
    """Whether a call ended for no reason of its own.

    INTERNAL without a word from the server is gRPC's own: a question was being sent when the call
    ended, or the connection broke.
    """
    code = failed.code()
    silent = code is grpc.StatusCode.INTERNAL and not failed.trailing_metadata()
    return silent or code in GOING_AWAY


def _error_of(failed: FailedCall) -> TopospreadClientError:
    error = error_of(failed)
    error.__cause__ = cast("grpc.RpcError", failed)
    return error
