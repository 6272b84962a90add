"""EvaluatePod over one stream says what the call says, and so what kube-scheduler said."""

from collections import Counter
from collections.abc import Iterator
from queue import SimpleQueue
from typing import Any

import grpc
import pytest

from tests.conformance.calls import OverGrpc, label_of, why_invalid
from tests.conformance.cases import BIG_CLUSTERS, Decision, big_cluster, decisions
from tests.properties.expected import judgement_of
from tests.properties.test_calls import EVERY, agrees
from tests.servers import served
from topospread_proto.v1.decision_service_pb2 import (
    EvaluatePodRequest,
    EvaluatePodResponse,
    StreamEvaluatePodsRequest,
)
from topospread_proto.v1.decision_service_pb2_grpc import DecisionServiceStub

SMALL = list(decisions())[::12]


class BothWays:
    """A stub whose EvaluatePod asks by a call and over a stream, and wants one answer."""

    def __init__(self, channel: grpc.Channel) -> None:
        self._stub: Any = DecisionServiceStub(channel)
        self._questions: SimpleQueue[StreamEvaluatePodsRequest | None] = SimpleQueue()
        self._answers = self._stub.StreamEvaluatePods(iter(self._questions.get, None))
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stub, name)

    def EvaluatePod(self, request: EvaluatePodRequest) -> EvaluatePodResponse:  # noqa: N802 - as the stub's
        self.asked += 1
        self._questions.put(StreamEvaluatePodsRequest(id=self.asked, evaluate=request))
        answer = next(self._answers)
        assert answer.id == self.asked
        try:
            expected: EvaluatePodResponse = self._stub.EvaluatePod(request)
        except grpc.RpcError as refused:
            why = why_invalid(refused)
            assert answer.error.message == why
            raise
        assert answer.evaluate == expected
        return expected

    def end(self) -> None:
        self._questions.put(None)
        assert list(self._answers) == []


class OverBoth(OverGrpc):
    """A server that is asked both ways."""

    def __init__(self, channel: grpc.Channel) -> None:
        super().__init__(channel)
        self.both = BothWays(channel)
        self.engine = self.both


@pytest.fixture(scope="module")
def server() -> Iterator[OverBoth]:
    with served() as server, grpc.insecure_channel(server.address) as channel:
        asked = OverBoth(channel)
        yield asked
        asked.close()
        asked.both.end()


def test_recorded_questions_of_one_cluster(server: OverBoth) -> None:
    pods, before = big_cluster(BIG_CLUSTERS[0]), server.both.asked
    for pod in pods:
        case = pod.decision
        found = server.evaluation(case, EVERY)
        assert found.node_count == len(case.cluster["nodes"])
        if "filter" in case.expect:
            verdicts = Counter(status["code"] for status in case.expect["filter"].values())
            judged: Counter[str] = Counter()
            for counted in found.verdict_counts:
                judged[label_of(counted.verdict)] += counted.node_count
            assert judged == verdicts
        for best in found.top_nodes:
            assert best.raw == case.expect.get("score", {}).get(best.node, 0)
            assert best.normalized == case.expect.get("normalized", {}).get(best.node, 0)
    assert server.both.asked == before + len(pods)


@pytest.mark.parametrize("case", SMALL, ids=lambda case: case.name)
def test_recorded_questions_of_many_clusters(server: OverBoth, case: Decision) -> None:
    if "newError" in case.expect:
        assert server.condition(case) is None
    else:
        agrees(server.evaluation(case, EVERY), judgement_of(case))
