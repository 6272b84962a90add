"""Two indexes of one state compare equal, and each difference between two is found."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.soak.reference_replica import differences
from topospread.index.builder import Builder
from topospread.index.changes import (
    IndexChange,
    NodeChange,
    PodChange,
    PodRow,
    ReservationChange,
    ReservationRow,
    WorkloadChange,
)
from topospread.kube.demands import Holds
from topospread.kube.objects import Node, Workload
from topospread.kube.selectors import selector_from_pairs
from topospread.spread.topology import GroupKey

if TYPE_CHECKING:
    from topospread.index.snapshot import Snapshot

ZONE = "zone"
APP = (("app", "a"),)
GROUP = GroupKey("default", selector_from_pairs(APP))
CPU = (("cpu", 100),)
SERVICE = WorkloadChange("Service", "default", "a", Workload("Service", "default", "a", None, APP))


def joins(name: str, zone: str) -> NodeChange:
    return NodeChange(name, Node(name, {ZONE: zone}))


def starts(name: str, node: str, *, app: str = "a", cpu: int = 100) -> PodChange:
    row = PodRow((("app", app),), node, counted=True, requests=(("cpu", cpu),))
    return PodChange("default", name, row)


STATE: list[IndexChange] = [
    joins("n0", "x"),
    joins("n1", "y"),
    starts("p0", "n0"),
    starts("p1", "n1"),
    SERVICE,
]


def holds(name: str, node: str, held: Holds) -> PodChange:
    row = PodRow(APP, node, counted=True, requests=(("cpu", 100),), holds=held)
    return PodChange("default", name, row)


def counted(*changes: IndexChange) -> Snapshot:
    builder = Builder()
    for change in changes:
        builder.fold([change])
    return builder.ensure_counted([GROUP])


def found(*changes: IndexChange) -> list[str]:
    return list(differences(counted(*STATE), counted(*STATE, *changes), [GROUP], [ZONE]))


def test_a_state_that_came_about_in_another_way_is_the_same() -> None:
    other: list[IndexChange] = [
        *reversed(STATE),
        starts("p2", "n0"),
        joins("n2", "x"),
        PodChange("default", "p2", None),
        NodeChange("n2", None),
    ]
    assert list(differences(counted(*STATE), counted(*other), [GROUP], [ZONE])) == []


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (joins("n2", "x"), "nodes: "),
        (joins("n0", "y"), "node n0: "),
        (starts("p2", "n0"), "pods: 2 and 3"),
        (starts("p0", "n1"), "default/app=a: on 2 nodes, such as n0: 1 and 0"),
        (starts("p0", "n1"), "by zone: {'x': 1, 'y': 1} and {'x': 0, 'y': 2}"),
        (starts("p0", "n0", app="b"), "label sets: 1 and 2"),
        (starts("p0", "n0", cpu=7), "cpu that are taken: on 1 nodes, such as n0: 100 and 7"),
        (WorkloadChange("Service", "default", "a", None), "workloads: "),
        (ReservationChange("default", "r", ReservationRow("", APP, "n0")), "reservations: "),
        (
            holds("p0", "n0", Holds(claims=("default/c",))),
            "held on node n0: {} and {",
        ),
    ],
)
def test_each_difference_is_found(change: IndexChange, expected: str) -> None:
    assert any(expected in line for line in found(change)), found(change)
