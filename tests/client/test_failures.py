"""How failed calls reach the caller, and which calls are repeated."""

from __future__ import annotations

import math
import socket
import threading
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.client.scripted import Failure
from topospread_client import errors, rpcs
from topospread_client.answers import Kind
from topospread_client.connection import Connection
from topospread_client.requests import Reference
from topospread_proto.v1.cluster_state_pb2 import (
    ApplyResponse,
    DeleteResponse,
    DropClusterResponse,
    ListClustersResponse,
)
from topospread_proto.v1.common_pb2 import BadRequest, ErrorInfo, RetryInfo, RpcStatus
from topospread_proto.v1.placement_pb2 import (
    PlaceRequest,
    PlaceResponse,
    ReserveRequest,
    ReserveResponse,
)
from topospread_proto.v1.spread_engine_pb2 import (
    BatchEvaluateResponse,
    EvaluateResponse,
    FilterResponse,
    ScoreResponse,
)

POD = {"kind": "Pod", "metadata": {"name": "incoming"}}
NODE = {"kind": "Node", "metadata": {"name": "n"}}
VERSIONED = {"kind": "Node", "metadata": {"name": "n", "resourceVersion": "7"}}
NEWER: Any = 99  # a code that this client does not have
UNAVAILABLE = Failure(grpc.StatusCode.UNAVAILABLE, "going away")
REFUSED = Failure(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")
"""As gRPC says that there was no connection, and no server's metadata beside it."""

KINDS = {
    grpc.StatusCode.INVALID_ARGUMENT: errors.InvalidRequest,
    grpc.StatusCode.NOT_FOUND: errors.NotFound,
    grpc.StatusCode.FAILED_PRECONDITION: errors.PreconditionFailed,
    grpc.StatusCode.OUT_OF_RANGE: errors.RevisionUnavailable,
    grpc.StatusCode.RESOURCE_EXHAUSTED: errors.LimitExceeded,
    grpc.StatusCode.DEADLINE_EXCEEDED: errors.DeadlineExceeded,
    grpc.StatusCode.ABORTED: errors.Conflict,
    grpc.StatusCode.UNAVAILABLE: errors.Unavailable,
    grpc.StatusCode.UNAUTHENTICATED: errors.NotPermitted,
    grpc.StatusCode.PERMISSION_DENIED: errors.NotPermitted,
    grpc.StatusCode.UNIMPLEMENTED: errors.NotSupported,
    grpc.StatusCode.INTERNAL: errors.ServerFault,
    grpc.StatusCode.UNKNOWN: errors.ServerFault,
    grpc.StatusCode.DATA_LOSS: errors.ServerFault,
}


@pytest.mark.parametrize("code", KINDS, ids=lambda code: code.name)
def test_each_status_has_its_error(connect, script, code):
    trailers = (("traceparent", f"00-{'a' * 32}-{'b' * 16}-01"),)
    script.answer(rpcs.EVALUATE, Failure(code, "what the server says", trailers=trailers))
    with pytest.raises(errors.TopospreadClientError, match="what the server says") as failed:
        connect(Connection(script.address, retries=False)).evaluate(POD)
    assert type(failed.value) is KINDS[code]
    assert failed.value.traceparent == trailers[0][1]
    assert isinstance(failed.value.__cause__, grpc.RpcError)


def test_violations_are_read_from_the_details(connect, script):
    violation = BadRequest.FieldViolation(field="a[0].b", description="too odd", reason="Invalid")
    details = (("ErrorInfo", ErrorInfo(reason="X")), ("BadRequest", BadRequest()))
    details[1][1].field_violations.append(violation)
    script.answer(
        rpcs.EVALUATE, Failure(grpc.StatusCode.INVALID_ARGUMENT, "a[0].b: too odd", details)
    )
    with pytest.raises(errors.InvalidRequest) as refused:
        connect(script.address).evaluate(POD)
    assert refused.value.violations == (errors.Violation("a[0].b", "Invalid", "too odd"),)
    assert refused.value.violations[0].text == "a[0].b: Invalid: too odd"


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("CYCLE_EXPIRED", errors.CycleExpired),
        ("NODE_TABLE_CHANGED", errors.NodeTableChanged),
        ("STORE_IDENTITY_CHANGED", errors.IdentityChanged),
        ("SOMETHING_NEWER", errors.PreconditionFailed),
    ],
)
def test_the_reason_tells_failed_preconditions_apart(connect, script, reason, kind):
    details = (("ErrorInfo", ErrorInfo(reason=reason, domain="topospread")),)
    script.answer(rpcs.FILTER, Failure(grpc.StatusCode.FAILED_PRECONDITION, "out of date", details))
    with pytest.raises(errors.PreconditionFailed) as failed:
        connect(script.address).filter(cycle="c")
    assert type(failed.value) is kind


