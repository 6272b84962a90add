"""A simulation answers what PlacePod answers, asked pod by pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.placement.placer import Placer
from tests.service.simulation.calls import simulated, to_place
from tests.service.simulation.drawing import Drawn, scenes
from tests.service.world import CLUSTER, world

if TYPE_CHECKING:
    from topospread.service.simulation.run import SimulationResult


@settings(max_examples=60)
@given(scenes(), st.sampled_from(["", "a", "b"]))
def test_simulation_places_as_place_pod_does(scene: Drawn, seed: str):
    with world() as made:
        made.apply(*scene.cluster)
        before = made.store.head(CLUSTER)
        found = simulated(
            made, pods=[to_place(*each) for each in scene.asked], seed=seed
        ).simulation
        assert made.store.head(CLUSTER) == before, "nothing is written"
        placer = Placer(made)
        for batch, (pod, _) in zip(found.batches, scene.asked, strict=True):
            for name in batch.names:
                held = placer.place(_named(pod, name), seed=seed)
                assert held.node == _node_of(found, name), name
                assert held.message == _message_of(found, name), name


def _named(pod: dict[str, Any], name: str) -> dict[str, Any]:
    return pod | {"metadata": pod["metadata"] | {"name": name}}


def _node_of(found: SimulationResult, name: str) -> str:
    return next((each.node for each in found.placements if each.name == name), "")


def _message_of(found: SimulationResult, name: str) -> str:
    refused = {own: each.refusal.message for each in found.pending for _, own in each.pods}
    return refused.get(name, "")
