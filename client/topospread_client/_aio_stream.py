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
from topospread_client._arguments import several
from topospread_client._operations import lazy_method
from topospread_client._retries import to_grpc

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
    from types import TracebackType

    from topospread_client._answers import EvaluatePodResponse
    from topospread_client._operations import ClientSession, Operation
    from topospread_client._requests import PodSource
    from topospread_client._status import GrpcFailure
    from topospread_client._stream_session import (
        Outcome,
        PendingEvaluation,
        StreamCall,
        StreamSession,
    )

_P = ParamSpec("_P")


@lazy_method("{}")
def _evaluating(
    operation: Callable[Concatenate[ClientSession, _P], Operation[EvaluatePodResponse]],
) -> Callable[Concatenate[AsyncEvaluateStream, _P], Awaitable[EvaluatePodResponse]]:
    """Method that evaluates a pod."""

    @wraps(operation)
    async def method(
        self: AsyncEvaluateStream, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> EvaluatePodResponse:
        return await self._evaluate(operation(self._session, *args, **kwargs))

    return method


@lazy_method("AsyncGenerator[Outcome, None]", about="pods: Iterable[PodSource]")
def _evaluating_all(
    operation: Callable[Concatenate[ClientSession, PodSource, _P], Operation[EvaluatePodResponse]],
) -> Callable[
    Concatenate[AsyncEvaluateStream, Iterable[PodSource], _P], AsyncGenerator[Outcome, None]
]:
    """Method that evaluates many pods."""

    def method(
        self: AsyncEvaluateStream, pods: Iterable[PodSource], /, *args: _P.args, **kwargs: _P.kwargs
    ) -> AsyncGenerator[Outcome, None]:
        """Evaluate many pods, several at a time, and yield the outcomes in the pods' order.

        Each pod is judged on its own at the newest state at its turn: none sees the others placed.
        Pods are read as far ahead as the stream's window; leaving the iteration early drops those
        under way. The other arguments of `evaluate_pod` hold for all pods; `timeout` is the time to
        wait for each response.

        Yields:
            For each pod its evaluation, or the error that `evaluate_pod` would have raised.
        """
        return self._evaluate_all(
            operation(self._session, pod, *args, **kwargs) for pod in several(pods, "pods")
        )

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
        session: ClientSession,
        stream_session: StreamSession,
        window: int,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._session = session
        self._stream_session = stream_session
        self._window = window
        self._loop = loop
        self._reader: asyncio.Task[None] | None = None
        self._closed = asyncio.Event()
        stream_session.on_close = self._closed.set

    def __del__(self) -> None:
        # Its reader would wait for ever. This may be another thread, or after the loop's end.
        if hasattr(self, "_closed") and not self._closed.is_set():
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._stream_session.close)

    evaluate_pod = _evaluating(decisions.evaluate_pod)
    evaluate_pods = _evaluating_all(decisions.evaluate_pod)

    async def close(self) -> None:
        """End the stream; evaluations under way fail."""
        self._stream_session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def _evaluate(self, operation: Operation[EvaluatePodResponse]) -> EvaluatePodResponse:
        """Run one evaluation and wait for its response."""
        done = asyncio.Event()
        evaluation = self._stream_session.start(operation, done.set)
        self._ensure_reader()
        await self._wait(evaluation, done)
        return evaluation.result()

    async def _evaluate_all(
        self, operations: Iterable[Operation[EvaluatePodResponse]]
    ) -> AsyncGenerator[Outcome, None]:
        """Run several evaluations, as many at once as the window is wide."""
        pending: deque[tuple[PendingEvaluation, asyncio.Event]] = deque()
        try:
            for operation in operations:
                done = asyncio.Event()
                pending.append((self._stream_session.try_start(operation, done.set), done))
                self._ensure_reader()
                if len(pending) == self._window:
                    yield await self._outcome(pending)
            while pending:
                yield await self._outcome(pending)
        finally:
            self._stream_session.discard(evaluation for evaluation, _ in pending)

    async def _outcome(self, pending: deque[tuple[PendingEvaluation, asyncio.Event]]) -> Outcome:
        await self._wait(*pending[0])
        outcome = pending.popleft()[0].outcome
        assert outcome is not None, "the evaluation is done"
        return outcome

    async def _wait(self, evaluation: PendingEvaluation, done: asyncio.Event) -> None:
        if evaluation.outcome is not None:
            return
        try:
            async with asyncio.timeout(to_grpc(evaluation.timeout)):
                await done.wait()
        except TimeoutError:
            self._stream_session.time_out(evaluation)
        except BaseException:
            self._stream_session.discard((evaluation,))
            raise

    def _ensure_reader(self) -> None:
        """Start a task that reads, unless one does."""
        started = self._reader is not None and not self._reader.done()
        if self._stream_session.needs_reader() and not started:
            self._reader = reader = self._loop.create_task(
                _read(self._stream_session, self._closed)
            )
            _READERS.add(reader)
            reader.add_done_callback(_READERS.discard)


_READERS: Final[set[asyncio.Task[None]]] = set()
"""Readers that run: the event loop itself holds no reference to its tasks."""


async def _read(stream_session: StreamSession, closed: asyncio.Event) -> None:
    """Read responses until nothing is pending."""
    if not stream_session.claim_reader():
        return
    try:
        while (call := stream_session.next_call()) is not None:
            if isinstance(call, float):
                with suppress(TimeoutError):
                    async with asyncio.timeout(call):
                        await closed.wait()
            else:
                await _read_call(stream_session, call)
    except asyncio.CancelledError:
        stream_session.close("the event loop ends")
        raise
    except BaseException as error:
        # Without a reader, evaluations would wait in vain.
        stream_session.close(f"the stream cannot be read any more: {error!r}: open another one")
        raise


async def _read_call(stream_session: StreamSession, call: StreamCall) -> None:
    try:
        while (message := await call.rpc.read()) is not grpc.aio.EOF:
            stream_session.on_response(call, message)
    except grpc.aio.AioRpcError as failed:
        stream_session.on_end(call, cast("GrpcFailure", failed))
    except asyncio.CancelledError:
        # gRPC raises it, too, when the call was cancelled.
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        stream_session.on_cancel(call)
    else:
        stream_session.on_end(call, None)
