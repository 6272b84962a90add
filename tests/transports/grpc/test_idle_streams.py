"""Idle streams of StreamEvaluatePods stay open, and end with the server."""

from __future__ import annotations

import queue
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.servers import Peer, evaluate_request, served, two_zones
from tests.transports.grpc.conftest import open_streams
from tests.waiting import until
from topospread_proto.v1 import decision_service_pb2 as engine_pb

if TYPE_CHECKING:
    from collections.abc import Iterator


class Conversation:
    """A stream whose questions are put one by one."""

    def __init__(self, peer: Peer) -> None:
        self._questions: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.stream = peer.engine.StreamEvaluatePods(iter(self._questions.get, None))
        self._asked = 0

    def ask(self) -> int:
        """Put a question and wait for its answer."""
        self._asked += 1
        request = engine_pb.StreamEvaluatePodsRequest(id=self._asked, evaluate=evaluate_request())
        self._questions.put(request)
        answer = next(self.stream)
        assert answer.id == self._asked
        feasible: int = answer.evaluate.feasible_node_count
        return feasible

    def end(self) -> None:
        self._questions.put(None)


@pytest.fixture(params=["grpcio", "grpcio-threads"])
def server(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Any]:
    # A stream that has not said anything is in the way at once.
    monkeypatch.setattr("topospread.threads.executor.SILENT_STREAM", 0.0)
    monkeypatch.setattr("topospread.transports.grpc.completion_queue.SILENT_STREAM", 0.0)
    flags = {"max_streams": 2, "shutdown_grace_period": "10m", "transport": request.param}
    with served(**flags) as server:
        with Peer(server.address) as peer:
            peer.apply(*two_zones())
        yield server


@pytest.fixture
def peer(server: Any) -> Iterator[Peer]:
    with Peer(server.address) as peer:
        yield peer


def test_idle_stream_stays_open(server, peer):
    idle = Conversation(peer)
    assert idle.ask() == 1
    silent = peer.silent_call("/topospread.v1.DecisionService/StreamEvaluatePods")
    until(lambda: open_streams(server) == 2, "both are open")
    with pytest.raises(grpc.RpcError) as refused:
        Conversation(peer).ask()
    assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    # The one that never said a word gave way.
    until(silent.done, "it is refused")
    assert silent.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    until(lambda: open_streams(server) == 1, "there is room")
    other = Conversation(peer)
    assert other.ask() == idle.ask() == 1
    for conversation in (idle, other):
        conversation.end()
        assert list(conversation.stream) == []


def test_idle_stream_does_not_delay_the_servers_stop(server, peer):
    idle = Conversation(peer)
    assert idle.ask() == 1
    server.stop()
    with pytest.raises(grpc.RpcError):
        idle.ask()
    assert idle.stream.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)
    idle.end()


def test_stream_outlives_the_default_deadline_of_a_call(server, peer, monkeypatch):
    monkeypatch.setattr("topospread.transports.grpc.handlers.DEFAULT_DEADLINE", 0.0)
    conversation = Conversation(peer)
    assert [conversation.ask() for _ in range(3)] == [1, 1, 1]
    conversation.end()
