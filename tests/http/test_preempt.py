"""The extender's preempt: which of the scheduler's proposals verifiably help."""

from __future__ import annotations

import json

import pytest

from tests.http.extender_client import HOST, Scheduler, node, pod, spreading
from tests.servers import ZONE, at_least, served
from topospread_client import object_from_manifest, pod_from_manifest
from topospread_proto.v1 import common_pb2, decision_service_pb2

NODES = ("a1", "a2", "b1", "c1")


@pytest.fixture(scope="module")
def scheduler():
    """Zone a has three web pods and one of another app, zone b one web pod, zone c none."""
    with served(http="127.0.0.1:0") as server, Scheduler(server) as scheduler:
        scheduler.write(
            *(node(name, zone=name[0]) for name in NODES),
            *pods(),
            node("bare"),
        )
        yield scheduler


def pods():
    """All of them, by node."""
    leaving = pod("leaving", "a2")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return [
        pod("web-0", "a1"),
        pod("web-1", "a1"),
        pod("web-2", "a2"),
        pod("other", "a2", app="other"),
        pod("web-3", "b1"),
        leaving,
    ]


def meta(*names, violations=0):
    """Victims by uid."""
    return {
        "Pods": [{"UID": f"uid-of-{name}"} for name in names],
        "NumPDBViolations": violations,
    }


def kept(scheduler, nodes, *, key="NodeNameToMetaVictims", call=None):
    """By node, what is answered of its victims."""
    args = {"Pod": call or spreading("new", maxSkew=2), "NodeNameToVictims": None, key: nodes}
    answer = scheduler.post("preempt", json.dumps(args).encode())
    assert answer.status_code == 200, answer.text
    assert list(answer.json()) == ["NodeNameToMetaVictims"]
    return answer.json()["NodeNameToMetaVictims"]


def test_victims_that_help_are_returned_as_they_came(scheduler):
    # Zone a: 3 + 1 − 0 is above 2, and without two of its pods it is not.
    enough = meta("web-0", "web-1", violations=1)
    assert kept(scheduler, {"a1": enough}) == {"a1": enough}


def test_victims_that_do_not_help_are_left_out(scheduler):
    proposals = {
        "a1": meta("web-0"),
        "a2": meta("other", "leaving"),
    }
    assert kept(scheduler, proposals) == {}


def test_whole_pods_are_answered_by_uid(scheduler):
    whole = {"Pods": [pod("web-0", "a1"), pod("web-1", "a1")], "NumPDBViolations": 2}
    answered = kept(scheduler, {"a1": whole}, key="NodeNameToVictims")
    assert answered == {"a1": meta("web-0", "web-1", violations=2)}


def test_only_counted_pods_of_the_node_help(scheduler):
    """Pods of other nodes, pods that are not there, and those of a name but another uid."""
    unauthenticated = pod("web-1", "a1")
    unauthenticated["metadata"]["uid"] = "another"
    assert kept(scheduler, {"a1": meta("web-2", "web-0")}) == {}
    assert kept(scheduler, {"a1": meta("nobody", "web-0")}) == {}
    assert kept(scheduler, {"a1": meta("web-0", "web-0")}) == {}
    whole = {"Pods": [pod("web-0", "a1"), unauthenticated]}
    assert kept(scheduler, {"a1": whole}, key="NodeNameToVictims") == {}


@pytest.mark.parametrize("nothing", [{"Pods": [], "NumPDBViolations": 0}, {"Pods": None}, {}, None])
def test_empty_lists_of_victims_are_accepted_where_the_pod_fits(scheduler, nothing):
    answered = kept(scheduler, {"b1": nothing, "a1": nothing, "c1": nothing})
    assert answered == {"b1": meta(), "c1": meta()}


def test_victims_on_a_node_that_fits_already_are_for_something_else(scheduler):
    assert kept(scheduler, {"b1": meta("web-3")}) == {"b1": meta("web-3")}


def test_nodes_that_nothing_helps_are_left_out(scheduler):
    assert kept(scheduler, {"bare": meta("web-0"), "stranger": meta("web-0")}) == {}


def test_a_pod_without_constraints_may_preempt_anywhere(scheduler):
    proposals = {"a1": meta("web-0"), "stranger": meta("x")}
    assert kept(scheduler, proposals, call=pod("plain", app="other")) == proposals


