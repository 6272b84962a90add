"""What a plan reads: of every store, while others write, pods that wait, and wrong requests."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import yaml
from google.protobuf.duration_pb2 import Duration

from tests.conformance.objects import object_of
from tests.counting import Counting
from tests.redis_server import ROOT
from tests.servers import ZONE, Peer, at_least, node, served, violations
from tests.service.busy import Busy
from tests.service.world import World, constraint, running
from tests.waiting import PATIENCE
from topospread.checkpoints import Computation, computing_for
from topospread.errors import DeadlineExceeded
from topospread.kube.selectors import EVERYTHING, selector_from_pairs
from topospread.kube.violations import Problems
from topospread.service.rebalancing.inventory import LabelPairs, NamespaceInventory
from topospread.service.rebalancing.plan import RebalancePlanner
from topospread.spread.topology import GroupKey
from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector, LabelSelectorRequirement
from topospread_proto.v1.common_pb2 import PodTopologySpreadArgs, Settings
from topospread_proto.v1.deletion_order_pb2 import RankConstraint
from topospread_proto.v1.planner_service_pb2 import (
    PlanRebalanceRequest,
    PlanRebalanceResponse,
    RankDeletionsRequest,
)
from topospread_proto.v1.rebalance_pb2 import EvictionFilters, EvictionLimits

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


EXAMPLES = ROOT / "examples"


def plans(**store: str) -> tuple[Any, ...]:
    objects = [
        item
        for name in ("scale-down", "rebalance")
        for item in yaml.safe_load((EXAMPLES / name / "objects.yaml").read_text())["items"]
    ]
    with served(**store) as server, Peer(server.address) as peer:
        fresh = at_least(peer.apply(*map(object_of, objects)))
        ranked = peer.planner.RankDeletions(
            RankDeletionsRequest(
                label_selector=LabelSelector(match_labels={"app": "web"}),
                namespace="shop",
                constraints=[RankConstraint(topology_key=ZONE)],
                consistency=fresh,
            ),
            timeout=PATIENCE,
        )
        plan = peer.planner.PlanRebalance(PlanRebalanceRequest(consistency=fresh), timeout=PATIENCE)
    return (*map(list, (ranked.pods, ranked.constraints, plan.evictions, plan.groups)),)


def test_redis_and_sqlite_give_the_same_plans(redis_url, tmp_path):
    in_redis = plans(store=redis_url)
    assert in_redis == plans(store=f"sqlite://{tmp_path}/state.db")
    assert all(in_redis)


PENDING: Counter[LabelPairs] = Counter(
    {(("app", f"a-{n % 3}"), ("pod", f"p-{n}")): 1 for n in range(9)}
)


def group(**labels: str) -> GroupKey:
    return GroupKey("default", selector_from_pairs(labels.items()) if labels else EVERYTHING)


def test_pending_pods_of_several_groups_are_counted_once() -> None:
    inventory = NamespaceInventory(pending=PENDING)
    assert inventory.pending_in([group(app="a-0"), group(pod="p-0"), group(pod="p-1")]) == 4
    assert inventory.pending_in([group(app="other")]) == 0
    assert inventory.pending_in([group()]) == 9


def test_counting_pending_pods_ends_with_the_deadline() -> None:
    late = Computation(time.monotonic() - 1.0, lambda: True)
    with computing_for(late), pytest.raises(DeadlineExceeded):
        NamespaceInventory(pending=PENDING).pending_in([group(app="other")])


ODD = LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator="Near")])
OPERATOR = "matchExpressions[0].operator"


def refused(peer: Peer, **fields: Any) -> list[tuple[str, str]]:
    """(field, description) of each violation."""
    with pytest.raises(grpc.RpcError) as failed:
        peer.planner.PlanRebalance(PlanRebalanceRequest(**fields), timeout=PATIENCE)
    return [(each.field, each.description) for each in violations(failed.value)]


def test_all_violations_are_reported_at_once(peer: Peer):
    limits = EvictionLimits(
        max_evictions=-1, max_evictions_per_node=0, max_evictions_per_namespace=-2
    )
    filters = EvictionFilters(protect_selector=ODD)
    found = refused(
        peer,
        label_selector=ODD,
        filters=filters,
        eviction_limits=limits,
        search_timeout=Duration(seconds=61),
        settings=Settings(args=PodTopologySpreadArgs(defaulting_type="None")),
        consistency={"minimize_latency": False},
    )
    odd = "not a valid selector operator"
    assert [field for field, _ in found] == [
        "consistency.minimizeLatency",
        "settings.args.defaultingType",
        f"labelSelector.{OPERATOR}",
        f"filters.protectSelector.{OPERATOR}",
        "searchTimeout",
        "evictionLimits.maxEvictions",
        "evictionLimits.maxEvictionsPerNamespace",
    ]
    assert found[2:] == [
        (f"labelSelector.{OPERATOR}", odd),
        (f"filters.protectSelector.{OPERATOR}", odd),
        ("searchTimeout", "must be above 0 and at most 60s"),
        ("evictionLimits.maxEvictions", "must not be negative"),
        ("evictionLimits.maxEvictionsPerNamespace", "must not be negative"),
    ]


def test_settings_that_are_not_there(peer: Peer):
    peer.apply(node("n", "a"))
    assert [field for field, _ in refused(peer, settings=Settings(profile="nobody"))] == [
        "settings.profile"
    ]


def test_the_message_names_the_field_in_the_request(peer: Peer):
    settings = Settings(args=PodTopologySpreadArgs(defaulting_type="None"))
    with pytest.raises(grpc.RpcError) as failed:
        peer.planner.PlanRebalance(PlanRebalanceRequest(settings=settings), timeout=PATIENCE)
    assert str(failed.value.details()).startswith("settings.args.defaultingType: ")
