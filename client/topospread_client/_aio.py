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

from topospread_client import _decisions as decisions
from topospread_client import _placement as placement
from topospread_client import _rpcs as rpcs
from topospread_client import _state as state
from topospread_client import _writing as writing
from topospread_client._aio_stream import AsyncEvaluateStream
from topospread_client._channels import CLOSED
from topospread_client._connection import (
    DEFAULT_BULK_TIMEOUT,
    DEFAULT_TIMEOUT,
    Connection,
)
from topospread_client._conversation import DEFAULT_WINDOW, Conversation, Line
from topospread_client._errors import (
    Closed,
    TopospreadClientError,
    invalid,
)
from topospread_client._given import expect
from topospread_client._later import Operations, at_first_use
from topospread_client._operations import (
    Ask,
    Listing,
    Operation,
    Reply,
    Session,
    Subscription,
    resume,
)
from topospread_client._repeats import Repeats, seconds
from topospread_client._status import CANCELLED, FailedCall, accepted, ended, error_of
from topospread_client._tracing import outgoing, traceparent_in

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from topospread_client import _explaining as explaining
    from topospread_client import _leases as leases
    from topospread_client import _ranking as ranking
    from topospread_client import _rebalancing as rebalancing
    from topospread_client import _simulating as simulating
    from topospread_proto.v1.decision_service_pb2 import StreamEvaluatePodsRequest
else:
    explaining = Operations("topospread_client._explaining")
    leases = Operations("topospread_client._leases")
    ranking = Operations("topospread_client._ranking")
    rebalancing = Operations("topospread_client._rebalancing")
    simulating = Operations("topospread_client._simulating")

_P = ParamSpec("_P")
_T = TypeVar("_T")