@pytest.mark.parametrize("code", [grpc.StatusCode.ABORTED, grpc.StatusCode.UNAVAILABLE])
def test_the_server_says_when_to_retry(connect, script, code):
    details = (("RetryInfo", RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000))),)
    script.answer(rpcs.APPLY, Failure(code, "later", details))
    with pytest.raises(errors.TopospreadClientError) as failed:
        connect(Connection(script.address, retries=False)).apply([NODE])
    assert isinstance(failed.value, errors.Conflict | errors.Unavailable)
    assert failed.value.retry_after == 1.5


def test_details_that_cannot_be_read_do_not_hide_the_status(connect, script):
    trailers = (("grpc-status-details-bin", b"\xff\xff\xff"),)
    script.answer(
        rpcs.EVALUATE, Failure(grpc.StatusCode.INVALID_ARGUMENT, "bad", trailers=trailers)
    )
    with pytest.raises(errors.InvalidRequest, match="bad") as refused:
        connect(script.address).evaluate(POD)
    assert refused.value.violations == ()


def test_calls_that_change_nothing_are_repeated(connect, script):
    script.answer(rpcs.EVALUATE, UNAVAILABLE, UNAVAILABLE, EvaluateResponse(revision="r"))
    assert connect(script.address).evaluate(POD).revision == "r"
    assert script.calls(rpcs.EVALUATE) == 3


def test_writes_that_have_no_further_effect_the_second_time_are_repeated(connect, script):
    script.answer(rpcs.APPLY, UNAVAILABLE, ApplyResponse(revision="r"))
    script.answer(rpcs.PLACE, UNAVAILABLE, PlaceResponse(node="n"))
    assert connect(script.address).apply([VERSIONED]).revision == "r"
    assert connect(script.address).place(POD).node == "n"
    assert script.calls(rpcs.APPLY) == script.calls(rpcs.PLACE) == 2


def test_a_place_is_a_repeat_only_once_a_server_may_know_of_it(connect, script):
    """A repeat may not renew what an earlier call holds; a first try that never left is none."""
    script.answer(rpcs.PLACE, REFUSED, PlaceResponse(node="n"))
    script.answer(rpcs.RESERVE, REFUSED, UNAVAILABLE, REFUSED, ReserveResponse())
    connect(script.address).place(POD)
    connect(script.address).reserve(POD, "n")
    sent: dict[str, list[bytes]] = {rpcs.PLACE.path: [], rpcs.RESERVE.path: []}
    for path, request, _ in script.seen:
        sent[path].append(request)
    placed = [PlaceRequest.FromString(each).is_repeat for each in sent[rpcs.PLACE.path]]
    assert placed == [False, False]
    reserved = [ReserveRequest.FromString(each).is_repeat for each in sent[rpcs.RESERVE.path]]
    assert reserved == [False, False, True, True]


def test_a_write_is_repeated_as_often_as_a_question_and_within_its_timeout(connect, script):
    script.answer(rpcs.APPLY, *[UNAVAILABLE] * 3, ApplyResponse(revision="r"))
    connection = Connection(script.address, retry_timeout=20)
    assert connect(connection).apply([VERSIONED]).revision == "r"
    assert script.calls(rpcs.APPLY) == 4
    script.answer(rpcs.APPLY, UNAVAILABLE)
    with pytest.raises(errors.Unavailable, match="going away"):
        connect(Connection(script.address, retry_timeout=0.07)).apply([VERSIONED])
    assert script.calls(rpcs.APPLY) == 5


def test_writes_are_not_repeated_when_retries_are_off(connect, script):
    script.answer(rpcs.PLACE, UNAVAILABLE, PlaceResponse(node="n"))
    with pytest.raises(errors.Unavailable):
        connect(Connection(script.address, retries=False)).place(POD)
    assert script.calls(rpcs.PLACE) == 1


def test_a_write_that_never_left_is_not_said_to_be_in_doubt(connect):
    with socket.socket() as taken:  # bound and not listening: nobody else can answer there
        taken.bind(("127.0.0.1", 0))
        client = connect(f"127.0.0.1:{taken.getsockname()[1]}")
        for write in (lambda: client.apply([NODE]), lambda: client.place(POD, timeout=0.5)):
            with pytest.raises(errors.Unavailable) as failed:
                write()
            assert "not known" not in str(failed.value)


def test_other_writes_are_not_repeated(connect, script):
    script.answer(rpcs.DELETE, UNAVAILABLE, DeleteResponse(revision="r"))
    script.answer(rpcs.DROP_CLUSTER, UNAVAILABLE, DropClusterResponse())
    with pytest.raises(errors.Unavailable, match="going away"):
        connect(script.address).delete([Reference(Kind.NODE, "n")])
    with pytest.raises(errors.Unavailable, match="going away"):
        connect(script.address).drop_cluster("default")
    assert script.calls(rpcs.DELETE) == script.calls(rpcs.DROP_CLUSTER) == 1


def test_retries_can_be_turned_off(connect, script):
    script.answer(rpcs.EVALUATE, UNAVAILABLE)
    with pytest.raises(errors.Unavailable):
        connect(Connection(script.address, retries=False)).evaluate(POD)
    assert script.calls(rpcs.EVALUATE) == 1


