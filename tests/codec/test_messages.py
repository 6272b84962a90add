"""Messages that read one another's bytes agree on numbers, types and presence."""

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from topospread.generated.internal.v1 import stored_pb2
from topospread_proto.kubernetes.v1 import kubernetes_pb2

ENTRY = "CountedLabel"  # an entry of a map
PREFIXES = ("Stored", "Relevant", "Counted", "Listed")
OTHER_NAMES = {
    "Meta": "ObjectMeta",
    "Owner": "OwnerReference",
    "Port": "ContainerPort",
    "Resources": "ResourceRequirements",
}
OWN = "StoredReservation"  # no object of Kubernetes
NARROW = [
    message
    for message in stored_pb2.DESCRIPTOR.message_types_by_name.values()
    if message.name not in (ENTRY, OWN)
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
