"""How failed calls reach the caller, and which calls are repeated."""

from __future__ import annotations

import math
import socket
import threading
import time
from itertools import pairwise
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo, RetryInfo
from google.rpc.status_pb2 import Status

from tests.client.scripted import Failure, evaluation
from topospread_client import (
    Connection,
    error_from_status,
    normalized_by_node,
    verdicts_by_node,
)
from topospread_client import _errors as errors
from topospread_client._calls import MAX_CANCELS, MAX_REFUSALS
from topospread_client._methods import METHODS
from topospread_proto.v1.cluster_state_service_pb2 import (
    ApplyObjectsResponse,
)
from topospread_proto.v1.common_pb2 import VERDICT_CODE_SUCCESS, ResponseMeta, Verdict
from topospread_proto.v1.decision_service_pb2 import (
    BatchEvaluatePodsResponse,
    FilterResponse,
    ScoreResponse,
)
from topospread_proto.v1.placement_service_pb2 import (
    PlacePodRequest,
    PlacePodResponse,
    ReserveNodeRequest,
    ReserveNodeResponse,
)
from topospread_proto.v1.planner_service_pb2 import PlanRebalanceResponse
from topospread_proto.v1.server_service_pb2 import GetServerInfoResponse, ServerLimits

META = ResponseMeta(revision="r")
PASSES = Verdict(code=VERDICT_CODE_SUCCESS)
POD = {"kind": "Pod", "metadata": {"name": "incoming"}}
NODE = {"kind": "Node", "metadata": {"name": "n"}}
VERSIONED = {"kind": "Node", "metadata": {"name": "n", "resourceVersion": "7"}}
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
    grpc.StatusCode.UNAUTHENTICATED: errors.Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: errors.PermissionDenied,
    grpc.StatusCode.UNIMPLEMENTED: errors.NotSupported,
    grpc.StatusCode.INTERNAL: errors.ServerFault,
    grpc.StatusCode.UNKNOWN: errors.ServerFault,
    grpc.StatusCode.DATA_LOSS: errors.ServerFault,
}


@pytest.mark.parametrize("code", KINDS, ids=lambda code: code.name)
def test_each_status_has_its_error(connect, script, code):
    trailers = (("traceparent", f"00-{'a' * 32}-{'b' * 16}-01"),)
    later = RetryInfo(retry_delay=Duration(seconds=1, nanos=500_000_000))
    failure = Failure(code, "what the server says", (("RetryInfo", later),), trailers)
    script.answer(METHODS["EvaluatePod"], failure)
    with pytest.raises(errors.TopospreadClientError, match="what the server says") as failed:
        connect(Connection(script.address, retries=False)).evaluate_pod(POD)
    assert type(failed.value) is KINDS[code]
    assert (failed.value.traceparent, failed.value.retry_after) == (trailers[0][1], 1.5)
    assert isinstance(failed.value.__cause__, grpc.RpcError)
    if isinstance(failed.value, errors.Unavailable):
        assert failed.value.reached


def test_violations_are_read_from_the_details(connect, script):
    violation = BadRequest.FieldViolation(
        field="a[0].b", description="too odd", reason="FIELD_VALUE_INVALID"
    )
    details = (("ErrorInfo", ErrorInfo(reason="X")), ("BadRequest", BadRequest()))
    details[1][1].field_violations.append(violation)
    script.answer(
        METHODS["EvaluatePod"],
        Failure(grpc.StatusCode.INVALID_ARGUMENT, "a[0].b: too odd", details),
    )
    with pytest.raises(errors.InvalidRequest) as refused:
        connect(script.address).evaluate_pod(POD)
    assert refused.value.violations == (
        errors.Violation("a[0].b", "FIELD_VALUE_INVALID", "too odd"),
    )
    assert refused.value.violations[0].text == "a[0].b: Invalid value: too odd"


