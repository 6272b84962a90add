"""Messages that read the bytes of others agree on numbers and types: frames, stored objects."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from topospread.codec.frames import framed
from topospread.generated.internal.v1 import frames_pb2, stored_pb2
from topospread_proto.kubernetes.v1 import kubernetes_pb2
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    common_pb2,
    decision_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
)

API = {
    name: message
    for file in (
        decision_service_pb2,
        placement_service_pb2,
        cluster_state_service_pb2,
        planner_service_pb2,
    )
    for name, message in file.DESCRIPTOR.message_types_by_name.items()
}
FRAMES = frames_pb2.DESCRIPTOR.message_types_by_name
REQUESTS = [
    (frame, API[name.replace("Frame", "Request")])
    for name, frame in FRAMES.items()
    if name.replace("Frame", "Request") in API
]
SOURCE = (
    frames_pb2.PodSourceFrame.DESCRIPTOR,
    common_pb2.DESCRIPTOR.message_types_by_name["PodSource"],
)
POD = kubernetes_pb2.DESCRIPTOR.message_types_by_name["Pod"]
METADATA, SPEC, STATUS = (
    POD.fields_by_name[name].message_type for name in ("metadata", "spec", "status")
)
assert METADATA is not None
assert SPEC is not None
assert STATUS is not None
PARTS = [
    (frames_pb2.PodFrame.DESCRIPTOR, POD),
    (frames_pb2.MetadataFrame.DESCRIPTOR, METADATA),
    (frames_pb2.SpecFrame.DESCRIPTOR, SPEC),
    (frames_pb2.DemandFrame.DESCRIPTOR, POD),
    (frames_pb2.DemandMetadataFrame.DESCRIPTOR, METADATA),
    (frames_pb2.DemandSpecFrame.DESCRIPTOR, SPEC),
    (frames_pb2.DemandStatusFrame.DESCRIPTOR, STATUS),
]
NOT_LOOKED_INTO = {"object", "object_proto"}
DECIDES = {
    "metadata": {"name", "namespace", "uid", "labels", "owner_references"},
    "spec": {
        "node_selector",
        "affinity",
        "scheduler_name",
        "tolerations",
        "topology_spread_constraints",
    },
}


def kind(field: FieldDescriptor) -> tuple[object, ...]:
    """What decides how a field is read."""
    message = field.message_type
    if message is SOURCE[0]:
        message = SOURCE[1]
    name = message.full_name if message else None
    return (field.name, field.number, field.type, field.is_repeated, name)


def messages(pairs: list[tuple[Descriptor, Descriptor]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(
        ("frame", "message"), pairs, ids=[frame.name for frame, _ in pairs]
    )


def test_every_question_about_pods_has_its_frame():
    assert {request.name for _, request in REQUESTS} >= {
        "PreFilterRequest",
        "FilterRequest",
        "ScoreRequest",
        "EvaluatePodRequest",
        "BatchEvaluatePodsRequest",
    }


def test_every_frame_stands_for_something():
    known = {frame.name for frame, _ in (*REQUESTS, SOURCE, *PARTS)}
    assert known | {"ClusterFrame", "UnreadFrame"} == set(FRAMES)


def test_the_cluster_is_read_under_the_number_that_all_requests_give_it():
    (read,) = frames_pb2.ClusterFrame.DESCRIPTOR.fields
    asked = [
        message.fields_by_name["cluster"]
        for name, message in API.items()
        if name.endswith("Request") and "cluster" in message.fields_by_name
    ]
    assert len(asked) > 10
    assert {kind(field) for field in asked} == {kind(read)}


@messages([*REQUESTS, SOURCE])
def test_a_frame_has_its_requests_fields_and_the_pod_as_bytes(frame, message):
    assert {field.number for field in frame.fields} == {field.number for field in message.fields}
    for field in frame.fields:
        asked = message.fields_by_number[field.number]
        if field.name in NOT_LOOKED_INTO:
            assert asked.name == field.name
            assert asked.type in (FieldDescriptor.TYPE_MESSAGE, FieldDescriptor.TYPE_BYTES)
            if field.type == FieldDescriptor.TYPE_BYTES and asked.type == field.type:
                assert not field.is_repeated
            elif field.type == FieldDescriptor.TYPE_BYTES:
                # A message may come in pieces, which are joined.
                assert field.is_repeated
            else:
                assert field.message_type is frames_pb2.UnreadFrame.DESCRIPTOR
                assert not field.message_type.fields
        else:
            assert kind(field) == kind(asked)


@messages(PARTS)
def test_the_parts_of_a_pod_are_read_under_its_own_numbers(frame, message):
    for field in frame.fields:
        own = message.fields_by_number[field.number]
        assert own.name == field.name
        if own.type != FieldDescriptor.TYPE_MESSAGE:
            assert kind(field) == kind(own)
        else:
            assert field.type in (FieldDescriptor.TYPE_BYTES, FieldDescriptor.TYPE_MESSAGE)


def test_frames_have_the_decisive_fields():
    metadata, spec = (
        {field.name for field in part.DESCRIPTOR.fields}
        for part in (frames_pb2.MetadataFrame, frames_pb2.SpecFrame)
    )
    assert {"metadata": metadata, "spec": spec} == DECIDES


def test_a_pod_is_named_and_its_name_is_no_part_of_its_shape():
    def pod(name: str, uid: str, app: str) -> bytes:
        made = kubernetes_pb2.Pod()
        made.metadata.name, made.metadata.uid, made.metadata.namespace = name, uid, "default"
        made.metadata.labels["app"] = app
        made.spec.node_name = name
        return made.SerializeToString()

    first, sibling, other = (framed(pod(*of)) for of in ("a1w", "b2w", "c3x"))
    assert (first.name, first.uid, sibling.name, sibling.uid) == ("a", "1", "b", "2")
    assert first.key == sibling.key != other.key
    assert first.parse(most_terms=0).labels == {"app": "w"}


ENTRY = "CountedLabel"  # an entry of a map
PREFIXES = ("Stored", "Relevant", "Counted", "Listed", "Evicted")
OTHER_NAMES = {
    "Meta": "ObjectMeta",
    "Owner": "OwnerReference",
    "Port": "ContainerPort",
    "Resources": "ResourceRequirements",
}
OWN = ("StoredReservation", "StoredHolds", "StoredDisk")  # no objects of Kubernetes
NARROW = [
    message
    for message in stored_pb2.DESCRIPTOR.message_types_by_name.values()
    if message.name not in (ENTRY, *OWN)
]


def whole(narrow: Descriptor) -> Descriptor | None:
    """The message of the Kubernetes subset whose bytes the narrow one reads."""
    name = narrow.name
    for prefix in PREFIXES:
        name = name.removeprefix(prefix)
    return kubernetes_pb2.DESCRIPTOR.message_types_by_name.get(OTHER_NAMES.get(name, name))


def is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


@pytest.mark.parametrize("narrow", NARROW, ids=lambda message: message.name)
def test_narrow_messages_declare_fields_of_the_whole_ones(narrow):
    source = whole(narrow)
    assert source is not None, "no such message in kubernetes.proto"
    for field in narrow.fields:
        other = source.fields_by_name[field.name]
        assert field.number == other.number
        assert field.is_repeated == other.is_repeated
        if field.type == FieldDescriptor.TYPE_BYTES:
            # Left encoded on purpose: an entry of a map, or a part that is only there or not.
            assert other.message_type is not None
            continue
        assert field.type == other.type
        assert is_map(field) == is_map(other)
        assert field.has_presence == other.has_presence
