"""Bounds of plans hold wherever the scheduler puts the replacements."""

from __future__ import annotations

import json
from collections import Counter
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.reference.constraints import Gates, Question
from tests.reference.filtering import pre_filter
from tests.reference.snapshot import Snapshot
from tests.service.rebalancing.cases import cluster_of
from tests.service.rebalancing.judging import Cluster, above, may_go
from tests.service.rebalancing.test_properties import clusters
from tests.service.world import HOSTNAME, ZONE, World, constraint, node, running, world
from topospread.kube.violations import Problems
from topospread.service.rebalancing import free_choice
from topospread.service.rebalancing.plan import RebalancePlanner
from topospread_proto.v1.common_pb2 import OPTIMALITY_BEST_FOUND, OPTIMALITY_PROVEN
from topospread_proto.v1.planner_service_pb2 import PlanRebalanceRequest, PlanRebalanceResponse

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Json = dict[str, Any]

RECORDED = Path(__file__).parent / "carried_out.jsonl"


def planned(made: World, **request: Any) -> PlanRebalanceResponse:
    planner = RebalancePlanner(made.store, made.engine)
    return planner.plan(PlanRebalanceRequest(**request), made.ask(), Problems())


def ends(cluster: Cluster, plan: PlanRebalanceResponse) -> Iterator[Cluster]:
    """The clusters that the scheduler can make of a plan; where a replacement waits, it ends."""
    pods = {pod["metadata"]["name"]: pod for pod in cluster["pods"]}
    clusters = {shape(cluster): cluster}
    for number, of_group in groupby(plan.evictions, key=lambda each: each.group_index):
        names = [each.pod.name for each in of_group]
        at_once, waits = plan.groups[number].at_once, plan.groups[number].replacement_may_wait
        # Steps one after the other; or all pods are evicted, and then any of them is next.
        for step in [names] if at_once else [[name] for name in names]:
            clusters = without(clusters.values(), step)
            for _ in step:
                following: dict[object, Cluster] = {}
                for each in clusters.values():
                    placed = [made for name in step for made in put(each, pods[name])]
                    if not placed:
                        assert waits
                        yield each
                    following.update((shape(made), made) for made in placed)
                clusters = following
    yield from clusters.values()


def without(clusters: Iterable[Cluster], names: Sequence[str]) -> dict[object, Cluster]:
    """The clusters, and these pods are evicted."""
    found: dict[object, Cluster] = {}
    for each in clusters:
        left = [pod for pod in each["pods"] if pod["metadata"]["name"] not in names]
        made = {**each, "pods": left}
        found[shape(made)] = made
    return found


def put(cluster: Cluster, pod: Json) -> Iterator[Cluster]:
    """The cluster with a replacement on each node that lets it in; none where it is there."""
    name = pod["metadata"]["name"]
    if any(each["metadata"]["name"] == name for each in cluster["pods"]):
        return
    for node_name in nodes_of(cluster):
        if may_go(cluster, pod, node_name):
            there = {**pod, "spec": {**pod["spec"], "nodeName": node_name}}
            yield {**cluster, "pods": [*cluster["pods"], there]}


def nodes_of(cluster: Cluster) -> list[str]:
    return [each["metadata"]["name"] for each in cluster["nodes"]]


def shape(cluster: Cluster) -> object:
    """Where which pods are."""
    return frozenset((p["metadata"]["name"], p["spec"]["nodeName"]) for p in cluster["pods"])


def skews(cluster: Cluster) -> dict[str, int]:
    """The highest skew of any pod's hard constraint, by topology key."""
    snapshot, found = Snapshot(cluster), Counter[str]()
    for pod in cluster["pods"]:
        question = Question(pod, {}, Gates.parse(None), cluster)
        _, spread = pre_filter(question, snapshot)
        for each, counts, minimum in (
            zip(spread.constraints, spread.counts, spread.minima(), strict=True) if spread else ()
        ):
            skew = max(counts.values(), default=0) - minimum
            found[each.topology_key] = max(found[each.topology_key], skew)
    return found


