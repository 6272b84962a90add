"""What becomes of questions while servers go away, on a clock of the test's own."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from tests.client.streaming import evaluation
from topospread_client import DeadlineExceeded, Unavailable
from topospread_client import _conversation as conversations
from topospread_client import _decisions as decisions
from topospread_client import _repeats as repeats
from topospread_client._conversation import Conversation, Line, Question
from topospread_client._operations import Session
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
from topospread_proto.v1.decision_service_pb2 import StreamEvaluatePodsResponse


class Gone(grpc.RpcError):
    """How gRPC ends a call while nobody listens."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        return "failed to connect to all addresses"

    def initial_metadata(self) -> None:
        return None

    def trailing_metadata(self) -> tuple[Any, ...]:
        return ()


class Stream:
    """A conversation whose calls the test ends, and its clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, lasts: float) -> None:
        self.now = 1000.0
        clock = SimpleNamespace(monotonic=lambda: self.now)
        monkeypatch.setattr(conversations, "time", clock)
        monkeypatch.setattr(repeats, "time", clock)
        self.conversation = Conversation(self._line, timeout=10, lasts=lasts, metadata=())

    @staticmethod
    def _line() -> Line:
        call: Any = SimpleNamespace(done=lambda: False, cancel=lambda: None)
        return Line(call, lambda request: None)

    def ask(self, timeout: float | None = None) -> Question:
        operation = decisions.evaluate_pod(Session(), Pod(), timeout=timeout)
        return self.conversation.ask(operation, lambda: None)

    def lose(self, lasting: float) -> None:
        """Let calls end for so long, as while nobody listens."""
        end = self.now + lasting
        while self.now < end:
            line = self.conversation.next_line()
            if line is None:
                return
            if isinstance(line, float):
                self.now += line
            else:
                self.conversation.ended(line, Gone())

    def line(self) -> Line:
        """The call that questions are on now."""
        while True:
            line = self.conversation.next_line()
            if isinstance(line, Line):
                return line
            assert line is not None, "nobody asks"
            self.now += line


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> Stream:
    return Stream(monkeypatch, 2)


def test_a_question_is_repeated_for_as_long_whenever_the_others_began(stream: Stream):
    first = stream.ask()
    stream.lose(1.5)
    late = stream.ask()
    stream.lose(1)
    assert isinstance(first.outcome, Unavailable)
    assert late.outcome is None
    stream.lose(5)
    assert isinstance(late.outcome, Unavailable)


def test_an_outage_is_forgotten_when_nobody_waits_any_more(stream: Stream):
    first = stream.ask(0.5)
    stream.lose(0.5)
    stream.conversation.time_out(first)
    assert isinstance(first.outcome, Unavailable)
    stream.now += 3600

    late = stream.ask()
    assert isinstance(stream.conversation.next_line(), Line), "asked at once"
    stream.lose(0.1)
    assert late.outcome is None
    stream.lose(5)
    assert isinstance(late.outcome, Unavailable)


def test_a_server_that_does_not_answer_is_no_server_that_is_gone(stream: Stream):
    first = stream.ask()
    stream.lose(0.5)
    stream.line()
    late = stream.ask(1)
    stream.conversation.time_out(late)
    assert isinstance(late.outcome, DeadlineExceeded)
    assert first.outcome is None


def test_an_answer_ends_an_outage_for_all(stream: Stream):
    first, second = stream.ask(), stream.ask(1)
    stream.lose(0.5)
    answer = StreamEvaluatePodsResponse(id=first.request.id, evaluate=evaluation("r"))
    stream.conversation.answered(stream.line(), answer)
    assert first.result().revision == "r"
    stream.conversation.time_out(second)
    assert isinstance(second.outcome, DeadlineExceeded)


def test_a_question_that_a_stopping_server_cancels_is_asked_again(monkeypatch):
    stream = Stream(monkeypatch, lasts=30)
    question = stream.ask()
    line = stream.conversation.next_line()
    assert isinstance(line, Line)
    cancelled = StreamEvaluatePodsResponse(id=question.request.id)
    cancelled.error.code = grpc.StatusCode.CANCELLED.value[0]
    stream.conversation.answered(line, cancelled)
    assert question.outcome is None

    line = stream.conversation.next_line()
    assert isinstance(line, Line)
    answer = StreamEvaluatePodsResponse(id=question.request.id, evaluate=evaluation("r"))
    stream.conversation.answered(line, answer)
    question.result()
