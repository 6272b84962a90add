"""A drain is of one revision, and reads the pods of its nodes alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.counting import Counting
from tests.service.busy import Busy
from tests.service.simulation.calls import request_of
from tests.service.world import World, running
from topospread.kube.violations import Problems
from topospread.service.simulation.request import checked
from topospread.service.simulation.scenario import ScenarioBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from topospread.service.simulation.scenario import Scenario


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
