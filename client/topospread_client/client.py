"""The client for callers that wait for their answers. Threads may share one."""

from __future__ import annotations

import math
import threading
from functools import wraps
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast
from weakref import WeakSet

import grpc

from topospread_client import engine, placement, rpcs, state, writing
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
from topospread_client.stream import EvaluateStream
from topospread_client.tracing import outgoing, traceparent_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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
def _blocking(
    operation: Callable[Concatenate[Session, _P], Operation[_T]],
) -> Callable[Concatenate[Client, _P], _T]:
    """A method that runs the operation to its end."""

    @wraps(operation)
    def method(self: Client, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self.run(operation(self.session, *args, **kwargs))

    return method


def _paged(
    pages: Callable[Concatenate[Session, _P], Pages],
) -> Callable[Concatenate[Client, _P], Iterator[Object]]:
    """A method that iterates over the objects of all pages."""

    @wraps(pages)
    def method(self: Client, /, *args: _P.args, **kwargs: _P.kwargs) -> Iterator[Object]:
        remaining = pages(self.session, *args, **kwargs)
        try:
            page = self.run(next(remaining))
            while True:
                yield from page.objects
                page = self.run(remaining.send(page))
        except StopIteration:
            return

    return method


def _streaming(
    subscription: Callable[Concatenate[Session, _P], Subscription[_T]],
) -> Callable[Concatenate[Client, _P], Iterator[_T]]:
    """A method that iterates over what the server sends; leaving the iteration ends the call."""

    @wraps(subscription)
    def method(self: Client, /, *args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
        return self.follow(subscription(self.session, *args, **kwargs))

    return method


class Client:
    """A connection to a server, with a method for each of its calls.

    ::

        with Client("127.0.0.1:7946") as client:
            evaluation = client.evaluate(pod)

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
        """Set a connection up; the first call makes it.

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
        self._channels = connection.open()
        self._closing = threading.Event()
        self._conversations: WeakSet[Conversation] = WeakSet()
        # Reentrant: a signal's handler may close in the thread that opens a stream.
        self._conversations_lock = threading.RLock()

    place = _blocking(placement.place)
    reserve = _blocking(placement.reserve)
    release = _blocking(placement.release)
    simulate = _blocking(simulating.simulate)
    reservations = _blocking(placement.reservations)
    rank_for_deletion = _blocking(ranking.rank_for_deletion)
    plan_rebalance = _blocking(rebalancing.plan_rebalance)
    pre_filter = _blocking(engine.pre_filter)
    filter = _blocking(engine.filter_nodes)
    score = _blocking(engine.score)
    evaluate = _blocking(engine.evaluate)
    batch_evaluate = _blocking(engine.batch_evaluate)
    explain = _blocking(explaining.explain)
    apply = _blocking(writing.apply)
    delete = _blocking(writing.delete)
    replace = _blocking(writing.replace)
    get = _blocking(state.get)
    list = _paged(state.list_objects)
    list_page = _blocking(state.list_page)
    watch = _streaming(state.watch)
    node_table = _blocking(state.node_table)
    clusters = _blocking(state.clusters)
    drop_cluster = _blocking(state.drop_cluster)
    accept_store = _blocking(state.accept_store)
    hold = _blocking(feed.hold)
    leave = _blocking(feed.leave)

    def evaluate_stream(
        self, *, window: int = DEFAULT_WINDOW, traceparent: str | None = None
    ) -> EvaluateStream:
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
            questions: SimpleQueue[EvaluateStreamRequest | None] = SimpleQueue()
            stubs = channels.newest()
            call = stubs.of(rpcs.EVALUATE_STREAM, "stream_stream")(
                iter(questions.get, None), metadata=shown
            )
            return Line(call, questions.put, stubs)

        conversation = Conversation(
            open_line, timeout=self._timeout, lasts=self._lasts, metadata=metadata
        )
        with self._conversations_lock:
            self._conversations.add(conversation)
        if self._channels.closed:
            conversation.close(CLOSED)
        return EvaluateStream(self.session, conversation, window)

    def close(self) -> None:
        """End the connection, from whichever thread: calls under way fail with `Closed`."""
        channels = self._channels.close()
        self._closing.set()
        with self._conversations_lock:
            conversations = list(self._conversations)
        for conversation in conversations:
            conversation.close(CLOSED)
        for channel in channels:
            channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, operation: Operation[_T]) -> _T:
        """Make an operation's calls, one after the other, and return its answer."""
        try:
            ask = next(operation)
            while True:
                try:
                    reply = self._call(ask)
                except TopospreadClientError as error:
                    ask = operation.throw(error)
                else:
                    ask = resume(operation, reply)
        except StopIteration as done:
            return cast("_T", done.value)

    def follow(self, subscription: Subscription[_T]) -> Iterator[_T]:
        """Open a server stream and read it; what ends before its first message is opened again."""
        ask = subscription.ask
        repeats = Repeats(seconds(ask.timeout, math.inf), min(self._lasts, self._timeout))
        while True:
            begun, call = False, None
            try:
                stubs = self._channels.newest()
                stub = stubs.of(ask.rpc, "unary_stream")
                call = stub(ask.request, timeout=repeats.left(), metadata=self._metadata(ask))
                for message in call:
                    begun = True
                    yield subscription.read(message)
                # It has no end: to fall silent would tell that nothing changes any more.
                raise Unavailable("the server ended the stream: open another one", reached=True)
            except (grpc.RpcError, ValueError) as failed:
                error = self._error(failed)
            finally:
                if call is not None:
                    call.cancel()
            pause = None if begun else repeats.pause_after(error)
            if pause is None:
                raise error
            self._closing.wait(pause)

    def _call(self, ask: Ask) -> Reply[Any]:
        timeout = seconds(ask.timeout, self._bulk_timeout if ask.bulk else self._timeout)
        repeats = Repeats(timeout, self._lasts if ask.repeated else 0.0)
        while True:
            stubs = self._channels.newest()
            stub: Any = stubs.of(ask.rpc, "stream_unary" if ask.bulk else "unary_unary")
            try:
                message, call = stub.with_call(
                    ask.request, timeout=repeats.left(), metadata=self._metadata(ask)
                )
            except (grpc.RpcError, ValueError) as failed:
                error = self._error(failed)
            else:
                trace = traceparent_in(call.trailing_metadata())
                return Reply(message, trace or traceparent_in(call.initial_metadata()))
            pause = repeats.pause_after(error)
            if pause is None:
                raise repeats.told(ask, error)
            self._closing.wait(pause)
            if repeats.may_have_arrived:
                ask.before_repeat()

    def _error(self, failed: grpc.RpcError | ValueError) -> TopospreadClientError:
        """What to raise for what gRPC raised: ValueError for a closed channel, or odd metadata."""
        error: TopospreadClientError
        if isinstance(failed, ValueError):
            error = Closed(CLOSED) if self._channels.closed else InvalidRequest(str(failed))
        elif self._channels.closed and cast("FailedCall", failed).code() is CANCELLED:
            error = Closed(CLOSED)
        else:
            error = error_of(cast("FailedCall", failed))
        error.__cause__ = failed
        return error

    def _metadata(self, ask: Ask) -> tuple[tuple[str, str], ...]:
        return (*outgoing(ask.traceparent), *self._token.metadata())
