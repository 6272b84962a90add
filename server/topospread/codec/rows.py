"""Decodes stored objects into changes of the index; quick, because a start reads every object.

A pod's payload is read twice: as a message that declares only what counting looks at, and as the
frame that says which pods decisions cannot tell apart. A payload that cannot be read raises
CorruptValue, as does one of another kind or another node.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.cache import BUDGETS, Cache
from topospread.codec.demands import lenient_demand, running_requests
from topospread.codec.frames import shape_key
from topospread.codec.objects import OBJECTS, ObjectReader
from topospread.codec.parsing import parse_stored
from topospread.codec.pod_parts import MAX_INDEXED_PARTS, pod_volumes, too_much
from topospread.codec.pods import WorkloadMessage, node_from_proto, workload_from_proto
from topospread.codec.reservations import reservation_row
from topospread.errors import CorruptValue
from topospread.generated.internal.v1 import frames_pb2, stored_pb2
from topospread.index.changes import (
    IndexChange,
    NodeChange,
    ObjectChange,
    PodChange,
    PodRow,
    ReservationChange,
    WorkloadChange,
)
from topospread.kube.demands import Disk, Holds, claim_name, holds_of
from topospread.kube.objects import DEFAULT_NAMESPACE, TERMINAL_PHASES, Node, Workload
from topospread.store.model import Key, Kind, StoredObject
from topospread_proto.kubernetes.v1 import kubernetes_pb2

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from google.protobuf.message import Message

    from topospread.kube.demands import Requests


Labels = tuple[tuple[str, str], ...]

_LABELS: Final = 4096
_LABEL_BYTES: Final = 512
"""Labels that are remembered, and how long they are at most; a key and a value have 380 bytes."""

_SMALL: Final = 2 * MAX_INDEXED_PARTS
"""Bytes of a pod that cannot have so many: each takes two at least."""

_WORKLOADS: Final[dict[Kind, type[WorkloadMessage]]] = {
    Kind.SERVICE: kubernetes_pb2.Service,
    Kind.REPLICATION_CONTROLLER: kubernetes_pb2.ReplicationController,
    Kind.REPLICA_SET: kubernetes_pb2.ReplicaSet,
    Kind.STATEFUL_SET: kubernetes_pb2.StatefulSet,
    Kind.JOB: kubernetes_pb2.Job,
}


class _Taken(NamedTuple):
    """What the pods of a template take of their nodes, but for their volumes.

    Attributes:
        encoded: the bytes of a v1.Pod that has nothing else.
        holds: beside amounts; None for nothing.
    """

    requests: Requests
    encoded: bytes
    holds: Holds | None


class ChangeDecoder:
    """Reads stored objects as changes of the index; what pods have in common is read once.

    Stored maps are sorted, so the pods of one template have the same encoded labels, and share one
    tuple here; pods with a label of their own share the strings of the others. Not thread-safe: one
    decoder a thread.
    """

    def __init__(self) -> None:
        self._shapes: Cache[bytes, Labels] = Cache(BUDGETS["rows"])
        self._label = lru_cache(_LABELS)(_read_label)
        self._templates: Cache[Hashable, _Taken] = Cache(BUDGETS["rows"])
        self._objects = ObjectReader()

    def change(self, key: Key, stored: StoredObject | None) -> IndexChange:
        """A write or, with None, a deletion."""
        if key.kind is Kind.POD:
            row = None if stored is None else self.pod(stored.payload)
            return PodChange(key.namespace, key.name, row)
        if key.kind is Kind.RESERVATION:
            held = None if stored is None else reservation_row(stored)
            return ReservationChange(key.namespace, key.name, held)
        if key.kind is Kind.NODE:
            node = None if stored is None else decode_node(stored.payload)
            if node is not None and node.name != key.name:
                raise CorruptValue(f"the payload is that of the node {node.name!r:.80}")
            return NodeChange(key.name, node)
        if key.kind in OBJECTS:
            value = None if stored is None else self._objects.read(key.kind, stored)
            return ObjectChange(OBJECTS[key.kind].DESCRIPTOR.name, key.namespace, key.name, value)
        kind = _workload(key.kind).DESCRIPTOR.name
        workload = None if stored is None else decode_workload(key.kind, stored.payload)
        return WorkloadChange(kind, key.namespace, key.name, workload)

    def pod(self, payload: bytes) -> PodRow:
        """One pod.

        Raises:
            CorruptValue: the payload cannot be read, or has more than the index keeps.
        """
        if len(payload) > _SMALL and (
            reason := too_much(parse_stored(kubernetes_pb2.Pod, payload))
        ):
            raise CorruptValue(reason)
        pod = parse_stored(stored_pb2.CountedPod, payload)
        shape, labels = self._shape(payload)
        spec, status = pod.spec, pod.status
        node = spec.node_name
        ended = status.phase in TERMINAL_PHASES
        remains = not ended and not pod.metadata.HasField("deletion_timestamp")
        taken = self._taken(pod, payload)
        requests, holds = taken.requests, taken.holds
        encoded = taken.encoded
        if spec.volumes:
            volumes = _read_volumes(pod)
            encoded += volumes.encoded
            holds = _with_volumes(holds, volumes)
        if is_resized(status):
            requests = running_requests(parse_stored(kubernetes_pb2.Pod, payload))
        takes = bool(node) and not ended
        nominated = None
        if status.nominated_node_name and not node and not ended:
            nominated = PodRow(
                labels, status.nominated_node_name, counted=True, requests=requests, holds=holds
            )
        return PodRow(
            labels,
            node,
            counted=bool(node) and remains,
            requests=requests if takes else None,
            template=shape + encoded if remains else None,
            holds=holds if takes else None,
            nominated=nominated,
        )

    def _shape(self, payload: bytes) -> tuple[bytes, Labels]:
        frame = parse_stored(frames_pb2.PodFrame, payload)
        shape = shape_key(frame)
        labels = self._shapes.get(shape)
        if labels is None:
            labels = self.labels(frame.metadata.labels)
            self._shapes.put(shape, labels, 300 + 2 * len(shape))
        return shape, labels

    def _taken(self, pod: stored_pb2.CountedPod, payload: bytes) -> _Taken:
        """What a pod takes of its node by its spec, but for its volumes."""
        spec = pod.spec
        held = not spec.node_name and bool(spec.scheduling_gates)
        key = (
            tuple(spec.containers),
            # To look whether there are any costs a quarter of a tuple of none.
            tuple(spec.init_containers) if spec.init_containers else (),
            tuple(spec.overhead) if spec.overhead else (),
            tuple(spec.resource_claims) if spec.resource_claims else (),
            spec.resources,
            spec.affinity,
            # Terms are about the pod's namespace.
            pod.metadata.namespace if spec.affinity else "",
            spec.priority,
            spec.preemption_policy,
            held,
        )
        taken = self._templates.get(key)
        if taken is None:
            encoded = _encoded(
                containers=spec.containers,
                init_containers=spec.init_containers,
                overhead=spec.overhead,
                resource_claims=spec.resource_claims,
                resources=spec.resources if spec.HasField("resources") else None,
                priority=spec.priority or None,
                preemption_policy=spec.preemption_policy or None,
                # Whether gates hold it, and not which: they come and go one by one.
                scheduling_gates=[b""] if held else (),
            )
            whole = parse_stored(kubernetes_pb2.Pod, payload)
            del whole.spec.volumes[:]
            demand = lenient_demand(whole)
            taken = _Taken(demand.requests, encoded, holds_of(demand, "", ""))
            if _has_label_keys(whole.spec.affinity):
                return taken  # each has terms of its own
            read_from = sum([40 + len(part) for parts in key[:4] for part in parts])
            size = 800 + 3 * (read_from + len(spec.resources) + len(spec.affinity)) + demand.nbytes
            self._templates.put(key, taken, size)
        return taken

    def labels(self, encoded: Iterable[bytes]) -> Labels:
        """A label set, sorted by key."""
        read = [self._label(e) if len(e) <= _LABEL_BYTES else _read_label(e) for e in encoded]
        # By way of a dict: of two labels with one key, protobuf takes the last.
        return tuple(sorted(dict(read).items()))


def _encoded(**fields: object) -> bytes:
    """Bytes of a v1.Pod with some fields of its spec, those without a value left out."""
    spec = stored_pb2.CountedPodSpec(**fields)  # type: ignore[arg-type] # as its own fields are
    return stored_pb2.CountedPod(spec=spec).SerializeToString() if spec.ByteSize() else b""


class _Volumes(NamedTuple):
    """The volumes of a pod: disks, keys of claims, and all as they are part of its class."""

    disks: list[Disk]
    claims: list[str]
    encoded: bytes


def _read_volumes(pod: stored_pb2.CountedPod) -> _Volumes:
    """Read the volumes of a pod.

    A claim that only this pod has, as each pod of a StatefulSet does, has no name in its class: it
    ends as the pod's name does. So there is not a class for each pod.
    """
    name, namespace = pod.metadata.name, pod.metadata.namespace or DEFAULT_NAMESPACE
    own = name.rpartition("-")[2]
    disks: list[Disk] = []
    claims: list[str] = []
    of_class: list[bytes] = []
    for encoded in pod.spec.volumes:
        volume = parse_stored(kubernetes_pb2.Volume, encoded)
        source = volume.volume_source
        if source.HasField("persistent_volume_claim"):
            claim = source.persistent_volume_claim.claim_name
            if claim:
                claims.append(f"{namespace}/{claim}")
            of_class.append(_OWN_CLAIM if own and claim.endswith(own) else encoded)
            continue
        of_class.append(encoded)
        for each in pod_volumes((volume,)):
            if each.disk is not None:
                disks.append(each.disk)
            elif each.ephemeral:
                claims.append(f"{namespace}/{claim_name(each, name)}")
    return _Volumes(disks, claims, _encoded(volumes=of_class))


_OWN_CLAIM: Final = kubernetes_pb2.Volume(
    volume_source=kubernetes_pb2.VolumeSource(
        persistent_volume_claim=kubernetes_pb2.PersistentVolumeClaimVolumeSource()
    )
).SerializeToString()


def _with_volumes(holds: Holds | None, volumes: _Volumes) -> Holds | None:
    """What a pod holds with its volumes, of which each pod may have its own."""
    disks, claims = tuple(dict.fromkeys(volumes.disks)), tuple(dict.fromkeys(volumes.claims))
    if not disks and not claims:
        return holds
    if holds is None:
        return Holds(disks=disks, claims=claims)
    return Holds(holds.ports, disks, claims, holds.terms, holds.priority)


def is_resized(status: stored_pb2.CountedPodStatus) -> bool:
    """Whether a pod or a container of it may take something else than its spec says."""
    if status.allocated_resources or status.HasField("resources"):
        return True
    if not (status.container_statuses or status.init_container_statuses):
        return False
    return any(
        each.allocated_resources or each.HasField("resources")
        for statuses in (status.container_statuses, status.init_container_statuses)
        for each in statuses
    )


def _has_label_keys(affinity: kubernetes_pb2.Affinity) -> bool:
    return any(
        term.match_label_keys or term.mismatch_label_keys
        for term in affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    )


def kind_name(kind: Kind) -> str:
    """A kind as Kubernetes writes it."""
    message: type[Message] | None = OBJECTS.get(kind) or _WORKLOADS.get(kind)
    return kind.name.capitalize() if message is None else message.DESCRIPTOR.name


def _read_label(encoded: bytes) -> tuple[str, str]:
    label = parse_stored(stored_pb2.CountedLabel, encoded)
    return label.key, label.value


def decode_pod(payload: bytes) -> PodRow:
    """One pod; :class:`ChangeDecoder` is quicker for many."""
    return ChangeDecoder().pod(payload)


def decode_node(payload: bytes) -> Node:
    """One node."""
    return node_from_proto(parse_stored(kubernetes_pb2.Node, payload))


def decode_workload(kind: Kind, payload: bytes) -> Workload:
    """One Service, ReplicationController, ReplicaSet, StatefulSet or Job."""
    return workload_from_proto(parse_stored(_workload(kind), payload))


def _workload(kind: Kind) -> type[WorkloadMessage]:
    if kind not in _WORKLOADS:
        raise CorruptValue(f"{kind.name} is no workload")
    return _WORKLOADS[kind]
