"""Simulations that are told as stories, drains, and the same as PlacePod's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.counting import Counting
from tests.service.busy import Busy
from tests.service.placement.placer import Placer
from tests.service.simulation.calls import answered, request_of, simulation, to_place
from tests.service.simulation.drawing import Drawn, scenes
from tests.service.simulation.stories import Story, check, stories
from tests.service.world import CLUSTER, World, running, world
from topospread.kube.violations import Problems
from topospread.service.simulation.request import checked
from topospread.service.simulation.scenario import ScenarioBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.service.world import World
    from topospread.service.simulation.scenario import Scenario


@pytest.mark.parametrize("story", [*stories()], ids=lambda story: story.name)
def test_stories_have_the_expected_result(empty_world: World, story: Story):
    empty_world.apply(*story.cluster)
    check(answered(empty_world, story.request), story.expect)


def drained(world: World, store: Any, node: str) -> Scenario:
    question = checked(
        request_of(drain_nodes=[node], reschedule=True), world.ask(), None, Problems()
    )
    return ScenarioBuilder(world.engine, store).make(question)


def names(found: Scenario) -> list[str]:
    return [name for batch in found.batches for name in batch.names]


def test_only_pods_of_the_drained_nodes_are_read(three_zones: World) -> None:
    three_zones.apply(*(running(f"far-{n}", "n-b") for n in range(50)))
    three_zones.apply(*(running(f"near-{n}", "n-c") for n in range(3)))
    counting = Counting(three_zones.store)
    assert names(drained(three_zones, counting, "n-c")) == ["near-0", "near-1", "near-2"]
    assert counting.objects == 3


def test_pods_that_come_and_go_meanwhile_are_of_the_newer_view(three_zones: World) -> None:
    def write(step: int) -> Callable[[], object]:
        one, other = ("w8", "w9")[:: 1 if step % 2 else -1]
        return lambda: three_zones.apply(
            running(one, "n-b"),
            running(other, "n-c"),
            running(f"new-{step}", "n-c"),
            running("w2", "n-c"),
        )

    three_zones.apply(running("w8", "n-c"), running("w9", "n-c"))
    busy = Busy(three_zones, *map(write, range(50)))
    found = names(drained(three_zones, busy, "n-c"))
    assert found == ["new-0", "new-1", "w2", "w9"]
    assert 40 < len(busy.meanwhile) < 49


@settings(max_examples=60)
@given(scenes(), st.sampled_from(["", "a", "b"]))
def test_simulation_places_as_place_pod_does(scene: Drawn, seed: str):
    with world() as made:
        made.apply(*scene.cluster)
        before = made.store.head(CLUSTER)
        found = simulation(made, pods=[to_place(*each) for each in scene.asked], seed=seed)
        assert made.store.head(CLUSTER) == before, "nothing is written"
        nodes = {each.pod.name: each.node for each in found.placements}
        messages = {pod.name: each.message for each in found.pending_pods for pod in each.pods}
        placer = Placer(made)
        for pod, replicas in scene.asked:
            for number in range(replicas):
                name = f"{pod['metadata']['name']}-{number}"
                held = placer.place(_named(pod, name), seed=seed)
                assert held.node == nodes.get(name, ""), name
                assert held.message == messages.get(name, ""), name


def _named(pod: dict[str, Any], name: str) -> dict[str, Any]:
    return pod | {"metadata": pod["metadata"] | {"name": name}}
