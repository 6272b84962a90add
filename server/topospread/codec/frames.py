"""Reads the shape of a pod from its bytes, without parsing them in full."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from google.protobuf.message import DecodeError

from topospread.codec.parsing import LARGE, check_repeats, parse_request, unparsable
from topospread.codec.pods import check_terms, conditions_weight, pod_from_proto
from topospread.generated.internal.v1 import frames_pb2
from topospread_proto.kubernetes.v1 import kubernetes_pb2

if TYPE_CHECKING:
    from collections.abc import Hashable

    from topospread.kube.objects import Pod


class UnreadPod(Protocol):
    """A pod that is identified by its shape, and parsed only if that is new."""

    @property
    def name(self) -> str:
        """The pod's name."""
        ...

    @property
    def uid(self) -> str:
        """The pod's uid."""
        ...

    @property
    def key(self) -> Hashable:
        """Equal for pods of one shape."""
        ...

    @property
    def size(self) -> int:
        """Bytes, about, of the fields that decisions look at."""
        ...

    def parse(self, most_terms: int) -> Pod:
        """The whole pod.

        Raises:
            InvalidRequest: it is no pod, or its selectors and affinity have more expressions and
                values than that.
        """
        ...


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
    """Read a pod as far as its shape.

    Raises:
        InvalidRequest: the bytes are no pod.
    """
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