@pytest.mark.parametrize(
    ("reason", "domain", "kind"),
    [
        ("CYCLE_EXPIRED", "topospread.io", errors.CycleExpired),
        ("NODE_TABLE_CHANGED", "topospread.io", errors.NodeTableChanged),
        ("STORE_IDENTITY_CHANGED", "topospread.io", errors.StoreIdentityChanged),
        ("NO_FEED_PROGRESS", "topospread.io", errors.NoFeedProgress),
        ("REPLACE_INCOMPLETE", "topospread.io", errors.PreconditionFailed),
        ("SOMETHING_NEWER", "topospread.io", errors.PreconditionFailed),
        ("CYCLE_EXPIRED", "example.com", errors.PreconditionFailed),
    ],
)
def test_reason_selects_the_class_of_a_failed_precondition(connect, script, reason, domain, kind):
    info = ErrorInfo(reason=reason, domain=domain, metadata={"now": "x"})
    failure = Failure(grpc.StatusCode.FAILED_PRECONDITION, "out of date", (("ErrorInfo", info),))
    script.answer(METHODS["Filter"], failure)
    with pytest.raises(errors.PreconditionFailed) as failed:
        connect(script.address).filter(cycle="c")
    assert type(failed.value) is kind
    known = domain == "topospread.io"
    assert failed.value.reason == (reason if known else None)
    assert failed.value.metadata == ({"now": "x"} if known else {})
    assert failed.value.code is grpc.StatusCode.FAILED_PRECONDITION


def test_details_that_cannot_be_read_do_not_hide_the_status(connect, script):
    trailers = (("grpc-status-details-bin", b"\xff\xff\xff"),)
    script.answer(
        METHODS["EvaluatePod"], Failure(grpc.StatusCode.INVALID_ARGUMENT, "bad", trailers=trailers)
    )
    with pytest.raises(errors.InvalidRequest, match="bad") as refused:
        connect(script.address).evaluate_pod(POD)
    assert refused.value.violations == ()


RETRIED = {
    "EvaluatePod": (lambda c: c.evaluate_pod(POD), evaluation("r")),
    "ApplyObjects": (lambda c: c.apply_objects([VERSIONED]), ApplyObjectsResponse(meta=META)),
    "PlacePod": (lambda c: c.place_pod(POD), PlacePodResponse(meta=META, verdict=PASSES)),
}
NOT_RETRIED = {
    "ApplyObjects": lambda c: c.apply_objects([NODE]),
    "DeleteObjects": lambda c: c.delete_objects([{"kind": "NODE", "name": "n"}]),
    "DeleteCluster": lambda c: c.delete_cluster("default"),
}


@pytest.mark.parametrize("name", RETRIED)
def test_calls_that_may_be_repeated_are_retried(connect, script, name):
    call, answer = RETRIED[name]
    script.answer(METHODS[name], UNAVAILABLE, UNAVAILABLE, UNAVAILABLE, answer)
    assert call(connect(script.address)).meta.revision == "r"
    assert script.calls(METHODS[name]) == 4
    script.answer(METHODS[name], UNAVAILABLE)
    for once in (
        Connection(script.address, retry_timeout=0.07),
        Connection(script.address, retries=False),
    ):
        with pytest.raises(errors.Unavailable, match="going away"):
            call(connect(once))
    assert script.calls(METHODS[name]) == 6


@pytest.mark.parametrize("name", NOT_RETRIED)
def test_other_writes_are_not_retried(connect, script, name):
    script.answer(METHODS[name], UNAVAILABLE)
    with pytest.raises(errors.Unavailable, match="going away"):
        NOT_RETRIED[name](connect(script.address))
    assert script.calls(METHODS[name]) == 1


def test_placement_is_marked_as_repeat_once_a_server_may_know_of_it(connect, script):
    """A repeat may not renew what an earlier call holds; a first try that never left is none."""
    script.answer(METHODS["PlacePod"], REFUSED, PlacePodResponse(node="n", verdict=PASSES))
    script.answer(
        METHODS["ReserveNode"], REFUSED, UNAVAILABLE, REFUSED, ReserveNodeResponse(verdict=PASSES)
    )
    connect(script.address).place_pod(POD)
    connect(script.address).reserve_node(POD, "n")
    sent: dict[str, list[bytes]] = {METHODS["PlacePod"].path: [], METHODS["ReserveNode"].path: []}
    for path, request, _ in script.seen:
        sent[path].append(request)
    placed = [PlacePodRequest.FromString(each).is_repeat for each in sent[METHODS["PlacePod"].path]]
    assert placed == [False, False]
    reserved = [
        ReserveNodeRequest.FromString(each).is_repeat for each in sent[METHODS["ReserveNode"].path]
    ]
    assert reserved == [False, False, True, True]


