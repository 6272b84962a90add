"""How answers are aligned with node names on the wire, and how refusals get there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.rpc import error_details_pb2, status_pb2

from tests.conformance.objects import object_of
from tests.servers import served
from tests.service.world import HOSTNAME, constraint, incoming, node, running, soft
from topospread_client import pod_from_manifest
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as pb
from topospread_proto.v1.cluster_state_service_pb2_grpc import ClusterStateServiceStub
from topospread_proto.v1.decision_service_pb2_grpc import DecisionServiceStub

if TYPE_CHECKING:
    from collections.abc import Iterator

HARD = incoming(constraint())
SPREADING = incoming(constraint(maxSkew=9), soft(HOSTNAME))


class Asked:
    """A server with three zones of one node each, holding 2, 1 and 0 pods."""

    def __init__(self, channel: grpc.Channel) -> None:
        self.engine = DecisionServiceStub(channel)
        self.state = ClusterStateServiceStub(channel)
        self.fresh = common.Consistency(fully_consistent=True)

    def apply(self, *manifests: dict[str, Any]) -> None:
        objects = [object_of(manifest) for manifest in manifests]
        self.state.ApplyObjects(state.ApplyObjectsRequest(objects=objects))

    def filter(self, pod: dict[str, Any] | None = HARD, **fields: Any) -> pb.FilterResponse:
        request = pb.FilterRequest(consistency=self.fresh, pod=source(pod), **fields)
        return self.engine.Filter(request)

    def score(self, pod: dict[str, Any] | None = SPREADING, **fields: Any) -> pb.ScoreResponse:
        request = pb.ScoreRequest(consistency=self.fresh, pod=source(pod), **fields)
        return self.engine.Score(request)

    def table(self) -> state.GetNodeTableResponse:
        return self.state.GetNodeTable(state.GetNodeTableRequest(consistency=self.fresh))


def source(pod: dict[str, Any] | None) -> common.PodSource | None:
    return None if pod is None else common.PodSource(object=pod_from_manifest(pod))


@pytest.fixture(scope="module")
def channel() -> Iterator[grpc.Channel]:
    with served() as server, grpc.insecure_channel(server.address) as opened:
        yield opened


@pytest.fixture
def asked(channel: grpc.Channel) -> Iterator[Asked]:
    made = Asked(channel)
    made.apply(
        *(node(f"n-{zone}", zone) for zone in "abc"),
        running("w1", "n-a"),
        running("w2", "n-a"),
        running("w3", "n-b"),
    )
    yield made
    made.state.DeleteCluster(state.DeleteClusterRequest(cluster="default"))


def error_of(refused: pytest.ExceptionInfo[grpc.RpcError]) -> tuple[grpc.StatusCode, str]:
    """The code, and the reason among the details."""
    call: Any = refused.value
    packed = dict(call.trailing_metadata()).get("grpc-status-details-bin")
    if packed is None:
        return call.code(), ""
    detail = status_pb2.Status.FromString(packed).details[0]
    return call.code(), error_details_pb2.ErrorInfo.FromString(detail.value).reason


def test_names_come_in_full_until_the_caller_holds_the_table(asked: Asked):
    first = asked.filter()
    assert list(first.node_names) == ["n-a", "n-b", "n-c"]
    again = asked.filter(node_table_id=first.node_table_id)
    assert list(again.node_names) == []
    assert list(again.verdicts) == list(first.verdicts)
    assert [first.verdict_table[v].code for v in first.verdicts] == [
        common.VERDICT_CODE_UNSCHEDULABLE,
        common.VERDICT_CODE_UNSCHEDULABLE,
        common.VERDICT_CODE_SUCCESS,
    ]


def test_names_come_again_when_the_table_is_out_of_date(asked: Asked):
    held = asked.filter().node_table_id
    asked.apply(node("m"))
    answer = asked.filter(node_table_id=held)
    assert list(answer.node_names) == ["m", "n-a", "n-b", "n-c"]
    assert answer.node_table_id != held
    assert len(answer.verdicts) == 4


def test_the_table_of_a_cycle_is_the_one_its_answers_are_aligned_with(asked: Asked):
    request = pb.PreFilterRequest(
        pod=common.PodSource(object=pod_from_manifest(HARD)), consistency=asked.fresh
    )
    cycle = asked.engine.PreFilter(request).cycle
    old = asked.filter(None, cycle=cycle)
    asked.apply(node("m"))
    new = asked.filter()
    assert list(asked.filter(None, cycle=cycle, node_table_id=old.node_table_id).node_names) == []
    of_cycle = asked.filter(None, cycle=cycle, node_table_id=new.node_table_id)
    assert list(of_cycle.node_names) == ["n-a", "n-b", "n-c"]
    assert of_cycle.node_table_id == old.node_table_id
    assert of_cycle.meta.revision == old.meta.revision != new.meta.revision


def test_scores_come_with_names_or_with_positions_in_the_table_held(asked: Asked):
    hard = incoming(constraint(), soft(HOSTNAME))
    by_name = asked.score(hard)
    assert (list(by_name.node_names), list(by_name.node_indices)) == (["n-c"], [])
    by_position = asked.score(hard, node_table_id=by_name.node_table_id)
    assert (list(by_position.node_names), list(by_position.node_indices)) == ([], [2])
    assert list(by_position.normalized) == list(by_name.normalized) == [100]


def test_scores_of_a_callers_selection_come_in_its_order_without_names(asked: Asked):
    chosen = common.NodeSelection(names=common.NodeNames(names=["n-c", "n-a", "n-b"]))
    answer = asked.score(candidates=chosen)
    assert (list(answer.node_names), list(answer.node_indices)) == ([], [])
    assert list(answer.raw) == [0, 3, 2]
    positions = common.NodeSelection(
        indices=common.NodeIndices(indices=[2, 0, 1], node_table_id=answer.node_table_id)
    )
    assert list(asked.score(candidates=positions).raw) == [0, 3, 2]


def test_an_absent_selection_differs_from_an_empty_one(asked: Asked):
    assert list(asked.score().raw) == [3, 2, 0]
    empty = asked.score(candidates=common.NodeSelection())
    assert (list(empty.raw), empty.verdict.code) == ([], common.VERDICT_CODE_SUCCESS)
    assert list(asked.filter(candidates=common.NodeSelection()).verdicts) == []


def test_the_node_table_is_the_one_that_answers_name(asked: Asked):
    table = asked.table()
    answer = asked.filter()
    assert (table.node_table_id, list(table.node_names)) == (
        answer.node_table_id,
        list(answer.node_names),
    )


def test_positions_in_an_old_table_are_refused_with_a_reason(asked: Asked):
    held = asked.table().node_table_id
    stale = common.NodeSelection(indices=common.NodeIndices(indices=[0], node_table_id=held))
    asked.apply(node("m"))
    with pytest.raises(grpc.RpcError) as refused:
        asked.filter(candidates=stale)
    assert error_of(refused) == (grpc.StatusCode.FAILED_PRECONDITION, "NODE_TABLE_CHANGED")


def test_an_expired_cycle_is_refused_with_a_reason_and_remade_with_a_pod(asked: Asked):
    with pytest.raises(grpc.RpcError) as refused:
        asked.filter(None, cycle="never")
    assert error_of(refused) == (grpc.StatusCode.FAILED_PRECONDITION, "CYCLE_EXPIRED")
    answer = asked.filter(HARD, cycle="never")
    assert answer.cycle_remade
    assert answer.cycle != "never"
    again = asked.filter(None, cycle=answer.cycle)
    assert not again.cycle_remade
    assert again.meta.revision == answer.meta.revision


def test_scores_out_of_bounds_do_not_break_the_message(asked: Asked):
    """A byte that is no byte of a small number would make the whole answer unreadable."""
    for skew in (0, -1, -7, -(2**31), 2**31 - 1):
        pod = incoming(soft(maxSkew=skew), soft(HOSTNAME))
        answer = asked.score(pod)
        assert len(answer.normalized) == 3
        assert max(answer.normalized) <= 100
        request = pb.EvaluatePodRequest(
            pod=common.PodSource(object=pod_from_manifest(pod)), top_k=9
        )
        top = asked.engine.EvaluatePod(request).top_nodes
        scores = zip(answer.node_names, answer.raw, answer.normalized, strict=True)
        assert sorted((n.node, n.raw, n.normalized) for n in top) == list(scores)


@pytest.mark.parametrize(("pod", "defaulted"), [(incoming(), True), (HARD, False)])
def test_every_evaluation_says_whether_constraints_are_the_profiles(asked: Asked, pod, defaulted):
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}}
    asked.apply(service | {"spec": {"selector": {"app": "web"}}})
    given = common.PodSource(object=pod_from_manifest(pod))
    alone = pb.EvaluatePodRequest(pod=given, consistency=asked.fresh)
    first, remembered = asked.engine.EvaluatePod(alone), asked.engine.EvaluatePod(alone)
    of_two = pb.BatchEvaluatePodsRequest(pods=[given, given], consistency=asked.fresh)
    batch = [each.response for each in asked.engine.BatchEvaluatePods(of_two).results]
    why = pb.ExplainPodRequest(pod=given, consistency=asked.fresh)
    explained = asked.engine.ExplainPod(why).evaluation
    found = {each.defaulted for each in (first, remembered, *batch, explained)}
    assert found == {defaulted}


def test_a_pod_of_a_batch_that_is_no_pod_fails_alone(asked: Asked):
    good = pod_from_manifest(HARD)
    bad = pod_from_manifest(incoming(*[constraint()] * 65))
    pods = [
        common.PodSource(object=good),
        common.PodSource(object=bad),
        common.PodSource(object_proto=good.SerializeToString()),
        common.PodSource(ref=common.PodReference(name="w1")),
        common.PodSource(ref=common.PodReference(name="nobody")),
        common.PodSource(),
    ]
    request = pb.BatchEvaluatePodsRequest(pods=pods, consistency=asked.fresh)
    response = asked.engine.BatchEvaluatePods(request)
    first, second, third, fourth, fifth, sixth = response.results
    assert first.response == third.response
    assert [n.node for n in first.response.top_nodes] == ["n-c"]
    assert second.error.code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
    assert "at most 64" in second.error.message
    assert fourth.response.node_count == 3
    assert fifth.error.code == grpc.StatusCode.NOT_FOUND.value[0]
    assert sixth.error.message.startswith("pods[5]: ")
    assert response.meta.revision
    assert not first.response.HasField("meta"), "one for all of them stands in the batch"
