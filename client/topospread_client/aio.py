"""The client for asyncio. It belongs to the event loop in which it was made."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast
from weakref import WeakSet

import grpc
import grpc.aio

from topospread_client import engine, placement, rpcs, state, writing
from topospread_client.aio_stream import AsyncEvaluateStream
from topospread_client.channels import CLOSED
from topospread_client.connection import (
    DEFAULT_BULK_TIMEOUT,
    DEFAULT_TIMEOUT,
    Connection,
)
from topospread_client.conversation import DEFAULT_WINDOW, Conversation, Line
from topospread_client.errors import (
    Closed,
    InvalidRequest,
    TopospreadClientError,
    Unavailable,
)
from topospread_client.later import Operations, at_first_use
from topospread_client.operations import Ask, Operation, Pages, Reply, Session, Subscription, resume
from topospread_client.repeats import Repeats, seconds
from topospread_client.status import CANCELLED, FailedCall, error_of
from topospread_client.tracing import outgoing, traceparent_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from topospread_client import explaining, feed, ranking, rebalancing, simulating
    from topospread_proto.v1.cluster_state_pb2 import Object
    from topospread_proto.v1.spread_engine_pb2 import EvaluateStreamRequest

else:
    explaining = Operations("topospread_client.explaining")
    feed = Operations("topospread_client.feed")
    ranking = Operations("topospread_client.ranking")
    rebalancing = Operations("topospread_client.rebalancing")
    simulating = Operations("topospread_client.simulating")

_P = ParamSpec("_P")
_T = TypeVar("_T")


@at_first_use
def _awaited(
    operation: Callable[Concatenate[Session, _P], Operation[_T]],
) -> Callable[Concatenate[AsyncClient, _P], Awaitable[_T]]:
    """A method that runs the operation to its end."""

    @wraps(operation)
    async def method(self: AsyncClient, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self.run(operation(self.session, *args, **kwargs))

    return method


def _paged(
    pages: Callable[Concatenate[Session, _P], Pages],
) -> Callable[Concatenate[AsyncClient, _P], AsyncIterator[Object]]:
    """A method that iterates over the objects of all pages."""

    @wraps(pages)
    async def method(
        self: AsyncClient, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> AsyncIterator[Object]:
        remaining = pages(self.session, *args, **kwargs)
        try:
            page = await self.run(next(remaining))
            while True:
                for found in page.objects:
                    yield found
                page = await self.run(remaining.send(page))
        except StopIteration:
            return

    return method


def _streaming(
    subscription: Callable[Concatenate[Session, _P], Subscription[_T]],
) -> Callable[Concatenate[AsyncClient, _P], AsyncIterator[_T]]:
    """A method that iterates over what the server sends; leaving the iteration ends the call."""

    @wraps(subscription)
    def method(self: AsyncClient, /, *args: _P.args, **kwargs: _P.kwargs) -> AsyncIterator[_T]:
        return self.follow(subscription(self.session, *args, **kwargs))

    return method


class AsyncClient:
    """A connection to a server, with an awaitable method for each of its calls.

    ::

        async with AsyncClient("127.0.0.1:7946") as client:
            evaluation = await client.evaluate(pod)

    Methods raise errors of :mod:`topospread_client.errors` and, for manifests that cannot be read,
    ``ManifestError``.

    Attributes:
        session: the default cluster and the node tables seen.
    """

    def __init__(
        self,
        connection: Connection | str,
        *,
        cluster: str = "default",
        timeout: float = DEFAULT_TIMEOUT,
        bulk_timeout: float = DEFAULT_BULK_TIMEOUT,
    ) -> None:
        """Set a connection up, where an event loop runs; the first call makes it.

        Args:
            connection: options, or the address of a server on this machine.
            cluster: the cluster of calls that name none.
            timeout: seconds for a call that names none.
            bulk_timeout: seconds for a `replace` that names none.

        Raises:
            BadConnection: the options cannot be used.
        """
        if isinstance(connection, str):
            connection = Connection(connection)
        self.session: Final = Session(cluster)
        self._timeout = seconds(timeout, DEFAULT_TIMEOUT)
        self._bulk_timeout = seconds(bulk_timeout, DEFAULT_BULK_TIMEOUT)
        self._lasts = connection.retry_timeout if connection.retries else 0.0
        self._token = connection.shown()
        self._loop = asyncio.get_running_loop()
        self._channels = connection.open_aio()
        self._closing = asyncio.Event()
        self._conversations: WeakSet[Conversation] = WeakSet()

    place = _awaited(placement.place)
    reserve = _awaited(placement.reserve)
    release = _awaited(placement.release)
    simulate = _awaited(simulating.simulate)
    reservations = _awaited(placement.reservations)
    rank_for_deletion = _awaited(ranking.rank_for_deletion)
    plan_rebalance = _awaited(rebalancing.plan_rebalance)
    pre_filter = _awaited(engine.pre_filter)
    filter = _awaited(engine.filter_nodes)
    score = _awaited(engine.score)
    evaluate = _awaited(engine.evaluate)
    batch_evaluate = _awaited(engine.batch_evaluate)
    explain = _awaited(explaining.explain)
    apply = _awaited(writing.apply)
    delete = _awaited(writing.delete)
    replace = _awaited(writing.replace)
    get = _awaited(state.get)
    list = _paged(state.list_objects)
    list_page = _awaited(state.list_page)
    watch = _streaming(state.watch)
    node_table = _awaited(state.node_table)
    clusters = _awaited(state.clusters)
    drop_cluster = _awaited(state.drop_cluster)
    accept_store = _awaited(state.accept_store)
    hold = _awaited(feed.hold)
    leave = _awaited(feed.leave)

    def evaluate_stream(
        self, *, window: int = DEFAULT_WINDOW, traceparent: str | None = None
    ) -> AsyncEvaluateStream:
        """A stream for many evaluations; a context manager. It is opened by the first question.

        Args:
            window: questions under way at once in its `evaluate_all`, at least 1.
            traceparent: parent of the server's span for the stream, and of those for questions that
                have none of their own; None takes the current OpenTelemetry span.
        """
        if window < 1:
            raise ValueError(f"window: {window} questions at once: at least one is needed")
        metadata = outgoing(traceparent)
        channels, token = self._channels, self._token

        def open_line() -> Line:
            shown = (*metadata, *token.metadata())
            questions: asyncio.Queue[EvaluateStreamRequest | None] = asyncio.Queue()
            stubs = channels.newest()
            call = stubs.of(rpcs.EVALUATE_STREAM, "stream_stream")(
                _until_none(questions), metadata=shown
            )
            return Line(call, questions.put_nowait, stubs)

        conversation = Conversation(
            open_line, timeout=self._timeout, lasts=self._lasts, metadata=metadata
        )
        self._conversations.add(conversation)
        if self._channels.closed:
            conversation.close(CLOSED)
        return AsyncEvaluateStream(self.session, conversation, window, self._loop)

    async def close(self) -> None:
        """End the connection, from whichever loop: calls under way fail with `Closed`."""
        # A loop that does not run would never get to it.
        if asyncio.get_running_loop() is self._loop or not self._loop.is_running():
            await self._close()
        else:
            closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
            await asyncio.wrap_future(closing)

    async def _close(self) -> None:
        channels = self._channels.close()
        # Nothing can be woken in a closed loop: to try raises RuntimeError.
        refused = (RuntimeError,) if self._loop.is_closed() else ()
        with suppress(*refused):
            self._closing.set()
        for conversation in list(self._conversations):
            with suppress(*refused):
                conversation.close(CLOSED)
        for channel in channels:
            while True:
                try:
                    await channel.close()
                except refused:
                    continue  # with the next call: the one that was to be woken is cancelled
                break

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def run(self, operation: Operation[_T]) -> _T:
        """Make an operation's calls, one after the other, and return its answer."""
        try:
            ask = next(operation)
            while True:
                try:
                    reply = await self._call(ask)
                except TopospreadClientError as error:
                    ask = operation.throw(error)
                else:
                    ask = resume(operation, reply)
        except StopIteration as done:
            return cast("_T", done.value)

    async def follow(self, subscription: Subscription[_T]) -> AsyncIterator[_T]:
        """Open a server stream and read it; what ends before its first message is opened again."""
        ask = subscription.ask
        repeats = Repeats(seconds(ask.timeout, math.inf), min(self._lasts, self._timeout))
        while True:
            begun, call, asked_before = False, None, _times_cancelled()
            try:
                stubs = self._channels.newest()
                stub = stubs.of(ask.rpc, "unary_stream")
                call = stub(ask.request, timeout=repeats.left(), metadata=self._metadata(ask))
                while (message := await call.read()) is not grpc.aio.EOF:
                    begun = True
                    yield subscription.read(message)
                    asked_before = _times_cancelled()  # it may be read by another task now
                # It has no end: to fall silent would tell that nothing changes any more.
                raise Unavailable("the server ended the stream: open another one", reached=True)
            except (*_FAILURES, asyncio.CancelledError) as failed:
                error = self._error(failed, asked_before)
            finally:
                if call is not None:
                    call.cancel()
            pause = None if begun else repeats.pause_after(error)
            if pause is None:
                raise error
            await self._pause(pause)

    async def _call(self, ask: Ask) -> Reply[Any]:
        timeout = seconds(ask.timeout, self._bulk_timeout if ask.bulk else self._timeout)
        repeats = Repeats(timeout, self._lasts if ask.repeated else 0.0)
        asked_before = _times_cancelled()
        while True:
            stubs = self._channels.newest()
            stub = stubs.of(ask.rpc, "stream_unary" if ask.bulk else "unary_unary")
            try:
                call = stub(ask.request, timeout=repeats.left(), metadata=self._metadata(ask))
                message = await call
                trace = traceparent_in(await call.trailing_metadata())
                return Reply(message, trace or traceparent_in(await call.initial_metadata()))
            except (*_FAILURES, asyncio.CancelledError) as failed:
                error = self._error(failed, asked_before)
            pause = repeats.pause_after(error)
            if pause is None:
                raise repeats.told(ask, error)
            await self._pause(pause)
            if repeats.may_have_arrived:
                ask.before_repeat()

    async def _pause(self, pause: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._closing.wait()

    def _error(self, failed: BaseException, asked_before: int) -> TopospreadClientError:
        """What to raise for what gRPC raised.

        Raises:
            CancelledError: that was it, and it is meant for the task.
        """
        closed = self._channels.closed
        if isinstance(failed, asyncio.CancelledError) and (
            not closed or _times_cancelled() > asked_before
        ):
            raise failed
        error: TopospreadClientError
        if isinstance(failed, grpc.aio.AioRpcError):
            error = error_of(cast("FailedCall", failed))
            ours = closed and failed.code() is CANCELLED
        else:
            error = InvalidRequest(str(failed))
            ours = closed
        if ours:
            # gRPC raises CancelledError, too, in whoever waits for a call that another has ended.
            error = Closed(CLOSED)
        error.__cause__ = failed
        return error

    def _metadata(self, ask: Ask) -> tuple[tuple[str, str], ...]:
        return (*outgoing(ask.traceparent), *self._token.metadata())


_FAILURES: Final = (grpc.aio.AioRpcError, grpc.aio.UsageError, ValueError)
"""What gRPC raises: for a failed call, on a closed channel, for odd metadata."""


def _times_cancelled() -> int:
    """How often somebody has asked for the end of the task that runs."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def _until_none(
    questions: asyncio.Queue[EvaluateStreamRequest | None],
) -> AsyncIterator[EvaluateStreamRequest]:
    while (question := await questions.get()) is not None:
        yield question