@given(clusters())
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_no_choice_of_the_scheduler_leaves_more_than_is_said(cluster: Cluster) -> None:
    with world() as made:
        made.apply(*cluster["nodes"], *cluster["pods"])
        plan = planned(made)
    if not plan.evictions:
        # Nothing is to be done, or nothing can be.
        assert (plan.remaining_constraint_count > 0) == bool(above(cluster))
        return
    hold_at_the_ends(cluster, plan)


def hold_at_the_ends(cluster: Cluster, plan: PlanRebalanceResponse) -> int:
    """Each end is as the plan says; returns how many there are."""
    said = Counter(skews(cluster)) if len(plan.groups) > 1 else Counter[str]()
    most = {
        each["maxSkew"]
        for pod in cluster["pods"]
        for each in pod["spec"].get("topologySpreadConstraints", ())
    }
    for group in plan.groups:
        for each in group.constraints:
            key = each.constraint.topology_key
            said[key] = max(said[key], each.highest_skew_after, *most)
    proven = plan.optimality == OPTIMALITY_PROVEN and not plan.remaining_constraint_count
    found = 0
    for end in ends(cluster, plan):
        found += 1
        assert all(skew <= said[key] for key, skew in skews(end).items())
        if proven:
            assert above(end) == []
    assert found
    return found


def test_pods_evicted_at_once_may_come_back_in_any_order() -> None:
    """Two of zone a: each alone would find nowhere but zone a again."""
    item: Json = {
        "nodes": {
            "n0": {"zone": "a", "rack": "r1"},
            "n1": {"zone": "b", "rack": "r1"},
            "n2": {"zone": "c", "rack": "r2"},
        },
        "keys": ["zone", "rack"],
        "pods": [
            {"name": "bare-0", "node": "n0", "free": True},
            {"name": "bare-2", "node": "n2", "free": True},
            {"name": "p0", "node": "n0"},
            {"name": "p1", "node": "n0"},
        ],
    }
    cluster = cluster_of(item)
    for pod in cluster["pods"]:
        if pod["metadata"]["name"].startswith("bare"):
            del pod["metadata"]["ownerReferences"]
    with world() as made:
        made.apply(*cluster["nodes"], *cluster["pods"])
        plan = planned(made)
    assert [group.at_once for group in plan.groups] == [True]
    assert hold_at_the_ends(cluster, plan) > 1


@pytest.mark.parametrize("workloads", [1, 2, 3])
def test_other_groups_leave_capacity_where_nodes_have_plenty(workloads: int) -> None:
    """Each node is a place of its own to a constraint over hosts."""
    keys = (constraint(ZONE), constraint(HOSTNAME, maxSkew=2))
    objects: list[Json] = [node(f"n{number}", f"z{number % 3}") for number in range(12)]
    for workload in range(workloads):
        app = f"w{workload}"
        for number, on in enumerate((0, 3, 6, 9, 1, 2)):
            pod = running(f"{app}-{number}", f"n{on}", uid=f"{app}-{number}", app=app)
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": app, "uid": app}
            pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
            pod["metadata"]["labels"] = {"app": app}
            pod["spec"]["topologySpreadConstraints"] = [
                {**key, "labelSelector": {"matchLabels": {"app": app}}} for key in keys
            ]
            pod["spec"]["containers"] = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
            objects.append(pod)
    with world() as made:
        made.apply(*objects)
        groups = planned(made).groups
    assert [group.optimality for group in groups] == [OPTIMALITY_PROVEN] * workloads


def made_of(made: World, counts: Sequence[int], nodes: int, *constraints: Json) -> None:
    """Zones with so many pods each, spread evenly over so many nodes of each zone."""
    objects: list[Json] = []
    for zone, pods in enumerate(counts):
        names = [f"n-{zone}-{number}" for number in range(nodes)]
        objects += [node(name, f"z-{zone}") for name in names]
        for number in range(pods):
            pod = running(f"p-{zone}-{number}", names[number % nodes], uid=f"u-{zone}-{number}")
            owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w"}
            pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
            pod["spec"]["topologySpreadConstraints"] = list(constraints)
            objects.append(pod)
    made.apply(*objects)


