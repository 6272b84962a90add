"""The Kubernetes version of a cluster: where it comes from, and that answers are by its rules."""

from __future__ import annotations

import logging
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.conformance.objects import object_of
from tests.servers import Peer, replacement, served
from tests.waiting import until
from topospread_client import pod_from_manifest
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2, planner_service_pb2, scenario_pb2
from topospread_proto.v1 import decision_service_pb2 as engine
from topospread_proto.v1 import inspector_service_pb2 as inspector
from topospread_proto.v1 import placement_service_pb2 as placement
from topospread_proto.v1.explanation_pb2 import FINDING_CODE_EMPTY_SELECTOR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

PATIENCE = 30.0
CLUSTER = "upgraded"
ZONE = "topology.kubernetes.io/zone"
NEWEST = common_pb2.Consistency(fully_consistent=True)

FITTING = {"1.37": 2, "1.38": 1}
"""Nodes that a pod with an empty selector fits: `other` stands on a, and counts from 1.38 on."""


def node(zone: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": f"n-{zone}", "labels": {ZONE: zone}},
    }


def pod(name: str, where: str = "", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "labels": {"app": name}},
        "spec": {"containers": [], "nodeName": where, **spec},
    }


def spread(selector: dict[str, Any], **others: Any) -> dict[str, Any]:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": selector,
    }
    return pod("incoming", topologySpreadConstraints=[constraint | others])


EMPTY = spread({})
NODES = [node("a"), node("b")]


def report(peer: Peer, version: str, cluster: str = CLUSTER) -> str:
    """List the nodes of a cluster whose API server is of a version."""
    messages = replacement(
        *map(object_of, NODES),
        cluster=cluster,
        kind=common_pb2.KIND_NODE,
        kubernetes_version=version,
    )
    written = peer.state.ReplaceObjects(iter(messages), timeout=PATIENCE)
    return str(written.meta.revision)


def asked(
    peer: Peer,
    manifest: dict[str, Any] = EMPTY,
    *,
    settings: common_pb2.Settings | None = None,
    at: common_pb2.Consistency | None = NEWEST,
    cluster: str = CLUSTER,
) -> engine.EvaluatePodResponse:
    request = engine.EvaluatePodRequest(
        cluster=cluster,
        pod=common_pb2.PodSource(object=pod_from_manifest(manifest)),
        settings=settings,
        consistency=at,
    )
    return peer.engine.EvaluatePod(request, timeout=PATIENCE)


def by(version: str = "", **gates: bool) -> common_pb2.Settings:
    return common_pb2.Settings(kubernetes_version=version, feature_gates=gates)


@pytest.fixture
def peer() -> Iterator[Peer]:
    with served() as server, Peer(server.address) as peer:
        objects = map(object_of, (*NODES, pod("other", "n-a")))
        peer.state.ApplyObjects(
            state.ApplyObjectsRequest(cluster=CLUSTER, objects=objects), timeout=PATIENCE
        )
        yield peer


def cluster_of(peer: Peer) -> state.Cluster:
    request = state.GetClusterRequest(cluster=CLUSTER, consistency=NEWEST)
    return peer.state.GetCluster(request, timeout=PATIENCE).cluster


def test_a_cluster_is_judged_as_its_version_does(peer: Peer) -> None:
    for version in ("1.37", "1.38", "1.37"):
        report(peer, f"v{version}.2-gke.1")
        for _ in range(2):  # worked out, and remembered
            answer = asked(peer)
            assert answer.meta.kubernetes_version == version
            assert answer.feasible_node_count == FITTING[version]
        known = cluster_of(peer)
        assert known.kubernetes_version == known.reported_kubernetes_version == version
    (listed,) = peer.state.ListClusters(state.ListClustersRequest(), timeout=PATIENCE).clusters
    assert listed.kubernetes_version == "1.37"


@pytest.mark.parametrize(
    ("reported", "judged"), [("1.41", "1.38"), ("1.29", "1.36"), ("2.0", "1.38")]
)
def test_an_unknown_version_is_judged_as_the_nearest_with_one_warning(
    peer: Peer, caplog: pytest.LogCaptureFixture, reported: str, judged: str
) -> None:
    with caplog.at_level(logging.WARNING, "topospread"):
        for _ in range(3):
            report(peer, reported)
            assert asked(peer).meta.kubernetes_version == judged
    known = cluster_of(peer)
    assert (known.kubernetes_version, known.reported_kubernetes_version) == (judged, reported)
    (warning,) = [r.getMessage() for r in caplog.records if "is not known here" in r.getMessage()]
    assert f"Kubernetes {reported}" in warning
    assert f"the rules of {judged}" in warning


def test_a_list_without_a_version_leaves_the_one_before(peer: Peer) -> None:
    report(peer, "1.37")
    report(peer, "")
    assert asked(peer).meta.kubernetes_version == "1.37"


def refused(ask: Callable[[], object]) -> str:
    """Why the fields of a request are refused."""
    with pytest.raises(grpc.RpcError) as raised:
        ask()
    assert raised.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    return str(raised.value.details())


def test_a_text_that_is_no_version_is_refused(peer: Peer) -> None:
    assert refused(lambda: report(peer, "latest")).startswith("start.kubernetesVersion: ")


def test_a_request_may_ask_what_an_upgrade_would_do(peer: Peer) -> None:
    report(peer, "1.37")
    answer = asked(peer, settings=by("v1.38.0"))
    assert (answer.meta.kubernetes_version, answer.feasible_node_count) == ("1.38", 1)
    assert asked(peer).feasible_node_count == 2
    assert asked(peer, settings=by("1.99")).meta.kubernetes_version == "1.38"
    for wrong in ("1.35", "newest"):
        why = refused(partial(asked, peer, settings=by(wrong)))
        assert why.startswith("settings.kubernetesVersion: ")
        assert why.endswith("known: 1.36, 1.37, 1.38")


