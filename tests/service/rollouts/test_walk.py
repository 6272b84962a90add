"""Rolling updates on copies of a state, compared with every way that one can go."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from tests.conformance.objects import object_of
from tests.service.world import constraint, encoded, node, running
from tests.spread.linting.rollout_model import ends_of, placements, rollouts_end
from topospread.codec.pods import node_from_proto
from topospread.codec.rows import decode_pod
from topospread.codec.stored import stored
from topospread.index.overlay import Overlay, PodDelta, apply_overlay
from topospread.kube.rollouts import Rollout, Share
from topospread.service.decisions.pods import JudgedPod
from topospread.service.rollouts.walk import MOST_PODS, RolloutWalk
from topospread.spread.rollouts import RolloutEnd

HASH = "pod-template-hash"
CPU = {"requests": {"cpu": "1"}}
CONTAINER = {"name": "c", "image": "x", "resources": CPU}


def domain(at, capacity, *, usable=True):
    """A node in a zone of its own with room for so many pods."""
    made = node(f"n{at}", f"z{at}")
    made["status"] = {"allocatable": {"cpu": str(capacity), "memory": "64Gi", "pods": "110"}}
    if not usable:
        made["spec"] = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    return node_from_proto(object_of(made).node)


def old_pod(number, at):
    pod = running(f"old-{number}", f"n{at}", labels={"app": "web", HASH: "old"})
    pod["spec"]["containers"] = [CONTAINER]
    return decode_pod(stored(object_of(pod)).payload)


def new_pod(max_skew, min_domains=None, *, is_scoped=False):
    spread = constraint(maxSkew=max_skew)
    if min_domains is not None:
        spread["minDomains"] = min_domains
    if is_scoped:
        spread["matchLabelKeys"] = [HASH]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", "labels": {"app": "web", HASH: "new"}},
        "spec": {"containers": [CONTAINER], "topologySpreadConstraints": [spread]},
    }


@pytest.fixture
def walk(empty_world):
    """What becomes of a rollout of old pods, by their domains, where these have so much room."""
    empty_world.apply(node("elsewhere"))
    engine = empty_world.engine

    def walked(start, capacities, surge, unavailable, pod, usable=None, most=None):
        asked = engine.with_requests(empty_world.ask(), encoded(pod))
        resolved = engine.new_cycle(empty_world.ask()._replace(pod=asked.pod, demand=asked.demand))
        usable = len(start) if usable is None else usable
        nodes = [domain(at, capacity, usable=at < usable) for at, capacity in enumerate(capacities)]
        places = [at for at, pods in enumerate(start) for _ in range(pods)]
        old = [old_pod(number, at) for number, at in enumerate(places)]
        moves = [PodDelta("default", row, 1) for row in old]
        view = resolved.cycle.view
        changes = Overlay(joined=nodes, gone=["elsewhere"], moves=moves)
        snapshot, _ = apply_overlay(view.snapshot, changes, resolved.cycle.needed)
        judged = JudgedPod(asked.pod, resolved.cycle.rules, asked.demand)
        rollout = Rollout(Share(surge), Share(unavailable))
        there = replace(view, snapshot=snapshot)
        return RolloutWalk(there, judged, rollout, len(old), old).outcome(most)

    return walked


def end_of(ends):
    if ends == {None}:
        return RolloutEnd.WAITS
    return RolloutEnd.MAY_WAIT if None in ends else RolloutEnd.COMPLETES


STARTS = [
    start
    for domains in (2, 3)
    for start in product(range(4), repeat=domains)
    if 2 <= sum(start) <= 4 and list(start) == sorted(start)
]
TIGHT = [
    (start, free, surge, unavailable, max_skew)
    for start in STARTS
    for free in product((0, 1), repeat=len(start))
    for surge, unavailable in ((1, 0), (2, 1), (0, 1))
    for max_skew in (1, 2)
    if max(start) - min(start) <= max_skew
]


@pytest.mark.parametrize("is_scoped", [False, True], ids=["all", "each revision"])
def test_a_rollout_on_tight_nodes_ends_as_one_can(walk, is_scoped):
    wrong, seen = [], set()
    for case in TIGHT:
        start, free, surge, unavailable, max_skew = case
        capacities = [old + more for old, more in zip(start, free, strict=True)]

        def may_come(old, new, capacities=capacities, max_skew=max_skew):
            counted = new if is_scoped else [a + b for a, b in zip(old, new, strict=True)]
            return [
                d
                for d, capacity in enumerate(capacities)
                if old[d] + new[d] < capacity and counted[d] + 1 - min(counted) <= max_skew
            ]

        expected = end_of(ends_of(start, sum(start), surge, unavailable, may_come, ranked=True))
        seen.add(expected)
        found = walk(start, capacities, surge, unavailable, new_pod(max_skew, is_scoped=is_scoped))
        assert found.proven
        assert (found.wait is None) == (found.end is RolloutEnd.COMPLETES)
        if found.end is not expected:
            wrong.append((case, found.end, expected))
    assert seen >= {RolloutEnd.COMPLETES, RolloutEnd.WAITS}
    assert (RolloutEnd.MAY_WAIT in seen) == is_scoped
    assert not wrong, f"{len(wrong)} of {len(TIGHT)}: {wrong[:10]}"


ROOMY = [
    (replicas, domains, usable, max_skew, min_domains, surge, unavailable)
    for replicas, domains, max_skew, surge, unavailable in product(
        (2, 3, 4), (2, 3), (1, 2), (0, 1), (0, 1)
    )
    for usable in (domains - 1, domains)
    for min_domains in (1, domains + 1)
    if surge or unavailable
]


def test_a_rollout_with_capacity_left_ends_as_one_can(walk):
    wrong, seen = [], set()
    for case in ROOMY:
        replicas, domains, usable, max_skew, min_domains, surge, unavailable = case
        rules = {"usable": usable, "max_skew": max_skew, "min_domains": min_domains}
        for start in placements(replicas, domains, **rules):
            expected = end_of(
                rollouts_end(start, replicas, surge, unavailable, ranked=True, **rules)
            )
            seen.add(expected)
            pod = new_pod(max_skew, min_domains)
            found = walk(start, [64] * domains, surge, unavailable, pod, usable).end
            if found is not expected:
                wrong.append((case, start, found, expected))
    assert seen == {RolloutEnd.COMPLETES, RolloutEnd.WAITS}
    assert not wrong, f"{len(wrong)}: {wrong[:10]}"


def test_a_wait_is_reported_with_the_pods_that_run_and_the_schedulers_words(walk):
    found = walk((1, 1), [1, 1], 1, 0, new_pod(1))
    assert found.end is RolloutEnd.WAITS
    assert (found.wait.old, found.wait.new) == (2, 0)
    assert found.wait.message == "0/2 nodes are available: 2 Insufficient cpu."
    assert found.wait.lacks_resources


def test_of_many_pods_some_courses_are_followed(walk):
    found = walk((60, 60), [60, 60], 1, 1, new_pod(1, is_scoped=True))
    assert not found.proven or found.end is RolloutEnd.MAY_WAIT


@pytest.mark.parametrize("most", [0, 1, 5, 19])
def test_no_rollout_completes_of_which_no_course_was_followed_to_an_end(walk, most):
    found = walk((20, 20), [25, 25], 1, 0, new_pod(1, is_scoped=True), most=most)
    assert found.end is RolloutEnd.UNKNOWN
    assert not found.proven
    assert (found.wait, found.courses, found.waiting) == (None, 0, 0)
    assert "was not looked at" in found.text


def test_nor_does_one_of_too_many_pods(walk):
    pods = MOST_PODS // 2 + 1
    found = walk((pods, pods), [pods, pods], 1, 1, new_pod(1, is_scoped=True))
    assert found.end is RolloutEnd.UNKNOWN
