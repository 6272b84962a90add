"""The client for asyncio. It belongs to the event loop in which it was made."""

from __future__ import annotations

import asyncio
import math
from contextlib import suppress
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast

import grpc
import grpc.aio

from topospread_client import _decisions as decisions
from topospread_client import _placement as placement
from topospread_client import _state as state
from topospread_client import _writing as writing
from topospread_client._arguments import checked
from topospread_client._connection import (
    CLOSED,
    DEFAULT_BULK_TIMEOUT,
    DEFAULT_TIMEOUT,
    Connection,
)
from topospread_client._errors import (
    Closed,
    TopospreadClientError,
    invalid,
)
from topospread_client._operations import (
    ClientSession,
    LazyModule,
    Operation,
    PagedList,
    RpcCall,
    RpcReply,
    ServerStream,
    lazy_method,
    resume,
)
from topospread_client._retries import RetryTimer, seconds
from topospread_client._status import CANCELLED, GrpcFailure, error_of, had_started, stream_ended
from topospread_client._tracing import outgoing, traceparent_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from topospread_client import _explain as explaining
    from topospread_client import _inspecting as inspecting
    from topospread_client import _leases as leases
    from topospread_client import _ranking as ranking
    from topospread_client import _rebalancing as rebalancing
    from topospread_client import _simulate as simulating
else:
    explaining = LazyModule("topospread_client._explain")
    inspecting = LazyModule("topospread_client._inspecting")
    leases = LazyModule("topospread_client._leases")
    ranking = LazyModule("topospread_client._ranking")
    rebalancing = LazyModule("topospread_client._rebalancing")
    simulating = LazyModule("topospread_client._simulate")

_P = ParamSpec("_P")
_T = TypeVar("_T")


