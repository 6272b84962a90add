"""All violations of a request are reported at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.duration_pb2 import Duration

from tests.errors.calls import EXPANDER, NAMED, ask, refused
from tests.errors.causes import (
    BROKEN,
    GIVEN,
    NO_VALUE,
    REQUIRED,
    UNREADABLE,
)
from tests.errors.error_status import ErrorStatus
from tests.servers import Peer, incoming, node, served, two_zones
from topospread.generated.cluster_autoscaler import expander_pb2
from topospread_client import pod_from_manifest
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as decision
from topospread_proto.v1 import placement_service_pb2 as placement

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


FALSE = common.Consistency(fully_consistent=False)
NO_PROFILE = common.Settings(profile="none")
NEGATIVE = Duration(seconds=-1)
OBSERVED = [common.ResourceVersion(resource_version="x")]

OF_ALL: dict[str, Any] = {
    "cluster": "No DNS label",
    "pod": common.PodSource(),
    "settings": NO_PROFILE,
    "validation": NO_VALUE,
}
"""Violations that all requests about a pod can have."""

PATHS = {"cluster", "pod", "settings.profile", "validation"}
WHAT_IFS: dict[str, Any] = {
    "consistency": FALSE,
    "add_pods": [common.PodOnNode(pod=GIVEN, node="a1"), common.PodOnNode(pod=BROKEN)],
    "remove_pods": [common.PodOnNode()],
}
WHAT_IF_PATHS = {
    "consistency.fullyConsistent",
    "addPods[1].pod.objectProto",
    "removePods[0].pod",
}

MISTAKES: Mapping[str, tuple[Any, set[str]]] = {
    "PreFilter": (
        decision.PreFilterRequest(**OF_ALL, **WHAT_IFS),
        PATHS | WHAT_IF_PATHS,
    ),
    "Filter": (decision.FilterRequest(**OF_ALL, **WHAT_IFS), PATHS | WHAT_IF_PATHS),
    "Score": (decision.ScoreRequest(**OF_ALL, **WHAT_IFS), PATHS | WHAT_IF_PATHS),
    "EvaluatePod": (
        decision.EvaluatePodRequest(top_k=-1, **OF_ALL, **WHAT_IFS),
        PATHS | WHAT_IF_PATHS | {"topK"},
    ),
    "ExplainPod": (
        decision.ExplainPodRequest(fit=NO_VALUE, domain_limit=-1, consistency=FALSE, **OF_ALL),
        PATHS | {"fit", "domainLimit", "consistency.fullyConsistent"},
    ),
    "BatchEvaluatePods": (
        decision.BatchEvaluatePodsRequest(
            cluster="A", pods=[GIVEN], top_k=-1, settings=NO_PROFILE, consistency=FALSE,
            validation=NO_VALUE,
        ),
        {"cluster", "topK", "settings.profile", "consistency.fullyConsistent", "validation"},
    ),
    "PlacePod": (
        placement.PlacePodRequest(
            fit=NO_VALUE, request_id="x" * 37, reservation_ttl=Duration(), **OF_ALL
        ),
        PATHS | {"fit", "requestId", "reservationTtl"},
    ),
    "ReserveNode": (
        placement.ReserveNodeRequest(is_repeat=True, reservation_ttl=NEGATIVE, **OF_ALL),
        PATHS | {"node", "requestId", "reservationTtl"},
    ),
    "ReleaseReservation": (
        placement.ReleaseReservationRequest(
            cluster="A", pod=common.PodReference(namespace="a/b", name="c/d", uid="u 1")
        ),
        {"cluster", "pod.namespace", "pod.name", "pod.uid"},
    ),
    "GetReservation": (
        placement.GetReservationRequest(cluster="A", consistency=FALSE),
        {"cluster", "pod.name", "consistency.fullyConsistent"},
    ),
    "ListReservations": (
        placement.ListReservationsRequest(
            cluster="A", label_selector=UNREADABLE, page_size=-1, page_token="x", consistency=FALSE
        ),
        {
            "cluster", "labelSelector.matchExpressions[0].operator", "pageSize", "pageToken",
            "consistency.fullyConsistent",
        },
    ),
    "ListObjects": (
        state.ListObjectsRequest(
            cluster="A", kind=NO_VALUE, label_selector=UNREADABLE, page_size=-1, page_token="x",
            consistency=FALSE,
        ),
        {
            "cluster", "kind", "labelSelector.matchExpressions[0].operator", "pageSize",
            "pageToken", "consistency.fullyConsistent",
        },
    ),
    "ListClusters": (
        state.ListClustersRequest(page_size=-1, page_token="x"), {"pageSize", "pageToken"}
    ),
    "GetObject": (
        state.GetObjectRequest(cluster="A", consistency=FALSE),
        {"cluster", "kind", "name", "consistency.fullyConsistent"},
    ),
    "GetNodeTable": (
        state.GetNodeTableRequest(cluster="A", consistency=FALSE),
        {"cluster", "consistency.fullyConsistent"},
    ),
    "WatchObjects": (
        state.WatchObjectsRequest(
            cluster="A", kinds=[NO_VALUE, common.KIND_POD, NO_VALUE], revision="x"
        ),
        {"cluster", "kinds[0]", "kinds[2]", "revision"},
    ),
    "ApplyObjects": (
        state.ApplyObjectsRequest(
            cluster="A", objects=[node("a/b", "a"), node("", "a")], observed=OBSERVED,
        ),
        {
            "cluster", "objects[0].node.metadata.name", "objects[1].node.metadata.name",
            "observed[0].kind", "observed[0].resourceVersion",
        },
    ),
    "DeleteObjects": (
        state.DeleteObjectsRequest(
            cluster="A", observed=OBSERVED,
            objects=[state.ObjectReference(name="x"), state.ObjectReference(kind=common.KIND_NODE)],
        ),
        {
            "cluster", "objects[0].kind", "objects[1].name", "observed[0].kind",
            "observed[0].resourceVersion",
        },
    ),
    "ReplaceObjects": (
        state.ReplaceObjectsRequest(start=state.ReplaceStart(
            cluster="A", kind=NO_VALUE, resource_version="x", kinds=[NO_VALUE]
        )),
        {"start.cluster", "start.kind", "start.resourceVersion", "start.kinds[0]"},
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    """Of a server of two zones."""
    with served() as server, Peer(server.address) as peer:
        peer.apply(*two_zones())
        yield peer


@pytest.mark.parametrize("name", MISTAKES)
def test_all_violations_are_reported_at_once(peer, name):
    request, paths = MISTAKES[name]
    found = refused(peer.channel, NAMED[name], [request])
    found.check("INVALID_FIELDS")
    assert sorted(found.paths) == sorted(paths)
    assert f"(and {len(paths) - 1} more)" in found.status.message


def test_pod_is_optional_with_a_cycle(peer):
    request = decision.FilterRequest(cycle="any", validation=NO_VALUE)
    assert refused(peer.channel, NAMED["Filter"], [request]).paths == ["validation"]


@pytest.mark.parametrize("name", ["EvaluatePod", "PreFilter", "Filter", "Score", "PlacePod"])
def test_missing_pod_is_reported_once(peer, name):
    assert refused(peer.channel, NAMED[name], [b""]).fields == [("pod", REQUIRED)]


def test_unknown_profile_fails_a_batch_and_not_each_of_its_pods(peer):
    for settings, path in (
        (NO_PROFILE, "settings.profile"),
        (common.Settings(feature_gates={"Unheard": True}), "settings.featureGates[Unheard]"),
    ):
        request = decision.BatchEvaluatePodsRequest(pods=[GIVEN] * 3, settings=settings)
        found = refused(peer.channel, NAMED["BatchEvaluatePods"], [request])
        found.check("INVALID_FIELDS")
        assert found.paths == [path]


def test_unknown_feature_gates_are_reported_in_the_order_of_their_names(peer):
    """A map's keys come in another order in each process."""
    gates = dict.fromkeys(("Zed", "Abc", "Mno", "Def", "Xyz", "Ghi"), True)
    request = decision.EvaluatePodRequest(pod=GIVEN, settings=common.Settings(feature_gates=gates))
    found = refused(peer.channel, NAMED["EvaluatePod"], [request])
    assert found.paths == [f"settings.featureGates[{name}]" for name in sorted(gates)]


