"""Traces of a real server at a real OTLP receiver: one span a call, and its attributes."""

from __future__ import annotations

import io
import json
import secrets
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from tests.servers import Peer, evaluate_request, incoming, pod, replacement, served, two_zones
from tests.telemetry.otlp import TraceReceiver, plain, trace_receiver
from tests.waiting import PATIENCE
from topospread.telemetry.logs import start_logging
from topospread_client import pod_from_manifest
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as engine_pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PARENT = "00f067aa0ba902b7"
ENGINE, STATE = "topospread.v1.DecisionService", "topospread.v1.ClusterStateService"
OK, CANCELLED, INVALID_ARGUMENT, NOT_FOUND = 0, 1, 3, 5


@pytest.fixture
def receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[TraceReceiver]:
    """A receiver that servers made from now on export to; only callers decide what is recorded."""
    with trace_receiver() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.endpoint)
        monkeypatch.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
        # Sooner than the default, so that nothing is waited for.
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
        yield receiver


@pytest.fixture
def peer(receiver: TraceReceiver) -> Iterator[Peer]:
    with served() as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        yield peer
    # Everything was exported when the server stopped, and nothing is left over.
    assert receiver.waiting() == 0


class Traced:
    """A trace of the test's own: metadata for a call, and what a call of it answered."""

    def __init__(self, *, sampled: bool = True) -> None:
        self.id = secrets.token_hex(16)
        flag = "01" if sampled else "00"
        self.metadata = (("traceparent", f"00-{self.id}-{PARENT}-{flag}"),)

    def spans(self, receiver: TraceReceiver, returned: str, below: int = 0) -> list[Span]:
        """The server's span, which was returned, and those below it, in their places."""
        found = receiver.spans(1 + below)
        (server,) = [span for span in found if span.kind == Span.SPAN_KIND_SERVER]
        children = [span for span in found if span is not server]
        assert {span.trace_id.hex() for span in found} == {self.id}
        assert server.parent_span_id.hex() == PARENT
        assert {span.parent_span_id for span in children} <= {server.span_id}
        assert returned == f"00-{self.id}-{server.span_id.hex()}-01"
        return [server, *children]


def unary(method: str, request: Any) -> Callable[[Peer, Any], str]:
    def make(peer: Peer, metadata: Any) -> str:
        stub = peer.engine if hasattr(peer.engine, method) else peer.state
        answer = getattr(stub, method)(request, timeout=PATIENCE, metadata=metadata)
        returned: str = answer.meta.traceparent
        return returned

    return make


def replace(peer: Peer, metadata: Any) -> str:
    messages = replacement(pod("only", "a1"), kind=common_pb2.KIND_POD)
    answer = peer.state.ReplaceObjects(iter(messages), timeout=PATIENCE, metadata=metadata)
    return answer.meta.traceparent


def get_cluster(peer: Peer, metadata: Any) -> str:
    peer.evaluate()  # from then on it is loaded, and has a revision
    return unary("GetCluster", state_pb.GetClusterRequest())(peer, metadata)


POD = pod_from_manifest(incoming())
CALLS: dict[str, tuple[Callable[[Peer, Any], str], int]] = {
    "PreFilter": (
        unary("PreFilter", engine_pb.PreFilterRequest(pod=common_pb2.PodSource(object=POD))),
        0,
    ),
    "Filter": (unary("Filter", engine_pb.FilterRequest(pod=common_pb2.PodSource(object=POD))), 0),
    "Score": (unary("Score", engine_pb.ScoreRequest(pod=common_pb2.PodSource(object=POD))), 0),
    "EvaluatePod": (unary("EvaluatePod", evaluate_request()), 0),
    "ExplainPod": (
        unary("ExplainPod", engine_pb.ExplainPodRequest(pod=common_pb2.PodSource(object=POD))),
        0,
    ),
    "BatchEvaluatePods": (
        unary(
            "BatchEvaluatePods",
            engine_pb.BatchEvaluatePodsRequest(pods=[common_pb2.PodSource(object=POD)] * 3),
        ),
        0,
    ),
    "ApplyObjects": (
        unary("ApplyObjects", state_pb.ApplyObjectsRequest(objects=[pod("one", "a1")])),
        1,
    ),
    "DeleteObjects": (
        unary(
            "DeleteObjects",
            state_pb.DeleteObjectsRequest(
                objects=[state_pb.ObjectReference(kind=common_pb2.KIND_POD, name="web-0")]
            ),
        ),
        1,
    ),
    "ReplaceObjects": (replace, 2),
    "GetObject": (
        unary("GetObject", state_pb.GetObjectRequest(kind=common_pb2.KIND_NODE, name="a1")),
        0,
    ),
    "ListObjects": (unary("ListObjects", state_pb.ListObjectsRequest(kind=common_pb2.KIND_POD)), 0),
    "GetNodeTable": (unary("GetNodeTable", state_pb.GetNodeTableRequest()), 0),
    "GetCluster": (get_cluster, 0),
    "ListClusters": (unary("ListClusters", state_pb.ListClustersRequest()), 0),
    "DeleteCluster": (unary("DeleteCluster", state_pb.DeleteClusterRequest(cluster="default")), 1),
}
"""How each call is made that ends well, and how often it writes to the store."""


