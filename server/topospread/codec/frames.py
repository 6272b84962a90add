"""Pods that are identified by their shape, as protobuf or JSON, and parsed only if that is new."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

import orjson
from google.protobuf.message import DecodeError

from topospread.codec.parsing import LARGE, check_repeats, parse_request, unparsable
from topospread.codec.pods import check_terms, conditions_weight, node_from_proto, pod_from_proto
from topospread.errors import FieldViolation, InvalidRequest
from topospread.generated.internal.v1 import frames_pb2
from topospread_client import ManifestError, object_from_manifest, pod_from_manifest
from topospread_proto.kubernetes.v1 import kubernetes_pb2

if TYPE_CHECKING:
    from collections.abc import Hashable

    from topospread.kube.objects import Node, Pod
    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb


class FramedPod(NamedTuple):
    """An unparsed pod with the fields that make up its shape.

    Attributes:
        name, uid: its identity; they are no part of the shape.
        key: the decision-relevant bytes: equal for pods of one shape. Another order of map entries
            makes another key: an entry more, the same answers.
        encoded: the bytes of v1.Pod.
    """

    name: str
    uid: str
    key: bytes
    encoded: bytes

    @property
    def size(self) -> int:
        """Bytes of the fields that decisions look at."""
        return len(self.key)

    @property
    def constraints(self) -> int:
        """Number of its spread constraints."""
        return len(frames_pb2.PodFrame.FromString(self.key).spec.topology_spread_constraints)

    def conditions(self, most: int) -> int:
        """Weight of its selectors and affinity, or more than the most; 0 if they do not parse."""
        try:
            # Small, or looked through when it was framed.
            return conditions_weight(kubernetes_pb2.Pod.FromString(self.encoded).spec, most)
        except DecodeError:
            return 0

    def parse(self, most_terms: int) -> Pod:
        """The whole pod.

        Raises:
            InvalidRequest: the bytes are no pod, or its selectors and affinity have more
                expressions and values than that.
        """
        pod = parse_request(kubernetes_pb2.Pod, self.encoded, frame=frames_pb2.PodFrame)
        check_terms(pod.spec, most_terms)
        return pod_from_proto(pod)


def framed(encoded: bytes) -> FramedPod:
    """Read a pod as far as its shape."""
    if len(encoded) > LARGE:
        check_repeats(kubernetes_pb2.Pod, encoded)
    try:
        pod = frames_pb2.PodFrame.FromString(encoded)
    except DecodeError as cause:
        raise unparsable(kubernetes_pb2.Pod) from cause
    meta = pod.metadata
    return FramedPod(meta.name, meta.uid, shape_key(pod), encoded)


def shape_key(pod: frames_pb2.PodFrame) -> bytes:
    """The fields that make up a pod's shape, as bytes of a v1.Pod; the frame keeps no others."""
    meta = pod.metadata
    meta.name = meta.uid = ""
    pod.DiscardUnknownFields()
    return pod.SerializeToString()


Fields = Mapping[str, object]

_NOTHING: Final[Fields] = {}


class JsonPod(NamedTuple):
    """An unparsed pod with the fields that make up its shape.

    Attributes:
        name, uid: its identity; they are no part of the shape.
        key: equal for pods whose decision-relevant fields are written in the same way.
        fields: all of its fields.
    """

    name: str
    uid: str
    key: Hashable
    fields: Fields

    def parse(self, most_terms: int) -> Pod:
        """The whole pod.

        Raises:
            InvalidRequest: a field has a wrong type, or the pod's selectors and affinity have more
                expressions and values than that.
        """
        pod = self.message()
        check_terms(pod.spec, most_terms)
        return pod_from_proto(pod)

    @property
    def size(self) -> int:
        """Bytes of the pod as JSON."""
        return len(orjson.dumps(self.fields))

    def message(self) -> pb.Pod:
        """The pod as protobuf."""
        try:
            return pod_from_manifest({**self.fields, "kind": "Pod"})
        except ManifestError as wrong:
            raise manifest_violation("", wrong).of_pod() from None


UnreadPod = FramedPod | JsonPod


def json_pod(fields: Fields) -> JsonPod:
    """Read a pod as far as its shape."""
    meta, spec = _part(fields, "metadata"), _part(fields, "spec")
    get = spec.get
    key = (
        "json",
        orjson.dumps(
            (
                meta.get("namespace"),
                meta.get("labels"),
                meta.get("ownerReferences"),
                get("schedulerName"),
                get("nodeSelector"),
                get("affinity"),
                get("tolerations"),
                get("topologySpreadConstraints"),
            )
        ),
    )
    return JsonPod(_text(meta, "name"), _text(meta, "uid"), key, fields)


def json_node(fields: Fields) -> Node:
    """Read the fields of a node that spreading looks at."""
    try:
        made = object_from_manifest({**fields, "apiVersion": "v1", "kind": "Node"})
    except ManifestError as wrong:
        raise manifest_violation("Node", wrong) from None
    assert made is not None, "nodes are kept"
    return node_from_proto(made.node)


def manifest_violation(what: str, wrong: ManifestError) -> InvalidRequest:
    """The error for an object that cannot be read; its path begins with the object's kind."""
    path = ".".join(part for part in (what, wrong.path) if part)
    return InvalidRequest.of([FieldViolation(path, wrong.message)])


def _part(fields: Fields, name: str) -> Fields:
    part = fields.get(name)
    if part is None:
        return _NOTHING
    if not isinstance(part, Mapping):
        raise InvalidRequest.of([FieldViolation(f"Pod.{name}", "must be an object")])
    return part


def _text(meta: Fields, name: str) -> str:
    value = meta.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidRequest.of([FieldViolation(f"Pod.metadata.{name}", "must be a string")])
    return value
