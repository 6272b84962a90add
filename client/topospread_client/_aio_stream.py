"""StreamEvaluatePods for asyncio."""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, Self, cast

import grpc
import grpc.aio

from topospread_client import _decisions as decisions
from topospread_client._later import at_first_use
from topospread_client._repeats import to_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
    from types import TracebackType

    from topospread_client._answers import EvaluatePodResponse
    from topospread_client._conversation import Conversation, Line, Outcome, Question
    from topospread_client._operations import Operation, Session
    from topospread_client._requests import PodSource
    from topospread_client._status import FailedCall

_P = ParamSpec("_P")


@at_first_use("{}")
def _answered(
    operation: Callable[Concatenate[Session, _P], Operation[EvaluatePodResponse]],
) -> Callable[Concatenate[AsyncEvaluateStream, _P], Awaitable[EvaluatePodResponse]]:
    """A method that asks and waits for the answer."""

    @wraps(operation)
    async def method(
        self: AsyncEvaluateStream, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> EvaluatePodResponse:
        return await self._answer(operation(self._session, *args, **kwargs))

    return method


@at_first_use("AsyncGenerator[Outcome, None]", about="pods: Iterable[PodSource]")
def _answered_all(
    operation: Callable[Concatenate[Session, PodSource, _P], Operation[EvaluatePodResponse]],
) -> Callable[
    Concatenate[AsyncEvaluateStream, Iterable[PodSource], _P], AsyncGenerator[Outcome, None]
]:
    """A method that asks about each of many pods."""

    def method(
        self: AsyncEvaluateStream, pods: Iterable[PodSource], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> AsyncGenerator[Outcome, None]:
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


class AsyncEvaluateStream:
    """Evaluate pods over one long-lived call; see :class:`EvaluateStream`.

    ::

        async with client.stream_evaluate_pods() as stream:
            evaluation = await stream.evaluate_pod(pod, top_k=1)
            async for outcome in stream.evaluate_pods(pods):
                ...

    Tasks may share a stream.
    """

    def __init__(
        self,
        session: Session,
        conversation: Conversation,
        window: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._session = session
        self._conversation = conversation
        self._window = window
        self._loop = loop
        self._reader: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        conversation.on_close = self._closed.set

    def __del__(self) -> None:
        # Its reader would wait for ever. This may be another thread, or after the loop's end.
        if hasattr(self, "_closed") and not self._closed.is_set():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._conversation.close)

    evaluate_pod = _answered(decisions.evaluate_pod)
    evaluate_pods = _answered_all(decisions.evaluate_pod)

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

    async def _answer(self, operation: Operation[EvaluatePodResponse]) -> EvaluatePodResponse:
        """Ask one question and wait for the answer."""
        told = asyncio.Event()
        question = self._conversation.ask(operation, told.set)
        self._see_to_reading()
        await self._wait(question, told)
        return question.result()

    async def _answers(
        self, operations: Iterable[Operation[EvaluatePodResponse]]
    ) -> AsyncGenerator[Outcome, None]:
        """Ask several questions, as many at once as the window is wide."""
        asked: deque[tuple[Question, asyncio.Event]] = deque()
        try:
            for operation in operations:
                told = asyncio.Event()
                asked.append((self._conversation.try_to_ask(operation, told.set), told))
                self._see_to_reading()
                if len(asked) == self._window:
                    yield await self._outcome(asked)
            while asked:
                yield await self._outcome(asked)
        finally:
            self._conversation.forget(question for question, _ in asked)

    async def _outcome(self, asked: deque[tuple[Question, asyncio.Event]]) -> Outcome:
        await self._wait(*asked[0])
        outcome = asked.popleft()[0].outcome
        assert outcome is not None, "that is what was waited for"
        return outcome

    async def _wait(self, question: Question, told: asyncio.Event) -> None:
        if question.outcome is not None:
            return
        try:
            async with asyncio.timeout(to_grpc(question.timeout)):
                await told.wait()
        except TimeoutError:
            self._conversation.time_out(question)
        except BaseException:
            self._conversation.forget((question,))
            raise

    def _see_to_reading(self) -> None:
        """Have a task read, if none does."""
        started = self._reader is not None and not self._reader.done()
        if self._conversation.wants_reader() and not started:
            self._reader = reader = self._loop.create_task(_read(self._conversation, self._closed))
            _READERS.add(reader)
            reader.add_done_callback(_READERS.discard)


_READERS: Final[set[asyncio.Task[None]]] = set()
"""The loop itself keeps none."""


async def _read(conversation: Conversation, closed: asyncio.Event) -> None:
    """Take in what the server says until there is nothing to wait for."""
    if not conversation.begin_to_read():
        return
    try:
        while (line := conversation.next_line()) is not None:
            if isinstance(line, float):
                with suppress(TimeoutError):
                    async with asyncio.timeout(line):
                        await closed.wait()
            else:
                await _read_line(conversation, line)
    except asyncio.CancelledError:
        conversation.close("the event loop ends")
        raise
    except BaseException as error:
        # Nobody would read any more, and questions would wait for nothing.
        conversation.close(f"the stream cannot be read any more: {error!r}: open another one")
        raise


async def _read_line(conversation: Conversation, line: Line) -> None:
    try:
        while (message := await line.call.read()) is not grpc.aio.EOF:
            conversation.answered(line, message)
    except grpc.aio.AioRpcError as failed:
        conversation.ended(line, cast("FailedCall", failed))
    except asyncio.CancelledError:
        # gRPC raises it, too, when the call has been given up.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        conversation.broke(line)
    else:
        conversation.ended(line, None)
