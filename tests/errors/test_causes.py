"""The causes for which each method refuses a call, with their reasons and paths."""

from __future__ import annotations

import gc
from functools import partial
from typing import TYPE_CHECKING

import pytest
from google.protobuf.json_format import MessageToJson

from tests.batches import check_each
from tests.errors.calls import EXPANDER, NAMED, ask, refused
from tests.errors.causes import (
    ABSENT,
    CAUSES,
    GIVEN,
    INVALID,
    NODES,
    OLD_TABLE,
    PACKED,
    REQUIRED,
    SKEW,
    STRICT,
    WRONG,
    Cause,
    World,
    fresh,
    given,
    make_world,
    messages_of,
    one_answer,
)
from tests.errors.error_status import ErrorStatus
from tests.errors.paths import resolve
from tests.servers import Peer, node, pod, served, two_zones
from tests.waiting import PATIENCE
from topospread.calls.sizes import MessageLimits
from topospread.errors import TopospreadError
from topospread.replica import replica
from topospread.replica.view import Token
from topospread.store.model import Revision
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kubernetes
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as decision
from topospread_proto.v1 import placement_service_pb2 as placement

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with served() as server, Peer(server.address) as peer:
        yield make_world(peer)


def test_causes_are_refused_with_their_reasons_and_paths(world):
    def differences(cause: Cause) -> Iterator[str]:
        path = EXPANDER if cause.method == "BestOptions" else NAMED[cause.method]
        found = refused(world.peer.channel, path, messages_of(cause, world))
        found.check(cause.reason)
        if cause.path and (cause.path, cause.wrong) not in found.fields:
            yield f"{cause.wrong} is not among {found.fields}"

    check_each(CAUSES, differences)


def test_refused_request_is_not_kept_in_a_reference_cycle(world):
    """An error holds the request in its traceback, and a cycle of it would keep megabytes of it."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for cause in CAUSES:
            path = EXPANDER if cause.method == "BestOptions" else NAMED[cause.method]
            refused(world.peer.channel, path, messages_of(cause, world))
        gc.collect()
        kept = [each for each in gc.garbage if isinstance(each, TopospreadError)]
        assert [(type(each).__name__, str(each)) for each in kept] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


WITHOUT_FIELDS = {"GetServerInfo"}
"""Methods whose request has no field that could be wrong."""


def test_every_method_has_causes():
    assert {cause.method for cause in CAUSES} == {*NAMED, "BestOptions"} - WITHOUT_FIELDS
    wrong = {cause.method for cause in CAUSES if cause.reason == "INVALID_FIELDS"}
    assert wrong == {cause.method for cause in CAUSES}


# ------------------------------ errors in answers


def test_refused_pods_of_a_batch(world):
    pods = [GIVEN, WRONG, ABSENT, common.PodSource(), PACKED]
    request = decision.BatchEvaluatePodsRequest(pods=pods, validation=STRICT)
    answer = one_answer(
        world.peer, "BatchEvaluatePods", decision.BatchEvaluatePodsResponse, request
    )
    assert "FIELD_VALUE_INVALID" in MessageToJson(answer)
    fine, *wrong = answer.results
    assert fine.WhichOneof("result") == "response"
    reasons = ["INVALID_FIELDS", "POD_NOT_FOUND", "INVALID_FIELDS", "INVALID_FIELDS"]
    found = [ErrorStatus(each.error) for each in wrong]
    for each, reason in zip(found, reasons, strict=True):
        each.check(reason)
    for each in found:
        for there in each.paths:
            resolve(there, decision.BatchEvaluatePodsRequest.DESCRIPTOR)
    assert found[0].fields == [(f"pods[1].object.{SKEW}", INVALID)]
    assert found[2].fields == [("pods[3]", REQUIRED)]
    assert found[3].fields == [(f"pods[4].objectProto.{SKEW}", INVALID)]


# ------------------------------ metadata


def test_node_table_error_has_the_current_id(world):
    table = one_answer(world.peer, "GetNodeTable", state.GetNodeTableResponse,
                 state.GetNodeTableRequest())  # fmt: skip
    request = decision.EvaluatePodRequest(pod=GIVEN, candidates=OLD_TABLE)
    found = refused(world.peer.channel, NAMED["EvaluatePod"], [request])
    assert found.metadata == {"nodeTableId": table.node_table_id}


def test_not_found_error_names_the_object(world):
    request = state.GetObjectRequest(kind=NODES, name="none")
    found = refused(world.peer.channel, NAMED["GetObject"], [request]).details["ResourceInfo"]
    assert (found.resource_type, found.resource_name, found.owner) == ("Node", "none", "default")


def test_violations_beyond_the_size_limit_are_counted(world):
    request = state.ApplyObjectsRequest(
        objects=[state.ClusterObject(pod=kubernetes.Pod()) for _ in range(400)]
    )
    found = refused(world.peer.channel, NAMED["ApplyObjects"], [request])
    assert found.status.ByteSize() < 5000
    violations = found.details["BadRequest"].field_violations
    assert violations[-1].description == f"… and {400 - len(violations) + 1} more"


def test_too_many_clusters():
    with served(max_clusters="1") as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        request = state.ApplyObjectsRequest(cluster="another", objects=[node("n", "a")])
        found = refused(peer.channel, NAMED["ApplyObjects"], [request])
        found.check("TOO_MANY_CLUSTERS")
        (limit,) = found.details["QuotaFailure"].violations
        assert (limit.subject, limit.quota_value) == ("--max-clusters", 1)


def test_repeated_call_finds_another_reservation(world):
    first = placement.PlacePodRequest(pod=given("held"), request_id="one")
    second = placement.PlacePodRequest(pod=given("held"), request_id="two", is_repeat=True)
    ask(world.peer.channel, NAMED["PlacePod"], [first])
    refused(world.peer.channel, NAMED["PlacePod"], [second]).check("PLACEMENT_SUPERSEDED")


def test_revision_that_does_not_come(world, monkeypatch):
    # The store is not asked whether it will ever come.
    monkeypatch.setattr(replica, "LONG_WAIT", PATIENCE)
    token = Token.decode(world.peer.apply(pod("late", "b1")))
    ahead = Token(token.identity, Revision(token.revision.number + 9, "")).encode()
    request = decision.EvaluatePodRequest(pod=GIVEN, consistency=fresh(ahead))
    found = refused(world.peer.channel, NAMED["EvaluatePod"], [request], timeout=2.0)
    found.check("DEADLINE_EXCEEDED")


def test_oversized_response(monkeypatch):
    monkeypatch.setattr("topospread.app.parts.MessageLimits", partial(MessageLimits, response=1024))
    with served() as server, Peer(server.address) as peer:
        for number in range(60):
            peer.apply(node(f"a-node-with-a-long-name-{number}", "a"))
        requests = {
            "GetNodeTable": state.GetNodeTableRequest(),
            "ListObjects": state.ListObjectsRequest(kind=NODES),
            "WatchObjects": state.WatchObjectsRequest(send_initial=True),
        }
        for name, request in requests.items():
            found = refused(peer.channel, NAMED[name], [request])
            found.check("REQUEST_TOO_LARGE")
            (limit,) = found.details["QuotaFailure"].violations
            assert (limit.subject, limit.quota_value) == ("response", 1024)
