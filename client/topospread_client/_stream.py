"""StreamEvaluatePods for callers that wait for their answers."""

from __future__ import annotations

import threading
from collections import deque
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, cast

import grpc

from topospread_client import _decisions as decisions
from topospread_client._later import at_first_use

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from types import TracebackType

    from topospread_client._answers import EvaluatePodResponse
    from topospread_client._conversation import Conversation, Outcome, Question
    from topospread_client._operations import Operation, Session
    from topospread_client._requests import PodSource
    from topospread_client._status import FailedCall

_P = ParamSpec("_P")


@at_first_use("{}")
def _answered(
    operation: Callable[Concatenate[Session, _P], Operation[EvaluatePodResponse]],
) -> Callable[Concatenate[EvaluateStream, _P], EvaluatePodResponse]:
    """A method that asks and waits for the answer."""

    @wraps(operation)
    def method(self: EvaluateStream, /, *args: _P.args, **kwargs: _P.kwargs) -> EvaluatePodResponse:
        return self._answer(operation(self._session, *args, **kwargs))

    return method


@at_first_use("Iterator[Outcome]", about="pods: Iterable[PodSource]")
def _answered_all(
    operation: Callable[Concatenate[Session, PodSource, _P], Operation[EvaluatePodResponse]],
) -> Callable[Concatenate[EvaluateStream, Iterable[PodSource], _P], Iterator[Outcome]]:
    """A method that asks about each of many pods."""

    def method(
        self: EvaluateStream, pods: Iterable[PodSource], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Iterator[Outcome]:
        """Ask about many pods, several at a time, and give the outcomes in the pods' order.

        Each pod is judged on its own at the newest state at its turn: none sees the others placed.
        Pods are taken as far ahead as the stream's window; leaving the iteration early forgets
        those under way. What `evaluate_pod` takes beside a pod is for all of them; `timeout` is how
        long to wait for one answer after the other.

        Yields:
            For each pod its evaluation, or what `evaluate_pod` would have raised.
        """
        return self._answers(operation(self._session, pod, *args, **kwargs) for pod in pods)

    return method


class EvaluateStream:
    """Evaluate pods over one long-lived call, which spares each question the making of one.

    ::

        with client.stream_evaluate_pods() as stream:
            evaluation = stream.evaluate_pod(pod, top_k=1)
            for outcome in stream.evaluate_pods(pods):
                ...

    A question that fails ends nothing but itself. When the server goes away, the next one is asked,
    and questions that had no answer are repeated there for as long as `evaluate_pod` is. Each
    question has a trace of its own, which its answer names.

    Threads may share a stream, though one for each thread is quicker. The server holds a thread for
    each stream, too.
    """

    def __init__(self, session: Session, conversation: Conversation, window: int) -> None:
        self._session = session
        self._conversation = conversation
        self._window = window
        self._closed = threading.Event()
        conversation.on_close = self._closed.set

    def __del__(self) -> None:
        # Its reader would wait for ever.
        if hasattr(self, "_conversation"):
            self._conversation.close()

    evaluate_pod = _answered(decisions.evaluate_pod)
    evaluate_pods = _answered_all(decisions.evaluate_pod)

    def close(self) -> None:
        """End the stream; there are no answers to questions under way."""
        self._conversation.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _answer(self, operation: Operation[EvaluatePodResponse]) -> EvaluatePodResponse:
        """Ask one question and wait for the answer."""
        told = _unset()
        question = self._conversation.ask(operation, told.release)
        self._see_to_reading()
        self._wait(question, told)
        return question.result()

    def _answers(self, operations: Iterable[Operation[EvaluatePodResponse]]) -> Iterator[Outcome]:
        """Ask several questions, as many at once as the window is wide."""
        asked: deque[tuple[Question, threading.Lock]] = deque()
        try:
            for operation in operations:
                told = _unset()
                asked.append((self._conversation.try_to_ask(operation, told.release), told))
                self._see_to_reading()
                if len(asked) == self._window:
                    yield self._outcome(asked)
            while asked:
                yield self._outcome(asked)
        finally:
            self._conversation.forget(question for question, _ in asked)

    def _outcome(self, asked: deque[tuple[Question, threading.Lock]]) -> Outcome:
        self._wait(*asked[0])
        outcome = asked.popleft()[0].outcome
        assert outcome is not None, "that is what was waited for"
        return outcome

    def _wait(self, question: Question, told: threading.Lock) -> None:
        """Wait for the outcome on a plain lock, which an interrupt leaves in order."""
        try:
            longest = min(question.timeout, threading.TIMEOUT_MAX)
            if question.outcome is None and not told.acquire(timeout=longest):
                self._conversation.time_out(question)
        except BaseException:
            self._conversation.forget((question,))
            raise

    def _see_to_reading(self) -> None:
        """Have a thread read, if none does.

        It is not the caller's: a KeyboardInterrupt within gRPC's code would leave gRPC's locks
        held, and whoever comes next, the end of the process included, would wait for ever.
        """
        if self._conversation.wants_reader():
            arguments = (self._conversation, self._closed)
            try:
                threading.Thread(target=_read, args=arguments, name="reader", daemon=True).start()
            except RuntimeError as error:
                # The interpreter ends, or the process has all the threads that it may have.
                self._conversation.close(f"there is no thread to read the answers: {error}")


def _unset() -> threading.Lock:
    told = threading.Lock()
    told.acquire()
    return told


def _read(conversation: Conversation, closed: threading.Event) -> None:
    """Take in what the server says until there is nothing to wait for."""
    if not conversation.begin_to_read():
        return
    try:
        _read_lines(conversation, closed)
    except BaseException as error:
        # Nobody would read any more, and questions would wait for nothing.
        conversation.close(f"the stream cannot be read any more: {error!r}: open another one")
        raise


def _read_lines(conversation: Conversation, closed: threading.Event) -> None:
    while (line := conversation.next_line()) is not None:
        if isinstance(line, float):
            closed.wait(line)
            continue
        try:
            for message in line.call:
                conversation.answered(line, message)
        except grpc.RpcError as failed:
            conversation.ended(line, cast("FailedCall", failed))
        else:
            conversation.ended(line, None)