def worst(counts: tuple[int, ...], leaving: Sequence[int], max_skew: int) -> int:
    """The highest skew at the end, by trying all zones for each replacement."""
    if not leaving:
        return max(counts) - min(counts)
    first, *rest = leaving
    without = tuple(pods - (zone == first) for zone, pods in enumerate(counts))
    return max(
        worst(tuple(p + (z == zone) for z, p in enumerate(without)), rest, max_skew)
        for zone, pods in enumerate(without)
        if pods + 1 - min(without) <= max_skew
    )


@given(st.lists(st.integers(0, 6), min_size=2, max_size=4), st.integers(1, 3))
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow], deadline=None)
def test_of_one_constraint_the_highest_skew_is_the_worst_that_there_is(counts, max_skew) -> None:
    with world() as made:
        made_of(made, counts, 1, constraint(ZONE, maxSkew=max_skew))
        plan = planned(made)
    for group in plan.groups:
        leaving = [int(each.node.split("-")[1]) for each in plan.evictions]
        (only,) = group.constraints
        highest = worst(tuple(counts), leaving, max_skew)
        assert only.highest_skew_after == highest
        assert not group.replacement_may_wait
        assert (group.optimality == OPTIMALITY_PROVEN) == (highest <= max_skew)
        assert group.fewest_eviction_count == group.eviction_count == len(leaving)


def test_bound_stands_in_for_too_many_states(monkeypatch: pytest.MonkeyPatch) -> None:
    with world() as made:
        made_of(made, [9, 0, 0], 2, constraint(ZONE, maxSkew=2))
        ((walked,),) = (group.constraints for group in planned(made).groups)
        monkeypatch.setattr(free_choice, "MOST_STEPS", 3)
        ((bounded,),) = (group.constraints for group in planned(made).groups)
    assert bounded.skew_after <= walked.highest_skew_after < bounded.highest_skew_after <= 9


def test_replacement_that_may_find_no_capacity_is_reported() -> None:
    """The small one may take the only node that is large enough for the other."""
    item: Json = {
        "nodes": {"n0": {"zone": "a"}, "n1": {"zone": "b"}, "n2": {"zone": "b"}},
        "pods": [{"name": name, "node": "n0"} for name in ("small", "large", "bare-0", "bare-1")],
        "allocatable": {
            "n1": {"pods": "9", "cpu": "1"},
            "n2": {"pods": "9", "cpu": "2"},
        },
    }
    cluster = cluster_of(item)
    for pod in cluster["pods"]:
        name = pod["metadata"]["name"]
        if name.startswith("bare"):
            del pod["metadata"]["ownerReferences"]
        cpu = "2" if name == "large" else "1"
        pod["spec"]["containers"] = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    with world() as made:
        made.apply(*cluster["nodes"], *cluster["pods"])
        (group,) = planned(made).groups
    assert (group.eviction_count, group.fewest_eviction_count) == (2, 2)
    assert group.optimality == OPTIMALITY_BEST_FOUND
    (only,) = group.constraints
    assert group.replacement_may_wait
    # One of zone a is gone, and the other replacement runs.
    assert (only.skew_after, only.highest_skew_after) == (0, 1)


def recorded() -> list[Json]:
    return [json.loads(line) for line in RECORDED.read_text().splitlines()]


@pytest.mark.parametrize("run", recorded(), ids=lambda run: f"{run['before']}-{run['after']}")
def test_plans_that_were_carried_out_ended_within_what_is_said(run: Json) -> None:
    """What a real scheduler of 1.37.2 made of them; a zone's pods were on any of its nodes."""
    constraints = [
        constraint(key, maxSkew=skew, whenUnsatisfiable=when)
        for key, skew, when in run["constraints"]
    ]
    with world() as made:
        made_of(made, run["before"], run["nodesPerZone"], *constraints)
        plan = planned(made)
    after = max(run["after"]) - min(run["after"])
    (zones,) = [each for each in run["constraints"] if each[0] == ZONE]
    for group in plan.groups:
        for each in group.constraints:
            if each.constraint.topology_key == ZONE:
                assert after <= each.highest_skew_after
                if group.optimality == OPTIMALITY_PROVEN:
                    assert after <= zones[1]
