"""Every case, on the use case and through gRPC; each plan is followed step by step."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import pytest

from tests.rebalancing.cases import Case, cases
from tests.rebalancing.judging import above, may_go, moved
from tests.servers import served
from topospread.codec.settings import profile_from_proto
from topospread.kube.selectors import EVERYTHING, selector_from_pairs
from topospread.replica.replicas import Consistency as Demand
from topospread.replica.replicas import Freshness, seconds_from_now
from topospread.replica.view import Token
from topospread.service.asks import NO_SETTINGS, SettingsAsk
from topospread.service.rebalancing import asking
from topospread.service.rebalancing.plan import Rebalances
from topospread_client.client import Client
from topospread_client.manifests import args_from_manifest
from topospread_client.rebalancing import Budgets, Filters, Optimality, Outcome
from topospread_client.requests import Consistency, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.service.world import World

ALL = pytest.mark.parametrize("case", cases(), ids=str)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served() as server:
        yield server.address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address, cluster=f"test-{secrets.token_hex(6)}") as client:
        yield client


@ALL
def test_the_use_case(case: Case, empty_world: World):
    world, item = empty_world, case.item
    world.apply(*case.objects)
    pairs = item.get("keep")
    profile = profile_from_proto(args_from_manifest(case.args)) if case.args else None
    plan = Rebalances(world.store, world.engine).plan(
        asking.RebalanceAsk(
            deadline=seconds_from_now(30),
            cluster="prod",
            consistency=Demand(Freshness.AT_LEAST_AS_FRESH, Token.decode(world.revision)),
            selector=(
                selector_from_pairs(item["select"].items()) if "select" in item else EVERYTHING
            ),
            settings=SettingsAsk(profile) if profile else NO_SETTINGS,
            soft=item.get("soft", False),
            filters=asking.Filters(
                priority_below=item.get("priorityBelow", asking.SYSTEM_CRITICAL),
                bare_pods=item.get("barePods", False),
                claims_stay=item.get("claimsStay", False),
                keep=selector_from_pairs(pairs.items()) if pairs else None,
            ),
            budgets=asking.Budgets(**item.get("budgets", {})),
        )
    )
    outcomes = [group.outcome.name.lower().replace("_", " ") for group in plan.groups]
    check(case, plan, outcomes)
    assert plan.optimality is asking.Optimality.PROVED


@ALL
def test_grpc(case: Case, client: Client):
    item = case.item
    plan = client.plan_rebalance(
        item.get("select"),
        include_soft=item.get("soft", False),
        filters=Filters(
            item.get("priorityBelow"),
            item.get("barePods", False),
            item.get("claimsStay", False),
            item.get("keep"),
        ),
        budgets=Budgets(**item.get("budgets", {})),
        settings=Settings(args=case.args) if case.args else None,
        consistency=Consistency(at_least_as_fresh=client.apply(case.objects).revision),
    )
    check(case, plan, [group.outcome for group in plan.groups])
    assert plan.optimal is Optimality.PROVED
    for group in plan.groups:
        if group.outcome is Outcome.PLANNED:
            assert all(each.skew_after <= each.max_skew for each in group.constraints)


def check(case: Case, plan: Any, outcomes: list[str]) -> None:
    """Compare a plan of either kind with the case, and follow it."""
    item = case.item
    evictions = [each.name for each in plan.evictions]
    if "outcome" in item:
        assert (outcomes, evictions) == ([item["outcome"]], [])
        assert item.get("reason", "") in plan.groups[0].reason
        assert plan.left == plan.violated > 0
    else:
        assert len(evictions) == item["evictions"]
        assert outcomes == (["planned"] if evictions else [])
        assert plan.left == 0
        follow(case, plan)
    if "needs" in item:
        assert plan.groups[0].evictions == item["needs"]
    if "evicts" in item:
        assert sorted(evictions) == sorted(item["evicts"])
    if "from" in item:
        assert sorted(each.node for each in plan.evictions) == item["from"]
    if "to" in item:
        assert sorted(each.target for each in plan.evictions) == item["to"]
    if "stuck" in item:
        assert plan.stuck == item["stuck"]
    assert list(plan.not_modelled) == item.get("notModelled", [])


def follow(case: Case, plan: Any) -> None:
    """Each replacement may go to its node then, and in the end the model finds all satisfied."""
    cluster = case.cluster
    pods = {pod["metadata"]["name"]: pod for pod in cluster["pods"]}
    for each in plan.evictions:
        assert pods[each.name]["spec"]["nodeName"] == each.node
        cluster = moved(cluster, each.name, None)
        assert may_go(cluster, pods[each.name], each.target, case.args)
        pods[each.name] = {**pods[each.name]}
        pods[each.name]["spec"] = {**pods[each.name]["spec"], "nodeName": each.target}
        cluster = {**cluster, "pods": [*cluster["pods"], pods[each.name]]}
    assert above(cluster, case.args) == []
