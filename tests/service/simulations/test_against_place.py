"""A simulation answers what Place answers, asked pod by pod."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.places import Placer
from tests.service.simulations.asking import simulated
from tests.service.simulations.drawing import Drawn, scenes
from tests.service.world import CLUSTER, world

if TYPE_CHECKING:
    from topospread.service.simulate import Simulation
    from topospread_client.scenarios import Pods


@settings(max_examples=60)
@given(scenes(), st.sampled_from(["", "a", "b"]))
def test_it_places_as_place_does(scene: Drawn, seed: str):
    with world() as made:
        made.apply(*scene.cluster)
        before = made.store.head(CLUSTER)
        found = simulated(made, pods=scene.asked, seed=seed).simulation
        assert made.store.head(CLUSTER) == before, "nothing is written"
        placer = Placer(made)
        for batch, pods in zip(found.batches, scene.asked, strict=True):
            for name in batch.names:
                held = placer.place(_named(pods, name), seed=seed)
                assert held.node == _node_of(found, name), name
                assert held.message == _message_of(found, name), name


def _named(pods: Pods, name: str) -> dict[str, Any]:
    assert isinstance(pods.pod, dict)
    return pods.pod | {"metadata": pods.pod["metadata"] | {"name": name}}


def _node_of(found: Simulation, name: str) -> str:
    return next((each.node for each in found.placements if each.name == name), "")


def _message_of(found: Simulation, name: str) -> str:
    return next((each.refusal.message for each in found.pending if name in each.names), "")
