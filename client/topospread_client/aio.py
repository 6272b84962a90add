"""The client for asyncio. It belongs to the event loop in which it was made."""

from __future__ import annotations

import asyncio
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast

import grpc
import grpc.aio

from topospread_client import (
    engine,
    explaining,
    feed,
    placement,
    ranking,
    rebalancing,
    rpcs,
    simulating,
    state,
    writing,
)
from topospread_client.aio_stream import AsyncEvaluateStream
from topospread_client.connection import (
    DEFAULT_BULK_TIMEOUT,
    DEFAULT_TIMEOUT,
    Connection,
)
from topospread_client.conversation import DEFAULT_WINDOW, Conversation, Line
from topospread_client.errors import Unavailable
from topospread_client.operations import Ask, Operation, Pages, Reply, Session, Subscription
from topospread_client.status import FailedCall, error_of
from topospread_client.tracing import outgoing, traceparent_in

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from topospread_client.rpcs import Rpc
    from topospread_proto.v1.cluster_state_pb2 import Object
    from topospread_proto.v1.spread_engine_pb2 import EvaluateStreamRequest

_P = ParamSpec("_P")
_T = TypeVar("_T")


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
        self.session: Final = Session(cluster, timeout, connection.retries)
        self._timeout = timeout
        self._bulk_timeout = bulk_timeout
        self._retries = connection.retries
        self._token = connection.shown()
        self._channel = connection.open_aio()
        self._stubs: dict[str, Callable[..., Any]] = {}

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
            traceparent: parent of the server's spans, one for the stream and one for each question;
                None takes the current OpenTelemetry span.
        """
        if window < 1:
            raise ValueError(f"window: {window} questions at once: at least one is needed")
        metadata = outgoing(traceparent)

        def open_line() -> Line:
            shown = (*metadata, *self._token.metadata())
            questions: asyncio.Queue[EvaluateStreamRequest | None] = asyncio.Queue()
            call = self._stub(rpcs.EVALUATE_STREAM, self._channel.stream_stream)(
                _until_none(questions), metadata=shown
            )
            return Line(call, questions.put_nowait)

        conversation = Conversation(
            open_line, timeout=self._timeout, retries=self._retries, metadata=metadata
        )
        return AsyncEvaluateStream(self.session, conversation, window)

    async def close(self) -> None:
        """End the connection; calls under way fail."""
        await self._channel.close()

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
                except grpc.aio.AioRpcError as failed:
                    error = error_of(cast("FailedCall", failed))
                    error.__cause__ = failed
                    ask = operation.throw(error)
                else:
                    ask = operation.send(reply)
        except StopIteration as done:
            return cast("_T", done.value)

    async def follow(self, subscription: Subscription[_T]) -> AsyncIterator[_T]:
        """Open a server stream and read it."""
        ask = subscription.ask
        stub = self._stub(ask.rpc, self._channel.unary_stream)
        call = stub(ask.request, timeout=ask.timeout, metadata=self._metadata(ask))
        try:
            async for message in call:
                yield subscription.decode(message)
            # What is followed has no end: to fall silent would tell that nothing changes any more.
            raise Unavailable("the server ended the stream: open another one", reached=True)
        except grpc.aio.AioRpcError as failed:
            raise error_of(cast("FailedCall", failed)) from failed
        finally:
            call.cancel()

    async def _call(self, ask: Ask) -> Reply[Any]:
        if ask.pause:
            await asyncio.sleep(ask.pause)
        kind = self._channel.stream_unary if ask.bulk else self._channel.unary_unary
        timeout = ask.timeout or (self._bulk_timeout if ask.bulk else self._timeout)
        call = self._stub(ask.rpc, kind)(ask.request, timeout=timeout, metadata=self._metadata(ask))
        message = await call
        trace = traceparent_in(await call.trailing_metadata())
        return Reply(message, trace or traceparent_in(await call.initial_metadata()))

    def _metadata(self, ask: Ask) -> tuple[tuple[str, str], ...]:
        return (*outgoing(ask.traceparent), *self._token.metadata())

    def _stub(
        self, rpc: Rpc[Any, Any], kind: Callable[..., Callable[..., Any]]
    ) -> Callable[..., Any]:
        stub = self._stubs.get(rpc.path)
        if stub is None:
            stub = self._stubs[rpc.path] = kind(
                rpc.path,
                request_serializer=rpc.request.SerializeToString,
                response_deserializer=rpc.response.FromString,
            )
        return stub


async def _until_none(
    questions: asyncio.Queue[EvaluateStreamRequest | None],
) -> AsyncIterator[EvaluateStreamRequest]:
    while (question := await questions.get()) is not None:
        yield question
