"""The blocking client. Threads may share one.

Generated from `_aio.py` by `python -m tools.unasync`: change it there.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from topospread_client._connection import DEFAULT_BULK_TIMEOUT, DEFAULT_TIMEOUT
from topospread_client._documentation import documented
from topospread_client._errors import InvalidRequest, TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
    from types import TracebackType

    from google.protobuf.message import Message

    from topospread_client._arguments import ObjectLike, PodLike, SelectorLike
    from topospread_client._connection import Connection
    from topospread_client._methods import Method
    from topospread_proto.v1 import cluster_state_service_pb2 as state
    from topospread_proto.v1 import common_pb2 as common
    from topospread_proto.v1 import decision_service_pb2 as decision
    from topospread_proto.v1 import inspector_service_pb2 as inspector
    from topospread_proto.v1 import placement_service_pb2 as placement
    from topospread_proto.v1 import planner_service_pb2 as planner
    from topospread_proto.v1 import scenario_pb2 as scenario
    from topospread_proto.v1 import server_service_pb2 as server

    KindLike: TypeAlias = common.Kind.ValueType | str
    PodName: TypeAlias = common.PodReference | str
    ReferenceLike: TypeAlias = state.ObjectReference | Mapping[str, Any]
    PodsLike: TypeAlias = PodLike | scenario.PodsToPlace | Iterable[Any]
    Progress: TypeAlias = Callable[[int, int], None]


@documented
class Client:
    """A connection to a server, with a method for each of its calls.

    ::

        with Client("127.0.0.1:7946") as client:
            evaluation = client.evaluate_pod(pod, top_k=3)

    Keyword arguments are the fields of the request; None is one that is not given. They take what
    people type: a pod as a message, a manifest, bytes or ``NAMESPACE/NAME``; names of nodes; labels
    or kubectl's text for a selector; seconds for a duration; the name of an enum's value
    (``"STRICT"``); a mapping of its fields for any other message. Beside them each call takes
    `timeout`, in seconds (`math.inf`: none), and `traceparent`, the parent of the server's span;
    None takes the current OpenTelemetry span. The answer is the response's message.

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
        from topospread_client import _calls
        from topospread_client._transport import Transport, options_of

        self._calls = _calls.Calls(options_of(connection), cluster, timeout, bulk_timeout)
        self._io = Transport(options_of(connection))

    def close(self) -> None:
        """End the connection, from anywhere: calls under way fail with `Closed`."""
        self._io.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def call(
        self,
        method: str,
        request: Message | Iterable[Message],
        *,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> Any:
        """Make a call with a request message, and return its response message.

        Args:
            method: its name without the service: ``EvaluatePod``.
            request: its message, which stays as it is; the cluster may be left to the client. For
                ReplaceObjects an iterable of messages.
            timeout: seconds; None takes the client's, `math.inf` is none.
            traceparent: parent of the server's span; None takes the current OpenTelemetry span.

        Raises:
            TopospreadClientError: the call failed.
        """
        made = self._calls.checked(method, request)
        return self._answered(*made, timeout, traceparent)

    def stream(
        self,
        method: str,
        request: Message,
        *,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> Generator[Any, None, None]:
        """Iterate over the messages of a watch; leaving the iteration ends it.

        When its server or its connection goes away, the watch goes on from its last revision, on
        any server that answers within the connection's `retry_timeout`. No change is left out or
        repeated: where that is impossible, an error is raised. A watch of constraints begins with
        all of them again.

        Args:
            method: WatchObjects or WatchConstraints.
            request: its message, as for `call`.
            timeout: seconds after which it ends with DeadlineExceeded; None: never.
            traceparent: parent of the server's span.

        Raises:
            Unavailable: no server answered for too long, or it went away amid the objects of
                `send_initial`.
            TopospreadClientError: any other failure of the call.
        """
        made = self._calls.checked(method, request, streaming=True)
        return self._followed(*made, timeout, traceparent)

    def pre_filter(self, pod: PodLike, **fields: Any) -> decision.PreFilterResponse:
        return self._ask("PreFilter", fields, pod=pod)

    def filter(self, pod: PodLike | None = None, **fields: Any) -> decision.FilterResponse:
        return self._ask("Filter", fields, pod=pod)

    def score(self, pod: PodLike | None = None, **fields: Any) -> decision.ScoreResponse:
        return self._ask("Score", fields, pod=pod)

    def evaluate_pod(self, pod: PodLike, **fields: Any) -> decision.EvaluatePodResponse:
        return self._ask("EvaluatePod", fields, pod=pod)

    def batch_evaluate_pods(
        self, pods: Iterable[PodLike], **fields: Any
    ) -> decision.BatchEvaluatePodsResponse:
        return self._ask("BatchEvaluatePods", fields, pods=pods)

    def explain_pod(self, pod: PodLike, **fields: Any) -> decision.ExplainPodResponse:
        return self._ask("ExplainPod", fields, pod=pod)

    def place_pod(self, pod: PodLike, **fields: Any) -> placement.PlacePodResponse:
        return self._ask("PlacePod", fields, pod=pod)

    def reserve_node(self, pod: PodLike, node: str, **fields: Any) -> placement.ReserveNodeResponse:
        return self._ask("ReserveNode", fields, pod=pod, node=node)

    def release_reservation(
        self, pod: PodName, **fields: Any
    ) -> placement.ReleaseReservationResponse:
        return self._ask("ReleaseReservation", fields, pod=pod)

    def get_reservation(self, pod: PodName, **fields: Any) -> placement.GetReservationResponse:
        return self._ask("GetReservation", fields, pod=pod)

    def list_reservations(self, **fields: Any) -> Iterator[placement.Reservation]:
        return self._items("ListReservations", "reservations", fields)

    def list_reservations_page(self, **fields: Any) -> placement.ListReservationsResponse:
        return self._ask("ListReservations", fields)

    def apply_objects(
        self, objects: Iterable[ObjectLike], *, progress: Progress | None = None, **fields: Any
    ) -> state.ApplyObjectsResponse:
        """Any number of objects, in atomic steps of as many as the server takes in one request.

        The answer has one result for each object, in order, and the revision that contains all.
        `progress` is called after each step with the objects written so far and all there are;
        `timeout` is of each step. A step is repeated where all its objects have a resourceVersion.
        """
        return self._write("ApplyObjects", objects, progress, fields)

    def delete_objects(
        self, objects: Iterable[ReferenceLike], *, progress: Progress | None = None, **fields: Any
    ) -> state.DeleteObjectsResponse:
        """Any number of objects, in steps, as of `apply_objects`."""
        return self._write("DeleteObjects", objects, progress, fields)

    def replace_objects(
        self, kind: KindLike, objects: Iterable[ObjectLike], **fields: Any
    ) -> state.ReplaceObjectsResponse:
        """All objects are read before the first is sent; keyword arguments are ReplaceStart's.

        A call that fails before all of them have arrived changes nothing.
        """
        calls, options = self._calls, self._calls.options(fields)
        start, messages = calls.replacement(kind, objects, fields)
        while True:
            size, stream = calls.batch_size, calls.stream_of(start, messages)
            try:
                return self.call("ReplaceObjects", stream, **options)
            except InvalidRequest:
                if self._requested_batch_size() >= min(size, len(messages)):
                    raise

    def get_object(self, kind: KindLike, name: str, **fields: Any) -> state.GetObjectResponse:
        return self._ask("GetObject", fields, kind=kind, name=name)

    def list_objects(self, kind: KindLike, **fields: Any) -> Iterator[state.ClusterObject]:
        return self._items("ListObjects", "objects", fields, kind=kind)

    def list_objects_page(self, kind: KindLike, **fields: Any) -> state.ListObjectsResponse:
        return self._ask("ListObjects", fields, kind=kind)

    def watch_objects(self, **fields: Any) -> Generator[state.WatchObjectsResponse, None, None]:
        return self._watch("WatchObjects", fields)

    def get_node_table(self, **fields: Any) -> state.GetNodeTableResponse:
        return self._ask("GetNodeTable", fields)

    def get_cluster(self, **fields: Any) -> state.GetClusterResponse:
        return self._ask("GetCluster", fields)

    def list_clusters(self, **fields: Any) -> Iterator[state.Cluster]:
        return self._items("ListClusters", "clusters", fields)

    def list_clusters_page(self, **fields: Any) -> state.ListClustersResponse:
        return self._ask("ListClusters", fields)

    def delete_cluster(self, cluster: str, **fields: Any) -> state.DeleteClusterResponse:
        return self._ask("DeleteCluster", fields, cluster=cluster)

    def get_server_info(self, **fields: Any) -> server.GetServerInfoResponse:
        return self._ask("GetServerInfo", fields)

    def simulate(self, pods: PodsLike, **fields: Any) -> planner.SimulateResponse:
        return self._ask("Simulate", fields, pods=self._calls.several(pods))

    def rank_deletions(
        self, label_selector: SelectorLike | None = None, **fields: Any
    ) -> planner.RankDeletionsResponse:
        return self._ask("RankDeletions", fields, label_selector=label_selector)

    def plan_rebalance(
        self, label_selector: SelectorLike | None = None, **fields: Any
    ) -> planner.PlanRebalanceResponse:
        return self._ask("PlanRebalance", fields, label_selector=label_selector)

    def list_constraints(self, **fields: Any) -> Iterator[inspector.ConstraintStatus]:
        return self._items("ListConstraints", "constraints", fields)

    def list_constraints_page(self, **fields: Any) -> inspector.ListConstraintsResponse:
        return self._ask("ListConstraints", fields)

    def get_constraint(self, constraint_id: str, **fields: Any) -> inspector.GetConstraintResponse:
        return self._ask("GetConstraint", fields, constraint_id=constraint_id)

    def watch_constraints(
        self, **fields: Any
    ) -> Generator[inspector.WatchConstraintsResponse, None, None]:
        return self._watch("WatchConstraints", fields)

    def _ask(self, name: str, fields: dict[str, Any], /, **given: Any) -> Any:
        options = self._calls.options(fields)
        return self._answered(*self._calls.made(name, given, fields), **options)

    def _answered(
        self,
        method: Method,
        request: Any,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> Any:
        """Make a call, again and again while that may help."""
        calls, io = self._calls, self._io
        retries, cancels = calls.retries(method, request, timeout), io.cancels()
        while True:
            try:
                answer = io.begin(method, request, retries.remaining(), traceparent)
                return calls.named(method, request, answer)
            except io.failures as failed:
                error = io.error(failed, cancels)
            pause = retries.next_pause(error)
            if pause is None:
                raise retries.final_error(method, error)
            io.pause(pause)
            if retries.may_have_arrived and hasattr(request, "is_repeat"):
                request.is_repeat = True

    def _watch(self, name: str, fields: dict[str, Any]) -> Generator[Any, None, None]:
        options = self._calls.options(fields)
        return self._followed(*self._calls.made(name, {}, fields), **options)

    def _followed(
        self,
        method: Method,
        request: Any,
        timeout: float | None = None,
        traceparent: str | None = None,
    ) -> Generator[Any, None, None]:
        """Read a server stream; when its server goes away, continue it at another one."""
        calls, io = self._calls, self._io
        retries = calls.retries(method, request, timeout)
        while True:
            stream, last, cancels = None, None, io.cancels()
            try:
                stream = io.begin(method, request, retries.remaining(), traceparent)
                while (message := io.read(stream)) is not io.END:
                    last = message
                    yield message
                    cancels = io.cancels()  # it may be read by another task now
                raise io.stream_ended()
            except io.failures as failed:
                started = last is not None or io.had_started(failed)
                error = io.error(failed, cancels)
            finally:
                if stream is not None:
                    stream.cancel()
            if started:
                retries.restart()
            pause = retries.next_pause(error)
            if last is not None:
                request = calls.continued(request, last)
            if request is None or pause is None:
                raise error
            io.pause(pause)

    def _items(
        self, name: str, items: str, fields: dict[str, Any], /, **given: Any
    ) -> Iterator[Any]:
        options = self._calls.options(fields)
        method, request = self._calls.made(name, given, fields)
        while True:
            page = self._answered(method, request, **options)
            yield from getattr(page, items)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def _write(
        self,
        name: str,
        objects: Iterable[Any],
        progress: Progress | None,
        fields: dict[str, Any],
    ) -> Any:
        """Write batch by batch; the answer is that of the last, with the results of all."""
        options = self._calls.options(fields)
        write = self._calls.write(name, objects, fields)
        while not write.ended:
            request = write.request(self._calls.batch_size)
            try:
                step = self._answered(write.method, request, **options)
            except InvalidRequest:
                if self._requested_batch_size() < len(request.objects):
                    continue
                raise
            write.done(request, step)
            if progress is not None:
                progress(write.written, write.total)
        return write.answer

    def _requested_batch_size(self) -> int:
        """Number of objects for one request, as the server says, or else the default."""
        with suppress(TopospreadClientError):
            if not self._calls.limits_known:
                self._calls.learn((self.get_server_info()).limits)
        return self._calls.batch_size