def test_write_that_was_never_sent_is_not_in_doubt(connect):
    with socket.socket() as taken:  # bound and not listening: no server answers there
        taken.bind(("127.0.0.1", 0))
        client = connect(f"127.0.0.1:{taken.getsockname()[1]}")
        for write in (
            lambda: client.apply_objects([NODE]),
            lambda: client.place_pod(POD, timeout=0.5),
        ):
            with pytest.raises(errors.Unavailable) as failed:
                write()
            assert "not known" not in str(failed.value)


def test_bad_input_is_not_retried(connect, script):
    script.answer(METHODS["EvaluatePod"], Failure(grpc.StatusCode.INVALID_ARGUMENT, "bad"))
    with pytest.raises(errors.InvalidRequest):
        connect(script.address).evaluate_pod(POD)
    assert script.calls(METHODS["EvaluatePod"]) == 1


def test_missing_server_is_unavailable(connect):
    with socket.socket() as taken:  # bound and not listening: no server answers there
        taken.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(errors.Unavailable) as failed:
            connect(Connection(address, retries=False)).get_server_info()
    assert not failed.value.reached
    assert failed.value.traceparent is None


@pytest.mark.parametrize("per_call", [True, False])
def test_a_call_ends_with_its_timeout(connect, script, per_call):
    released = threading.Event()

    def hang(context):
        if context.add_callback(released.set):
            released.wait()
        return GetServerInfoResponse()

    script.answer(METHODS["GetServerInfo"], hang)
    client = connect(script.address, timeout=60 if per_call else 0.2)
    with pytest.raises(errors.DeadlineExceeded):
        client.get_server_info(timeout=0.2 if per_call else None)


@pytest.mark.parametrize("timeout", [1e10, math.inf])
def test_a_timeout_may_have_no_end(connect, script, timeout):
    script.answer(METHODS["GetServerInfo"], GetServerInfoResponse(version="1"))
    assert connect(script.address).get_server_info(timeout=timeout).version == "1"
    assert connect(script.address, timeout=timeout).get_server_info().version == "1"


def test_a_call_that_servers_cancel_is_retried_a_few_times(connect, script):
    cancelled = Failure(grpc.StatusCode.CANCELLED, "stopping")
    script.answer(METHODS["EvaluatePod"], *[cancelled] * MAX_CANCELS, evaluation("r"))
    assert connect(script.address).evaluate_pod(POD).meta.revision == "r"
    script.answer(METHODS["BatchEvaluatePods"], cancelled)
    with pytest.raises(errors.Unavailable, match="stopping"):
        connect(script.address).batch_evaluate_pods([POD])
    assert script.calls(METHODS["EvaluatePod"]) == 1 + MAX_CANCELS
    assert script.calls(METHODS["BatchEvaluatePods"]) == 1 + MAX_CANCELS


def overloaded(seconds: float) -> Failure:
    """A refusal of a server that has too much to do."""
    delay = Duration(nanos=round(seconds * 1e9))
    return Failure(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "no capacity",
        (("RetryInfo", RetryInfo(retry_delay=delay)),),
    )


def test_refused_call_is_retried_no_sooner_than_the_server_says(connect, script):
    arrived: list[float] = []

    def answer(context: grpc.ServicerContext) -> Any:
        arrived.append(time.monotonic())
        if len(arrived) < 3:
            overloaded(0.4).end(context)
        return evaluation("r")

    script.answer(METHODS["EvaluatePod"], answer)
    assert connect(script.address).evaluate_pod(POD).meta.revision == "r"
    assert [later - sooner >= 0.4 for sooner, later in pairwise(arrived)] == [True, True]


def test_refused_call_is_not_retried_for_ever(connect, script):
    script.answer(METHODS["EvaluatePod"], overloaded(0.001))
    with pytest.raises(errors.LimitExceeded, match="no capacity"):
        connect(script.address).evaluate_pod(POD, timeout=60)
    assert script.calls(METHODS["EvaluatePod"]) == 1 + MAX_REFUSALS


@pytest.mark.parametrize("timeout", [0.3, 60])
def test_refused_call_is_not_retried_when_its_time_would_be_over(connect, script, timeout):
    script.answer(METHODS["EvaluatePod"], overloaded(0.9), evaluation("r"))
    connection = Connection(script.address, retry_timeout=0.3 if timeout == 60 else 60)
    with pytest.raises(errors.LimitExceeded) as refused:
        connect(connection).evaluate_pod(POD, timeout=timeout)
    assert refused.value.retry_after == 0.9
    assert script.calls(METHODS["EvaluatePod"]) == 1


