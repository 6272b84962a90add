"""However large the cluster, an explanation stays small, and leaves nothing behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.conformance.core import pod_of, prepared
from tests.service.world import HOSTNAME, ZONE, constraint, incoming, soft
from topospread.index.builder import Builder
from topospread.index.changes import NodeChange, PodChange, PodRow
from topospread.kube.objects import Node
from topospread.service.explaining.context import EvaluationContext
from topospread.service.explaining.explain import explain_at
from topospread.spread.settings import Rules

if TYPE_CHECKING:
    from tests.service.world import Json

NODES = 50_000
WEB = (("app", "web"),)


@pytest.fixture(scope="module")
def builder() -> Builder:
    """50,000 nodes in three zones; the first 20,000 hold a pod."""
    made = Builder()
    nodes = (
        Node(f"n-{n:05}", {HOSTNAME: f"n-{n:05}", ZONE: f"zone-{'abc'[n % 3]}"})
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
    case = case_of(builder, incoming(constraint("rack")))
    nodes = case.snapshot.nodes
    before = (nodes.id, nodes.capacity, nodes.count)
    found = explain_at(case)
    assert {change.WhichOneof("change") for s in found.suggestions for change in s.changes} >= {
        "add_domains",
        "label_nodes",
    }
    assert (nodes.id, nodes.capacity, nodes.count) == before
    assert not nodes.domains("rack").values
    assert builder.snapshot.nodes is nodes