def test_every_answer_names_the_version_that_it_is_by(peer: Peer) -> None:
    """Of the cluster, and of a request that asks for another."""
    report(peer, "1.37")
    source = common_pb2.PodSource(object=pod_from_manifest(EMPTY))
    about = {"cluster": CLUSTER, "pod": source}
    for settings, version in ((None, "1.37"), (by("1.38"), "1.38")):
        given: dict[str, Any] = {**about, "settings": settings}
        begun = peer.engine.PreFilter(engine.PreFilterRequest(**given), timeout=PATIENCE)
        cycle = {"cluster": CLUSTER, "cycle": begun.cycle}
        batch = engine.BatchEvaluatePodsRequest(cluster=CLUSTER, pods=[source], settings=settings)
        explained = peer.engine.ExplainPod(engine.ExplainPodRequest(**given), timeout=PATIENCE)
        simulated = planner_service_pb2.SimulateRequest(
            cluster=CLUSTER,
            pods=[scenario_pb2.PodsToPlace(pod=source)],
            scenario=scenario_pb2.Scenario(settings=settings),
        )
        constraints = inspector.ListConstraintsRequest(cluster=CLUSTER, settings=settings)
        rebalance = planner_service_pb2.PlanRebalanceRequest(cluster=CLUSTER, settings=settings)
        answers = [
            begun,
            peer.engine.Filter(engine.FilterRequest(**cycle), timeout=PATIENCE),
            peer.engine.Score(engine.ScoreRequest(**cycle), timeout=PATIENCE),
            peer.engine.BatchEvaluatePods(batch, timeout=PATIENCE),
            explained,
            peer.planner.Simulate(simulated, timeout=PATIENCE),
            peer.planner.PlanRebalance(rebalance, timeout=PATIENCE),
            peer.inspector.ListConstraints(constraints, timeout=PATIENCE),
            peer.placement.PlacePod(placement.PlacePodRequest(**given), timeout=PATIENCE),
        ]
        assert {answer.meta.kubernetes_version for answer in answers} == {version}
        found = {each.code for each in explained.explanation.findings}
        assert (FINDING_CODE_EMPTY_SELECTOR in found) == (version == "1.37")


KEYS = {"app": "other", "pod-template-hash": "new"}


def keyed(uid: str) -> dict[str, Any]:
    """A pod whose constraint has a matchLabelKey that nobody has merged into its selector."""
    made = spread({"matchLabels": {"app": "other"}}, matchLabelKeys=["pod-template-hash"])
    made["metadata"] |= {"labels": KEYS, "uid": uid}
    return made


def test_without_the_schedulers_merge_a_stored_selector_is_taken_as_it_is(peer: Peer) -> None:
    """A manifest's is merged all the same, by the API server that stores it."""
    removed = by(MatchLabelKeysInPodTopologySpreadSchedulerMerge=False)
    for settings, stored in ((None, 2), (removed, 1)):
        assert asked(peer, keyed("u-1"), settings=settings).feasible_node_count == stored
        assert asked(peer, keyed(""), settings=settings).feasible_node_count == 2


def test_a_server_has_a_version_for_clusters_that_report_none() -> None:
    with served(kubernetes_version="1.37") as server, Peer(server.address) as peer:
        objects = map(object_of, (*NODES, pod("other", "n-a")))
        peer.state.ApplyObjects(state.ApplyObjectsRequest(cluster=CLUSTER, objects=objects))
        assert asked(peer).feasible_node_count == 2
        known = cluster_of(peer)
        assert (known.kubernetes_version, known.reported_kubernetes_version) == ("1.37", "")
        report(peer, "1.38")
        assert asked(peer).feasible_node_count == 1


def test_an_upgrade_while_decisions_run_needs_no_restart(tmp_path: Path) -> None:
    """Of two servers, of which one sees it by the log: each answer is right for its version."""
    store = f"sqlite:{tmp_path}/state.db"
    with (
        served(store=store) as first,
        served(store=store) as second,
        Peer(first.address) as one,
        Peer(second.address) as other,
    ):
        objects = map(object_of, (*NODES, pod("other", "n-a")))
        one.state.ApplyObjects(state.ApplyObjectsRequest(cluster=CLUSTER, objects=objects))
        report(one, "1.37")
        versions: dict[int, list[str]] = {}
        wrong: list[str] = []
        ended = threading.Event()

        def decide(number: int, peer: Peer, settings: common_pb2.Settings | None) -> None:
            seen = versions[number] = []
            while not ended.is_set():
                answer = asked(peer, settings=settings, at=None)
                version = answer.meta.kubernetes_version
                if version not in seen:
                    seen.append(version)
                if answer.feasible_node_count != FITTING[version]:
                    wrong.append(f"{version}: {answer.feasible_node_count}")

        asking = [(one, None), (other, None), (one, None), (other, None), (other, by("1.37"))]
        threads = [
            threading.Thread(target=decide, args=(number, *each))
            for number, each in enumerate(asking)
        ]
        for peer in (one, other):
            asked(peer)  # both follow it
        for thread in threads:
            thread.start()
        try:
            until(lambda: len(versions) == 5 and all(versions.values()), "all decide")
            report(one, "1.38")
            until(lambda: all("1.38" in versions[number] for number in range(4)), "all see it")
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        assert wrong == []
        assert [versions[number] for number in range(5)] == [["1.37", "1.38"]] * 4 + [["1.37"]]
