"""Evaluations of a stream while servers go away, on a clock of the test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from tests.client.streaming import evaluation
from topospread_client import DeadlineExceeded, Unavailable
from topospread_client import _decisions as decisions
from topospread_client import _retries as retries
from topospread_client import _stream_session as stream_sessions
from topospread_client._operations import ClientSession
from topospread_client._stream_session import PendingEvaluation, StreamCall, StreamSession
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
from topospread_proto.v1.decision_service_pb2 import StreamEvaluatePodsResponse


class NoServer(grpc.RpcError):
    """gRPC's error while no server listens."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "failed to connect to all addresses"

    def initial_metadata(self) -> None:
        return None

    def trailing_metadata(self) -> tuple[Any, ...]:
        return ()


class Stream:
    """A stream session whose calls the test ends, and its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, retry_timeout: float) -> None:
        self.now = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(stream_sessions, "time", clock)
        monkeypatch.setattr(retries, "time", clock)
        monkeypatch.setattr(retries, "random", SimpleNamespace(uniform=lambda low, high: 1.0))
        self.stream_session = StreamSession(
            self._open, timeout=10, retry_timeout=retry_timeout, metadata=()
        )

    @staticmethod
    def _open() -> StreamCall:
        call: Any = SimpleNamespace(done=lambda: False, cancel=lambda: None)
        return StreamCall(call, lambda request: None)

    def start(self, timeout: float | None = None) -> PendingEvaluation:
        operation = decisions.evaluate_pod(ClientSession(), Pod(), timeout=timeout)
        return self.stream_session.start(operation, lambda: None)

    def lose(self, lasting: float) -> None:
        """End calls for so long, as while no server listens."""
        end = self.now + lasting
        while self.now < end:
            call = self.stream_session.next_call()
            if call is None:
                return
            if isinstance(call, float):
                self.now += call
            else:
                self.stream_session.on_end(call, NoServer())

    def call(self) -> StreamCall:
        """The call over which evaluations are sent now."""
        while True:
            call = self.stream_session.next_call()
            if isinstance(call, StreamCall):
                return call
            assert call is not None, "nothing is pending"
            self.now += call


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    return Stream(monkeypatch, 2)


def test_evaluation_is_retried_for_its_own_time(stream: Stream):
    first = stream.start()
    stream.lose(1.5)
    late = stream.start()
    stream.lose(1)
    assert isinstance(first.outcome, Unavailable)
    assert late.outcome is None
    stream.lose(5)
    assert isinstance(late.outcome, Unavailable)


def test_outage_is_forgotten_once_nothing_is_pending(stream: Stream):
    first = stream.start(0.5)
    stream.lose(0.5)
    stream.stream_session.time_out(first)
    assert isinstance(first.outcome, Unavailable)
    stream.now += 3600

    late = stream.start()
    assert isinstance(stream.stream_session.next_call(), StreamCall), "asked at once"
    stream.lose(0.1)
    assert late.outcome is None
    stream.lose(5)
    assert isinstance(late.outcome, Unavailable)


def test_slow_server_is_not_taken_for_a_lost_one(stream: Stream):
    first = stream.start()
    stream.lose(0.5)
    stream.call()
    late = stream.start(1)
    stream.stream_session.time_out(late)
    assert isinstance(late.outcome, DeadlineExceeded)
    assert first.outcome is None


def test_response_ends_an_outage_for_all_evaluations(stream: Stream):
    first, second = stream.start(), stream.start(1)
    stream.lose(0.5)
    answer = StreamEvaluatePodsResponse(id=first.request.id, evaluate=evaluation("r"))
    stream.stream_session.on_response(stream.call(), answer)
    assert first.result().revision == "r"
    stream.stream_session.time_out(second)
    assert isinstance(second.outcome, DeadlineExceeded)


def test_evaluation_that_a_stopping_server_cancels_is_sent_again(monkeypatch):
    stream = Stream(monkeypatch, retry_timeout=30)
    pending = stream.start()
    call = stream.stream_session.next_call()
    assert isinstance(call, StreamCall)
    cancelled = StreamEvaluatePodsResponse(id=pending.request.id)
    cancelled.error.code = grpc.StatusCode.CANCELLED.value[0]
    stream.stream_session.on_response(call, cancelled)
    assert pending.outcome is None

    call = stream.stream_session.next_call()
    assert isinstance(call, StreamCall)
    answer = StreamEvaluatePodsResponse(id=pending.request.id, evaluate=evaluation("r"))
    stream.stream_session.on_response(call, answer)
    pending.result()
