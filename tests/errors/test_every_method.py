"""The errors that every method shares have the same details in all of them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.access.callers import AccessFile
from tests.errors.calls import API, EXPANDER, NAMED, ask, refused
from tests.errors.error_status import REASONS, error_status
from tests.servers import Peer, served, settings, two_zones
from tests.waiting import PATIENCE
from topospread import errors
from topospread.app import capacity, listeners
from topospread.calls.access import AccessControl
from topospread.calls.call import ClientStreaming, ServerStreaming, UnaryBytes
from topospread.calls.memory import MemoryGuard, Sweeper
from topospread.calls.pipeline import Parts, Pipeline
from topospread.calls.sizes import MessageLimits
from topospread.config.values import Address
from topospread.rpc.server import GrpcServer
from topospread.telemetry.export import tracing_from_environment
from topospread.telemetry.metrics import Metrics
from topospread_proto.v1.cluster_state_service_pb2 import DeleteClusterRequest, WatchObjectsRequest
from topospread_proto.v1.error_reason_pb2 import ErrorReason
from topospread_proto.v1.server_service_pb2 import GetServerInfoRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from topospread.calls.call import Method

EVERY = [*API, EXPANDER]
SINGLE = [path for path, method in API.items() if not method.client_streaming]
LARGE = 2 << 20

EXAMPLES: Mapping[str, Callable[[], Exception]] = {
    "INVALID_FIELDS": lambda: errors.InvalidRequest("it does not parse"),
    "PAGE_TOKEN_MISMATCH": lambda: errors.PageTokenMismatch("of another call"),
    "CLUSTER_NOT_FOUND": lambda: errors.ClusterNotFound("prod"),
    "POD_NOT_FOUND": lambda: errors.PodNotFound("no such pod", "Pod", "default/x", "prod"),
    "OBJECT_NOT_FOUND": lambda: errors.ObjectNotFound("no such node", "Node", "x", "prod"),
    "CYCLE_EXPIRED": lambda: errors.CycleExpired("it expired"),
    "NODE_TABLE_CHANGED": lambda: errors.NodeTableChanged("another table", "t"),
    "STORE_IDENTITY_CHANGED": lambda: errors.IdentityChanged("another store"),
    "NO_FEED_PROGRESS": lambda: errors.NoFeedProgress("nobody says", "KIND_POD"),
    "REVISION_COMPACTED": lambda: errors.RevisionCompacted("too old", (7, "tag"), "token"),
    "REVISION_OF_OTHER_HISTORY": lambda: errors.RevisionOfOtherHistory("of another store"),
    "RATE_LIMITED": lambda: errors.RateExceeded("too often", 0.25),
    "QUEUE_FULL": lambda: errors.QueueFull("too many"),
    "STREAMS_FULL": lambda: errors.StreamsFull("too many"),
    "REQUEST_TOO_LARGE": lambda: errors.TooLarge("too large", "--max-request-bytes", 5),
    "TOO_MANY_CLUSTERS": lambda: errors.TooManyClusters("too many", 3),
    "STORE_UNREACHABLE": lambda: errors.StoreUnavailable("no answer"),
    "CLUSTER_LOADING": lambda: errors.ClusterLoading("not yet"),
    "STATE_TOO_STALE": lambda: errors.StateTooStale("too old"),
    "SHUTTING_DOWN": lambda: errors.ShuttingDown("it ends"),
    "PLACEMENT_CONFLICT": lambda: errors.Conflict("others were first"),
    "PLACEMENT_SUPERSEDED": lambda: errors.Superseded("another call was later"),
    "REPLACE_INCOMPLETE": lambda: errors.ReplaceIncomplete("no commit"),
    "ROLE_MISSING": lambda: errors.PermissionDenied("read", "prod"),
    "CREDENTIALS_MISSING": errors.Unauthenticated,
    "DEADLINE_EXCEEDED": lambda: errors.DeadlineExceeded("too late"),
    "CALLER_GONE": lambda: errors.CallerGone("gone"),
    "VALUE_CORRUPT": lambda: errors.CorruptValue("not readable"),
    "METHOD_NOT_SERVED": lambda: errors.MethodNotServed("not in this version"),
    "INTERNAL": lambda: ZeroDivisionError("a defect"),
}


def test_every_reason_is_known_here() -> None:
    declared = {name.removeprefix("ERROR_REASON_") for name in ErrorReason.keys()} - {"UNSPECIFIED"}  # noqa: SIM118 - an enum wrapper
    assert declared == REASONS.keys() == EXAMPLES.keys()


def test_every_error_class_has_its_reason() -> None:
    def below(kind: type[Any]) -> Iterator[type[Any]]:
        yield kind
        for each in kind.__subclasses__():
            yield from below(each)

    ours = [kind for kind in below(errors.TopospreadError) if kind.__module__ == errors.__name__]
    assert {kind.reason for kind in ours} == REASONS.keys()


# ------------------------------ every method, every reason


@pytest.fixture(scope="module")
def failing() -> Iterator[grpc.Channel]:
    """A server all of whose methods fail with the reason that the request names."""

    def fail(raw: Any, call: object) -> bytes:
        del call
        raise EXAMPLES[raw.decode()]()

    class Word:
        """Stands for any message: its bytes are the word."""

        DESCRIPTOR = GetServerInfoRequest.DESCRIPTOR

        @staticmethod
        def FromString(raw: bytes) -> bytes:  # noqa: N802 - protobuf's name for it
            return raw

    def failing(path: str) -> Method:
        kind: Any = Word
        method = API[path]
        if method.client_streaming:
            return ClientStreaming(kind, lambda raws, call: fail(next(raws), call))
        if method.server_streaming:
            return ServerStreaming(kind, lambda raw, call: iter([fail(raw, call)]))
        return UnaryBytes(fail)

    with _bare({path.removeprefix("/"): failing(path) for path in API}) as channel:
        yield channel


@contextmanager
def _bare(methods: Mapping[str, Method]) -> Iterator[grpc.Channel]:
    """A server of these methods alone."""
    chosen, tracing = settings(), tracing_from_environment("0")
    sweeper, metrics = Sweeper(), Metrics("0")
    pools = capacity.make_pools(chosen, metrics, sweeper)
    options = listeners.grpc_options(chosen)
    parts = Parts(tracing, metrics, AccessControl(), MessageLimits(), MemoryGuard(1 << 20), sweeper)
    server = GrpcServer(Pipeline(parts), methods, pools, options)
    port = server.listen(Address("127.0.0.1", 0), None)
    server.start()
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield channel
    server.stop(0)
    pools.shutdown()
    tracing.close()


@pytest.mark.parametrize("reason", REASONS)
def test_reason_has_the_same_details_in_all_methods(failing, reason):
    for path in API:
        found = refused(failing, path, [reason.encode()])
        found.check(reason)
        assert found.metadata.keys() == REASONS[reason].metadata, path


def test_internal_error_names_its_trace(failing):
    trace = "0af7651916cd43dd8448eb211c80319c"
    parent = [("traceparent", f"00-{trace}-b7ad6b7169203331-01")]
    for path in API:
        assert refused(failing, path, [b"INTERNAL"], token=parent).metadata == {"traceId": trace}


# ------------------------------ before a method is carried out


@pytest.fixture(scope="module")
def server() -> Iterator[Peer]:
    with served(max_request_bytes="1MiB") as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        yield peer


def test_unparsable_request(server):
    for path in EVERY:
        found = refused(server.channel, path, [b"\xff"])
        found.check("INVALID_FIELDS")
        assert found.fields == [("", "FIELD_VALUE_INVALID")], path


def test_call_without_a_message(server):
    for path in (*SINGLE, EXPANDER):
        refused(server.channel, path, []).check("INVALID_FIELDS")


def test_oversized_request(server):
    # Packed, so that it passes gRPC's own limit, of which gRPC's core tells without us.
    packed = {"compression": grpc.Compression.Gzip}
    for path in EVERY:
        message = b"\x0a" + b"\x80\x80\x80\x01" + bytes(LARGE)
        found = refused(server.channel, path, [message], **packed)
        found.check("REQUEST_TOO_LARGE")
        (limit,) = found.details["QuotaFailure"].violations
        assert (limit.subject, limit.quota_value) == ("--max-request-bytes", 1 << 20), path


@pytest.mark.parametrize("path", ["/topospread.v1.DecisionService/Guess", "/a.B/C", "/a/b/c"])
def test_unknown_method(server, path):
    refused(server.channel, path, [b""]).check("METHOD_NOT_SERVED")


def test_rate_limited_caller():
    with served(rate_limit=0.01, rate_burst=1) as server, Peer(server.address) as peer:
        ask(peer.channel, NAMED["GetServerInfo"], [b""])
        for path in EVERY:
            refused(peer.channel, path, [b""]).check("RATE_LIMITED")


def test_full_queue():
    with served() as server, Peer(server.address) as peer:
        pools = server.pools
        for pool in pools.by_name().values():
            inside = vars(pool)
            inside["_queue"].bound = inside["_most"] = 0
        with pools.decisions.paused():
            for path in EVERY:
                streams = path in API and API[path].server_streaming
                reason = "STREAMS_FULL" if streams else "QUEUE_FULL"
                refused(peer.channel, path, [b""]).check(reason)


@pytest.fixture(scope="module")
def with_authorization(tmp_path_factory) -> Iterator[tuple[grpc.Channel, AccessFile]]:
    path = tmp_path_factory.mktemp("access") / "access.yaml"
    access = AccessFile(path, elsewhere=["admin@elsewhere"])
    with served(access_file=str(access)) as server, Peer(server.address) as peer:
        yield peer.channel, access


REQUESTS = {
    NAMED["DeleteCluster"]: DeleteClusterRequest(cluster="default"),
}
"""Requests of methods that name no cluster by default."""

OF_ALL_CLUSTERS = (NAMED["ListClusters"], NAMED["GetServerInfo"])
"""Methods that anybody may call who has a role somewhere."""


def test_caller_without_credentials(with_authorization):
    for path in EVERY:
        refused(with_authorization[0], path, [b""]).check("CREDENTIALS_MISSING")


def test_caller_without_the_role(with_authorization):
    channel, access = with_authorization
    token = access.bearer("elsewhere")
    for path in (path for path in EVERY if path not in OF_ALL_CLUSTERS):
        found = refused(channel, path, [REQUESTS.get(path, b"")], token=token)
        found.check("ROLE_MISSING")
        assert found.metadata["cluster"] == "default", path
        assert found.metadata["role"] in ("read", "decide", "place", "write", "admin"), path


def test_unknown_method_is_hidden_from_callers_without_credentials(with_authorization):
    channel, access = with_authorization
    refused(channel, "/a/b", [b""]).check("CREDENTIALS_MISSING")
    found = refused(channel, "/a/b", [b""], token=access.bearer("elsewhere"))
    found.check("METHOD_NOT_SERVED")


def test_stopping_server_ends_open_streams_with_its_reason():
    with served() as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        watch = peer.state.WatchObjects(WatchObjectsRequest(send_initial=True), timeout=PATIENCE)
        next(watch)
        server.stop(5.0)
        with pytest.raises(grpc.RpcError) as ended:
            list(watch)
        error_status(ended.value).check("SHUTTING_DOWN")
