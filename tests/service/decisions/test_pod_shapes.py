"""What is kept of a pod's shape follows the state, and goes when it is of no more use."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

from tests.service.world import (
    Json,
    World,
    best,
    constraint,
    incoming,
    node,
    pod_of,
    running,
    soft,
)
from topospread.cache import BUDGETS, LARGEST_KEY
from topospread.codec.frames import framed
from topospread.index.nodes import NodeTable
from topospread.service.decisions.evaluate import evaluate
from topospread.service.decisions.pods import PodShape, PodShapes, ShapedPod
from topospread_client import pod_from_manifest

if TYPE_CHECKING:
    import pytest


def shaped(world: World, pod: Json) -> ShapedPod:
    """A pod as the bytes of a plain question are read."""
    return world.engine.intern(framed(pod_from_manifest(pod).SerializeToString()))


def test_pods_that_differ_in_what_matters_have_other_shapes(three_zones: World):
    plain = incoming(constraint())
    others = [
        incoming(constraint(), app="db"),
        incoming(constraint(maxSkew=2)),
        incoming(constraint(), soft()),
        incoming(constraint(), nodeSelector={"disk": "ssd"}),
        incoming(constraint(), schedulerName="mine"),
        incoming(constraint(), tolerations=[{"operator": "Exists"}]),
        plain | {"metadata": plain["metadata"] | {"namespace": "other"}},
        plain
        | {
            "metadata": plain["metadata"]
            | {"ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "y"}]}
        },
    ]
    shapes = {shaped(three_zones, pod).shape for pod in (plain, *others, plain)}
    assert len(shapes) == 1 + len(others)


def test_shapes_do_not_keep_the_node_tables_of_their_last_use(empty_world: World):
    """Pods that come once, in a cluster whose nodes change, kept one table each."""
    empty_world.apply(node("n-a", "a"), node("n-b", "b"))
    before = node_tables()
    shapes = []
    for number in range(30):
        empty_world.apply(node("n-a", f"a-{number}"))
        app = f"job-{number}"
        shapes.append(shaped(empty_world, incoming(constraint(app=app), app=app)))
        assert best(empty_world, shapes[-1]) == ["n-a", "n-b"]
    assert node_tables() - before <= 2


def node_tables() -> int:
    """Node tables that somebody still refers to."""
    gc.collect()
    return sum(isinstance(kept, NodeTable) for kept in gc.get_objects())


def test_plans_are_bounded(empty_world: World, monkeypatch: pytest.MonkeyPatch):
    empty_world.apply(node("n-a", "a"), node("n-b", "b"), running("w", "n-a"))
    asked = [shaped(empty_world, incoming(constraint(maxSkew=1 + n))) for n in range(40)]

    def judged() -> NodeTable:
        found = [best(empty_world, pod) for pod in asked]
        assert found == [["n-b"], *[["n-b", "n-a"]] * 39]
        resolved = evaluate(empty_world.engine, empty_world.ask(asked[0])).resolved
        return resolved.cycle.view.snapshot.nodes

    plans = judged().plans
    assert len(plans) == 40
    monkeypatch.setattr(BUDGETS["plans"], "most", plans.size)
    empty_world.apply(node("n-b", "b", disk="ssd"))
    for _ in range(2):
        plans = judged().plans
        assert 0 < len(plans) < 40
        assert plans.size <= BUDGETS["plans"].most


def test_cache_of_shapes_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch):
    made = {number: PodShape(pod_of(incoming())) for number in range(1000)}
    monkeypatch.setattr(BUDGETS["shapes"], "most", 40 * made[0].size)
    shapes = PodShapes()
    for number, shape in made.items():
        shapes.put(number, shape)
        assert shapes.get(number) is shape
        assert shapes.get(0) is made[0]  # the one that is always asked for
    kept = [number for number in made if number in shapes._kept]
    assert 20 <= len(kept) <= 40
    assert kept[1:] == list(range(kept[1], 1000))


def test_nothing_that_follows_from_a_large_pod_is_kept(three_zones: World):
    labels = {f"label-{number}": "x" * 60 for number in range(LARGEST_KEY // 64)}
    pod = incoming(constraint())
    pod["metadata"]["labels"] |= labels
    large = framed(pod_from_manifest(pod).SerializeToString())
    assert large.size > LARGEST_KEY
    first, second = three_zones.engine.intern(large), three_zones.engine.intern(large)
    assert first.shape is not second.shape
    answer = evaluate(three_zones.engine, three_zones.ask(first))
    nodes = answer.resolved.cycle.view.snapshot.nodes
    assert answer.resolved.cycle.effective not in nodes.plans
    assert answer.kept is None
    assert best(three_zones, pod) == best(three_zones, incoming(constraint()))
