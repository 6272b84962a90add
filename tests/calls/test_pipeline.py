"""Each call passes the same interceptors once, whichever way it comes, however often it begins."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from bench.campaigns.overload import end_early
from tests.access.callers import AccessFile
from tests.servers import Peer, evaluate_request, pod, served, threads_end, two_zones
from tests.telemetry.expositions import value
from tests.waiting import PATIENCE
from topospread.app.listeners import http_pipeline
from topospread.calls.access import AccessControl
from topospread.calls.call import Bidirectional, ClientStreaming, ServerStreaming, Unary
from topospread.calls.memory import MemoryGuard, Sweeper
from topospread.calls.pipeline import Parts, Pipeline
from topospread.calls.rules import MethodRules, Permission
from topospread.calls.sizes import MessageLimits
from topospread.checkpoints import will_take_long
from topospread.service.decisions.evaluate import evaluate
from topospread.telemetry.metrics import Metrics
from topospread.telemetry.tracing import Sampling, Tracing
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as pb
from topospread_proto.v1.common_pb2 import Consistency

if TYPE_CHECKING:
    from topospread.app.server import Server
    from topospread.calls.call import Method

ALL = (
    *("metrics", "trace", "status", "audit", "authentication", "rate"),
    *("sizes", "authorization", "memory", "deadline"),
)
CALLS = 300
"""Of each kind that end early."""

EARLY = {"OK", "CANCELLED", "DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED"}


def parts(**chosen: Any) -> Parts:
    usual: dict[str, Any] = {
        "tracing": Tracing(Sampling.ratio(0.0), None),
        "metrics": Metrics("test"),
        "access": AccessControl(),
        "sizes": MessageLimits(),
        "guard": MemoryGuard(1 << 20),
        "sweeper": Sweeper(),
    }
    return Parts(**{**usual, **chosen})


def nothing(*_: object) -> Any:
    raise NotImplementedError


KINDS: list[Method] = [
    Unary(pb.EvaluatePodRequest, nothing),
    ClientStreaming(state_pb.ReplaceObjectsRequest, nothing),
    ServerStreaming(state_pb.WatchObjectsRequest, nothing),
    Bidirectional(state_pb.WatchObjectsRequest, nothing),
]


UNAUDITED = MethodRules(Permission(None), "state")


def test_unary_calls_and_streams_pass_the_same_list():
    anyone: Any = object()
    pipeline = Pipeline(parts(access=AccessControl(anyone, anyone)))
    assert tuple(pipeline.interceptors) == ALL
    assert {pipeline.method("/a.B/C", kind, UNAUDITED).chain for kind in KINDS} == {ALL}


def test_calls_over_http_pass_the_same_list_with_callers_known_before():
    known_before = ("authentication", "rate", "authorization")
    anyone: Any = object()
    pipeline = http_pipeline(parts(access=AccessControl(anyone, anyone)))
    method = pipeline.method("Extender/filter", KINDS[0], UNAUDITED, describe=dict)
    assert method.chain == tuple(name for name in ALL if name not in known_before)


def test_interceptors_that_are_switched_off_are_not_in_the_list():
    bare = Pipeline(parts(tracing=None, metrics=None))
    chains = {bare.method("/a.B/C", kind, UNAUDITED).chain for kind in KINDS}
    assert chains == {("status", "sizes", "memory", "deadline")}
    # What changes something is recorded, whoever may call.
    written = bare.method("/topospread.v1.ClusterStateService/ReplaceObjects", KINDS[1])
    assert written.chain == ("status", "audit", "sizes", "memory", "deadline")


@pytest.fixture
def begun(monkeypatch) -> list[bool]:
    """Each EvaluatePod is preempted where it is tried first; has an entry for each beginning."""
    times = list[bool]()

    def long(*arguments: Any) -> Any:
        times.append(True)
        will_take_long()
        return evaluate(*arguments)

    monkeypatch.setattr("topospread.api.decision.evaluate", long)
    return times


def counted(server: Server, name: str, **labels: str) -> float:
    return value(server.metrics.expose()[0], name, **labels) or 0.0


@pytest.mark.parametrize("transport", ["grpcio", "grpcio-threads"])
def test_a_decision_that_begins_twice_answers_and_counts_once(begun, transport):
    method = {"method": "DecisionService/EvaluatePod", "code": "OK"}
    with served(transport=transport) as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        answer = peer.evaluate()
        assert answer.feasible_node_count == 1
        assert len(begun) == 2
        assert counted(server, "topospread_calls_total", **method) == 1
        assert counted(server, "topospread_queue_wait_seconds_count", pool="decisions") == 1
        attempts = {"result": "scheduled", "profile": "default-scheduler"}
        assert counted(server, "scheduler_schedule_attempts_total", **attempts) == 1


def test_a_decision_that_begins_twice_takes_one_call_of_its_callers_rate(begun, tmp_path):
    access = AccessFile(tmp_path / "access.yaml", feeder=["write"], mine=["decide"])
    flags = {"access_file": str(access), "rate_limit": 0.001, "rate_burst": 2}
    with served(**flags) as server, Peer(server.address) as peer:
        apply = state_pb.ApplyObjectsRequest(objects=two_zones())
        peer.state.ApplyObjects(apply, metadata=access.bearer("feeder"), timeout=PATIENCE)
        for _ in range(2):
            peer.engine.EvaluatePod(
                evaluate_request(), metadata=access.bearer("mine"), timeout=PATIENCE
            )
        assert len(begun) == 4
        with pytest.raises(grpc.RpcError) as refused:
            peer.engine.EvaluatePod(
                evaluate_request(), metadata=access.bearer("mine"), timeout=PATIENCE
            )
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    "more",
    [
        {"consistency": Consistency(fully_consistent=True)},
        {"pod": common_pb2.PodSource(ref=common_pb2.PodReference(name="web-0"))},
        {"cluster": "another"},
    ],
    ids=["fully consistent", "by name", "first load"],
)
def test_a_decision_that_has_to_wait_is_answered(more):
    with served() as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        peer.apply(*two_zones(), cluster="another")
        request = evaluate_request()
        request.MergeFrom(pb.EvaluatePodRequest(**more))
        assert peer.engine.EvaluatePod(request, timeout=PATIENCE).node_count == 3
        assert server.pools.decisions.blocked == 0


def test_calls_that_end_early_leave_nothing_behind(begun):
    with threads_end(), served() as server, Peer(server.address) as peer:
        peer.apply(*two_zones(), pod("web-7", "a1"))
        assert end_early(server, peer, CALLS).keys() <= EARLY
        assert peer.evaluate().feasible_node_count == 1
        assert len(begun) > 2
