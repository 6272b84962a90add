"""Stored pods for ranking, rebalancing and draining: only the fields that each of these needs.

Most of a namespace's pods are of other workloads, so for ranking each is read first as a message
that declares only the fields by which pods are selected. A payload that cannot be read raises
CorruptValue.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.codec.demands import lenient_demand, running_requests
from topospread.codec.owners import controller_reference, controlling
from topospread.codec.parsing import parse_stored
from topospread.codec.pods import pod_from_proto
from topospread.codec.rows import ChangeDecoder, is_resized
from topospread.codec.stored import object_from_stored
from topospread.codec.tidying import POD_SCHEDULED, READY
from topospread.generated.internal.v1 import stored_pb2
from topospread.kube.objects import DEFAULT_NAMESPACE, TERMINAL_PHASES, OwnerReference
from topospread.spread.deletion import DeletionCandidate, deletion_cost
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from topospread.kube.demands import Demand, Requests
    from topospread.kube.objects import Pod
    from topospread.store.model import StoredObject


ALWAYS: Final = "Always"
TRUE: Final = "True"
COMPLETION_INDEX: Final = "batch.kubernetes.io/job-completion-index"
"""A label and annotation of an indexed Job's pods."""

FALSE: Final = "False"

NOT_RESCHEDULED_KINDS: Final = frozenset({"DaemonSet", "Node"})
"""Controllers whose pods are not recreated elsewhere: a DaemonSet's, and static pods' mirrors."""


class UnscheduledCondition(NamedTuple):
    """The condition PodScheduled of a pod that waits.

    Attributes:
        reason: ``Unschedulable``, ``SchedulingGated`` or another.
        message: the scheduler's.
        since: seconds since 1970; 0 where it is not known.
    """

    reason: str
    message: str
    since: int


def unscheduled_condition(encoded: bytes) -> UnscheduledCondition | None:
    """What the scheduler said of a v1.Pod that it did not bind; None where it said nothing."""
    pod = parse_stored(pb.Pod, encoded)
    for each in pod.status.conditions:
        if each.type == POD_SCHEDULED and each.status == FALSE and not pod.spec.node_name:
            since = each.last_transition_time.seconds
            return UnscheduledCondition(each.reason, each.message, since)
    return None


class EncodedPod(NamedTuple):
    """An unparsed pod: a stored payload, or a v1.Pod of a request.

    Attributes:
        uid: empty when it stands in the payload.
    """

    payload: bytes
    uid: str = ""


class ListedPod(NamedTuple):
    """The fields by which pods are selected for ranking.

    Attributes:
        message: with the fields by which they are ranked, see :func:`deletion_candidate`.
        active: neither terminating nor ended.
        owner_key: see DeletionCandidate.
        constraints: its spread constraints, encoded; equal bytes are equal constraints.
    """

    message: stored_pb2.ListedPod
    namespace: str
    labels: tuple[tuple[str, str], ...]
    active: bool
    node: str
    owner_key: str
    constraints: tuple[bytes, ...]


class StoredPodReader:
    """Reads pods; equal label sets are read once.

    Args:
        owner_keys: results of :func:`owner_key_of` for the ReplicaSets, by namespace and name.
    """

    def __init__(self, owner_keys: Mapping[tuple[str, str], str]) -> None:
        self._owner_keys = owner_keys
        self._labels = ChangeDecoder()

    def listed(self, encoded: EncodedPod) -> ListedPod:
        """Read the fields by which a pod is selected."""
        pod = parse_stored(stored_pb2.ListedPod, encoded.payload)
        meta = pod.metadata
        namespace = meta.namespace or DEFAULT_NAMESPACE
        ended = pod.status.phase in TERMINAL_PHASES
        return ListedPod(
            message=pod,
            namespace=namespace,
            labels=self._labels.labels(tuple(meta.labels)),
            active=not ended and not meta.HasField("deletion_timestamp"),
            node=pod.spec.node_name,
            owner_key=self._owner_key(namespace, meta.owner_references),
            constraints=tuple(pod.spec.topology_spread_constraints),
        )

    def owner_key_of_class(self, namespace: str, template: bytes) -> str:
        """The owner key of the pods of a class."""
        meta = parse_stored(stored_pb2.ListedPod, template).metadata
        return self._owner_key(namespace, meta.owner_references)

    def _owner_key(self, namespace: str, owners: Iterable[stored_pb2.StoredOwner]) -> str:
        for owner in owners:
            if owner.controller:
                known = None
                if owner.kind == "ReplicaSet":
                    known = self._owner_keys.get((namespace, owner.name))
                return known or _owner_key(namespace, owner)
        return f"{namespace}/"


def owner_key_of(payload: bytes) -> tuple[tuple[str, str], str]:
    """Namespace and name of a ReplicaSet, and the owner key of its pods: that of its own owner."""
    meta = parse_stored(stored_pb2.StoredReplicaSet, payload).metadata
    namespace = meta.namespace or DEFAULT_NAMESPACE
    owner = controlling(meta.owner_references)
    return (namespace, meta.name), "" if owner is None else _owner_key(namespace, owner)


def controller_of(payload: bytes) -> tuple[str, str, OwnerReference | None]:
    """Namespace and name of a ReplicaSet, and its own controller; None without one."""
    meta = parse_stored(stored_pb2.StoredReplicaSet, payload).metadata
    namespace = meta.namespace or DEFAULT_NAMESPACE
    return namespace, meta.name, controller_reference(meta.owner_references)


