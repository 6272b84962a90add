"""Evaluate over one stream says what the call says, and so what kube-scheduler said."""

from collections import Counter
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from tests.conformance.calls import OverGrpc, running_server, why_invalid
from tests.conformance.cases import BIG_CLUSTERS, Decision, big_cluster, decisions
from tests.properties.expected import judgement_of
from tests.properties.test_calls import EVERY, agrees
from topospread.spread.verdicts import Code
from topospread_proto.v1.spread_engine_pb2 import (
    EvaluateRequest,
    EvaluateResponse,
    EvaluateStreamRequest,
)
from topospread_proto.v1.spread_engine_pb2_grpc import SpreadEngineStub

SMALL = list(decisions())[::12]


class BothWays:
    """A stub whose Evaluate asks by a call and over a stream, and wants one answer."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._stub: Any = SpreadEngineStub(channel)
        self._questions: SimpleQueue[EvaluateStreamRequest | None] = SimpleQueue()
        self._answers = self._stub.EvaluateStream(iter(self._questions.get, None))
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stub, name)

    def Evaluate(self, request: EvaluateRequest) -> EvaluateResponse:  # noqa: N802 - as the stub's
        self.asked += 1
        self._questions.put(EvaluateStreamRequest(id=self.asked, request=request))
        answer = next(self._answers)
        assert answer.id == self.asked
        try:
            expected: EvaluateResponse = self._stub.Evaluate(request)
        except grpc.RpcError as refused:
            why = why_invalid(refused)
            assert answer.error.message == why
            raise
        assert answer.response == expected
        return expected

    def end(self) -> None:
        self._questions.put(None)
        assert list(self._answers) == []


class OverBoth(OverGrpc):
    """A server that is asked both ways."""

    def __init__(self, channel: grpc.Channel) -> None:
        super().__init__(channel)
        self.both = BothWays(channel)
        self._engine = self.both  # type: ignore[assignment] # it has the stub's methods


@pytest.fixture(scope="module")
def server() -> Iterator[OverBoth]:
    with running_server() as server, grpc.insecure_channel(server.address) as channel:
        asked = OverBoth(channel)
        yield asked
        asked.close()
        asked.both.end()


def test_recorded_questions_of_one_cluster(server: OverBoth) -> None:
    pods, before = big_cluster(BIG_CLUSTERS[0]), server.both.asked
    for pod in pods:
        case = pod.decision
        found = server.evaluation(case, EVERY)
        assert found.nodes == len(case.cluster["nodes"])
        if "filter" in case.expect:
            verdicts = Counter(status["code"] for status in case.expect["filter"].values())
            judged: Counter[str] = Counter()
            for verdict in found.verdicts:
                judged[Code(verdict.status.code).label] += verdict.nodes
            assert judged == verdicts
        for best in found.top:
            assert best.raw == case.expect.get("score", {}).get(best.node, 0)
            assert best.normalized == case.expect.get("normalized", {}).get(best.node, 0)
    assert server.both.asked == before + len(pods)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_recorded_questions_of_many_clusters(server: OverBoth, case: Decision) -> None:
    if "newError" in case.expect:
        assert server.condition(case) is None
    else:
        agrees(server.evaluation(case, EVERY), judgement_of(case))
