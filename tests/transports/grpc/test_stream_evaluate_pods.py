"""StreamEvaluatePods: requests, errors, limits and stops of one stream and of many."""

from __future__ import annotations

import queue
import threading
from contextlib import suppress
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo, QuotaFailure
from google.rpc.status_pb2 import Status

from tests.servers import Peer, at_least, evaluate_request, incoming, node, pod, served, two_zones
from tests.telemetry.expositions import samples, value
from tests.transports.grpc.conftest import open_streams
from tests.waiting import PATIENCE, until
from topospread_client import pod_from_manifest
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import decision_service_pb2 as engine_pb
from topospread_proto.v1.common_pb2 import PodReference

CODE = grpc.StatusCode
STREAM = "DecisionService/StreamEvaluatePods"
PATH = "/topospread.v1.DecisionService/StreamEvaluatePods"


@pytest.fixture(params=["grpcio", "grpcio-threads"])
def transport(request: pytest.FixtureRequest) -> str:
    """Each transport in turn."""
    chosen: str = request.param
    return chosen


class Stream:
    """An open stream; questions are asked when the test says so."""

    def __init__(self, peer: Peer, timeout: float | None = PATIENCE, **more: Any) -> None:
        self._numbers = iter(range(1, 1_000_000))
        self._questions: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        method: Any = peer.channel.stream_stream(
            PATH, response_deserializer=engine_pb.StreamEvaluatePodsResponse.FromString
        )
        self.call = method(iter(self._questions.get, None), timeout=timeout, **more)
        self.call.add_callback(lambda: self._questions.put(None))

    def send(self, raw: bytes) -> None:
        self._questions.put(raw)

    def ask(self, request: engine_pb.EvaluatePodRequest | None = None) -> int:
        """Ask, by default about the usual pod; returns the question's number."""
        number = next(self._numbers)
        frame = engine_pb.StreamEvaluatePodsRequest(
            id=number, evaluate=request or evaluate_request()
        )
        self.send(frame.SerializeToString())
        return number

    def answer(self, request: engine_pb.EvaluatePodRequest | None = None) -> Any:
        """Ask and wait for the answer."""
        number = self.ask(request)
        answer = next(self.call)
        assert answer.id == number
        return answer

    def end(self) -> None:
        self._questions.put(None)

    def code(self) -> grpc.StatusCode:
        """How it ends, after the answers that are still to come."""
        with pytest.raises(grpc.RpcError):
            for _ in self.call:
                pass
        code: grpc.StatusCode = self.call.code()
        return code


@pytest.fixture
def running(run):
    return run()


REQUESTS = {
    "plain": evaluate_request(),
    "some of the best": evaluate_request(top_k=2),
    "none fits": engine_pb.EvaluatePodRequest(
        pod=common_pb2.PodSource(object=pod_from_manifest(incoming(topologyKey="nobody-has-it")))
    ),
    "by name": engine_pb.EvaluatePodRequest(
        pod=common_pb2.PodSource(ref=PodReference(namespace="default", name="web-0"))
    ),
    "no pod": engine_pb.EvaluatePodRequest(),
    "unknown cluster": evaluate_request(cluster="nobody-wrote-it"),
    "unknown pod": engine_pb.EvaluatePodRequest(
        pod=common_pb2.PodSource(ref=PodReference(name="nobody"))
    ),
    "too many best": evaluate_request(top_k=1001),
    "what no API server takes": engine_pb.EvaluatePodRequest(
        pod=common_pb2.PodSource(object=pod_from_manifest(incoming(maxSkew=0))),
        validation=common_pb2.CONSTRAINT_VALIDATION_STRICT,
    ),
    "an odd revision": evaluate_request(consistency=at_least("nowhere")),
}


def too_many_constraints() -> engine_pb.EvaluatePodRequest:
    manifest = incoming()
    manifest["spec"]["topologySpreadConstraints"] *= 65
    return engine_pb.EvaluatePodRequest(
        pod=common_pb2.PodSource(object=pod_from_manifest(manifest))
    )


@pytest.mark.parametrize("request_", REQUESTS.values(), ids=REQUESTS)
def test_request_of_a_stream_is_answered_like_a_call(running, request_):
    stream = Stream(running.peer)
    for _ in range(2):
        answer = stream.answer(request_)
        try:
            whole = running.peer.engine.EvaluatePod(request_, timeout=PATIENCE)
        except grpc.RpcError as refused:
            status: Any = refused
            expected = Status(code=status.code().value[0], message=status.details())
            details = dict(status.trailing_metadata()).get("grpc-status-details-bin")
            if details is not None:
                expected = Status.FromString(details)
            assert answer.WhichOneof("answer") == "error"
            assert answer.error == expected
        else:
            assert answer.evaluate == whole
        assert stream.answer().evaluate.feasible_node_count == 1, "the stream goes on"