@at_first_use("{}")
def _awaited(
    operation: Callable[Concatenate[Session, _P], Operation[_T]],
) -> Callable[Concatenate[AsyncClient, _P], Awaitable[_T]]:
    """A method that runs the operation to its end."""

    @wraps(operation)
    async def method(self: AsyncClient, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._run(operation(self._session, *args, **kwargs))

    return method


@at_first_use("AsyncIterator[{}]")
def _paged(
    listing: Callable[Concatenate[Session, _P], Listing[_T]],
) -> Callable[Concatenate[AsyncClient, _P], AsyncIterator[_T]]:
    """A method that iterates over what is in all pages."""

    @wraps(listing)
    async def method(
        self: AsyncClient, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> AsyncIterator[_T]:
        listed = listing(self._session, *args, **kwargs)
        token: str | None = None
        while token != "":
            page = await self._run(listed.fetch(token))
            for found in listed.items(page):
                yield found
            token = page.next_page_token

    return method


@at_first_use("AsyncGenerator[{}, None]")
def _streaming(
    subscription: Callable[Concatenate[Session, _P], Subscription[_T]],
) -> Callable[Concatenate[AsyncClient, _P], AsyncGenerator[_T, None]]:
    """A method that iterates over what the server sends; leaving the iteration ends the call."""

    @wraps(subscription)
    def method(
        self: AsyncClient, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> AsyncGenerator[_T, None]:
        return self._follow(subscription(self._session, *args, **kwargs))

    return method


class AsyncClient:
    """A connection to a server, with an awaitable method for each of its calls.

    ::

        async with AsyncClient("127.0.0.1:7946") as client:
            evaluation = await client.evaluate_pod(pod)

    Methods raise `TopospreadClientError`, of one kind or another: `InvalidRequest` for whatever is
    given wrongly, before it is sent or by the server.
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
            bulk_timeout: seconds for a `replace_objects` that names none.

        Raises:
            BadConnection: the options cannot be used.
        """
        if isinstance(connection, str):
            connection = Connection(connection)
        self._session: Final = Session(cluster)
        self._timeout = seconds(timeout, DEFAULT_TIMEOUT)
        self._bulk_timeout = seconds(bulk_timeout, DEFAULT_BULK_TIMEOUT)
        self._lasts = connection.retry_timeout if connection.retries else 0.0
        self._token = connection.shown()
        self._loop = asyncio.get_running_loop()
        self._channels = connection.open_aio()
        self._closing = asyncio.Event()
        self._conversations: WeakSet[Conversation] = WeakSet()

    pre_filter = _awaited(decisions.pre_filter)
    filter = _awaited(decisions.filter_nodes)
    score = _awaited(decisions.score)
    evaluate_pod = _awaited(decisions.evaluate_pod)
    batch_evaluate_pods = _awaited(decisions.batch_evaluate_pods)
    explain_pod = _awaited(explaining.explain_pod)
    place_pod = _awaited(placement.place_pod)
    reserve_node = _awaited(placement.reserve_node)
    release_reservation = _awaited(placement.release_reservation)
    get_reservation = _awaited(placement.get_reservation)
    list_reservations = _paged(placement.list_reservations)
    list_reservations_page = _awaited(placement.list_reservations_page)
    apply_objects = _awaited(writing.apply_objects)
    delete_objects = _awaited(writing.delete_objects)
    replace_objects = _awaited(writing.replace_objects)
    get_object = _awaited(state.get_object)
    list_objects = _paged(state.list_objects)
    list_objects_page = _awaited(state.list_objects_page)
    watch_objects = _streaming(state.watch_objects)
    get_node_table = _awaited(state.get_node_table)
    get_cluster = _awaited(state.get_cluster)
    list_clusters = _paged(state.list_clusters)
    list_clusters_page = _awaited(state.list_clusters_page)
    delete_cluster = _awaited(state.delete_cluster)
    accept_store = _awaited(state.accept_store)
    get_server_info = _awaited(state.get_server_info)
    acquire_lease = _awaited(leases.acquire_lease)
    renew_lease = _awaited(leases.renew_lease)
    release_lease = _awaited(leases.release_lease)
    get_lease = _awaited(leases.get_lease)
    simulate = _awaited(simulating.simulate)
    rank_deletions = _awaited(ranking.rank_deletions)
    plan_rebalance = _awaited(rebalancing.plan_rebalance)

    def stream_evaluate_pods(
        self, *, window: int = DEFAULT_WINDOW, traceparent: str | None = None
    ) -> AsyncEvaluateStream:
        """A stream for many evaluations; a context manager. It is opened by the first question.

        Args:
            window: questions under way at once in its `evaluate_pods`, at least 1.
            traceparent: parent of the server's span for the stream, and of those for questions that
                have none of their own; None takes the current OpenTelemetry span.
        """
        if expect(int, window, "window") < 1:
            raise invalid("window", f"{window} questions at once: at least one is needed")
        metadata = outgoing(traceparent)
        channels, token = self._channels, self._token

        def open_line() -> Line:
            shown = (*metadata, *token.metadata())
            questions: asyncio.Queue[StreamEvaluatePodsRequest | None] = asyncio.Queue()
            stubs = channels.newest()
            call = stubs.of(rpcs.STREAM_EVALUATE_PODS, "stream_stream")(
                _until_none(questions), metadata=shown
            )
            return Line(call, questions.put_nowait, stubs)

        conversation = Conversation(
            open_line, timeout=self._timeout, lasts=self._lasts, metadata=metadata
        )
        self._conversations.add(conversation)
        if self._channels.closed:
            conversation.close(CLOSED)
        return AsyncEvaluateStream(self._session, conversation, window, self._loop)

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

    async def _run(self, operation: Operation[_T]) -> _T:
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

    async def _follow(self, subscription: Subscription[_T]) -> AsyncGenerator[_T, None]:
        """Read a server stream, and open it again after the last message when its server goes."""
        ask = subscription.ask
        repeats = Repeats(seconds(ask.timeout, math.inf), min(self._lasts, self._timeout))
        while True:
            call, last, asked_before = None, None, _times_cancelled()
            try:
                stubs = self._channels.newest()
                stub = stubs.of(ask.rpc, "unary_stream")
                call = stub(ask.request, timeout=repeats.left(), metadata=self._metadata(ask))
                while (message := await call.read()) is not grpc.aio.EOF:
                    last = subscription.read(message)
                    yield last
                    asked_before = _times_cancelled()  # it may be read by another task now
                raise ended()
            except (*_FAILURES, asyncio.CancelledError) as failed:
                begun = last is not None or accepted(failed)
                error = self._error(failed, asked_before)
            finally:
                if call is not None:
                    call.cancel()
            if begun:
                repeats.begin_anew(self._lasts)
            further = ask if last is None else subscription.after(last)
            pause = repeats.pause_after(error)
            if further is None or pause is None:
                raise error
            ask = further
            await self._pause(pause)

    async def _call(self, ask: Ask) -> Reply[Any]:
        own = self._bulk_timeout if ask.bulk else self._timeout + ask.beside
        timeout = seconds(ask.timeout, own)
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
            error = invalid("metadata", str(failed))
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
    questions: asyncio.Queue[StreamEvaluatePodsRequest | None],
) -> AsyncIterator[StreamEvaluatePodsRequest]:
    while (question := await questions.get()) is not None:
        yield question