def deletion_candidate(listed: ListedPod, uid: str) -> DeletionCandidate:
    """A pod with the fields that decide about its place in the order of deletion.

    Args:
        listed: the pod.
        uid: empty when it stands in the pod.
    """
    pod = listed.message
    meta, status = pod.metadata, pod.status
    ready = next((c for c in status.conditions if c.type == READY), None)
    is_ready = ready is not None and ready.status == TRUE
    sidecars = {c.name for c in pod.spec.init_containers if c.restart_policy == ALWAYS}
    inits = (c for c in status.init_container_statuses if c.name in sidecars)
    return DeletionCandidate(
        namespace=listed.namespace,
        name=meta.name,
        uid=uid or meta.uid,
        node=listed.node,
        phase=status.phase,
        ready=is_ready,
        ready_since=_seconds(ready.last_transition_time) if ready and is_ready else None,
        deletion_cost=deletion_cost(meta.annotations),
        restarts=_most_restarts(status.container_statuses),
        sidecar_restarts=_most_restarts(inits),
        created=_seconds(meta.creation_timestamp),
        owner_key=listed.owner_key,
        completion_index=_index(listed),
    )


def _index(listed: ListedPod) -> int | None:
    annotations = listed.message.metadata.annotations
    text = dict(listed.labels).get(COMPLETION_INDEX) or annotations.get(COMPLETION_INDEX, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None


def pod_of(encoded: EncodedPod) -> Pod:
    """Parse the fields of a pod that spreading looks at."""
    return pod_from_proto(parse_stored(pb.Pod, encoded.payload))


def _owner_key(namespace: str, owner: stored_pb2.StoredOwner) -> str:
    return f"{namespace}/{owner.kind}/{owner.uid or owner.name}"


def _seconds(time: stored_pb2.StoredTime) -> int | None:
    """Seconds since 1970; None for the zero time, which is an absent or an empty message."""
    return time.seconds or None


def _most_restarts(statuses: Iterable[stored_pb2.StoredContainerStatus]) -> int:
    return max((status.restart_count for status in statuses), default=0)


@dataclass(frozen=True, slots=True)
class BoundPod:
    """The fields of a pod that decide whether it is counted.

    Attributes:
        node: that it is bound to; empty while it waits.
        counted: bound, neither terminating nor ended.
    """

    node: str
    counted: bool
    pending: bool


class EvictionFacts(NamedTuple):
    """The other fields that an eviction depends on.

    Attributes:
        owner: kind of its controller; empty when it has none.
        claims: whether it mounts a persistent volume claim.
        created: seconds since 1970; 0 when unknown.
        demand: of its node, once it is recreated.
        takes: of its node while it runs.
    """

    owner: str
    priority: int
    deletion_cost: int
    claims: bool
    created: int
    demand: Demand
    takes: Requests


def bound_pod(payload: bytes, terminal: frozenset[str]) -> BoundPod:
    """Read where a stored pod is bound."""
    pod = parse_stored(stored_pb2.ListedPod, payload)
    node = pod.spec.node_name
    ends = pod.status.phase in terminal or pod.metadata.HasField("deletion_timestamp")
    return BoundPod(node, counted=bool(node) and not ends, pending=not node and not ends)


class EvictionReader:
    """Reads what evictions of pods depend on; equal demands are read once."""

    def __init__(self) -> None:
        self._demands: dict[object, Demand] = {}

    def facts(self, payload: bytes) -> EvictionFacts:
        """Read what the eviction of a stored pod depends on.

        Raises:
            CorruptValue: the payload cannot be read.
        """
        pod = parse_stored(stored_pb2.EvictedPod, payload)
        meta, spec = pod.metadata, pod.spec
        demand = self._demand(pod, payload)
        takes = demand.requests
        if is_resized(pod.status):
            takes = running_requests(parse_stored(pb.Pod, payload))
        owner = controlling(meta.owner_references)
        return EvictionFacts(
            owner="" if owner is None else owner.kind,
            priority=spec.priority,
            deletion_cost=deletion_cost(meta.annotations),
            claims=any(each.claim for each in demand.volumes),
            created=meta.creation_timestamp.seconds,
            demand=demand,
            takes=takes,
        )

    def _demand(self, pod: stored_pb2.EvictedPod, payload: bytes) -> Demand:
        meta, spec = pod.metadata, pod.spec
        key = (
            tuple(spec.volumes),
            tuple(spec.containers),
            spec.affinity,
            tuple(spec.init_containers),
            tuple(spec.overhead),
            tuple(spec.scheduling_gates),
            tuple(spec.resource_claims),
            spec.resources,
            spec.priority,
            spec.preemption_policy,
            # Terms are about the pod's namespace, and may have its labels in them.
            (meta.namespace, tuple(meta.labels)) if spec.affinity else (),
        )
        demand = self._demands.get(key)
        if demand is None:
            whole = parse_stored(pb.Pod, payload)
            whole.ClearField("status")  # the claims that were made for this one
            demand = self._demands[key] = replace(lenient_demand(whole), node_name="")
        return demand


def recreated_pod(stored: StoredObject, drained: Collection[str]) -> bytes | None:
    """The v1.Pod that would replace a stored pod, without its node and status.

    None for one that is on no drained node, has ended or is about to, or belongs to its node.
    """
    listed = parse_stored(stored_pb2.ListedPod, stored.payload)
    meta = listed.metadata
    if listed.spec.node_name not in drained or meta.HasField("deletion_timestamp"):
        return None
    owners = {owner.kind for owner in meta.owner_references if owner.controller}
    if listed.status.phase in TERMINAL_PHASES or owners & NOT_RESCHEDULED_KINDS:
        return None
    pod = object_from_stored(stored).pod
    pod.spec.node_name = ""
    pod.ClearField("status")
    return pod.SerializeToString()
