"""The client for callers that wait for their answers. Threads may share one."""

from __future__ import annotations

import math
import threading
from functools import wraps
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast
from weakref import WeakSet

import grpc

from topospread_client import _decisions as decisions
from topospread_client import _placement as placement
from topospread_client import _rpcs as rpcs
from topospread_client import _state as state
from topospread_client import _writing as writing
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
from topospread_client._stream import EvaluateStream
from topospread_client._tracing import outgoing, traceparent_in

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
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
def _blocking(
    operation: Callable[Concatenate[Session, _P], Operation[_T]],
) -> Callable[Concatenate[Client, _P], _T]:
    """A method that runs the operation to its end."""

    @wraps(operation)
    def method(self: Client, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._run(operation(self._session, *args, **kwargs))

    return method


@at_first_use("Iterator[{}]")
def _paged(
    listing: Callable[Concatenate[Session, _P], Listing[_T]],
) -> Callable[Concatenate[Client, _P], Iterator[_T]]:
    """A method that iterates over what is in all pages."""

    @wraps(listing)
    def method(self: Client, /, *args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
        listed = listing(self._session, *args, **kwargs)
        token: str | None = None
        while token != "":
            page = self._run(listed.fetch(token))
            yield from listed.items(page)
            token = page.next_page_token

    return method


@at_first_use("Generator[{}, None, None]")
def _streaming(
    subscription: Callable[Concatenate[Session, _P], Subscription[_T]],
) -> Callable[Concatenate[Client, _P], Generator[_T, None, None]]:
    """A method that iterates over what the server sends; leaving the iteration ends the call."""

    @wraps(subscription)
    def method(self: Client, /, *args: _P.args, **kwargs: _P.kwargs) -> Generator[_T, None, None]:
        return self._follow(subscription(self._session, *args, **kwargs))

    return method


class Client:
    """A connection to a server, with a method for each of its calls.

    ::

        with Client("127.0.0.1:7946") as client:
            evaluation = client.evaluate_pod(pod)

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
        """Set a connection up; the first call makes it.

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
        self._channels = connection.open()
        self._closing = threading.Event()
        self._conversations: WeakSet[Conversation] = WeakSet()
        # Reentrant: a signal's handler may close in the thread that opens a stream.
        self._conversations_lock = threading.RLock()

    pre_filter = _blocking(decisions.pre_filter)
    filter = _blocking(decisions.filter_nodes)
    score = _blocking(decisions.score)
    evaluate_pod = _blocking(decisions.evaluate_pod)
    batch_evaluate_pods = _blocking(decisions.batch_evaluate_pods)
    explain_pod = _blocking(explaining.explain_pod)
    place_pod = _blocking(placement.place_pod)
    reserve_node = _blocking(placement.reserve_node)
    release_reservation = _blocking(placement.release_reservation)
    get_reservation = _blocking(placement.get_reservation)
    list_reservations = _paged(placement.list_reservations)
    list_reservations_page = _blocking(placement.list_reservations_page)
    apply_objects = _blocking(writing.apply_objects)
    delete_objects = _blocking(writing.delete_objects)
    replace_objects = _blocking(writing.replace_objects)
    get_object = _blocking(state.get_object)
    list_objects = _paged(state.list_objects)
    list_objects_page = _blocking(state.list_objects_page)
    watch_objects = _streaming(state.watch_objects)
    get_node_table = _blocking(state.get_node_table)
    get_cluster = _blocking(state.get_cluster)
    list_clusters = _paged(state.list_clusters)
    list_clusters_page = _blocking(state.list_clusters_page)
    delete_cluster = _blocking(state.delete_cluster)
    accept_store = _blocking(state.accept_store)
    get_server_info = _blocking(state.get_server_info)
    acquire_lease = _blocking(leases.acquire_lease)
    renew_lease = _blocking(leases.renew_lease)
    release_lease = _blocking(leases.release_lease)
    get_lease = _blocking(leases.get_lease)
    simulate = _blocking(simulating.simulate)
    rank_deletions = _blocking(ranking.rank_deletions)
    plan_rebalance = _blocking(rebalancing.plan_rebalance)

    def stream_evaluate_pods(
        self, *, window: int = DEFAULT_WINDOW, traceparent: str | None = None
    ) -> EvaluateStream:
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
            questions: SimpleQueue[StreamEvaluatePodsRequest | None] = SimpleQueue()
            stubs = channels.newest()
            call = stubs.of(rpcs.STREAM_EVALUATE_PODS, "stream_stream")(
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
        return EvaluateStream(self._session, conversation, window)

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

    def _run(self, operation: Operation[_T]) -> _T:
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

    def _follow(self, subscription: Subscription[_T]) -> Generator[_T, None, None]:
        """Read a server stream, and open it again after the last message when its server goes."""
        ask = subscription.ask
        repeats = Repeats(seconds(ask.timeout, math.inf), min(self._lasts, self._timeout))
        while True:
            call, last = None, None
            try:
                stubs = self._channels.newest()
                stub = stubs.of(ask.rpc, "unary_stream")
                call = stub(ask.request, timeout=repeats.left(), metadata=self._metadata(ask))
                for message in call:
                    last = subscription.read(message)
                    yield last
                raise ended()
            except (grpc.RpcError, ValueError) as failed:
                begun = last is not None or accepted(failed)
                error = self._error(failed)
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
            self._closing.wait(pause)

    def _call(self, ask: Ask) -> Reply[Any]:
        own = self._bulk_timeout if ask.bulk else self._timeout + ask.beside
        timeout = seconds(ask.timeout, own)
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
            error = Closed(CLOSED) if self._channels.closed else invalid("metadata", str(failed))
        elif self._channels.closed and cast("FailedCall", failed).code() is CANCELLED:
            error = Closed(CLOSED)
        else:
            error = error_of(cast("FailedCall", failed))
        error.__cause__ = failed
        return error

    def _metadata(self, ask: Ask) -> tuple[tuple[str, str], ...]:
        return (*outgoing(ask.traceparent), *self._token.metadata())
