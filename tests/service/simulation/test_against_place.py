"""A simulation answers what PlacePod answers, asked pod by pod."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.placement.placer import Placer
from tests.service.simulation.calls import simulation, to_place
from tests.service.simulation.drawing import Drawn, scenes
from tests.service.world import CLUSTER, world


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
