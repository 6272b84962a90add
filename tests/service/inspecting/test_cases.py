"""The Inspector over gRPC: each case of cases.yaml, as a list, as a watch and as an explanation."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from google.protobuf.json_format import MessageToDict

from tests.conformance.objects import object_of
from tests.service.inspecting.cases import InspectionCase, excerpt, inspection_cases
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2, decision_service_pb2, placement_service_pb2
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from tests.servers import Peer

PATIENCE = 60.0
NEWEST = common_pb2.Consistency(fully_consistent=True)


def apply(peer: Peer, cluster: str, case: InspectionCase) -> None:
    """Write the objects of a case to a cluster of its own."""
    objects = [object_of(manifest) for manifest in case.objects]
    peer.state.ApplyObjects(
        state.ApplyObjectsRequest(cluster=cluster, objects=objects), timeout=PATIENCE
    )
    pod = next((each for each in objects if each.HasField("pod")), None)
    for node, count in case.reserved.items():
        assert pod is not None
        for number in range(count):
            held = common_pb2.PodSource(object=pod.pod)
            held.object.metadata.name = f"held-{node}-{number}"
            held.object.spec.node_name = ""
            del held.object.spec.topology_spread_constraints[:]
            peer.placement.ReserveNode(
                placement_service_pb2.ReserveNodeRequest(cluster=cluster, pod=held, node=node),
                timeout=PATIENCE,
            )


@pytest.mark.parametrize("case", list(inspection_cases()), ids=str)
def test_rows_of_a_small_cluster(peer: Peer, case: InspectionCase) -> None:
    cluster = re.sub("[^a-z0-9]+", "-", case.name.lower())[:60].strip("-")
    apply(peer, cluster, case)
    listed = peer.inspector.ListConstraints(
        pb.ListConstraintsRequest(cluster=cluster, consistency=NEWEST), timeout=PATIENCE
    )
    rows = [MessageToDict(each, preserving_proto_field_name=True) for each in listed.constraints]
    assert [excerpt(*each) for each in zip(rows, case.expected, strict=False)] == case.expected
    assert len(rows) == len(case.expected)
    counted = {each.state: each.constraint_count for each in listed.totals}
    assert counted == {
        number: sum(row.state == number for row in listed.constraints) for number in counted
    }
    watched = peer.inspector.WatchConstraints(
        pb.WatchConstraintsRequest(cluster=cluster), timeout=PATIENCE
    )
    first = next(watched)
    assert first.complete
    assert list(first.constraints) == list(listed.constraints)
    watched.cancel()
    for each in listed.constraints:
        assert explained(peer, cluster, each) == each.counted


def explained(peer: Peer, cluster: str, row: pb.ConstraintStatus) -> common_pb2.CountedPods:
    """Whose pods a constraint counts, as an explanation of one of its owner's pods says."""
    described = peer.inspector.GetConstraint(
        pb.GetConstraintRequest(cluster=cluster, constraint_id=row.constraint_id), timeout=PATIENCE
    )
    question = decision_service_pb2.ExplainPodRequest(
        cluster=cluster, pod=common_pb2.PodSource(ref=described.pods[0].pod)
    )
    answer = peer.engine.ExplainPod(question, timeout=PATIENCE)
    (counted,) = (
        each.counted for each in answer.explanation.constraints if each.constraint == row.constraint
    )
    return counted
