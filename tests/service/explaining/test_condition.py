"""The scheduler's own sentence stands beside a verdict that gives other reasons."""

from __future__ import annotations

from typing import Any

import pytest

from tests.service.placement.placer import named
from tests.service.world import World, node, world
from topospread.service.decisions.request import PodRef
from topospread.service.explaining.condition import reasons_in
from topospread.service.explaining.explain import explain

Json = dict[str, Any]

POST_FILTER = " preemption: 0/2 nodes are available: 2 Preemption is not helpful for scheduling."
TOO_MANY = "0/2 nodes are available: 2 Too many pods."
SINCE = "2026-01-02T03:04:05Z"


def condition(message: str, reason: str = "Unschedulable") -> Json:
    said = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    return {"status": {"phase": "Pending", "conditions": [said | {"lastTransitionTime": SINCE}]}}


@pytest.mark.parametrize(
    ("message", "reasons"),
    [
        (TOO_MANY, {"Too many pods"}),
        (TOO_MANY + POST_FILTER, {"Too many pods"}),
        (TOO_MANY + " no new claims to deallocate," + POST_FILTER, {"Too many pods"}),
        (
            "0/30 nodes are available: 1 Insufficient cpu, 29 node(s) were unschedulable.",
            {"Insufficient cpu", "node(s) were unschedulable"},
        ),
        (
            '0/3 nodes are available: persistentvolumeclaim "data.x" not found.',
            {'persistentvolumeclaim "data.x" not found'},
        ),
        ("no nodes available to schedule pods", {"no nodes available to schedule pods"}),
    ],
)
def test_reasons_are_those_of_filters_without_numbers(message: str, reasons: set[str]) -> None:
    assert reasons_in(message) == reasons


@pytest.mark.parametrize(
    ("full", "said", "shown"),
    [
        (True, condition(TOO_MANY), False),
        (True, condition("0/5 nodes are available: 5 Too many pods." + POST_FILTER), False),
        (True, condition("0/2 nodes are available: 2 Insufficient gpu."), True),
        (False, condition(TOO_MANY), True),
        (False, {}, False),
    ],
)
def test_a_condition_is_shown_where_it_differs(full: bool, said: Json, shown: bool) -> None:
    with world() as here:
        none: Json = {"status": {"allocatable": {}}} if full else {}
        here.apply(node("n-a", "a") | none, node("n-b", "b") | none, named("p") | said)
        found = explained(here)
    assert found.HasField("scheduled_condition") == shown
    if shown:
        shown_at = found.scheduled_condition.last_transition_time.ToJsonString()
        assert (shown_at, found.scheduled_condition.reason) == (SINCE, "Unschedulable")


@pytest.mark.parametrize("gates", [[], [{"name": "wait"}]])
def test_a_gated_pod_is_said_to_be_gated_once(gates: list[Json]) -> None:
    with world() as here:
        said = condition("Scheduling is blocked due to scheduling gates", "SchedulingGated")
        here.apply(node("n-a", "a"), named("p", schedulingGates=gates) | said)
        found = explained(here)
    assert found.HasField("scheduled_condition") == (not gates)
    assert ("scheduling gates: not tried yet" in found.not_modelled) == bool(gates)


def explained(here: World) -> Any:
    pod = here.engine.with_requests(here.ask(), PodRef("p"))
    return explain(here.engine, here.ask(), pod).response.explanation
