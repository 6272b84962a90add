"""EvaluateStream for callers that wait for their answers."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, cast

import grpc

from topospread_client import engine

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from topospread_client.answers import Evaluation
    from topospread_client.conversation import Conversation, Outcome, Question
    from topospread_client.operations import Operation, Session
    from topospread_client.requests import PodLike
    from topospread_client.status import FailedCall

_P = ParamSpec("_P")


def _answered(
    operation: Callable[Concatenate[Session, _P], Operation[Evaluation]],
) -> Callable[Concatenate[EvaluateStream, _P], Evaluation]:
    """A method that asks and waits for the answer."""

    @wraps(operation)
    def method(self: EvaluateStream, /, *args: _P.args, **kwargs: _P.kwargs) -> Evaluation:
        return self.answer(operation(self.session, *args, **kwargs))

    return method


def _answered_all(
    operation: Callable[Concatenate[Session, PodLike, _P], Operation[Evaluation]],
) -> Callable[Concatenate[EvaluateStream, Iterable[PodLike], _P], Iterator[Outcome]]:
    """A method that asks about each of many pods."""

    def method(
        self: EvaluateStream, pods: Iterable[PodLike], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Iterator[Outcome]:
        """Ask about many pods, several at a time, and give the outcomes in the pods' order.

        Each pod is judged on its own at the newest state at its turn: none sees the others placed.
        Pods are taken as far ahead as the stream's window; leaving the iteration early forgets
        those under way. What `evaluate` takes beside a pod is for all of them; `timeout` is how
        long to wait for one answer after the other.

        Yields:
            For each pod its evaluation, or what `evaluate` would have raised.
        """
        return self.answers(operation(self.session, pod, *args, **kwargs) for pod in pods)

    return method


class EvaluateStream:
    """Evaluate over one long-lived call, which spares each question the making of one.

    ::

        with client.evaluate_stream() as stream:
            evaluation = stream.evaluate(pod, top_k=1)
            for outcome in stream.evaluate_all(pods):
                ...

    A question that fails ends nothing but itself. When the server goes away, the next one is asked,
    and questions that had no answer are repeated there once. The answers' `traceparent` is the one
    that the stream was opened under.

    Threads may share a stream, but answers come in the order of the questions: a thread of its own
    for each is quicker. The server holds a thread for each stream, too.

    Attributes:
        session: of the client.
    """

    def __init__(self, session: Session, conversation: Conversation, window: int) -> None:
        self.session = session
        self._conversation = conversation
        self._window = window
        self._reading = threading.Lock()
        self._alarm = _Alarm()

    evaluate = _answered(engine.evaluate)
    evaluate_all = _answered_all(engine.evaluate)

    def close(self) -> None:
        """End the stream; there are no answers to questions under way."""
        self._conversation.close()
        self._alarm.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def answer(self, operation: Operation[Evaluation]) -> Evaluation:
        """Ask one question and wait for the answer."""
        question = self._conversation.ask(operation)
        self._wait(question)
        return question.result()

    def answers(self, operations: Iterable[Operation[Evaluation]]) -> Iterator[Outcome]:
        """Ask several questions, as many at once as the window is wide."""
        asked: deque[Question] = deque()
        try:
            for operation in operations:
                asked.append(self._conversation.try_to_ask(operation))
                if len(asked) == self._window:
                    yield self._outcome(asked)
            while asked:
                yield self._outcome(asked)
        finally:
            self._conversation.forget(asked)

    def _outcome(self, asked: deque[Question]) -> Outcome:
        self._wait(asked[0])
        outcome = asked.popleft().outcome
        assert outcome is not None, "that is what was waited for"
        return outcome

    def _wait(self, question: Question) -> None:
        """Wait for the outcome, first until no other thread reads."""
        due = time.monotonic() + question.timeout
        if not self._reading.acquire(timeout=min(question.timeout, threading.TIMEOUT_MAX)):
            question.time_out()
            return
        try:
            while question.outcome is None:
                self._read(question, due)
        except BaseException:
            self._conversation.forget((question,))
            raise
        finally:
            self._reading.release()

    def _read(self, question: Question, due: float) -> None:
        """Wait for one message, whosever answer it is."""
        conversation = self._conversation
        line = conversation.line()
        self._alarm.set(due, line.call.cancel)
        try:
            message = next(line.call)
        except StopIteration:
            conversation.ended(line, None)
        except grpc.RpcError as failed:
            if time.monotonic() >= due:
                conversation.forget((question,))
                question.time_out()
            else:
                conversation.ended(line, cast("FailedCall", failed))
        else:
            conversation.answered(message)
        finally:
            self._alarm.off()


class _Alarm:
    """Cancels a read that takes too long; gRPC has deadlines for whole calls only.

    Its thread sleeps until the first time that was set, whatever has been set since, so that it is
    woken once in a time-out and not for each question.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due = math.inf
        self._wakes = math.inf
        self._ring: Callable[[], object] | None = None
        self._ended = False
        self._thread: threading.Thread | None = None

    def set(self, due: float, ring: Callable[[], object]) -> None:
        """Ring at a time on the monotonic clock, unless it is turned off before."""
        with self._changed:
            self._due, self._ring = due, ring
            if self._thread is None and not self._ended:
                self._thread = threading.Thread(target=self._mind, name="alarm", daemon=True)
                self._thread.start()
            elif due < self._wakes:
                self._changed.notify()

    def off(self) -> None:
        """Nobody reads any more."""
        with self._changed:
            self._due, self._ring = math.inf, None

    def end(self) -> None:
        """Let the thread go."""
        with self._changed:
            self._ended = True
            self._changed.notify()

    def _mind(self) -> None:
        with self._changed:
            while not self._ended:
                left = self._due - time.monotonic()
                if left > 0:
                    self._wakes = self._due
                    self._changed.wait(min(left, threading.TIMEOUT_MAX))
                    continue
                ring, self._due = self._ring, math.inf
                if ring is not None:
                    ring()
