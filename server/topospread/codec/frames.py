"""Which shape a pod has, told by its bytes without parsing them in full."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.message import DecodeError

from topospread.codec.parsing import request
from topospread.codec.pods import pod_from_proto
from topospread.errors import InvalidRequest
from topospread_proto.v1 import frames_pb2, kubernetes_pb2

if TYPE_CHECKING:
    from collections.abc import Hashable

    from topospread.kube.objects import Pod


def evaluate_frame(raw: bytes) -> frames_pb2.EvaluateFrame | None:
    """An Evaluate request that asks about one given pod and nothing else; None for all others.

    Raises:
        InvalidRequest: the bytes are no such request.
    """
    try:
        frame = frames_pb2.EvaluateFrame.FromString(raw)
    except DecodeError as cause:
        raise InvalidRequest(
            "the request does not parse as topospread.v1.EvaluateRequest"
        ) from cause
    plain = len(frame.pod) == 1 and not (
        frame.pod_ref
        or frame.add_pods
        or frame.remove_pods
        or frame.nodes
        or frame.settings
        or frame.consistency
        or frame.validate
    )
    return frame if plain else None


def shape_key(pod: bytes) -> Hashable:
    """What two pods share if and only if their decision-relevant bytes are the same.

    Another order of map entries makes another key for one shape: an entry more, the same answer.

    Raises:
        InvalidRequest: the bytes are no pod.
    """
    frame = request(frames_pb2.PodFrame, pod)
    meta, spec = frame.metadata, frame.spec
    return (
        meta.namespace,
        spec.scheduler_name,
        tuple(meta.labels),
        tuple(meta.owner_references),
        tuple(spec.node_selector),
        tuple(spec.affinity),
        tuple(spec.tolerations),
        tuple(spec.topology_spread_constraints),
    )


def pod_from_bytes(pod: bytes) -> Pod:
    """A pod out of the bytes of v1.Pod.

    Raises:
        InvalidRequest: the bytes are no pod.
    """
    return pod_from_proto(request(kubernetes_pb2.Pod, pod))