@pytest.mark.parametrize(
    "raw",
    [b"\x12\x01\xff", b"\x12\x03\x12\x01\xff", b"\x12\x04\x12\x02\x0a\x05"],
    ids=["no request", "no pod", "a pod that ends too soon"],
)
def test_unparsable_request_of_a_stream_is_answered_with_its_error(running, raw):
    stream = Stream(running.peer)
    stream.send(b"\x08\x2a" + raw)
    refused = next(stream.call)
    assert refused.id == 42
    assert refused.error.code == CODE.INVALID_ARGUMENT.value[0]
    assert "not parse as topospread.v1." in refused.error.message
    assert "Frame" not in refused.error.message
    assert stream.answer(too_many_constraints()).error.code == CODE.INVALID_ARGUMENT.value[0]
    assert stream.answer().evaluate.feasible_node_count == 1


LARGE = evaluate_request(cluster="x" * 5000)


@pytest.mark.parametrize("compression", list(grpc.Compression), ids=lambda each: each.name)
@pytest.mark.parametrize("number", [0, 1, 300, -7])
def test_oversized_request_of_a_stream_is_answered_with_its_error(run, number, compression):
    stream = Stream(run(max_decision_bytes="4KiB").peer, compression=compression)
    large = engine_pb.StreamEvaluatePodsRequest(
        id=number, evaluate=LARGE, traceparent=f"00-{'1' * 32}-{'2' * 16}-01"
    )
    for _ in range(2):
        stream.send(large.SerializeToString())
        refused = next(stream.call)
        assert refused.id == number
        info, quota = ErrorInfo(), QuotaFailure()
        assert refused.error.code == CODE.RESOURCE_EXHAUSTED.value[0]
        assert refused.error.details[0].Unpack(info)
        assert refused.error.details[1].Unpack(quota)
        assert info.reason == "REQUEST_TOO_LARGE"
        (limit,) = quota.violations
        assert (limit.subject, limit.quota_value) == ("--max-decision-bytes", 4096)
        assert refused.traceparent
        assert stream.answer().evaluate.feasible_node_count == 1, "the stream goes on"


@pytest.mark.parametrize(
    "beginning",
    [b"\x0a\x00", b"\x08" + b"\xff" * 12, b"\x82\x7d\x00"],
    ids=["text", "long", "other"],
)
def test_oversized_request_without_an_id_ends_the_stream(run, beginning):
    stream = Stream(run(max_decision_bytes="4KiB").peer)
    assert stream.answer().evaluate.feasible_node_count == 1
    stream.send(beginning + bytes(5000))
    assert stream.code() is CODE.RESOURCE_EXHAUSTED
    assert "--max-decision-bytes" in stream.call.details()


def test_oversized_requests_count_for_the_rate_limit(run):
    stream = Stream(run(max_decision_bytes="4KiB", rate_limit=0.01, rate_burst=4).peer)
    reasons = []
    for _ in range(3):
        info = ErrorInfo()
        assert stream.answer(LARGE).error.details[0].Unpack(info)
        reasons.append(info.reason)
    # Two calls came before: the write of the cluster, and the stream.
    assert reasons == ["REQUEST_TOO_LARGE", "REQUEST_TOO_LARGE", "RATE_LIMITED"]


def test_unparsable_message_ends_the_stream_after_earlier_responses(running):
    stream = Stream(running.peer)
    assert stream.answer().evaluate.feasible_node_count == 1
    stream.send(b"\xff")
    stream.ask()
    assert stream.code() is CODE.INVALID_ARGUMENT
    assert "StreamEvaluatePodsRequest" in stream.call.details()
    assert running.peer.evaluate().feasible_node_count == 1


def test_responses_come_in_the_order_of_the_requests(running):
    stream = Stream(running.peer)
    requests = [
        evaluate_request(),
        evaluate_request(cluster="nobody"),
        engine_pb.EvaluatePodRequest(),
    ]
    asked = [stream.ask(requests[number % 3]) for number in range(300)]
    assert [next(stream.call).id for _ in asked] == asked
    stream.end()
    assert list(stream.call) == []
    assert stream.call.code() is CODE.OK


def test_each_request_of_a_stream_has_its_own_consistency(news, running):
    stream = Stream(running.peer)
    assert stream.answer().evaluate.feasible_node_count == 1
    news.clear()
    later = at_least(running.peer.apply(pod("web-3", "b1")))
    waits = stream.ask(evaluate_request(consistency=later))
    until(
        lambda: running.waiting() == 1,
        "it waits",
    )
    # It holds up its own stream and no other.
    assert Stream(running.peer).answer().evaluate.feasible_node_count == 1
    news.set()
    answer = next(stream.call)
    assert (answer.id, answer.evaluate.feasible_node_count) == (waits, 3)


def test_each_request_of_a_stream_has_its_own_deadline(monkeypatch, news, running):
    """A stream without a deadline has not that of a call without one."""
    monkeypatch.setattr("topospread.transports.grpc.handlers.DEFAULT_DEADLINE", 0.0)
    stream = Stream(running.peer, timeout=None)
    assert stream.answer().evaluate.feasible_node_count == 1
    news.clear()
    later = at_least(running.peer.apply(pod("web-3", "b1")))
    stream.ask(evaluate_request(consistency=later))
    until(
        lambda: running.waiting() == 1,
        "it waits",
    )
    news.set()
    assert next(stream.call).evaluate.feasible_node_count == 3
    stream.end()


