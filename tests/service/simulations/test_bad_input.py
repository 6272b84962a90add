"""Questions that cannot be answered: everything that is wrong is said at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.places import Placer, bound, named
from tests.service.simulations.asking import simulation
from tests.service.world import HOSTNAME, ZONE, World, constraint, node
from topospread.errors import DeadlineExceeded, InvalidRequest, NotFound
from topospread_client.errors import InvalidRequest as RefusedByClient
from topospread_client.scenarios import ConstraintChange, Drain, NodeGroup, Pods
from topospread_proto.v1 import kubernetes_pb2 as kube

POD = named("p", constraint())
BARE_NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "t"}}


def refused(world: World, **arguments: Any) -> list[tuple[str, str]]:
    """(field, description) of each violation."""
    with pytest.raises(InvalidRequest) as failed:
        simulation(world, **{"pods": POD, **arguments})
    return [(each.field, each.description) for each in failed.value.violations]


def test_nodes_and_pods_that_are_not_there(three_zones: World):
    assert refused(three_zones, drain=["x", "n-a", Drain("y", stays=True), "n-a"]) == [
        ("changes.drain[0].node", "no such node in the state"),
        ("changes.drain[2].node", "no such node in the state"),
        ("changes.drain[3].node", ""),
    ]
    assert refused(three_zones, add_pods=[(named("a"), "x"), (named("b"), "")]) == [
        ("changes.addPods[1].node", "say where it runs"),
        ("changes.addPods[0].node", "no such node in the state"),
    ]
    assert refused(three_zones, add_pods=[(named("a"), "x")]) == [
        ("changes.addPods[0].node", "no such node in the state")
    ]
    assert refused(three_zones, remove_pods=["default/w1", "default/w1"]) == [
        ("changes.removePods[1]", "")
    ]
    again = [(named("a"), "n-a"), (named("w1"), "n-c"), (named("a"), "n-b")]
    assert refused(three_zones, add_pods=again) == [
        ("changes.addPods[1]", ""),
        ("changes.addPods[2]", ""),
    ]


def test_all_that_is_wrong_with_pods_and_nodes_together(three_zones: World):
    ended, many = named("ended"), kube.Pod()
    ended["status"] = {"phase": "Succeeded"}
    many.metadata.name = "many"
    many.spec.containers.add().resources.requests["cpu"].string = "many"
    found = refused(
        three_zones,
        pods=["default/w1", POD, many],
        fewest_nodes=True,
        drain=["x", Drain("y", stays=True)],
        remove_pods=["default/nobody"],
        add_pods=[(ended, "n-a"), (many, "n-a"), (named("a"), ""), (named("b"), "z")],
        constraints=[ConstraintChange("rack", max_skew=2)],
        reschedule=True,
    )
    assert [field for field, _ in found] == [
        "changes.addNodes",
        "changes.removePods[0]",
        "changes.addPods[1].pod.spec.containers[0].resources.requests[cpu]",
        "changes.addPods[2].node",
        "pods[0].podRef",
        "spec.containers[0].resources.requests[cpu]",
        "changes.drain[0].node",
        "changes.drain[1].node",
        "changes.addPods[3].node",
    ]
    bare = NodeGroup(BARE_NODE, 1)
    assert [field for field, _ in refused(three_zones, drain=["x"], add_nodes=[bare])] == [
        "changes.drain[0].node",
        f"changes.addNodes[0].template.metadata.labels[{ZONE}]",
    ]


def test_added_pods_that_have_ended_or_are_terminating_count_as_they_do_in_the_state(
    three_zones: World,
):
    ended, terminating = named("a"), named("b")
    ended["status"] = {"phase": "Succeeded"}
    terminating["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    without = simulation(three_zones, pods=POD, replicas=2)
    found = simulation(
        three_zones, pods=POD, replicas=2, add_pods=[(ended, "n-c"), (terminating, "n-c")]
    )
    running = simulation(three_zones, pods=POD, add_pods=[(named("a"), "n-c"), (named("b"), "n-c")])
    assert found.placements == without.placements
    assert [without.placements[0].node, running.placements[0].node] == ["n-c", "n-b"]


def test_a_pod_that_is_removed_may_be_added_elsewhere(three_zones: World):
    assert simulation(
        three_zones, pods=POD, add_pods=[(named("w1"), "n-c")], remove_pods=["default/w1"]
    ).placements


def test_more_than_is_placed_at_once(three_zones: World):
    ((field, text),) = refused(three_zones, replicas=1_000_000)
    assert (field, text) == ("replicas", "at most 10000 pods are placed")
    group = NodeGroup(node("t", "a"), 5001)
    ((field, text),) = refused(three_zones, add_nodes=[group])
    assert (field, text) == ("changes.addNodes", "at most 5000 nodes join")
    # None of them is looked up: each would be refused for itself.
    ((field, _),) = refused(three_zones, add_pods=[(named("w1"), "n-c")] * 1001)
    assert field == "changes.addPods"
    ((field, _),) = refused(three_zones, remove_pods=["default/nobody"] * 1001)
    assert field == "changes.addPods"


def test_no_pod(three_zones: World):
    assert refused(three_zones, pods=[]) == [("pod", "say which pod to place")]


@pytest.mark.parametrize("count", [-1, 2**32])
def test_counts_that_cannot_be(three_zones: World, count: int):
    with pytest.raises(RefusedByClient, match=r"pods\[0\]\.replicas: Invalid value"):
        simulation(three_zones, pods=POD, replicas=count)
    with pytest.raises(RefusedByClient, match=r"changes\.addNodes\[0\]\.count"):
        simulation(three_zones, pods=POD, add_nodes=[NodeGroup(BARE_NODE, count)])


def test_a_template_without_the_key(three_zones: World):
    group = NodeGroup(BARE_NODE, 2)
    ((field, text),) = refused(three_zones, add_nodes=[group])
    assert field == f"changes.addNodes[0].template.metadata.labels[{ZONE}]"
    assert text == "the pods spread over it: no pod could go to these nodes"

    # The hostname is the node's own, and some of the pods may do without the zone.
    found = simulation(
        three_zones,
        pods=[Pods(named("h", constraint(HOSTNAME)), 1), Pods(POD, 1)],
        add_nodes=[group],
    )
    assert found.placed == 2
    assert "is missing: pods that spread over it cannot go to these nodes" in found.warnings[0]


def test_a_template_that_cannot_be_read(three_zones: World):
    broken = kube.Node()
    broken.status.allocatable["cpu"].string = "many"
    ((field, _),) = refused(three_zones, add_nodes=[NodeGroup(broken, 1)])
    assert field == "changes.addNodes[0].template.status.allocatable[cpu]"
    with pytest.raises(RefusedByClient, match="must be a Node"):
        simulation(three_zones, pods=POD, add_nodes=[NodeGroup(POD, 1)])


def test_constraint_values_that_cannot_be(three_zones: World):
    changes = [
        ConstraintChange(ZONE, max_skew=0, min_domains=-1),
        ConstraintChange(ZONE, new_when_unsatisfiable="Never", node_taints_policy="Obey"),
        ConstraintChange(""),
    ]
    assert [field for field, _ in refused(three_zones, constraints=changes)] == [
        "changes.constraints[0].maxSkew",
        "changes.constraints[0].minDomains",
        "changes.constraints[1].newWhenUnsatisfiable",
        "changes.constraints[1].nodeTaintsPolicy",
        "changes.constraints[2].topologyKey",
    ]
    none = [ConstraintChange("rack", max_skew=2), ConstraintChange(ZONE, "ScheduleAnyway")]
    assert [field for field, _ in refused(three_zones, constraints=none)] == [
        "changes.constraints[0].topologyKey",
        "changes.constraints[1].topologyKey",
    ]


def test_what_an_api_server_would_refuse(three_zones: World):
    changed = [ConstraintChange(ZONE, min_domains=2, new_when_unsatisfiable="ScheduleAnyway")]
    assert simulation(three_zones, pods=POD, constraints=changed).placed == 1
    ((field, _),) = refused(three_zones, constraints=changed, validate=True)
    assert field == "spec.topologySpreadConstraints[0].minDomains"


def test_pods_of_the_state(three_zones: World):
    with pytest.raises(NotFound, match="pod default/nobody is not in cluster"):
        simulation(three_zones, pods="default/nobody")
    assert refused(three_zones, pods="default/w1") == [
        ("pods[0].podRef", "it runs on n-a: remove it in the same request to move it")
    ]
    assert refused(three_zones, pods="default/w1", replicas=2)[0][0] == "pods[0].replicas"

    moved = simulation(three_zones, pods="default/w1", remove_pods=["default/w1"])
    assert (moved.placed, moved.placements[0].pod) == (1, "w1")


def test_what_is_held_for_a_pod_is_its_own(three_zones: World):
    placer = Placer(three_zones)
    waiting = named("w", constraint(HOSTNAME), uid="u1")
    placer.apply(waiting)
    assert placer.place(waiting).node == "n-c"

    found = simulation(three_zones, pods="default/w")
    assert [p.node for p in found.placements] == ["n-c"]
    (change,) = found.spread
    assert {d.value: d.after for d in change.domains}["n-c"] == 1
    placer.apply(bound(waiting, "n-c"))
    assert refused(three_zones, pods="default/w")[0][0] == "pods[0].podRef"


def test_it_stops_at_the_deadline(three_zones: World):
    assert simulation(three_zones, pods=POD).placed == 1
    with pytest.raises(DeadlineExceeded, match="before all pods were placed"):
        simulation(three_zones, pods=POD, replicas=3, seconds=-1.0, consistency=None)


def test_only_the_first_reasons_are_explained(three_zones: World):
    pods = [named(f"p{number}", constraint("rack")) for number in range(12)]
    found = simulation(three_zones, pods=pods)
    assert found.pending == len(found.pending_pods) == 12
    explained = [each.explanation is not None for each in found.pending_pods]
    assert explained == [True] * 10 + [False] * 2
    assert all(each.message for each in found.pending_pods)
