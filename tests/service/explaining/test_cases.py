"""Every case, by the use case itself and over gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import pytest

from tests.conformance.calls import SOMETHING, running_server
from tests.service.explaining.cases import Json, Story, excerpt, stories
from tests.service.places import Placer, named
from tests.service.world import CLUSTER, PATIENCE, world
from topospread.service.explain import explain
from topospread.service.fit import Fit
from topospread.transports.grpc.explain import explanation_message
from topospread_client.client import Client
from topospread_client.explanations import PodExplanation, pod_explanation
from topospread_client.manifests import pod_from_manifest
from topospread_client.requests import Consistency
from topospread_proto.v1 import placement_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

STORIES = list(stories())


class Evaluator(Protocol):
    """Explains the pod of a case in its cluster."""

    def __call__(self, story: Story) -> PodExplanation: ...


@pytest.fixture(scope="module")
def evaluators() -> Iterator[dict[str, Evaluator]]:
    with running_server() as server, Client(server.address, timeout=PATIENCE) as client:
        yield {"use case": by_use_case, "gRPC": lambda story: over_grpc(client, story)}


def by_use_case(story: Story) -> PodExplanation:
    with world() as made:
        made.apply(*story.cluster, SOMETHING)
        placer = Placer(made)
        for where, name in held(story):
            placer.reserve(named(name), where)
        pod = made.engine.demanding(CLUSTER, pod_from_manifest(story.pod).SerializeToString())
        found = explain(made.engine, placer.ask(), pod, fit=Fit[story.fit])
        return pod_explanation(explanation_message(found.explanation))


def over_grpc(client: Client, story: Story) -> PodExplanation:
    client.apply([*story.cluster, SOMETHING], cluster=CLUSTER)
    for where, name in held(story):
        client.reserve(named(name), where, cluster=CLUSTER)
    answer = client.explain(
        story.pod,
        fit=placement_pb2.Fit.Value(f"FIT_{story.fit}"),
        consistency=Consistency(fully_consistent=True),
        cluster=CLUSTER,
    )
    client.drop_cluster(CLUSTER)
    assert answer.revision
    return answer.explanation


def held(story: Story) -> Iterator[tuple[str, str]]:
    for where, count in story.reserved.items():
        yield from ((where, f"held-{number}") for number in range(count))


@pytest.mark.parametrize("evaluator", ["use case", "gRPC"])
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_explanations(evaluators: dict[str, Evaluator], evaluator: str, story: Story) -> None:
    usual: Json = {"suggestions": [], "warnings": [], "not_modelled": []}
    expected = usual | story.expected
    assert excerpt(evaluators[evaluator](story), expected) == expected
