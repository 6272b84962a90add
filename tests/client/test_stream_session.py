"""Evaluations of a stream while servers go away, on a clock of the test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from tests.client.streaming import evaluation
from topospread_client import DeadlineExceeded, LimitExceeded, ServerFault, Unavailable
from topospread_client import _decisions as decisions
from topospread_client import _retries as retries
from topospread_client import _stream_session as stream_sessions
from topospread_client._operations import ClientSession
from topospread_client._stream_session import (
    MAX_BROKEN_STREAMS,
    PendingEvaluation,
    StreamCall,
    StreamSession,
)
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
from topospread_proto.v1.decision_service_pb2 import (
    StreamEvaluatePodsRequest,
    StreamEvaluatePodsResponse,
)


class Failed(grpc.RpcError):
    """gRPC's error for a call that a server, or gRPC itself, ended with a status."""

    def __init__(self, code: grpc.StatusCode, text: str = "", *trailers: Any) -> None:
        super().__init__()
        self._code, self._text, self._trailers = code, text, trailers

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return self._text

    def initial_metadata(self) -> None:
        return None

    def trailing_metadata(self) -> tuple[Any, ...]:
        return self._trailers


NO_SERVER = Failed(grpc.StatusCode.UNAVAILABLE, "failed to connect to all addresses")
BROKEN = Failed(grpc.StatusCode.INTERNAL, "Internal error from Core")
"""As gRPC's asyncio ends a call that its server ended while a request was being sent."""


def refused(seconds: int) -> Failed:
    """Refusal of a server that has no capacity for a stream."""
    details = Status(code=grpc.StatusCode.RESOURCE_EXHAUSTED.value[0], message="no capacity")
    details.details.add().Pack(RetryInfo(retry_delay=Duration(seconds=seconds)))
    trailer = ("grpc-status-details-bin", details.SerializeToString())
    return Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, "no capacity", trailer)


class Stream:
    """A stream session whose calls the test ends, and its clock.

    Attributes:
        now: seconds on the clock.
        sent: ids of the requests of each call, in order.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, retry_timeout: float) -> None:
        self.now = 1000.0
        self.sent: list[list[int]] = []
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(stream_sessions, "time", clock)
        monkeypatch.setattr(retries, "time", clock)
        monkeypatch.setattr(retries, "random", SimpleNamespace(uniform=lambda low, high: 1.0))
        self.stream_session = StreamSession(
            self._open, timeout=10, retry_timeout=retry_timeout, metadata=()
        )

    def _open(self) -> StreamCall:
        call: Any = SimpleNamespace(done=lambda: False, cancel=lambda: None)
        sent: list[int] = []
        self.sent.append(sent)

        def send(request: StreamEvaluatePodsRequest | None) -> None:
            if request is not None:
                sent.append(request.id)

        return StreamCall(call, send)

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
                self.stream_session.on_end(call, NO_SERVER)

    def end(self, failed: Failed) -> None:
        """End the present call, or the next one."""
        self.stream_session.on_end(self.call(), failed)

    def answer(self, pending: PendingEvaluation) -> None:
        """Answer an evaluation."""
        answer = StreamEvaluatePodsResponse(id=pending.request.id, evaluate=evaluation("r"))
        self.stream_session.on_response(self.call(), answer)

    def cancel(self, pending: PendingEvaluation) -> None:
        """Answer an evaluation as a server does that stops."""
        cancelled = StreamEvaluatePodsResponse(id=pending.request.id)
        cancelled.error.code = grpc.StatusCode.CANCELLED.value[0]
        self.stream_session.on_response(self.call(), cancelled)

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
    stream.answer(first)
    assert first.result().revision == "r"
    stream.stream_session.time_out(second)
    assert isinstance(second.outcome, DeadlineExceeded)


def test_evaluation_that_stopping_servers_cancel_is_sent_again_a_few_times(stream: Stream):
    pending = stream.start()
    stream.call()
    for _ in range(retries.MAX_CANCELS):
        stream.cancel(pending)
        assert pending.outcome is None
        assert isinstance(stream.stream_session.next_call(), float), "it has time to be gone"
    stream.cancel(pending)
    assert isinstance(pending.outcome, Unavailable)
    assert stream.sent == [[1]] * (1 + retries.MAX_CANCELS)


def test_evaluations_of_cancelled_streams_are_sent_again_a_few_times(stream: Stream):
    pending = stream.start()
    stream.end(Failed(grpc.StatusCode.CANCELLED))
    late = stream.start()
    for _ in range(retries.MAX_CANCELS):
        assert pending.outcome is None
        stream.end(Failed(grpc.StatusCode.CANCELLED))
    assert isinstance(pending.outcome, Unavailable)
    stream.answer(late)
    assert late.result().revision == "r"


def test_refused_stream_waits_as_long_as_the_server_says(monkeypatch):
    stream = Stream(monkeypatch, retry_timeout=30)
    pending = stream.start()
    stream.end(refused(seconds=3))
    assert stream.stream_session.next_call() == 3
    stream.answer(pending)
    assert pending.result().revision == "r"


def test_stream_is_not_asked_for_again_and_again(monkeypatch):
    stream = Stream(monkeypatch, retry_timeout=30)
    pending = stream.start()
    while pending.outcome is None:
        stream.end(refused(seconds=1))
    assert isinstance(pending.outcome, LimitExceeded)
    assert stream.sent == [[1]] * (1 + retries.MAX_REFUSALS)


def test_evaluations_of_a_stream_that_broke_are_sent_one_by_one(stream: Stream):
    several = [stream.start() for _ in range(3)]
    stream.end(BROKEN)
    late = stream.start()
    for each in several:
        stream.answer(each)
    assert [each.result().revision for each in several] == ["r"] * 3
    assert stream.sent == [[1, 2, 3], [1, 2, 3, 4]]
    stream.start()
    stream.answer(late)
    assert stream.sent[-1] == [1, 2, 3, 4, 5]


def test_the_next_one_is_sent_when_the_one_before_is_answered(stream: Stream):
    several = [stream.start() for _ in range(3)]
    stream.end(BROKEN)
    stream.call()
    assert stream.sent[-1] == [1]
    stream.answer(several[0])
    assert stream.sent[-1] == [1, 2]
    stream.end(NO_SERVER)
    stream.call()
    assert stream.sent[-1] == [2]


def test_only_the_evaluation_that_breaks_its_streams_fails(stream: Stream):
    first, breaks, last = (stream.start() for _ in range(3))
    stream.end(BROKEN)
    stream.answer(first)
    while breaks.outcome is None:
        stream.end(BROKEN)
    assert isinstance(breaks.outcome, ServerFault)
    assert last.outcome is None
    stream.answer(last)
    assert last.result().revision == "r"
    alone = [[2]] * MAX_BROKEN_STREAMS
    assert stream.sent == [[1, 2, 3], [1, 2], *alone, [3]]


def test_evaluation_that_is_too_large_alone_fails_by_its_size(stream: Stream):
    first, large = stream.start(), stream.start()
    stream.end(BROKEN)
    stream.answer(first)
    text = "SERVER: Received message larger than max (9000 vs. 4)"
    stream.end(Failed(grpc.StatusCode.RESOURCE_EXHAUSTED, text))
    assert isinstance(large.outcome, LimitExceeded)


def test_evaluations_of_a_stream_that_broke_fail_without_retries(monkeypatch):
    stream = Stream(monkeypatch, retry_timeout=0)
    pending = stream.start()
    stream.end(BROKEN)
    assert isinstance(pending.outcome, ServerFault)
