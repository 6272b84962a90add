"""What decides whether and in which order a pod of the state may be evicted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread.codec.demands import known_demand
from topospread.codec.parsing import kept
from topospread.generated.internal.v1 import stored_pb2
from topospread.spread.deletion import deletion_cost
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

if TYPE_CHECKING:
    from topospread.kube.demands import Demand


@dataclass(frozen=True, slots=True)
class BoundPod:
    """A pod as far as it must be known to be counted.

    Attributes:
        node: that it is bound to; empty while it waits.
        counted: bound, neither terminating nor ended.
    """

    node: str
    counted: bool


@dataclass(frozen=True, slots=True)
class EvictionFacts:
    """What else an eviction rests on.

    Attributes:
        owner: kind of its controller; empty when it has none.
        claims: whether it mounts a persistent volume claim.
        created: seconds since 1970; 0 when unknown.
    """

    owner: str
    priority: int
    deletion_cost: int
    claims: bool
    created: int
    demand: Demand


def bound_pod(payload: bytes, terminal: frozenset[str]) -> BoundPod:
    """Where a stored pod is.

    Raises:
        CorruptValue: the payload cannot be read.
    """
    pod = kept(stored_pb2.ListedPod, payload)
    node = pod.spec.node_name
    ended = pod.status.phase in terminal
    return BoundPod(
        node, bool(node) and not ended and not pod.metadata.HasField("deletion_timestamp")
    )


def eviction_facts(payload: bytes) -> EvictionFacts:
    """What an eviction of a stored pod rests on.

    Raises:
        CorruptValue: the payload cannot be read.
    """
    pod = kept(pb.Pod, payload)
    owner = next((each.kind for each in pod.metadata.owner_references if each.controller), "")
    volumes = pod.spec.volumes
    return EvictionFacts(
        owner=owner,
        priority=pod.spec.priority,
        deletion_cost=deletion_cost(pod.metadata.annotations),
        claims=any(v.volume_source.HasField("persistent_volume_claim") for v in volumes),
        created=pod.metadata.creation_timestamp.seconds,
        demand=known_demand(pod.spec),
    )
