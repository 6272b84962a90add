"""What makes a judgement void: volumes for pods that have some, and for no others."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from tests.service.placement.placer import Placer, named
from tests.service.placement.test_places import Wrapped, place_all, task_of
from tests.service.world import World, node

if TYPE_CHECKING:
    from topospread.store.api import Store

WITH_CLAIM: Final = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
TERM: Final = {"labelSelector": {"matchLabels": {"app": "db"}}, "topologyKey": "zone"}


@pytest.fixture
def placer(three_zones: World) -> Placer:
    made = Placer(three_zones)
    free = {"status": {"allocatable": {"cpu": "8", "pods": "110"}}}
    made.apply(*({**node(f"n-{zone}", zone), **free} for zone in "abc"))
    made.apply(of("PersistentVolumeClaim", "data"))
    made.held()  # it follows the cluster
    return made


def apart_from(**term: object) -> dict[str, Any]:
    """Anti-affinity with one term."""
    terms = [{**TERM, **term}]
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
    return {"affinity": {"podAntiAffinity": wanted}}


def of(kind: str, name: str, **fields: object) -> dict[str, Any]:
    """An object of a kind."""
    return {"kind": kind, "metadata": {"name": name}, **fields}


@pytest.mark.parametrize(
    ("spec", "changed", "conflicts"),
    [
        (WITH_CLAIM, of("PersistentVolume", "pv-9"), 1),
        (WITH_CLAIM, of("PersistentVolumeClaim", "other"), 1),
        (WITH_CLAIM, of("CSINode", "n-a"), 1),
        (WITH_CLAIM, of("Namespace", "other"), 0),
        ({}, of("PersistentVolume", "pv-9"), 0),
        ({}, of("PersistentVolumeClaim", "other"), 0),
        ({}, of("VolumeAttachment", "va-9"), 0),
        ({}, of("Namespace", "other"), 0),
        (apart_from(), of("Namespace", "other"), 0),
        (apart_from(namespaceSelector={}), of("Namespace", "other"), 1),
    ],
)
def test_a_change_voids_what_looked_at_it(
    placer: Placer, spec: dict[str, Any], changed: dict[str, Any], conflicts: int
) -> None:
    store = placer.world.store
    task = task_of(placer, named("a", **spec), lambda cycle, held: "n-a")
    left = [changed]

    def apply(*given: Any, **options: Any) -> Any:
        if left:
            placer.apply(left.pop())
        return store.apply(*given, **options)

    placer.holding.store = cast("Store", Wrapped(store, apply))
    place_all(placer, [task])
    assert task.placement.conflicts == conflicts