def service_of(method: str) -> str:
    names = engine_pb.DESCRIPTOR.services_by_name["DecisionService"].methods_by_name
    return ENGINE if method in names else STATE


@pytest.mark.parametrize("method", CALLS)
def test_each_call_is_one_server_span_and_its_writes_are_below_it(receiver, peer, method):
    make, writes = CALLS[method]
    trace = Traced()
    returned = make(peer, trace.metadata)
    server, *below = trace.spans(receiver, returned, writes)
    assert server.name == f"{service_of(method)}/{method}"
    assert server.status.code == Status.STATUS_CODE_UNSET
    said = plain(server.attributes)
    assert said["rpc.service"] == service_of(method)
    assert said["rpc.method"] == method
    assert said["rpc.grpc.status_code"] == OK
    if method != "ListClusters":
        assert said["topospread.cluster"] == "default"
    if method not in {"ListClusters", "DeleteCluster", "BatchEvaluatePods"}:
        assert said["topospread.revision"]
    for span in below:
        assert span.kind == Span.SPAN_KIND_CLIENT
        assert span.name.startswith("store ")
        assert plain(span.attributes)["topospread.cluster"] == "default"


def test_every_method_has_a_traced_example(peer):
    """With the streams, which have tests of their own."""
    methods = {
        method.name
        for file, service in ((engine_pb, "DecisionService"), (state_pb, "ClusterStateService"))
        for method in file.DESCRIPTOR.services_by_name[service].methods
    }
    assert methods - CALLS.keys() == {"WatchObjects"}


def test_span_of_a_decision_has_its_inputs(receiver, peer):
    trace = Traced()
    answer = peer.engine.EvaluatePod(evaluate_request(), timeout=PATIENCE, metadata=trace.metadata)
    (span,) = trace.spans(receiver, answer.meta.traceparent)
    said = plain(span.attributes)
    stages = {name: value for name, value in said.items() if ".stage." in name}
    assert {name: said[name] for name in said.keys() - stages.keys()} == {
        "rpc.system": "grpc",
        "rpc.service": ENGINE,
        "rpc.method": "EvaluatePod",
        "rpc.grpc.status_code": OK,
        "topospread.cluster": "default",
        "topospread.profile": "default-scheduler",
        "topospread.revision": said["topospread.revision"],
        "topospread.revision.number": 1,
        "topospread.status": "Success",
        "topospread.constraints.hard": ["topology.kubernetes.io/zone"],
        "topospread.constraints.soft": [],
        "topospread.constraints.defaulted": False,
        "topospread.nodes.seen": 3,
        "topospread.nodes": 3,
        "topospread.feasible": 1,
        "topospread.verdicts.Success": 1,
        "topospread.verdicts.Unschedulable": 2,
        "topospread.stale_for_s": 0.0,
    }
    assert {"topospread.stage.resolve_us", "topospread.stage.filter_us"} <= stages.keys()
    assert all(isinstance(value, float) and value > 0 for value in stages.values())


def test_spans_of_filter_and_score_count_the_nodes(receiver, peer):
    trace = Traced()
    request = engine_pb.FilterRequest(pod=common_pb2.PodSource(object=POD))
    request.candidates.names.names.extend(["a1", "b1", "nowhere"])
    answer = peer.engine.Filter(request, timeout=PATIENCE, metadata=trace.metadata)
    said = plain(trace.spans(receiver, answer.meta.traceparent)[0].attributes)
    assert (said["topospread.nodes"], said["topospread.feasible"]) == (3, 1)
    assert said["topospread.verdicts.Unschedulable"] == 1


def test_span_of_a_batch_counts_its_pods_by_result(receiver, peer):
    nowhere = pod_from_manifest(incoming(topologyKey="nowhere"))
    broken = pod_from_manifest(incoming(labelSelector={"matchLabels": {"a": "b c"}}))
    pods = [common_pb2.PodSource(object=each) for each in (POD, nowhere, POD, broken)]
    trace = Traced()
    answer = peer.engine.BatchEvaluatePods(
        engine_pb.BatchEvaluatePodsRequest(pods=pods), timeout=PATIENCE, metadata=trace.metadata
    )
    said = plain(trace.spans(receiver, answer.meta.traceparent)[0].attributes)
    assert said["topospread.pods"] == 4
    assert said["topospread.pods.scheduled"] == 2
    assert said["topospread.pods.unschedulable"] == 1
    assert (said["topospread.pods.refused"], said["topospread.pods.error"]) == (0, 1)
    assert said["topospread.revision"] == answer.meta.revision


