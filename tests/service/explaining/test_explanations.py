"""Explanations: bounds, what is held for others, and the evaluation beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.core import pod_of, prepared
from tests.service.placement.placer import Placer, bound, named
from tests.service.world import (
    HOSTNAME,
    ZONE,
    Json,
    World,
    constraint,
    incoming,
    node,
    running,
    soft,
    world,
)
from topospread.errors import InvalidRequest
from topospread.index.builder import Builder
from topospread.index.changes import NodeChange, PodChange, PodRow
from topospread.kube.objects import Node
from topospread.service.decisions.evaluate import evaluate
from topospread.service.decisions.request import PodRef
from topospread.service.explaining.context import EvaluationContext
from topospread.service.explaining.explain import explain, explain_at
from topospread.service.fit import node_unschedulable, taint_toleration
from topospread.spread.settings import Rules
from topospread.spread.verdicts import REASON_CONSTRAINTS_NOT_MATCH, REASON_LABEL_MISSING
from topospread_client import pod_from_manifest
from topospread_proto.v1.explanation_pb2 import FINDING_CODE_ALREADY_BOUND

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.service.world import Json
    from topospread.service.decisions.evaluate import Evaluation
    from topospread_proto.v1.explanation_pb2 import DomainExplanation, Explanation


NODES = 50_000
WEB = (("app", "web"),)


@pytest.fixture(scope="module")
def builder() -> Builder:
    """50,000 nodes in three zones; the first 20,000 hold a pod."""
    made = Builder()
    nodes = (
        Node(
            f"n-{n:05}",
            {HOSTNAME: f"n-{n:05}", ZONE: f"zone-{'abc'[n % 3]}"},
            allocatable=(("pods", 110),),
        )
        for n in range(NODES)
    )
    made.fold(NodeChange(node.name, node) for node in nodes)
    made.fold(
        PodChange("default", f"p-{n}", PodRow(WEB, f"n-{n:05}", counted=True))
        for n in range(20_000)
    )
    return made


def case_of(builder: Builder, pod: Json) -> EvaluationContext:
    rules, parsed = Rules(), pod_of(pod)
    constraints, snapshot = prepared(builder, parsed, rules)
    return EvaluationContext(snapshot, parsed, rules, constraints)


def test_domains_in_the_middle_are_counted_and_not_listed(builder: Builder) -> None:
    found = explain_at(case_of(builder, incoming(constraint(HOSTNAME))), limit=20)
    (hosts,) = found.constraints
    assert (hosts.domain_count, hosts.eligible_domain_count) == (NODES, NODES)
    assert hosts.minimum.lowest_domain_count == 30_000
    assert found.fitting_node_count == 30_000
    assert (hosts.rejected_domain_count, hosts.rejected_node_count) == (20_000, 20_000)
    assert len(hosts.domains) == 20
    assert (hosts.leading_domain_count, hosts.unlisted_domain_count) == (10, NODES - 20)
    assert [domain.value for domain in hosts.domains[:2]] == ["n-20000", "n-20001"]
    assert [domain.value for domain in hosts.domains[-2:]] == ["n-19998", "n-19999"]
    assert len(found.SerializeToString()) < 4096


def test_everything_is_small_when_nothing_fits(builder: Builder) -> None:
    many = [constraint(HOSTNAME, minDomains=NODES + n) for n in range(1, 6)]
    found = explain_at(case_of(builder, incoming(*many, constraint("rack"), soft())), limit=20)
    assert found.fitting_node_count == 0
    assert len(found.suggestions) <= 64
    assert len(found.SerializeToString()) < 32_768


def test_explaining_leaves_the_state_unchanged(builder: Builder) -> None:
    cases = [case_of(builder, incoming(c)) for c in (constraint("rack"), constraint(minDomains=4))]
    nodes = cases[0].snapshot.nodes
    before = (nodes.id, nodes.capacity, nodes.count)
    found = [suggestion for case in cases for suggestion in explain_at(case).suggestions]
    assert {change.WhichOneof("change") for each in found for change in each.changes} >= {
        "add_domains",
        "label_nodes",
    }
    assert (nodes.id, nodes.capacity, nodes.count) == before
    assert not nodes.domains("rack").values
    assert builder.snapshot.nodes is nodes


def explained(placer: Placer, pod: Json | PodRef) -> Explanation:
    engine = placer.engine
    given = pod if isinstance(pod, PodRef) else pod_from_manifest(pod).SerializeToString()
    asked = engine.with_requests(placer.ask(), given)
    return explain(engine, placer.ask(), asked).response.explanation


def zone(found: Explanation, value: str) -> DomainExplanation:
    (constraint_,) = found.constraints
    return next(domain for domain in constraint_.domains if domain.value == value)


def test_reservations_of_other_pods_are_listed_separately(three_zones: World) -> None:
    placer = Placer(three_zones)
    placer.reserve(named("first"), "n-c")
    placer.reserve(named("second"), "n-c")
    found = explained(placer, named("third", constraint()))
    assert (zone(found, "c").pod_count, zone(found, "c").reserved_pod_count) == (2, 2)
    assert (zone(found, "a").pod_count, zone(found, "a").reserved_pod_count) == (2, 0)


def test_the_pods_own_place_is_not_counted(three_zones: World) -> None:
    placer = Placer(three_zones)
    pod = named("mine", constraint())
    placer.reserve(pod, "n-c")
    found = explained(placer, pod)
    assert (
        zone(found, "c").pod_count,
        zone(found, "c").reserved_pod_count,
        zone(found, "c").skew,
    ) == (0, 0, 1)
    # Another pod sees it.
    other = explained(placer, named("other", constraint()))
    assert (zone(other, "c").pod_count, zone(other, "c").reserved_pod_count) == (1, 1)


def test_places_of_another_namespace_do_not_count(three_zones: World) -> None:
    placer = Placer(three_zones)
    other = named("other")
    other["metadata"]["namespace"] = "elsewhere"
    placer.reserve(other, "n-c")
    found = explained(placer, named("mine", constraint()))
    assert (zone(found, "c").pod_count, zone(found, "c").reserved_pod_count) == (0, 0)


def test_running_pod_gets_a_finding(three_zones: World) -> None:
    placer = Placer(three_zones)
    placer.apply(bound(named("mine", constraint()), "n-c"))
    found = explained(placer, PodRef("mine"))
    assert [finding.code for finding in found.findings] == [FINDING_CODE_ALREADY_BOUND]
    assert "n-c" in found.findings[0].text
    assert zone(found, "c").pod_count == 1


FEW = 12
GPU = {"key": "gpu", "effect": "NoSchedule"}


NEEDY = {"name": "c", "resources": {"requests": {"cpu": "2"}}}


def numbered(number: int) -> Json:
    """One of four zones; zone a is tainted, n-05 is cordoned, n-02 has one processor."""
    zone = "abcd"[number % 4]
    return node(f"n-{number:02}", zone) | {
        "spec": {"taints": [GPU] if zone == "a" else [], "unschedulable": number == 5},
        "status": {"allocatable": {"pods": "10", "cpu": "1" if number == 2 else "8"}},
    }


def evaluated(made: World, pod: Json, top_k: int = 0) -> Evaluation:
    asked = made.engine.with_requests(made.ask(), pod_from_manifest(pod).SerializeToString())
    return explain(made.engine, made.ask(), asked, top_k=top_k, advise=False).evaluation


@pytest.fixture
def tainted() -> Iterator[World]:
    with world() as made:
        made.apply(*map(numbered, range(FEW)))
        yield made


@pytest.mark.parametrize("constraints", [[constraint(ZONE)], [soft(ZONE)], []])
def test_best_nodes_are_those_of_the_nodes_that_the_other_filters_leave(
    tainted: World, constraints: list[Json]
) -> None:
    pod = incoming(*constraints, containers=[NEEDY])
    left = [f"n-{n:02}" for n in range(FEW) if n % 4 and n not in {2, 5}]
    found = evaluated(tainted, pod, top_k=4)
    expected = evaluate(tainted.engine, tainted.ask(pod, nodes=left), 4)
    assert (found.top, len(found.top)) == (expected.top, 4)
    assert (found.feasible, found.nodes) == (len(left), FEW)
    assert found.pre_score == expected.pre_score


def test_each_node_has_the_verdict_of_the_first_filter_that_refuses_it(tainted: World) -> None:
    tainted.apply(running("web-0", "n-03"), running("web-1", "n-03"))
    found = evaluated(tainted, incoming(constraint(ZONE), containers=[NEEDY]))
    assert {status.reasons: (status.code.label, nodes) for status, nodes in found.verdicts} == {
        (): ("Success", 4),
        (taint_toleration.REASON,): ("UnschedulableAndUnresolvable", 3),
        (REASON_CONSTRAINTS_NOT_MATCH,): ("Unschedulable", 3),
        (node_unschedulable.REASON,): ("UnschedulableAndUnresolvable", 1),
        ("Insufficient cpu",): ("UnschedulableAndUnresolvable", 1),
    }
    assert [nodes for _, nodes in found.verdicts] == [4, 3, 3, 1, 1]


def test_the_message_has_the_reasons_of_all_filters(tainted: World) -> None:
    pod = incoming(constraint("rack"))
    found = evaluated(tainted, pod)
    assert (found.feasible, found.reason) == (0, "Unschedulable")
    assert not found.top
    assert found.message == (
        "0/12 nodes are available: 1 node(s) were unschedulable, "
        f"3 node(s) had untolerated taint(s), 8 {REASON_LABEL_MISSING}."
    )
    with pytest.raises(InvalidRequest, match="topK"):
        evaluated(tainted, pod, top_k=1001)