def test_clients_that_read_no_responses_block_no_other(run):
    """gRPC takes some megabytes of answers for a stream; then its thread waits, and no other."""
    running = run(max_streams=8)
    peer = running.peer
    peer.apply(*[node(f"a-node-with-a-long-name-{n:04}", "b") for n in range(400)])
    asked = 1500
    plenty = evaluate_request(top_k=1000)

    def attempts() -> float:
        labels = {"result": "scheduled", "profile": "default-scheduler"}
        return value(running.metrics(), "scheduler_schedule_attempts_total", **labels) or 0.0

    with Peer(running.server.address) as deaf:
        for stream in [Stream(deaf) for _ in range(2)]:
            for _ in range(asked):
                stream.ask(plenty)
        until(lambda: attempts() >= 2, "they are answered")
        other = Stream(peer)
        before, made, own = -1.0, attempts(), 0
        while made != before:
            for _ in range(20):
                assert peer.evaluate().feasible_node_count == 401
                assert other.answer().evaluate.feasible_node_count == 401
                own += 2
            before, made = made, attempts() - own
        assert made < 2 * asked, "what nobody reads is not worked out"
    until(lambda: open_streams(running.server) == 1, "they are over")


def test_stream_past_the_bound_is_refused_and_the_open_ones_continue(run):
    running = run(max_streams=2)
    streams = [Stream(running.peer) for _ in range(2)]
    assert [stream.answer().evaluate.feasible_node_count for stream in streams] == [1, 1]
    for _ in range(3):
        refused = Stream(running.peer)
        refused.ask()
        assert refused.code() is CODE.RESOURCE_EXHAUSTED
        assert "streams" in refused.call.details()
    assert [stream.answer().evaluate.feasible_node_count for stream in streams] == [1, 1]
    assert running.peer.evaluate().feasible_node_count == 1
    assert value(running.metrics(), "topospread_queue_rejections_total", pool="streams") == 3
    streams[0].call.cancel()
    until(lambda: open_streams(running.server) == 1, "it is over")
    assert Stream(running.peer).answer().evaluate.feasible_node_count == 1


def test_stop_answers_the_current_request_and_ends_idle_streams_at_once(news, transport):
    flags = {"shutdown_grace_period": "10m", "transport": transport}
    with served(**flags) as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        streams = [Stream(peer) for _ in range(4)]
        assert [stream.answer().evaluate.feasible_node_count for stream in streams] == [1] * 4
        news.clear()
        later = at_least(peer.apply(pod("web-3", "b1")))
        asked, *idle = streams
        asked.ask(evaluate_request(consistency=later))
        until(lambda: sum(pool.waiting for pool in server.pools.by_name().values()), "it waits")
        stopping = threading.Thread(target=server.stop, daemon=True)
        stopping.start()
        assert {stream.code() for stream in idle} <= {CODE.CANCELLED, CODE.UNAVAILABLE}
        assert stopping.is_alive()
        news.set()
        assert next(asked.call).evaluate.feasible_node_count == 3
        assert asked.code() is CODE.UNAVAILABLE
        stopping.join(PATIENCE)
        assert not stopping.is_alive()


def test_every_request_of_a_stream_is_counted_and_the_stream_once(running):
    before = counted(running)
    stream = Stream(running.peer)
    for _ in range(3):
        stream.answer()
    stream.answer(REQUESTS["none fits"])
    stream.answer(REQUESTS["unknown cluster"])
    stream.end()
    list(stream.call)
    until(
        lambda: value(running.metrics(), "topospread_calls_total", method=STREAM, code="OK") == 1,
        "the stream is counted",
    )
    found = {key: more for key, more in counted(running).items() if more != before.get(key)}
    profile = ("profile", "default-scheduler")
    attempts = "scheduler_schedule_attempts_total"
    assert found == {
        (attempts, frozenset({profile, ("result", "scheduled")})): 3.0,
        (attempts, frozenset({profile, ("result", "unschedulable")})): 1.0,
        ("topospread_calls_total", frozenset({("method", STREAM), ("code", "OK")})): 1.0,
    }


def counted(running) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    names = {"scheduler_schedule_attempts_total", "topospread_calls_total"}
    return {key: found for key, found in samples(running.metrics()).items() if key[0] in names}


def test_stream_of_pipelined_requests_ends_with_its_server(run):
    running = run(shutdown_grace_period="10m")
    stream = Stream(running.peer, timeout=None)
    for _ in range(3):
        stream.ask()
    stopping = threading.Thread(target=running.server.stop, daemon=True)
    stopping.start()
    with suppress(grpc.RpcError):
        for answer in stream.call:
            assert answer.evaluate.feasible_node_count == 1
            stream.ask()
    assert stream.call.code() is CODE.UNAVAILABLE
    stopping.join(PATIENCE)
    assert not stopping.is_alive()
