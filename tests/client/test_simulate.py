"""What would happen, through either client, on a real server."""

from __future__ import annotations

from dataclasses import replace

import grpc
import pytest

from tests.client.manifests import TWO_ZONES, incoming
from tests.service.simulation.stories import Story, check, stories
from tests.waiting import PATIENCE
from topospread_client import (
    ConstraintChange,
    ConstraintMatch,
    ConstraintValues,
    DrainedNode,
    DrainMode,
    InvalidRequest,
    NodeGroup,
    NotFound,
    PodsToPlace,
    Scenario,
    SimulateResponse,
    SupposedChanges,
    VerdictCode,
)
from topospread_client import _decoding as decoding
from topospread_proto.v1.planner_service_pb2_grpc import PlannerServiceStub

STORIES = [*stories()]


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_scenarios_have_the_expected_placements(client, address, story: Story):
    client.apply_objects(story.cluster)
    message = story.request
    message.cluster = client._session.cluster
    with grpc.insecure_channel(address) as channel:
        expected = PlannerServiceStub(channel).Simulate(message, timeout=PATIENCE)
    check(expected, story.expect)
    found = client.simulate(
        [PodsToPlace(each.pod.object, optional(each, "replicas")) for each in message.pods],
        scenario=scenario_of(message.scenario),
        find_fewest_nodes=message.find_fewest_nodes,
        reschedule=message.reschedule,
    )
    assert replace(found, traceparent=None) == decoding.value(SimulateResponse, expected)
    assert not list(client.list_reservations())


def optional(message, field):
    return getattr(message, field) if message.HasField(field) else None


def scenario_of(message):
    """The same as a caller says it."""
    changes = message.changes
    groups = [
        NodeGroup(
            each.template,
            optional(each, "node_count"),
            each.name,
            [labels.labels for labels in each.variants],
        )
        for each in changes.add_node_groups
    ]
    modes = [None, *DrainMode]
    return Scenario(
        SupposedChanges(
            add_node_groups=groups,
            drain_nodes=[DrainedNode(each.node, modes[each.mode]) for each in changes.drain_nodes],
            add_pods=[(each.pod.object, each.node) for each in changes.add_pods],
            delete_pods=[f"{each.namespace}/{each.name}" for each in changes.delete_pods],
            constraint_changes=[
                ConstraintChange(
                    ConstraintMatch(each.match.topology_key, each.match.when_unsatisfiable or None),
                    ConstraintValues(
                        **{field.name: value for field, value in each.set.ListFields()}
                    ),
                    each.clear_min_domains,
                )
                for each in changes.constraint_changes
            ],
        )
    )


def test_pending_pods_have_reasons_and_features_that_were_not_considered(client):
    client.apply_objects(TWO_ZONES)
    disk = {"name": "v", "persistentVolumeClaim": {"claimName": "c"}}
    found = client.simulate(
        [PodsToPlace(incoming(volumes=[disk]), 1), incoming(nodeSelector={"no": "where"})],
        scenario=Scenario(seed="s"),
    )

    assert (found.placed_pod_count, found.pending_pod_count, found.not_modelled) == (
        1,
        1,
        ("volumes",),
    )
    (placement,) = found.placements
    assert (placement.pod.full_name, placement.node) == ("default/incoming-0", "b1")
    (pending,) = found.pending_pods
    assert ([each.name for each in pending.pods], pending.pod_count) == (["incoming"], 1)
    assert pending.verdict.code is VerdictCode.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert pending.message == (
        "0/3 nodes are available: 3 node(s) didn't match Pod's node affinity/selector."
    )
    assert found.revision
    assert found.trace_id


def test_equal_requests_have_equal_responses(client):
    client.apply_objects(TWO_ZONES)
    first, again = (
        client.simulate(PodsToPlace(incoming(), 7), scenario=Scenario(seed="s")) for _ in range(2)
    )
    assert first.placements == again.placements
    assert first.revision == again.revision


def test_bad_input_is_refused(client):
    drained = Scenario(SupposedChanges(drain_nodes=["missing"]))
    client.apply_objects(TWO_ZONES)
    with pytest.raises(InvalidRequest) as failed:
        client.simulate(PodsToPlace(incoming(), 10**6), scenario=drained)
    assert [violation.field for violation in failed.value.violations] == ["pods"]
    with pytest.raises(InvalidRequest, match="no such node"):
        client.simulate(incoming(), scenario=drained)
    with pytest.raises(NotFound):
        client.simulate("default/missing")
    with pytest.raises(NotFound):
        client.simulate(incoming(), cluster="never-heard-of")
