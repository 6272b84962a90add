"""Pods as the order of deletion sees them, from the store or from a request.

Most of a namespace's pods are of other workloads, so each is read first as a message that declares
only what tells whether it is ranked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.codec.parsing import kept
from topospread.codec.pods import pod_from_proto
from topospread.codec.rows import ChangeDecoder
from topospread.generated.internal.v1 import stored_pb2
from topospread.kube.objects import DEFAULT_NAMESPACE, TERMINAL_PHASES
from topospread.spread.deletion import Candidate, deletion_cost
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topospread.kube.objects import Pod

ALWAYS: Final = "Always"
READY: Final = "Ready"
TRUE: Final = "True"


@dataclass(frozen=True, slots=True)
class EncodedPod:
    """A pod whose bytes were not looked into: a stored payload, or a v1.Pod of a request.

    Attributes:
        uid: empty when it stands in the payload.
    """

    payload: bytes
    uid: str = ""


@dataclass(frozen=True, slots=True)
class ListedPod:
    """What tells whether a pod is ranked.

    Attributes:
        active: neither terminating nor ended.
        family: see Candidate.
        constraints: what it asks of spreading, encoded; equal ones are equal.
    """

    namespace: str
    name: str
    labels: tuple[tuple[str, str], ...]
    active: bool
    node: str
    family: str
    constraints: tuple[bytes, ...]


class Listing:
    """Reads pods; equal label sets are read once.

    Args:
        families: what :func:`family_of` made of the ReplicaSets, by namespace and name.
    """

    def __init__(self, families: Mapping[tuple[str, str], str]) -> None:
        self._families = families
        self._labels = ChangeDecoder()

    def listed(self, encoded: EncodedPod) -> ListedPod:
        """What tells whether a pod is ranked.

        Raises:
            CorruptValue: the payload cannot be read.
        """
        pod = kept(stored_pb2.ListedPod, encoded.payload)
        meta = pod.metadata
        namespace = meta.namespace or DEFAULT_NAMESPACE
        ended = pod.status.phase in TERMINAL_PHASES
        return ListedPod(
            namespace=namespace,
            name=meta.name,
            labels=self._labels.labels(tuple(meta.labels)),
            active=not ended and not meta.HasField("deletion_timestamp"),
            node=pod.spec.node_name,
            family=self._family(namespace, meta.owner_references),
            constraints=tuple(pod.spec.topology_spread_constraints),
        )

    def _family(self, namespace: str, owners: Iterable[stored_pb2.StoredOwner]) -> str:
        for owner in owners:
            if owner.controller:
                known = None
                if owner.kind == "ReplicaSet":
                    known = self._families.get((namespace, owner.name))
                return known or _family(namespace, owner)
        return f"{namespace}/"


def family_of(payload: bytes) -> tuple[tuple[str, str], str]:
    """Namespace and name of a ReplicaSet, and the family of its pods: that of its own owner.

    Raises:
        CorruptValue: the payload cannot be read.
    """
    meta = kept(stored_pb2.StoredReplicaSet, payload).metadata
    namespace = meta.namespace or DEFAULT_NAMESPACE
    for owner in meta.owner_references:
        if owner.controller:
            return (namespace, meta.name), _family(namespace, owner)
    return (namespace, meta.name), ""


def candidate_of(encoded: EncodedPod, family: str) -> Candidate:
    """A pod with all that its place in the order rests on.

    Raises:
        CorruptValue: the payload cannot be read.
    """
    pod = kept(pb.Pod, encoded.payload)
    meta, status = pod.metadata, pod.status
    ready = next((c for c in status.conditions if c.type == READY), None)
    is_ready = ready is not None and ready.status == TRUE
    sidecars = {c.name for c in pod.spec.init_containers if c.restart_policy == ALWAYS}
    inits = (c for c in status.init_container_statuses if c.name in sidecars)
    return Candidate(
        namespace=meta.namespace or DEFAULT_NAMESPACE,
        name=meta.name,
        uid=encoded.uid or meta.uid,
        node=pod.spec.node_name,
        phase=status.phase,
        ready=is_ready,
        ready_since=_seconds(ready.last_transition_time) if ready and is_ready else None,
        deletion_cost=deletion_cost(meta.annotations),
        restarts=_most_restarts(status.container_statuses),
        sidecar_restarts=_most_restarts(inits),
        created=_seconds(meta.creation_timestamp),
        family=family,
    )


def pod_of(encoded: EncodedPod) -> Pod:
    """The pod as spreading sees it.

    Raises:
        CorruptValue: the payload cannot be read.
    """
    return pod_from_proto(kept(pb.Pod, encoded.payload))


def _family(namespace: str, owner: stored_pb2.StoredOwner) -> str:
    return f"{namespace}/{owner.kind}/{owner.uid or owner.name}"


def _seconds(time: pb.Time) -> int | None:
    """None for the zero time, which is an absent or an empty message."""
    return time.seconds or None


def _most_restarts(statuses: Iterable[pb.ContainerStatus]) -> int:
    return max((status.restart_count for status in statuses), default=0)