def test_replace_in_pieces_has_a_span_for_each_piece(receiver, peer):
    pods = [pod(f"p{n}", "a1") for n in range(1001)]
    messages = replacement(*pods, kind=common_pb2.KIND_POD)
    trace = Traced()
    answer = peer.state.ReplaceObjects(iter(messages), timeout=PATIENCE, metadata=trace.metadata)
    # Three pods that were there before go, so there are 1,004 changes, 500 a piece; the last one
    # notes that all were listed.
    server, *pieces = trace.spans(receiver, answer.meta.traceparent, 4)
    changes = [plain(piece.attributes)["topospread.store.changes"] for piece in pieces]
    assert sorted(map(str, changes)) == ["0", "4", "500", "500"]
    assert plain(server.attributes)["topospread.cluster"] == "default"


FAILURES = {
    "bad input": (
        f"{ENGINE}/EvaluatePod",
        engine_pb.EvaluatePodRequest(),
        INVALID_ARGUMENT,
        "InvalidRequest",
    ),
    "unknown": (
        f"{ENGINE}/EvaluatePod",
        evaluate_request(cluster="nobodys"),
        NOT_FOUND,
        "ClusterNotFound",
    ),
    "unparsable": (f"{ENGINE}/EvaluatePod", b"\xff", INVALID_ARGUMENT, "InvalidRequest"),
}


@pytest.mark.parametrize(("method", "request_", "code", "error"), FAILURES.values(), ids=FAILURES)
def test_spans_of_failed_calls_have_their_status(receiver, peer, method, request_, code, error):
    raw = request_ if isinstance(request_, bytes) else request_.SerializeToString()
    trace = Traced()
    multi: Any = peer.channel.unary_unary(f"/{method}")
    with pytest.raises(grpc.RpcError) as failed:
        multi(raw, timeout=PATIENCE, metadata=trace.metadata)
    trailers: Any = failed.value.trailing_metadata()
    (span,) = trace.spans(receiver, dict(trailers)["traceparent"])
    said = plain(span.attributes)
    assert said["rpc.grpc.status_code"] == code
    assert said["error.type"] == error
    # After OpenTelemetry's conventions a server's span fails by the server's fault only.
    assert span.status.code != Status.STATUS_CODE_ERROR


def test_watch_is_one_span(receiver, peer):
    before = peer.evaluate().meta.revision
    peer.apply(pod("first", "a1"))
    watching, writing = Traced(), Traced()
    request = state_pb.WatchObjectsRequest(revision=before)
    stream = peer.state.WatchObjects(request, timeout=PATIENCE, metadata=watching.metadata)
    assert next(stream).events[0].ref.name == "first"
    peer.state.ApplyObjects(
        state_pb.ApplyObjectsRequest(objects=[pod("second", "a1")]),
        timeout=PATIENCE,
        metadata=writing.metadata,
    )
    assert next(stream).events[0].ref.name == "second"
    stream.cancel()
    by_name = {span.name: span for span in receiver.spans(3)}
    watch, write = by_name[f"{STATE}/WatchObjects"], by_name[f"{STATE}/ApplyObjects"]
    assert (watch.trace_id.hex(), watch.parent_span_id.hex()) == (watching.id, PARENT)
    assert plain(watch.attributes)["rpc.grpc.status_code"] == CANCELLED
    assert watch.start_time_unix_nano <= write.start_time_unix_nano
    assert write.end_time_unix_nano <= watch.end_time_unix_nano


def test_log_lines_of_a_call_carry_its_trace(start_redis):
    """A write that fails is logged, with the trace of the call that it failed for."""
    lines = io.StringIO()
    output = start_logging("info", "json", lines)
    try:
        redis = start_redis()
        with (
            redis,
            served(store=redis.url) as server,
            Peer(server.address) as here,
        ):
            here.apply(*two_zones())
            redis.kill()
            trace = Traced(sampled=False)
            with pytest.raises(grpc.RpcError) as failed:
                here.state.ApplyObjects(
                    state_pb.ApplyObjectsRequest(objects=[pod("late", "a1")]),
                    timeout=PATIENCE,
                    metadata=trace.metadata,
                )
            assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    finally:
        output.close()
    logged = [json.loads(line) for line in lines.getvalue().splitlines()]
    (line,) = [line for line in logged if "apply" in line["message"]]
    assert line["trace_id"] == trace.id
    trailers: Any = failed.value.trailing_metadata()
    assert line["span_id"] == dict(trailers)["traceparent"].split("-")[2]
    # What the follower says belongs to no call.
    assert all("trace_id" not in line for line in logged if "out of reach" in line["message"])
