"""Questions that cannot be answered: one error names everything that is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.placement.placer import Placer, bound, named
from tests.service.simulation.calls import (
    answered,
    change_of,
    node_group,
    request_of,
    simulation,
    to_place,
)
from tests.service.world import HOSTNAME, ZONE, World, constraint, node
from topospread.errors import DeadlineExceeded, InvalidRequest, NotFound
from topospread_client import pod_from_manifest
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube
from topospread_proto.v1 import common_pb2
from topospread_proto.v1.common_pb2 import PodReference, PodSource
from topospread_proto.v1.scenario_pb2 import NodeGroup, PodsToPlace

CHANGES = "scenario.changes"
POD = named("p", constraint())
BARE_NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "t"}}


def refused(world: World, **arguments: Any) -> list[tuple[str, str]]:
    """(field, description) of each violation."""
    with pytest.raises(InvalidRequest) as failed:
        simulation(world, **{"pods": POD, **arguments})
    return [(each.field, each.description) for each in failed.value.violations]


def test_unknown_nodes_and_pods_are_refused(three_zones: World):
    assert refused(three_zones, drain_nodes=["x", "n-a", "n-a"], taint_nodes=["y"]) == [
        (f"{CHANGES}.drainNodes[0].node", "no such node in the state"),
        (f"{CHANGES}.drainNodes[2].node", ""),
        (f"{CHANGES}.drainNodes[3].node", "no such node in the state"),
    ]
    assert refused(three_zones, add_pods=[(named("a"), "x"), (named("b"), "")]) == [
        (f"{CHANGES}.addPods[1].node", "say where it runs"),
        (f"{CHANGES}.addPods[0].node", "no such node in the state"),
    ]
    assert refused(three_zones, add_pods=[(named("a"), "x")]) == [
        (f"{CHANGES}.addPods[0].node", "no such node in the state")
    ]
    assert refused(three_zones, delete_pods=["default/w1", "default/w1"]) == [
        (f"{CHANGES}.deletePods[1]", "")
    ]
    again = [(named("a"), "n-a"), (named("w1"), "n-c"), (named("a"), "n-b")]
    assert refused(three_zones, add_pods=again) == [
        (f"{CHANGES}.addPods[1]", ""),
        (f"{CHANGES}.addPods[2]", ""),
    ]


def test_violations_of_pods_and_nodes_are_reported_together(three_zones: World):
    ended, many = named("ended"), kube.Pod()
    ended["status"] = {"phase": "Succeeded"}
    many.metadata.name = "many"
    many.spec.containers.add().resources.requests["cpu"].string = "many"
    found = refused(
        three_zones,
        pods=["default/w1", POD, many],
        find_fewest_nodes=True,
        drain_nodes=["x"],
        taint_nodes=["y"],
        delete_pods=["default/nobody"],
        add_pods=[(ended, "n-a"), (many, "n-a"), (named("a"), ""), (named("b"), "z")],
        constraint_changes=[change_of("rack", max_skew=2)],
        reschedule=True,
    )
    assert [field for field, _ in found] == [
        f"{CHANGES}.addNodeGroups",
        f"{CHANGES}.deletePods[0]",
        f"{CHANGES}.addPods[1].pod.object.spec.containers[0].resources.requests[cpu]",
        f"{CHANGES}.addPods[2].node",
        "pods[0].pod.ref",
        "pods[2].pod.object.spec.containers[0].resources.requests[cpu]",
        f"{CHANGES}.drainNodes[0].node",
        f"{CHANGES}.drainNodes[1].node",
        f"{CHANGES}.addPods[3].node",
    ]
    bare = node_group(BARE_NODE, 1)
    assert [
        field for field, _ in refused(three_zones, drain_nodes=["x"], add_node_groups=[bare])
    ] == [
        f"{CHANGES}.drainNodes[0].node",
        f"{CHANGES}.addNodeGroups[0].template.metadata.labels[{ZONE}]",
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
        three_zones, pods=POD, add_pods=[(named("w1"), "n-c")], delete_pods=["default/w1"]
    ).placements


def test_more_pods_than_the_limit_are_refused(three_zones: World):
    ((field, text),) = refused(three_zones, replicas=1_000_000)
    assert (field, text) == ("pods", "at most 10000 pods are placed")
    group = node_group(node("t", "a"), 5001)
    ((field, text),) = refused(three_zones, add_node_groups=[group])
    assert (field, text) == (f"{CHANGES}.addNodeGroups", "at most 5000 nodes join")
    # None of them is looked up: each would be refused for itself.
    ((field, _),) = refused(three_zones, add_pods=[(named("w1"), "n-c")] * 1001)
    assert field == f"{CHANGES}.addPods"
    ((field, _),) = refused(three_zones, delete_pods=["default/nobody"] * 1001)
    assert field == f"{CHANGES}.addPods"


def test_more_pods_times_constraints_than_the_limit_are_refused(three_zones: World):
    def hosts(count: int) -> list[dict[str, object]]:
        return [constraint(f"example.com/{number}") for number in range(count)]

    said = "pods times constraints of each are at most 60000: ask for fewer pods"
    ((field, text),) = refused(three_zones, pods=named("p", *hosts(64)), replicas=10_000)
    assert (field, text.startswith(said)) == ("pods", True)
    # The drained nodes' pods count with those that are asked for.
    pods = named("p", *hosts(60))
    assert simulation(three_zones, pods=pods, replicas=1000).pending_pods
    drained = {"drain_nodes": ["n-a"], "reschedule": True}
    for number in range(3):
        three_zones.apply(bound(named(f"own-{number}", constraint()), "n-a"))
    ((field, _),) = refused(three_zones, pods=pods, replicas=1000, **drained)
    assert field == f"{CHANGES}.drainNodes"


def test_default_constraints_count_where_pods_have_none(three_zones: World):
    args = common_pb2.PodTopologySpreadArgs(defaulting_type="List")
    for number in range(64):
        args.default_constraints.add(
            max_skew=1, topology_key=f"example.com/{number}", when_unsatisfiable="ScheduleAnyway"
        )
    lists = common_pb2.Settings(args=args)
    ((field, _),) = refused(three_zones, pods=named("p"), replicas=1000, settings=lists)
    assert field == "pods"


def test_simulation_without_pods_is_refused(three_zones: World):
    assert refused(three_zones, pods=[]) == [("pods", "say which pods to place")]


def test_counts_below_zero(three_zones: World):
    pods = [to_place(POD, -1), to_place(POD, 2)]
    group = node_group(BARE_NODE, -1)
    assert refused(three_zones, pods=pods, add_node_groups=[group]) == [
        ("pods[0].replicas", "must not be negative"),
        (f"{CHANGES}.addNodeGroups[0].nodeCount", "must not be negative"),
    ]


def test_count_of_joining_nodes_is_required_unless_the_fewest_are_searched(three_zones: World):
    group = node_group(node("t", "a"))
    assert refused(three_zones, add_node_groups=[group]) == [
        (f"{CHANGES}.addNodeGroups[0].nodeCount", "say how many nodes join")
    ]
    assert simulation(
        three_zones, pods=POD, add_node_groups=[group], find_fewest_nodes=True
    ).fewest_nodes.all_fit


def test_a_template_without_the_key(three_zones: World):
    group = node_group(BARE_NODE, 2)
    ((field, text),) = refused(three_zones, add_node_groups=[group])
    assert field == f"{CHANGES}.addNodeGroups[0].template.metadata.labels[{ZONE}]"
    assert text == "the pods spread over it: no pod could go to these nodes"

    # The hostname is the node's own, and some of the pods may do without the zone.
    found = simulation(
        three_zones,
        pods=[named("h", constraint(HOSTNAME)), POD],
        replicas=1,
        add_node_groups=[group],
    )
    assert found.placed_pod_count == 2
    assert "is missing: pods that spread over it cannot go to these nodes" in found.warnings[0]


def test_a_template_that_cannot_be_read(three_zones: World):
    broken = kube.Node()
    broken.status.allocatable["cpu"].string = "many"
    ((field, _),) = refused(three_zones, add_node_groups=[node_group(broken, 1)])
    assert field == f"{CHANGES}.addNodeGroups[0].template.status.allocatable[cpu]"
    assert [
        field for field, _ in refused(three_zones, add_node_groups=[NodeGroup(node_count=1)])
    ] == [f"{CHANGES}.addNodeGroups[0].template"]


def test_constraint_values_that_cannot_be(three_zones: World):
    changes = [
        change_of(ZONE, max_skew=0, min_domains=0),
        change_of(ZONE, when_unsatisfiable="Never", node_taints_policy="Obey"),
        change_of("", "Sometimes", node_affinity_policy=""),
        change_of(ZONE, min_domains=2, clear_min_domains=True),
    ]
    path = f"{CHANGES}.constraintChanges"
    assert [field for field, _ in refused(three_zones, constraint_changes=changes)] == [
        f"{path}[0].set.maxSkew",
        f"{path}[0].set.minDomains",
        f"{path}[1].set.nodeTaintsPolicy",
        f"{path}[1].set.whenUnsatisfiable",
        f"{path}[2].match.topologyKey",
        f"{path}[2].match.whenUnsatisfiable",
        f"{path}[2].set.nodeAffinityPolicy",
        f"{path}[3].clearMinDomains",
    ]
    none = [change_of("rack", max_skew=2), change_of(ZONE, "ScheduleAnyway", max_skew=2)]
    assert [field for field, _ in refused(three_zones, constraint_changes=none)] == [
        f"{path}[0].match.topologyKey",
        f"{path}[1].match.topologyKey",
    ]


def test_rules_that_cannot_be(three_zones: World):
    args = common_pb2.PodTopologySpreadArgs(defaulting_type="None")
    request = request_of(
        [POD, named("q", constraint(maxSkew=0))],
        fit=9,
        settings=common_pb2.Settings(args=args),
        validation=9,
    )
    request.consistency.fully_consistent = False
    with pytest.raises(InvalidRequest) as failed:
        answered(three_zones, request)
    assert [each.field for each in failed.value.violations] == [
        "consistency.fullyConsistent",
        "scenario.fit",
        "scenario.settings.args.defaultingType",
        "scenario.validation",
    ]
    unknown = common_pb2.Settings(profile="nobody", feature_gates={"Nothing": True})
    pods = [POD, named("q", constraint(maxSkew=0))]
    found = refused(
        three_zones,
        pods=pods,
        settings=unknown,
        validation=common_pb2.CONSTRAINT_VALIDATION_STRICT,
    )
    assert [field for field, _ in found] == [
        "scenario.settings.profile",
        "scenario.settings.featureGates[Nothing]",
        "pods[1].pod.object.spec.topologySpreadConstraints[0].maxSkew",
    ]


def test_pods_that_an_api_server_rejects_are_refused(three_zones: World):
    changed = [change_of(ZONE, min_domains=2, when_unsatisfiable="ScheduleAnyway")]
    assert simulation(three_zones, pods=POD, constraint_changes=changed).placed_pod_count == 1
    ((field, _),) = refused(
        three_zones,
        constraint_changes=changed,
        validation=common_pb2.CONSTRAINT_VALIDATION_STRICT,
    )
    assert field == "pods[0].pod.object.spec.topologySpreadConstraints[0].minDomains"


def test_pods_of_the_state(three_zones: World):
    with pytest.raises(NotFound, match="pod default/nobody is not in cluster"):
        simulation(three_zones, pods="default/nobody")
    assert refused(three_zones, pods="default/w1") == [
        ("pods[0].pod.ref", "it runs on n-a: delete it in the same request to move it")
    ]
    assert refused(three_zones, pods="default/w1", replicas=2)[0][0] == "pods[0].replicas"

    ended = bound(named("done"), "n-a")
    ended["status"] = {"phase": "Failed"}
    Placer(three_zones).apply(ended)
    assert refused(three_zones, pods="default/done") == [
        ("pods[0].pod.ref", "it has ended (Failed): delete it in the same request to make it")
    ]

    moved = simulation(three_zones, pods="default/w1", delete_pods=["default/w1"])
    assert moved.placed_pod_count == 1
    assert moved.placements[0].pod == PodReference(namespace="default", name="w1")


def test_a_reference_means_the_pod_with_its_uid(three_zones: World):
    waiting = named("w", uid="u1")
    Placer(three_zones).apply(waiting)
    request = request_of("default/w")
    request.pods[0].pod.ref.uid = "u1"
    assert answered(three_zones, request).placements[0].pod.uid == "u1"
    request.pods[0].pod.ref.uid = "u2"
    with pytest.raises(NotFound, match=r"pod default/w \(uid u2\) is not in cluster"):
        answered(three_zones, request)

    request = request_of(POD, delete_pods=["default/w"])
    request.scenario.changes.delete_pods[0].uid = "u2"
    with pytest.raises(InvalidRequest, match=rf"{CHANGES}.deletePods\[0\]: no such pod"):
        answered(three_zones, request)


def test_pods_in_any_of_their_forms(three_zones: World):
    pod = pod_from_manifest(POD)
    pod.metadata.name, pod.metadata.generate_name = "", "web-"
    encoded = PodsToPlace(pod=PodSource(object_proto=pod.SerializeToString()), replicas=1)
    found = simulation(three_zones, pods=[to_place(pod, 1), encoded])
    assert [each.pod.name for each in found.placements] == ["web-0", "web-0"]

    broken = PodsToPlace(pod=PodSource(object_proto=b"no pod"))
    nameless = PodsToPlace(pod=PodSource(ref=PodReference(namespace="default")))
    assert [field for field, _ in refused(three_zones, pods=[broken, nameless, PodsToPlace()])] == [
        "pods[0].pod.objectProto",
        "pods[1].pod.ref.name",
        "pods[2].pod",
    ]


def test_a_workload_that_is_named_twice_is_refused(three_zones: World):
    once, other = to_place(POD, 1), to_place(POD, 1)
    once.workload.kind, once.workload.name = "Deployment", "web"
    other.workload.kind, other.workload.name = "StatefulSet", "web"
    assert refused(three_zones, pods=[once, other, once]) == [("pods[2].workload", "")]


def test_reservation_of_a_pod_is_its_own(three_zones: World):
    placer = Placer(three_zones)
    waiting = named("w", constraint(HOSTNAME), uid="u1")
    placer.apply(waiting)
    assert placer.place(waiting).node == "n-c"

    found = simulation(three_zones, pods="default/w")
    assert [p.node for p in found.placements] == ["n-c"]
    (change,) = found.spread_changes
    assert {d.value: d.pod_count_after for d in change.domains}["n-c"] == 1
    placer.apply(bound(waiting, "n-c"))
    assert refused(three_zones, pods="default/w")[0][0] == "pods[0].pod.ref"


def test_simulation_stops_at_the_deadline(three_zones: World):
    assert simulation(three_zones, pods=POD).placed_pod_count == 1
    newest = common_pb2.Consistency(minimize_latency=True)
    with pytest.raises(DeadlineExceeded, match="before the answer was there"):
        answered(three_zones, request_of(POD, replicas=3, consistency=newest), seconds=-1.0)


def test_only_the_first_reasons_are_explained(three_zones: World):
    pods = [named(f"p{number}", constraint("rack")) for number in range(12)]
    found = simulation(three_zones, pods=pods)
    assert found.pending_pod_count == len(found.pending_pods) == 12
    explained = [each.HasField("explanation") for each in found.pending_pods]
    assert explained == [True] * 10 + [False] * 2
    assert all(each.message for each in found.pending_pods)
