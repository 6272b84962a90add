"""The blocking client. Threads may share one."""

from __future__ import annotations

import math
import threading
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, Self, TypeVar, cast

import grpc

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
    from collections.abc import Callable, Generator, Iterator
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
def _blocking(
    operation: Callable[Concatenate[ClientSession, _P], Operation[_T]],
) -> Callable[Concatenate[Client, _P], _T]:
    """Method that runs an operation."""

    @wraps(operation)
    def method(self: Client, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self._run(operation(self._session, *args, **kwargs))

    return method


@lazy_method("Iterator[{}]")
def _paged(
    paged_list: Callable[Concatenate[ClientSession, _P], PagedList[_T]],
) -> Callable[Concatenate[Client, _P], Iterator[_T]]:
    """Method that iterates over the items of all pages."""

    @wraps(paged_list)
    def method(self: Client, /, *args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
        pages = paged_list(self._session, *args, **kwargs)
        token: str | None = None
        while token != "":
            page = self._run(pages.fetch(token))
            yield from pages.items(page)
            token = page.next_page_token

    return method


@lazy_method("Generator[{}, None, None]")
def _streaming(
    server_stream: Callable[Concatenate[ClientSession, _P], ServerStream[_T]],
) -> Callable[Concatenate[Client, _P], Generator[_T, None, None]]:
    """Method that iterates over a server stream; leaving the iteration ends the call."""

    @wraps(server_stream)
    def method(self: Client, /, *args: _P.args, **kwargs: _P.kwargs) -> Generator[_T, None, None]:
        return self._follow(server_stream(self._session, *args, **kwargs))

    return method


class Client:
    """A connection to a server, with a method for each of its calls.

    ::

        with Client("127.0.0.1:7946") as client:
            evaluation = client.evaluate_pod(pod)

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
        """Set a connection up; the first call makes it.

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
        self._channels = connection.open()
        self._closing = threading.Event()

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
    list_constraints = _paged(inspecting.list_constraints)
    list_constraints_page = _blocking(inspecting.list_constraints_page)
    get_constraint = _blocking(inspecting.get_constraint)
    watch_constraints = _streaming(inspecting.watch_constraints)

    def close(self) -> None:
        """End the connection, from any thread: calls under way fail with `Closed`."""
        channels = self._channels.close()
        self._closing.set()
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
        """Make the calls of an operation one after the other and return its response."""
        try:
            call = next(operation)
            while True:
                try:
                    reply = self._call(call)
                except TopospreadClientError as error:
                    call = operation.throw(error)
                else:
                    call = resume(operation, reply)
        except StopIteration as done:
            return cast("_T", done.value)

    def _follow(self, stream: ServerStream[_T]) -> Generator[_T, None, None]:
        """Read a server stream; when its server goes away, continue it at another one."""
        call = stream.call
        retries = RetryTimer(
            seconds(call.timeout, math.inf), min(self._retry_timeout, self._timeout)
        )
        while True:
            rpc, last = None, None
            try:
                stubs = self._channels.current()
                stub = stubs.of(call.rpc, "unary_stream")
                rpc = stub(call.request, timeout=retries.remaining(), metadata=self._metadata(call))
                for message in rpc:
                    last = stream.read(message)
                    yield last
                raise stream_ended()
            except (grpc.RpcError, ValueError) as failed:
                started = last is not None or had_started(failed)
                error = self._error(failed)
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
            self._closing.wait(pause)

    def _call(self, call: RpcCall) -> RpcReply[Any]:
        default = self._bulk_timeout if call.bulk else self._timeout + call.extra_timeout
        timeout = seconds(call.timeout, default)
        retries = RetryTimer(timeout, self._retry_timeout if call.retried else 0.0)
        while True:
            stubs = self._channels.current()
            stub: Any = stubs.of(call.rpc, "stream_unary" if call.bulk else "unary_unary")
            try:
                message, rpc = stub.with_call(
                    call.request, timeout=retries.remaining(), metadata=self._metadata(call)
                )
            except (grpc.RpcError, ValueError) as failed:
                error = self._error(failed)
            else:
                return RpcReply(message, traceparent_of(message, rpc.trailing_metadata()))
            pause = retries.next_pause(error)
            if pause is None:
                raise retries.final_error(call, error)
            self._closing.wait(pause)
            if retries.may_have_arrived:
                call.before_retry()

    def _error(self, failed: grpc.RpcError | ValueError) -> TopospreadClientError:
        """Error for an exception of gRPC: ValueError is a closed channel, or wrong metadata."""
        error: TopospreadClientError
        if isinstance(failed, ValueError):
            error = Closed(CLOSED) if self._channels.closed else invalid("metadata", str(failed))
        elif self._channels.closed and cast("GrpcFailure", failed).code() is CANCELLED:
            error = Closed(CLOSED)
        else:
            error = error_of(cast("GrpcFailure", failed))
        error.__cause__ = failed
        return error

    def _metadata(self, call: RpcCall) -> tuple[tuple[str, str], ...]:
        return outgoing(call.traceparent) + self._token.metadata()
