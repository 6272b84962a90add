"""ListConstraints and GetConstraint over gRPC: filters, order, pages, and what one is told of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.conformance.objects import object_of
from tests.servers import violations
from tests.service.inspecting.cases import pod_of
from tests.service.world import HOSTNAME, ZONE, node
from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.servers import Peer

PATIENCE = 60.0
CLUSTER = "lists"
NEWEST = common_pb2.Consistency(fully_consistent=True)

ZONES = {"a": 4, "b": 1, "c": 0}
"""Pods of the app "api" by zone; of "web" there is one in each."""


@pytest.fixture(scope="module", autouse=True)
def cluster(peer: Peer) -> None:
    nodes = [node(f"n-{zone}", zone) for zone in ZONES]
    apis = [
        pod_of(f"api-{zone}-{n}", node=f"n-{zone}", owner="StatefulSet/api", labels={"app": "api"},
               constraints=[{"key": "zone", "labelSelector": {"matchLabels": {"app": "api"}}}])
        for zone, count in ZONES.items()
        for n in range(count)
    ]  # fmt: skip
    webs = [
        pod_of(f"web-{zone}", node=f"n-{zone}", owner="ReplicaSet/web",
               constraints=[{"key": "zone"}, {"key": "hostname", "soft": True}])
        for zone in ZONES
    ]  # fmt: skip
    waiting = pod_of("late", owner="Job/late", constraints=[{"key": "zone", "minDomains": 9}])
    for each in (*webs, waiting):
        each["metadata"]["namespace"] = "shop"
    objects = [object_of(each) for each in (*nodes, *apis, *webs, waiting)]
    request = state.ApplyObjectsRequest(cluster=CLUSTER, objects=objects)
    peer.state.ApplyObjects(request, timeout=PATIENCE)


def listed(peer: Peer, **more: Any) -> pb.ListConstraintsResponse:
    request = pb.ListConstraintsRequest(cluster=CLUSTER, consistency=NEWEST, **more)
    found: pb.ListConstraintsResponse = peer.inspector.ListConstraints(request, timeout=PATIENCE)
    return found


def names(rows: Iterable[pb.ConstraintStatus]) -> list[str]:
    """Owner and key of each."""
    keys = {ZONE: "zone", HOSTNAME: "hostname"}
    return [f"{row.owner.name} {keys[row.constraint.topology_key]}" for row in rows]


def test_the_worst_comes_first_or_the_first_by_name(peer: Peer) -> None:
    assert names(listed(peer).constraints) == ["late zone", "api zone", "web hostname", "web zone"]
    by_name = listed(peer, order=pb.CONSTRAINT_ORDER_NAME).constraints
    assert names(by_name) == ["api zone", "late zone", "web hostname", "web zone"]


FILTERS: dict[str, tuple[pb.ConstraintFilter, list[str]]] = {
    "namespace": (pb.ConstraintFilter(namespace="default"), ["api zone"]),
    "labels": (
        pb.ConstraintFilter(label_selector=LabelSelector(match_labels={"app": "web"})),
        ["late zone", "web hostname", "web zone"],
    ),
    "state": (pb.ConstraintFilter(states=[pb.SPREAD_STATE_VIOLATED]), ["api zone"]),
    "states": (
        pb.ConstraintFilter(states=[pb.SPREAD_STATE_VIOLATED, pb.SPREAD_STATE_BLOCKED]),
        ["late zone", "api zone"],
    ),
    "key": (pb.ConstraintFilter(topology_key=HOSTNAME), ["web hostname"]),
    "owner": (
        pb.ConstraintFilter(owner=common_pb2.WorkloadReference(kind="ReplicaSet", name="web")),
        ["web hostname", "web zone"],
    ),
    "owner's kind": (
        pb.ConstraintFilter(owner=common_pb2.WorkloadReference(kind="Job")),
        ["late zone"],
    ),
    "hard ones": (
        pb.ConstraintFilter(when_unsatisfiable="DoNotSchedule"),
        ["late zone", "api zone", "web zone"],
    ),
    "all at once": (
        pb.ConstraintFilter(
            namespace="shop", topology_key=ZONE, states=[pb.SPREAD_STATE_SATISFIED]
        ),
        ["web zone"],
    ),
}


@pytest.mark.parametrize("name", FILTERS)
def test_filters(peer: Peer, name: str) -> None:
    asked, expected = FILTERS[name]
    assert names(listed(peer, filter=asked).constraints) == expected


def test_totals_are_of_all_states_whatever_states_are_asked_for(peer: Peer) -> None:
    asked = pb.ConstraintFilter(states=[pb.SPREAD_STATE_VIOLATED], namespace="shop")
    totals = {each.state: each.constraint_count for each in listed(peer, filter=asked).totals}
    assert totals == {
        pb.SPREAD_STATE_BLOCKED: 1,
        pb.SPREAD_STATE_VIOLATED: 0,
        pb.SPREAD_STATE_INEFFECTIVE: 0,
        pb.SPREAD_STATE_SATISFIED: 2,
    }


def test_pages_have_each_constraint_once(peer: Peer) -> None:
    token, found = "", list[str]()
    while True:
        page = listed(peer, page_size=1, page_token=token)
        found += names(page.constraints)
        token = page.next_page_token
        if not token:
            break
    assert found == names(listed(peer).constraints)


def test_a_token_is_good_for_the_same_list_only(peer: Peer) -> None:
    token = listed(peer, page_size=1).next_page_token
    with pytest.raises(grpc.RpcError) as refused:
        listed(peer, page_size=1, page_token=token, order=pb.CONSTRAINT_ORDER_NAME)
    assert [each.field for each in violations(refused.value)] == ["pageToken"]


def test_everything_wrong_is_said_at_once(peer: Peer) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        listed(
            peer,
            filter=pb.ConstraintFilter(
                states=[9],  # type: ignore[list-item] # no state has this number
                when_unsatisfiable="Never",
            ),
            order=7,
            page_size=-1,
            domain_limit=1001,
        )
    assert {each.field for each in violations(refused.value)} == {
        "filter.states[0]",
        "filter.whenUnsatisfiable",
        "order",
        "pageSize",
        "domainLimit",
    }


def test_few_domains_are_those_with_the_fewest_and_with_the_most_pods(peer: Peer) -> None:
    asked = pb.ConstraintFilter(namespace="default")
    (row,) = listed(peer, filter=asked, domain_limit=2).constraints
    assert [(each.value, each.pod_count) for each in row.domains] == [("c", 0), ("a", 4)]
    assert (row.leading_domain_count, row.unlisted_domain_count) == (1, 1)


def test_one_constraint_in_full(peer: Peer) -> None:
    (row,) = listed(peer, filter=pb.ConstraintFilter(namespace="default")).constraints
    found = peer.inspector.GetConstraint(
        pb.GetConstraintRequest(
            cluster=CLUSTER, constraint_id=row.constraint_id, consistency=NEWEST, pod_limit=3
        ),
        timeout=PATIENCE,
    )
    assert found.constraint == row
    domains = {each.domain.value: each for each in found.domains}
    assert {name: each.domain.pod_count for name, each in domains.items()} == ZONES
    assert {name: each.domain.allowed for name, each in domains.items()} == {
        "a": False,
        "b": False,
        "c": True,
    }
    (full,) = domains["a"].nodes
    assert (full.node, full.pod_count, full.eligible, full.usable) == ("n-a", 4, True, True)
    assert [(each.pod.name, each.node, each.domain) for each in found.pods] == [
        (f"api-a-{n}", "n-a", "a") for n in range(3)
    ]
    assert found.unlisted_pod_count == 2


def test_a_pod_that_waits_is_named_first(peer: Peer) -> None:
    (row,) = listed(peer, filter=pb.ConstraintFilter(states=[pb.SPREAD_STATE_BLOCKED])).constraints
    request = pb.GetConstraintRequest(cluster=CLUSTER, constraint_id=row.constraint_id)
    found = peer.inspector.GetConstraint(request, timeout=PATIENCE)
    assert [(each.pod.namespace, each.pod.name, each.node) for each in found.pods] == [
        ("shop", "late", "")
    ]
    assert not found.pods[0].HasField("domain")


def test_an_unknown_constraint_is_not_found(peer: Peer) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        peer.inspector.GetConstraint(
            pb.GetConstraintRequest(cluster=CLUSTER, constraint_id="nope"), timeout=PATIENCE
        )
    call: Any = refused.value
    assert call.code() is grpc.StatusCode.NOT_FOUND
    assert "no constraint in a list of cluster 'lists' has the id 'nope'" in call.details()


def test_settings_of_the_request_are_used(peer: Peer) -> None:
    settings = common_pb2.Settings(feature_gates={"MinDomainsInPodTopologySpread": False})
    states = [row.state for row in listed(peer, settings=settings).constraints]
    assert pb.SPREAD_STATE_BLOCKED not in states
    assert listed(peer).constraints[0].state == pb.SPREAD_STATE_BLOCKED


def test_version_differences_make_no_number_less_sure(peer: Peer) -> None:
    row = listed(peer, settings=common_pb2.Settings(kubernetes_version="1.36")).constraints[0]
    assert row.not_modelled == ["what differs in fit before 1.37"]
    assert row.message.startswith("3 nodes could take the next replica")
