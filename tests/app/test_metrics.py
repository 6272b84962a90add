"""What /metrics says after a known sequence of calls, from one process and from several."""

from __future__ import annotations

from itertools import cycle
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.servers import (
    Peer,
    ServerProcess,
    at_least,
    evaluate_request,
    incoming,
    served,
    two_zones,
)
from tests.telemetry.expositions import samples
from tests.waiting import PATIENCE
from topospread_client import pod_from_manifest
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as engine_pb
from topospread_proto.v1.common_pb2 import Consistency

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

POD = pod_from_manifest(incoming())
SOFT = pod_from_manifest(incoming(whenUnsatisfiable="ScheduleAnyway"))
NOWHERE = pod_from_manifest(incoming(topologyKey="nowhere"))

PROFILE = "default-scheduler"
EVALUATE = "DecisionService/EvaluatePod"

CALLS = {
    ("ClusterStateService/ApplyObjects", "OK"): 1,
    (EVALUATE, "OK"): 20,
    (EVALUATE, "NOT_FOUND"): 2,
    (EVALUATE, "INVALID_ARGUMENT"): 3,
    ("DecisionService/PreFilter", "OK"): 4,
    ("DecisionService/Filter", "OK"): 3,
    ("DecisionService/Score", "OK"): 2,
    ("DecisionService/BatchEvaluatePods", "OK"): 1,
    ("DecisionService/ExplainPod", "OK"): 1,
}
ATTEMPTS = {"scheduled": 10 + 2 + 2 + 2, "unschedulable": 6 + 1}
POINTS = {
    ("PreFilter", "Success"): 16 + 2 + 4 + 2,
    ("PreFilter", "Skip"): 2 + 1,
    ("Filter", "Success"): 10 + 2 + 1 + 3,
    ("Filter", "UnschedulableAndUnresolvable"): 6 + 1,
    ("PreScore", "Skip"): 12 + 1,
    ("PreScore", "Success"): 2 + 1 + 2,
    ("Score", "Success"): 2 + 1 + 2,
}
WAITS = {
    "minimize_latency": 18 + 2 + 4 + 3 + 2 + 1 + 1,
    "at_least_as_fresh": 1,
    "fully_consistent": 1,
    "not_older_than": 0,
}


def ask(peers: Iterator[Peer]) -> None:
    """The sequence of calls, over the peers in turn."""

    def refused(**request: Any) -> None:
        with pytest.raises(grpc.RpcError):
            next(peers).engine.EvaluatePod(
                engine_pb.EvaluatePodRequest(**request), timeout=PATIENCE
            )

    revision = next(peers).apply(*two_zones())
    for pod, count in ((POD, 10), (NOWHERE, 6), (SOFT, 2)):
        for _ in range(count):
            next(peers).engine.EvaluatePod(
                engine_pb.EvaluatePodRequest(pod=common_pb2.PodSource(object=pod)), timeout=PATIENCE
            )
    for consistency in (at_least(revision), Consistency(fully_consistent=True)):
        request = evaluate_request(consistency=consistency)
        next(peers).engine.EvaluatePod(request, timeout=PATIENCE)
    for _ in range(2):
        refused(pod=common_pb2.PodSource(object=POD), cluster="nobodys")
    for _ in range(3):
        refused()
    for _ in range(4):
        next(peers).engine.PreFilter(
            engine_pb.PreFilterRequest(pod=common_pb2.PodSource(object=POD)), timeout=PATIENCE
        )
    for _ in range(3):
        next(peers).engine.Filter(
            engine_pb.FilterRequest(pod=common_pb2.PodSource(object=POD)), timeout=PATIENCE
        )
    for _ in range(2):
        next(peers).engine.Score(
            engine_pb.ScoreRequest(pod=common_pb2.PodSource(object=SOFT)), timeout=PATIENCE
        )
    pods = [common_pb2.PodSource(object=each) for each in (POD, NOWHERE, SOFT)]
    batch = engine_pb.BatchEvaluatePodsRequest(pods=pods)
    next(peers).engine.BatchEvaluatePods(batch, timeout=PATIENCE)
    # To explain is no attempt to schedule.
    next(peers).engine.ExplainPod(
        engine_pb.ExplainPodRequest(pod=common_pb2.PodSource(object=POD)), timeout=PATIENCE
    )


def counted(body: str) -> dict[str, dict[tuple[str, ...], float]]:
    """The counters and the histograms' counts, by name and label values."""
    found: dict[str, dict[tuple[str, ...], float]] = {}
    for (name, labels), value in samples(body.encode()).items():
        values = tuple(label for _, label in sorted(labels))
        if not name.endswith("_bucket"):
            found.setdefault(name, {})[values] = value
    return found


def seen(series: dict[tuple[str, ...], float]) -> dict[tuple[str, ...], float]:
    """Without those that are there from the beginning, at 0."""
    return {labels: value for labels, value in series.items() if value}


def check(body: str, times: int = 1) -> None:
    """That the sequence was counted exactly so many times."""
    found = counted(body)
    # The labels' values are in the order of the labels' names.
    calls = {(code, method): n * times for (method, code), n in CALLS.items()}
    assert seen(found["topospread_calls_total"]) == calls
    assert seen(found["topospread_call_duration_seconds_count"]) == calls
    attempts = {(PROFILE, result): n * times for result, n in ATTEMPTS.items()}
    assert seen(found["scheduler_schedule_attempts_total"]) == attempts
    points = {(point, PROFILE, status): n * times for (point, status), n in POINTS.items()}
    assert seen(found["scheduler_framework_extension_point_duration_seconds_count"]) == points
    by_plugin = {(p, "PodTopologySpread", status): n for (p, _, status), n in points.items()}
    assert seen(found["scheduler_plugin_execution_duration_seconds_count"]) == by_plugin
    evaluations: dict[tuple[str, ...], float] = {}
    for (point, _, status), n in points.items():
        if status != "Skip":
            key = (point, "PodTopologySpread", PROFILE)
            evaluations[key] = evaluations.get(key, 0) + n
    assert seen(found["scheduler_plugin_evaluation_total"]) == evaluations
    waits = found["topospread_consistency_wait_seconds_count"]
    # A decision that takes long begins twice, and looks for its cluster each time.
    again = waits[("minimize_latency",)] - WAITS["minimize_latency"] * times
    assert 0 <= again < times * 3
    others = WAITS.keys() - {"minimize_latency"}
    assert {mode: waits[mode,] for mode in others} == {mode: WAITS[mode] * times for mode in others}
    assert found["topospread_objects"] == {
        ("default", "Node"): 3,
        ("default", "Pod"): 3,
        ("default", "Workload"): 0,
        ("default", "Reservation"): 0,
    }
    assert found["topospread_revision_lag"] == {("default",): 0}
    assert found["topospread_store_unreachable_seconds"] == {("default",): 0}
    assert set(found["topospread_store_errors_total"].values()) == {0}
    assert set(found["topospread_queue_rejections_total"].values()) == {0}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    store = f"sqlite:///{tmp_path}/state.db"
    with served(store=store) as first, Peer(first.address) as peer:
        peer.apply(*two_zones())
    with ServerProcess("--store", store, "--http", "127.0.0.1:0") as server:
        yield server


@pytest.fixture
def peers(server: ServerProcess) -> Iterator[Sequence[Peer]]:
    opened = [Peer(server.address) for _ in range(16)]
    yield opened
    for peer in opened:
        peer.channel.close()


def test_every_call_is_counted_once(server, peers):
    for times in (1, 2):
        ask(cycle(peers))
        check(server.get("/metrics")[1], times)