def test_first_invalid_quantity_by_name_is_reported(peer):
    """A map's keys come in another order in each process."""
    greedy = pod_from_manifest(incoming())
    container = greedy.spec.containers.add(name="main")
    for name in ("memory", "cpu", "pods", "example.com/gpu", "ephemeral-storage", "aa"):
        container.resources.requests[name].string = "much"
    request = decision.ExplainPodRequest(pod=common.PodSource(object=greedy), fit=common.FIT_ALL)
    found = refused(peer.channel, NAMED["ExplainPod"], [request])
    assert found.paths == ["pod.object.spec.containers[0].resources.requests[aa]"]


def test_unreadable_templates_are_reported_in_the_order_of_options(peer):
    groups = ["zone-c", "zone-a", "zone-f", "zone-b", "zone-e", "zone-d"]
    request = expander_pb2.BestOptionsRequest(
        options=[
            expander_pb2.Option(node_group_id=group, pod_bytes=[GIVEN.object.SerializeToString()])
            for group in groups
        ],
        node_bytes_map=dict.fromkeys(groups, b"\xff"),
    )
    found = refused(peer.channel, EXPANDER, [request])
    assert found.paths == [f"nodeBytesMap[{group}]" for group in groups]


# ------------------------------ several arms of a pod


def field(number: int, content: bytes) -> bytes:
    """A field with a length, as it is on the wire."""
    size, length = len(content), bytearray()
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    return bytes([number << 3 | 2]) + bytes([*length, size]) + content


