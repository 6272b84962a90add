"""Groups that are no option: pods of many workloads and nodes of many groups that meet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.objects import object_of
from tests.counting import lines
from tests.expander.requests import node, pod
from tests.service.world import ZONE, World, world
from topospread.codec.pods import node_from_proto
from topospread.service.simulation.scale_up import choose_options
from topospread.service.simulation.scale_up_outcomes import NodeGroupOption
from topospread_client import pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.kube.objects import Node

WORKLOADS, GROUPS = 20, 40
PAIR = 40
"""Lines of Python for a workload and a group: what is looked up. To try one takes thousands."""


@pytest.fixture(scope="module")
def full() -> Iterator[World]:
    """Three zones whose nodes are full; zone a is one pod of each workload ahead."""
    with world() as made:
        made.apply(*[node(f"n-{zone}", "0", zone=zone) for zone in "abc"])
        made.apply(*[pod(f"w{n}", "n-a", ZONE, app=f"w{n}") for n in range(WORKLOADS)])
        yield made


def template(name: str, zone: str, *, tainted: bool) -> Node:
    made = node(name, "64", zone=zone)
    made["spec"] = {"taints": [{"key": "gpu", "effect": "NoSchedule"}] if tainted else []}
    return node_from_proto(object_of(made).node)


def cost(full: World, groups: int, zones: str, *, tainted: bool) -> int:
    pods = [pod(f"waits-{n}", key=ZONE, app=f"w{n}") for n in range(WORKLOADS)]
    encoded = [pod_from_manifest(each).SerializeToString() for each in pods]
    option = NodeGroupOption("ng", 1, encoded, template("ng", "b", tainted=False))
    others = [template(f"g{n}", zones[n % len(zones)], tainted=tainted) for n in range(groups)]
    return lines(lambda: choose_options(full.engine, full.ask(), [option], others))


@pytest.mark.parametrize("zones", ["a", "c", "def"], ids=["refused", "existing", "new"])
@pytest.mark.parametrize("tainted", [True, False], ids=["tainted", "fitting"])
def test_workloads_and_groups_that_are_no_option_are_not_tried_pair_by_pair(
    full: World, zones: str, tainted: bool
) -> None:
    cost(full, 3, zones, tainted=tainted)  # what is kept from then on
    few = cost(full, 3, zones, tainted=tainted)
    many = cost(full, 3 + GROUPS, zones, tainted=tainted)
    assert many - few < PAIR * WORKLOADS * GROUPS + 2_000 * GROUPS