def test_refused_calls_that_are_not_retried(connect, script):
    """Refused whatever the time, a write that may not be repeated, and without retries."""
    limit = Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "too large")
    script.answer(METHODS["EvaluatePod"], limit)
    script.answer(METHODS["DeleteCluster"], overloaded(0.001))
    script.answer(METHODS["PlacePod"], overloaded(0.001))
    with pytest.raises(errors.LimitExceeded, match="too large"):
        connect(script.address).evaluate_pod(POD)
    with pytest.raises(errors.LimitExceeded):
        connect(script.address).delete_cluster("default")
    with pytest.raises(errors.LimitExceeded):
        connect(Connection(script.address, retries=False)).place_pod(POD)
    assert len(script.seen) == 3


def test_refused_placement_is_not_marked_as_repeat(connect, script):
    """A server that refuses a call has not begun it."""
    placed = PlacePodResponse(node="n", verdict=PASSES)
    script.answer(METHODS["PlacePod"], overloaded(0.001), placed)
    connect(script.address).place_pod(POD)
    sent = [PlacePodRequest.FromString(request) for _, request, _ in script.seen]
    assert [each.is_repeat for each in sent] == [False, False]


def test_a_call_that_the_server_lacks_is_not_supported(connect, script):
    with pytest.raises(errors.NotSupported):
        connect(script.address).get_server_info()


def test_a_pod_of_a_batch_may_fail_alone(connect, script):
    response = BatchEvaluatePodsResponse(meta=META)
    response.results.add().response.CopyFrom(evaluation(""))
    for code in (3, 14, 10, 4242):
        response.results.add().error.CopyFrom(Status(code=code, message="wrong"))
    script.answer(METHODS["BatchEvaluatePods"], response)
    one, *others = connect(script.address).batch_evaluate_pods([POD] * 5).results
    assert one.WhichOneof("result") == "response"
    assert [type(error_from_status(each.error)).__name__ for each in others] == [
        "InvalidRequest",
        "Unavailable",
        "Conflict",
        "ServerFault",
    ]


def test_columns_that_do_not_match_the_names_are_a_server_fault():
    verdicts = FilterResponse(node_names=["a"], verdicts=[0, 0], verdict=PASSES)
    with pytest.raises(errors.ServerFault, match="2 values for 1 nodes"):
        verdicts_by_node(verdicts)
    scores = ScoreResponse(node_names=["a"], raw=[1], normalized=[], verdict=PASSES)
    with pytest.raises(errors.ServerFault, match="0 values for 1 nodes"):
        normalized_by_node(scores)


def test_limit_of_a_server_with_smaller_batches_is_requested(connect, script):
    few = GetServerInfoResponse(limits=ServerLimits(max_batch_objects=2))
    script.answer(METHODS["GetServerInfo"], few)
    refused = Failure(grpc.StatusCode.INVALID_ARGUMENT, "too many")
    script.answer(METHODS["ApplyObjects"], refused, ApplyObjectsResponse(meta=META))
    client = connect(script.address)
    steps: list[tuple[int, int]] = []
    client.apply_objects([NODE] * 5, progress=lambda *step: steps.append(step))
    assert steps == [(2, 5), (4, 5), (5, 5)]
    client.apply_objects([NODE] * 2)
    assert script.calls(METHODS["GetServerInfo"]) == 1


def test_search_timeout_extends_that_of_the_call(connect, script):
    """A plan is asked for with a deadline that the search can end before."""
    deadlines: list[float] = []

    def answer(context: grpc.ServicerContext) -> PlanRebalanceResponse:
        deadlines.append(context.time_remaining() or math.inf)
        return PlanRebalanceResponse()

    script.answer(METHODS["PlanRebalance"], answer)
    client = connect(script.address, timeout=1000)
    client.plan_rebalance(search_timeout=2000)
    client.plan_rebalance(search_timeout=2000, timeout=500)
    # gRPC writes three digits of a timeout, rounded up.
    assert 2500 < deadlines[0] <= 3010
    assert deadlines[1] < 1000
