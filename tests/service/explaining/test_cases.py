"""Every case, by the use case itself and over gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import grpc
import pytest
from google.protobuf.json_format import MessageToDict

from tests.conformance.calls import SOMETHING
from tests.conformance.objects import object_of
from tests.servers import served
from tests.service.explaining.cases import Json, Story, excerpt, stories
from tests.service.placement.placer import Placer, named
from tests.service.world import CLUSTER, PATIENCE, world
from topospread.service.explaining.explain import explain
from topospread.service.fit.question import Fit
from topospread_client import pod_from_manifest
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    cluster_state_service_pb2_grpc,
    common_pb2,
    decision_service_pb2,
    decision_service_pb2_grpc,
    placement_service_pb2,
    placement_service_pb2_grpc,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread_proto.v1.explanation_pb2 import Explanation

STORIES = list(stories())


class Evaluator(Protocol):
    """Explains the pod of a case in its cluster."""

    def __call__(self, story: Story) -> Explanation: ...


@pytest.fixture(scope="module")
def evaluators() -> Iterator[dict[str, Evaluator]]:
    with served() as server, grpc.insecure_channel(server.address) as channel:
        yield {"use case": by_use_case, "gRPC": lambda story: over_grpc(channel, story)}


def by_use_case(story: Story) -> Explanation:
    with world() as made:
        made.apply(*story.cluster, SOMETHING)
        placer = Placer(made)
        for where, name in held(story):
            placer.reserve(named(name), where)
        pod = made.engine.with_requests(
            made.ask(), pod_from_manifest(story.pod).SerializeToString()
        )
        found = explain(made.engine, placer.ask(), pod, fit=Fit[story.fit])
        return found.response.explanation


def over_grpc(channel: grpc.Channel, story: Story) -> Explanation:
    state: Any = cluster_state_service_pb2_grpc.ClusterStateServiceStub(channel)
    decisions: Any = decision_service_pb2_grpc.DecisionServiceStub(channel)
    places: Any = placement_service_pb2_grpc.PlacementServiceStub(channel)
    objects = [object_of(each) for each in (*story.cluster, SOMETHING)]
    applied = cluster_state_service_pb2.ApplyObjectsRequest(cluster=CLUSTER, objects=objects)
    state.ApplyObjects(applied, timeout=PATIENCE)
    for where, name in held(story):
        place = placement_service_pb2.ReserveNodeRequest(
            cluster=CLUSTER, pod=source(named(name)), node=where
        )
        places.ReserveNode(place, timeout=PATIENCE)
    question = decision_service_pb2.ExplainPodRequest(
        cluster=CLUSTER,
        pod=source(story.pod),
        fit=common_pb2.Fit.Value(f"FIT_{story.fit}"),
        consistency=common_pb2.Consistency(fully_consistent=True),
    )
    answer = decisions.ExplainPod(question, timeout=PATIENCE)
    dropped = cluster_state_service_pb2.DeleteClusterRequest(cluster=CLUSTER)
    state.DeleteCluster(dropped, timeout=PATIENCE)
    assert answer.meta.revision
    assert answer.domain_limit == 20
    explanation: Explanation = answer.explanation
    return explanation


def source(manifest: Json) -> common_pb2.PodSource:
    return common_pb2.PodSource(object=pod_from_manifest(manifest))


def held(story: Story) -> Iterator[tuple[str, str]]:
    for where, count in story.reserved.items():
        yield from ((where, f"held-{number}") for number in range(count))


@pytest.mark.parametrize("evaluator", ["use case", "gRPC"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_explanations(evaluators: dict[str, Evaluator], evaluator: str, story: Story) -> None:
    usual: Json = {"suggestions": [], "findings": [], "not_modelled": []}
    expected = usual | story.expected
    found = MessageToDict(
        evaluators[evaluator](story),
        preserving_proto_field_name=True,
        always_print_fields_with_no_presence=True,
    )
    assert excerpt(found, expected) == expected