def test_keys_are_read_whatever_their_case(scheduler):
    victims = {"pods": [{"uid": "uid-of-web-0"}, {"uid": "uid-of-web-1"}], "numPDBViolations": 1}
    answered = kept(scheduler, {"a1": victims}, key="nodeNameToMetaVictims")
    assert answered == {"a1": meta("web-0", "web-1", violations=1)}


def test_pods_that_came_later_are_found(scheduler):
    kept(scheduler, {"a1": meta("web-0", "web-1")})
    with served(http="127.0.0.1:0") as server, Scheduler(server) as fresh:
        fresh.write(*(node(name, zone=name[0]) for name in NODES), pod("first", "a1"))
        strict = spreading("new")
        assert kept(fresh, {"a1": meta("first")}, call=strict) == {"a1": meta("first")}
        fresh.write(pod("second", "a1"))
        assert kept(fresh, {"a1": meta("second")}, call=strict) == {}
        both = meta("first", "second")
        assert kept(fresh, {"a1": both}, call=strict) == {"a1": both}


@pytest.mark.parametrize("key", [ZONE, HOST])
def test_preempt_agrees_with_evaluate_on_removed_pods(scheduler, key):
    call = spreading("new", key=key)
    everything = [p for p in pods() if p["metadata"]["name"] != "leaving"]
    for name in NODES:
        here = [p for p in everything if p["spec"]["nodeName"] == name]
        for count in range(len(here) + 1):
            victims = here[:count]
            proposal = {name: meta(*(p["metadata"]["name"] for p in victims))}
            assert (kept(scheduler, proposal, call=call) == proposal) is fits_without(
                scheduler, call, name, victims
            )


def fits_without(scheduler, call, name, victims):
    sources = [common_pb2.PodSource(object=pod_from_manifest(each)) for each in victims]
    removed = [common_pb2.PodOnNode(pod=each, node=name) for each in sources]
    request = decision_service_pb2.EvaluatePodRequest(
        pod=common_pb2.PodSource(object=pod_from_manifest(call)),
        remove_pods=removed,
        candidates=common_pb2.NodeSelection(names=common_pb2.NodeNames(names=[name])),
        consistency=at_least(scheduler.peer.apply(*[object_from_manifest(node("bare"))])),
    )
    return scheduler.peer.engine.EvaluatePod(request).feasible_node_count == 1


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ({}, "both null"),
        ({"NodeNameToMetaVictims": []}, "NodeNameToMetaVictims: must be an object"),
        ({"NodeNameToMetaVictims": {"a1": 7}}, "NodeNameToMetaVictims[a1]: must be an object"),
        ({"NodeNameToMetaVictims": {"a1": {"Pods": 7}}}, "[a1].Pods: must be an array"),
        ({"NodeNameToMetaVictims": {"a1": {"Pods": [{}]}}}, "[a1].Pods[0].UID: must be"),
        (
            {"NodeNameToMetaVictims": {"a1": {"NumPDBViolations": 0.5}}},
            "NumPDBViolations: must be a whole number",
        ),
        ({"NodeNameToVictims": {"a1": {"Pods": [7]}}}, "Pods[0]: must be an object"),
        ({"NodeNameToVictims": {"a1": {"Pods": [{"metadata": 7}]}}}, "metadata: must be an object"),
        ({"NodeNameToVictims": {"a1": {"Pods": [{}]}}}, "Pods[0].metadata.uid: must be"),
    ],
)
def test_malformed_requests_are_explained(scheduler, args, text):
    body = json.dumps({"Pod": spreading("new"), **args}).encode()
    answer = scheduler.post("preempt", body)
    assert answer.status_code == 400
    assert text in answer.json()["Error"]


def test_a_malformed_constraint_is_reported(scheduler):
    bad = {"matchExpressions": [{"key": "app", "operator": "Near", "values": []}]}
    args = {
        "Pod": spreading("new", labelSelector=bad),
        "NodeNameToMetaVictims": {"a1": meta("web-0")},
    }
    answer = scheduler.post("preempt", json.dumps(args).encode())
    assert answer.status_code == 400
    assert '"Near" is not a valid label selector operator' in answer.json()["Error"]