@lazy_method("{}")
def _awaited(
    operation: Callable[Concatenate[ClientSession, _P], Operation[_T]],
) -> Callable[Concatenate[AsyncClient, _P], Awaitable[_T]]:
    """Method that runs an operation."""

    @wraps(operation)
    async def method(self: AsyncClient, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._run(operation(self._session, *args, **kwargs))

    return method


@lazy_method("AsyncIterator[{}]")
def _paged(
    paged_list: Callable[Concatenate[ClientSession, _P], PagedList[_T]],
) -> Callable[Concatenate[AsyncClient, _P], AsyncIterator[_T]]:
    """Method that iterates over the items of all pages."""

    @wraps(paged_list)
    async def method(
        self: AsyncClient, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> AsyncIterator[_T]:
        pages = paged_list(self._session, *args, **kwargs)
        token: str | None = None
        while token != "":
            page = await self._run(pages.fetch(token))
            for found in pages.items(page):
                yield found
            token = page.next_page_token

    return method


@lazy_method("AsyncGenerator[{}, None]")
def _streaming(
    server_stream: Callable[Concatenate[ClientSession, _P], ServerStream[_T]],
) -> Callable[Concatenate[AsyncClient, _P], AsyncGenerator[_T, None]]:
    """Method that iterates over a server stream; leaving the iteration ends the call."""

    @wraps(server_stream)
    def method(
        self: AsyncClient, /, *args: _P.args, **kwargs: _P.kwargs
    ) -> AsyncGenerator[_T, None]:
        return self._follow(server_stream(self._session, *args, **kwargs))

    return method


class AsyncClient:
    """A connection to a server, with an awaitable method for each of its calls.

    ::

        async with AsyncClient("127.0.0.1:7946") as client:
            evaluation = await client.evaluate_pod(pod)

    Methods raise subclasses of `TopospreadClientError`: `InvalidRequest` for wrong arguments, from
    the client before anything is sent, or from the server.
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
            InvalidRequest: another argument of a wrong type.
        """
        if isinstance(connection, str):
            connection = Connection(connection)
        connection = checked(Connection, connection, "connection")
        self._session: Final = ClientSession(checked(str, cluster, "cluster"))
        self._timeout = seconds(timeout, DEFAULT_TIMEOUT)
        self._bulk_timeout = seconds(bulk_timeout, DEFAULT_BULK_TIMEOUT)
        self._retry_timeout = connection.retry_timeout if connection.retries else 0.0
        self._token = connection.token_provider()
        self._loop = asyncio.get_running_loop()
        self._channels = connection.open_aio()
        self._closing = asyncio.Event()

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
    list_constraints = _paged(inspecting.list_constraints)
    list_constraints_page = _awaited(inspecting.list_constraints_page)
    get_constraint = _awaited(inspecting.get_constraint)
    watch_constraints = _streaming(inspecting.watch_constraints)

    async def close(self) -> None:
        """End the connection, from any event loop: calls under way fail with `Closed`."""
        # A loop that does not run would never close it.
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
        for channel in channels:
            while True:
                try:
                    await channel.close()
                except refused:
                    continue  # with the next call: this one is cancelled, though not woken
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
        """Make the calls of an operation one after the other and return its response."""
        try:
            call = next(operation)
            while True:
                try:
                    reply = await self._call(call)
                except TopospreadClientError as error:
                    call = operation.throw(error)
                else:
                    call = resume(operation, reply)
        except StopIteration as done:
            return cast("_T", done.value)

    async def _follow(self, stream: ServerStream[_T]) -> AsyncGenerator[_T, None]:
        """Read a server stream; when its server goes away, continue it at another one."""
        call = stream.call
        retries = RetryTimer(
            seconds(call.timeout, math.inf), min(self._retry_timeout, self._timeout)
        )
        while True:
            rpc, last, cancels_before = None, None, _cancel_count()
            try:
                stubs = self._channels.current()
                stub = stubs.of(call.rpc, "unary_stream")
                rpc = stub(call.request, timeout=retries.remaining(), metadata=self._metadata(call))
                while (message := await rpc.read()) is not grpc.aio.EOF:
                    last = stream.read(message)
                    yield last
                    cancels_before = _cancel_count()  # it may be read by another task now
                raise stream_ended()
            except (*_FAILURES, asyncio.CancelledError) as failed:
                started = last is not None or had_started(failed)
                error = self._error(failed, cancels_before)
            finally:
                if rpc is not None:
                    rpc.cancel()
            if started:
                retries.restart(self._retry_timeout)
            next_call = call if last is None else stream.after(last)
            pause = retries.next_pause(error)
            if next_call is None or pause is None:
                raise error
            call = next_call
            await self._pause(pause)

    async def _call(self, call: RpcCall) -> RpcReply[Any]:
        default = self._bulk_timeout if call.bulk else self._timeout + call.extra_timeout
        timeout = seconds(call.timeout, default)
        retries = RetryTimer(timeout, self._retry_timeout if call.retried else 0.0)
        cancels_before = _cancel_count()
        while True:
            stubs = self._channels.current()
            stub = stubs.of(call.rpc, "stream_unary" if call.bulk else "unary_unary")
            try:
                rpc = stub(call.request, timeout=retries.remaining(), metadata=self._metadata(call))
                message = await rpc
                return RpcReply(message, traceparent_of(message, await rpc.trailing_metadata()))
            except (*_FAILURES, asyncio.CancelledError) as failed:
                error = self._error(failed, cancels_before)
            pause = retries.next_pause(error)
            if pause is None:
                raise retries.final_error(call, error)
            await self._pause(pause)
            if retries.may_have_arrived:
                call.before_retry()

    async def _pause(self, pause: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(pause):
                await self._closing.wait()

    def _error(self, failed: BaseException, cancels_before: int) -> TopospreadClientError:
        """Error to raise for an exception of gRPC.

        Raises:
            CancelledError: the task itself is cancelled.
        """
        closed = self._channels.closed
        if isinstance(failed, asyncio.CancelledError) and (
            not closed or _cancel_count() > cancels_before
        ):
            raise failed
        error: TopospreadClientError
        if isinstance(failed, grpc.aio.AioRpcError):
            error = error_of(cast("GrpcFailure", failed))
            by_close = closed and failed.code() is CANCELLED
        else:
            error = invalid("metadata", str(failed))
            by_close = closed
        if by_close:
            # gRPC raises CancelledError, too, in tasks that wait for a call that another ended.
            error = Closed(CLOSED)
        error.__cause__ = failed
        return error

    def _metadata(self, call: RpcCall) -> tuple[tuple[str, str], ...]:
        return outgoing(call.traceparent) + self._token.metadata()


_FAILURES: Final = (grpc.aio.AioRpcError, grpc.aio.UsageError, ValueError)
"""Exceptions of gRPC: for a failed call, a closed channel, metadata that cannot be sent."""


def _cancel_count() -> int:
    """Number of times that the running task was asked to cancel."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()
