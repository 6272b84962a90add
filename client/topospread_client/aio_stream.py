"""EvaluateStream for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec, Self, cast

import grpc
import grpc.aio

from topospread_client import engine

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
    from types import TracebackType

    from topospread_client.answers import Evaluation
    from topospread_client.conversation import Conversation, Outcome, Question
    from topospread_client.operations import Operation, Session
    from topospread_client.requests import PodLike
    from topospread_client.status import FailedCall

_P = ParamSpec("_P")


def _answered(
    operation: Callable[Concatenate[Session, _P], Operation[Evaluation]],
) -> Callable[Concatenate[AsyncEvaluateStream, _P], Awaitable[Evaluation]]:
    """A method that asks and waits for the answer."""

    @wraps(operation)
    async def method(
        self: AsyncEvaluateStream, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> Evaluation:
        return await self.answer(operation(self.session, *args, **kwargs))

    return method


def _answered_all(
    operation: Callable[Concatenate[Session, PodLike, _P], Operation[Evaluation]],
) -> Callable[
    Concatenate[AsyncEvaluateStream, Iterable[PodLike], _P], AsyncGenerator[Outcome, None]
]:
    """A method that asks about each of many pods."""

    def method(
        self: AsyncEvaluateStream, pods: Iterable[PodLike], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> AsyncGenerator[Outcome, None]:
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


class AsyncEvaluateStream:
    """Evaluate over one long-lived call; see :class:`~topospread_client.stream.EvaluateStream`.

    ::

        async with client.evaluate_stream() as stream:
            evaluation = await stream.evaluate(pod, top_k=1)
            async for outcome in stream.evaluate_all(pods):
                ...

    Tasks may share a stream; answers come in the order of the questions.

    Attributes:
        session: of the client.
    """

    def __init__(self, session: Session, conversation: Conversation, window: int) -> None:
        self.session = session
        self._conversation = conversation
        self._window = window
        self._reading = asyncio.Lock()

    evaluate = _answered(engine.evaluate)
    evaluate_all = _answered_all(engine.evaluate)

    async def close(self) -> None:
        """End the stream; there are no answers to questions under way."""
        self._conversation.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def answer(self, operation: Operation[Evaluation]) -> Evaluation:
        """Ask one question and wait for the answer."""
        question = self._conversation.ask(operation)
        await self._wait(question)
        return question.result()

    async def answers(
        self, operations: Iterable[Operation[Evaluation]]
    ) -> AsyncGenerator[Outcome, None]:
        """Ask several questions, as many at once as the window is wide."""
        asked: deque[Question] = deque()
        try:
            for operation in operations:
                asked.append(self._conversation.try_to_ask(operation))
                if len(asked) == self._window:
                    yield await self._outcome(asked)
            while asked:
                yield await self._outcome(asked)
        finally:
            self._conversation.forget(asked)

    async def _outcome(self, asked: deque[Question]) -> Outcome:
        await self._wait(asked[0])
        outcome = asked.popleft().outcome
        assert outcome is not None, "that is what was waited for"
        return outcome

    async def _wait(self, question: Question) -> None:
        """Wait for the outcome, first until no other task reads."""
        try:
            async with asyncio.timeout(question.timeout), self._reading:
                while question.outcome is None:
                    await self._read(question)
        except TimeoutError:
            question.time_out()

    async def _read(self, question: Question) -> None:
        """Wait for one message, whosever answer it is."""
        conversation = self._conversation
        line = conversation.line()
        try:
            message = await line.call.read()
        except grpc.aio.AioRpcError as failed:
            conversation.ended(line, cast("FailedCall", failed))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                conversation.forget((question,))
                raise
            # gRPC says so, too, when somebody else has given the call up.
        else:
            if message is grpc.aio.EOF:
                conversation.ended(line, None)
            else:
                conversation.answered(message)
