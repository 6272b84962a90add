"""What would happen, through either client, on a real server."""

from __future__ import annotations

import pytest

from tests.client.manifests import TWO_ZONES, incoming
from tests.service.simulations.stories import Story, check, stories
from topospread_client.answers import Code
from topospread_client.errors import InvalidRequest, NotFound
from topospread_client.scenarios import Pods

STORIES = [*stories()]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_stories(client, story: Story):
    client.apply(story.cluster)
    check(client.simulate(**story.arguments), story.expect)
    assert not client.reservations().reservations


def test_an_answer_says_why_and_what_was_not_looked_at(client):
    client.apply(TWO_ZONES)
    disk = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    found = client.simulate(
        [Pods(incoming(volumes=[disk]), 1), incoming(nodeSelector={"no": "where"})], seed="s"
    )

    assert (found.placed, found.pending, found.not_modelled) == (1, 1, ("volumes",))
    (placement,) = found.placements
    assert (placement.namespace, placement.pod, placement.node) == ("default", "incoming-0", "b1")
    (pending,) = found.pending_pods
    assert (pending.pods, pending.count) == (("incoming",), 1)
    assert pending.status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert pending.message == (
        "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
    )
    assert found.revision
    assert found.trace_id


def test_the_same_question_has_the_same_answer(client):
    client.apply(TWO_ZONES)
    first, again = (client.simulate(incoming(), replicas=7, seed="s") for _ in range(2))
    assert first.placements == again.placements
    assert first.revision == again.revision


def test_bad_input(client):
    client.apply(TWO_ZONES)
    with pytest.raises(InvalidRequest) as failed:
        client.simulate(incoming(), replicas=10**6, drain=["nobody"])
    assert [violation.field for violation in failed.value.violations] == ["replicas"]
    with pytest.raises(InvalidRequest, match="no such node"):
        client.simulate(incoming(), drain=["nobody"])
    with pytest.raises(NotFound):
        client.simulate("default/nobody")
    with pytest.raises(NotFound):
        client.simulate(incoming(), cluster="never-heard-of")
