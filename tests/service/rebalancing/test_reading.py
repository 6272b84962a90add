"""Constraints are looked at in memory; of the pods those are read that may have to move."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.counting import Counting
from tests.service.busy import Busy
from tests.service.world import World, constraint, running
from topospread.kube.violations import Problems
from topospread.service.rebalancing.plan import RebalancePlanner
from topospread_proto.v1.planner_service_pb2 import PlanRebalanceRequest, PlanRebalanceResponse
from topospread_proto.v1.rebalance_pb2 import EvictionFilters

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]


def spread(app: str, *nodes: str) -> list[Json]:
    """Pods of an app, one on each node, that are to be spread over zones."""
    made = []
    for number, where in enumerate(nodes):
        pod = running(f"{app}-{number}", where, app=app, uid=f"u-{app}-{number}")
        pod["spec"]["topologySpreadConstraints"] = [constraint(app=app)]
        made.append(pod)
    return made


def plan(made: World, store: Any) -> PlanRebalanceResponse:
    request = PlanRebalanceRequest(filters=EvictionFilters(evict_bare_pods=True))
    return RebalancePlanner(store, made.engine).plan(request, made.ask(), Problems())


def counts(found: PlanRebalanceResponse) -> tuple[int, int, int]:
    return (
        found.constraint_count,
        found.violated_constraint_count,
        found.remaining_constraint_count,
    )


def test_nothing_is_read_where_all_constraints_hold(three_zones: World) -> None:
    three_zones.apply(*spread("even", "n-a", "n-b", "n-c"))
    counting = Counting(three_zones.store)
    found = plan(three_zones, counting)
    assert (counts(found), list(found.evictions)) == ((1, 0, 0), [])
    assert counting.objects == 0


def test_only_pods_that_may_have_to_move_are_read(three_zones: World) -> None:
    three_zones.apply(*spread("even", "n-a", "n-b", "n-c"))
    three_zones.apply(*spread("uneven", "n-a", "n-a", "n-a", "n-b"))
    counting = Counting(three_zones.store)
    found = plan(three_zones, counting)
    assert counts(found) == (2, 1, 0)
    assert [(each.pod.name, each.target_node) for each in found.evictions] == [("uneven-0", "n-c")]
    assert counting.objects == 4


def test_a_plan_is_of_one_revision_whatever_is_written_meanwhile(three_zones: World) -> None:
    three_zones.apply(*spread("uneven", "n-a", "n-a", "n-a", "n-b"))
    before = three_zones.revision

    def write() -> None:
        three_zones.apply(*spread("uneven", "n-c", "n-b", "n-b"))
        three_zones.apply(running("uneven-3", "n-a", app="uneven"))
        three_zones.apply(*spread("new", "n-b", "n-b", "n-b"))

    busy = Busy(three_zones, write)
    found = plan(three_zones, busy)
    assert not busy.meanwhile
    assert found.meta.revision == three_zones.revision != before
    assert {each.pod.name[:3] for each in found.evictions} == {"new"}
    assert found == plan(three_zones, three_zones.store)


def test_a_plan_comes_through_though_a_writer_never_rests(three_zones: World) -> None:
    """Each step moves all pods at once, so a plan of two steps would have them on both nodes."""
    three_zones.apply(*spread("uneven", "n-a", "n-a", "n-a"))

    nodes = ("n-b", "n-c")

    def write(step: int) -> Callable[[], object]:
        return lambda: three_zones.apply(*spread("uneven", *[nodes[step % 2]] * 3))

    busy = Busy(three_zones, *map(write, range(50)))
    found = plan(three_zones, busy)
    assert len({each.node for each in found.evictions}) == 1
    assert 40 < len(busy.meanwhile) < 49


def test_pods_that_differ_in_what_they_request_are_of_one_shape(three_zones: World) -> None:
    pods = spread("uneven", "n-a", "n-a", "n-a", "n-b")
    for number, pod in enumerate(pods):
        requests = {"cpu": f"{number + 1}m"}
        pod["spec"]["containers"] = [{"name": "c", "resources": {"requests": requests}}]
    three_zones.apply(*pods)
    found = plan(three_zones, three_zones.store)
    assert (counts(found), len(found.evictions)) == ((1, 1, 0), 1)