OBJECT = field(1, GIVEN.object.SerializeToString())
REF = field(2, common.PodReference(name="nobody").SerializeToString())
PROTO = field(3, b"\xff")
HALVES = b"".join(
    field(1, part.SerializeToString())
    for part in (
        type(GIVEN.object)(metadata=GIVEN.object.metadata),
        type(GIVEN.object)(spec=GIVEN.object.spec),
    )
)
LAST = {
    "OK": (REF + OBJECT, PROTO + OBJECT, PROTO + REF + HALVES),
    "POD_NOT_FOUND": (OBJECT + REF, PROTO + REF),
    "INVALID_FIELDS": (OBJECT + PROTO, REF + PROTO),
}
"""By how a question ends, what is sent as its pod."""

ASKED: Mapping[str, Any] = {
    "EvaluatePod": lambda source: field(2, source),
    "PlacePod": lambda source: field(2, source),
    "BatchEvaluatePods": lambda source: field(2, source),
    "Simulate": lambda source: field(2, field(1, source)),
    "PreFilter": lambda source: field(2, OBJECT) + field(3, field(1, source)),
}


@pytest.mark.parametrize("name", ASKED)
@pytest.mark.parametrize(("end", "sources"), LAST.items(), ids=LAST)
def test_last_of_several_pod_sources_wins(peer, name, end, sources):
    """As protobuf has it, in whatever language the message was made."""
    for source in sources:
        raw = ASKED[name](source)
        if name == "BatchEvaluatePods":
            (answer,) = ask(peer.channel, NAMED[name], [raw])
            (result,) = decision.BatchEvaluatePodsResponse.FromString(answer).results
            assert (ErrorStatus(result.error).reason if result.HasField("error") else "OK") == end
        elif end == "OK":
            (answer,) = ask(peer.channel, NAMED[name], [raw])
            assert answer
        else:
            assert refused(peer.channel, NAMED[name], [raw]).reason == end