def test_bad_input_is_not_repeated(connect, script):
    script.answer(rpcs.EVALUATE, Failure(grpc.StatusCode.INVALID_ARGUMENT, "bad"))
    with pytest.raises(errors.InvalidRequest):
        connect(script.address).evaluate(POD)
    assert script.calls(rpcs.EVALUATE) == 1


def test_no_server_at_all_is_unavailable(connect):
    with socket.socket() as taken:  # bound and not listening: nobody else can answer there
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(errors.Unavailable) as failed:
            connect(Connection(address, retries=False)).clusters()
    assert not failed.value.reached
    assert failed.value.traceparent is None


def test_a_server_that_answered_was_reached(connect, script):
    trailers = (("traceparent", f"00-{'a' * 32}-{'b' * 16}-01"),)
    failure = Failure(grpc.StatusCode.UNAVAILABLE, "store gone", trailers=trailers)
    script.answer(rpcs.APPLY, failure)
    with pytest.raises(errors.Unavailable) as failed:
        connect(script.address).apply([NODE])
    assert failed.value.reached


@pytest.mark.parametrize("per_call", [True, False])
def test_a_call_ends_with_its_timeout(connect, script, per_call):
    released = threading.Event()

    def hang(context):
        if context.add_callback(released.set):
            released.wait()
        return ListClustersResponse()

    script.answer(rpcs.LIST_CLUSTERS, hang)
    client = connect(script.address, timeout=60 if per_call else 0.2)
    with pytest.raises(errors.DeadlineExceeded):
        client.clusters(timeout=0.2 if per_call else None)


@pytest.mark.parametrize("timeout", [0, -1, math.nan])
def test_a_timeout_that_is_none_is_refused(connect, script, timeout):
    script.answer(rpcs.LIST_CLUSTERS, ListClustersResponse())
    client = connect(script.address)
    with pytest.raises(errors.InvalidRequest, match="more than 0 seconds"):
        client.clusters(timeout=timeout)
    with pytest.raises(errors.InvalidRequest, match="more than 0 seconds"):
        connect(script.address, timeout=timeout)
    with client.evaluate_stream() as stream, pytest.raises(errors.InvalidRequest, match="timeout"):
        stream.evaluate(POD, timeout=timeout)
    assert script.seen == []


@pytest.mark.parametrize("timeout", [1e10, math.inf])
def test_a_timeout_may_have_no_end(connect, script, timeout):
    script.answer(rpcs.LIST_CLUSTERS, ListClustersResponse(server_version="1"))
    assert connect(script.address).clusters(timeout=timeout).server_version == "1"
    assert connect(script.address, timeout=timeout).clusters().server_version == "1"


def test_a_server_that_cancels_is_unavailable(connect, script):
    script.answer(rpcs.DROP_CLUSTER, Failure(grpc.StatusCode.CANCELLED, "stopping"))
    with pytest.raises(errors.Unavailable, match="stopping"):
        connect(script.address).drop_cluster("default")


def test_metadata_that_cannot_be_sent_is_bad_input(connect, script):
    script.answer(rpcs.LIST_CLUSTERS, ListClustersResponse())
    with pytest.raises(errors.InvalidRequest):
        connect(script.address).clusters(traceparent="no\nheader")


def test_a_call_that_the_server_lacks_is_not_supported(connect, script):
    with pytest.raises(errors.NotSupported):
        connect(script.address).clusters()


def test_a_pod_of_a_batch_may_fail_alone(connect, script):
    response = BatchEvaluateResponse(revision="r")
    response.results.add().response.message = "fits"
    for code in (3, 14, 10, 4242):
        response.results.add().error.CopyFrom(RpcStatus(code=code, message="wrong"))
    script.answer(rpcs.BATCH_EVALUATE, response)
    results = connect(script.address).batch_evaluate([POD] * 5).results
    assert [type(result).__name__ for result in results] == [
        "Evaluation",
        "InvalidRequest",
        "Unavailable",
        "Conflict",
        "ServerFault",
    ]


def test_what_only_a_newer_server_says_is_the_servers_fault(connect, script):
    response = PlaceResponse()
    response.status.code = NEWER
    script.answer(rpcs.PLACE, response)
    with pytest.raises(errors.ServerFault, match="99"):
        connect(script.address).place(POD)


def test_columns_that_do_not_match_the_names_are_the_servers_fault(connect, script):
    script.answer(rpcs.FILTER, FilterResponse(names=["a"], node_table="t", verdicts=[0, 0]))
    script.answer(rpcs.SCORE, ScoreResponse(names=["a"], raw=[1], normalized=[]))
    client = connect(script.address)
    with pytest.raises(errors.ServerFault, match="2 values for 1 nodes"):
        client.filter(POD)
    with pytest.raises(errors.ServerFault, match="0 values for 1 nodes"):
        client.score(POD)
