"""Decodes stored objects into changes of the index; quick, because a start reads every object.

A pod's payload is read twice: as a message that declares only what counting looks at, and as the
frame that says which pods decisions cannot tell apart. Reservations are written here, too. A
payload that cannot be read raises CorruptValue, as does one of another kind or another node.
"""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from topospread.cache import BUDGETS, Cache
from topospread.codec.demands import lenient_requests
from topospread.codec.frames import shape_key
from topospread.codec.parsing import parse_stored
from topospread.codec.pods import WorkloadMessage, node_from_proto, workload_from_proto
from topospread.errors import CorruptValue
from topospread.generated.internal.v1 import frames_pb2, stored_pb2
from topospread.generated.internal.v1.stored_pb2 import StoredOwner, StoredReservation
from topospread.index.changes import (
    IndexChange,
    NodeChange,
    PodChange,
    PodRow,
    ReservationChange,
    ReservationRow,
    WorkloadChange,
)
from topospread.kube.objects import DO_NOT_SCHEDULE, HONOR, IGNORE, TERMINAL_PHASES, Node, Workload
from topospread.store.model import Key, Kind, StoredObject
from topospread.store.values import DIGEST_BYTES
from topospread_proto.kubernetes.v1 import kubernetes_pb2

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Sequence

    from topospread.kube.demands import Requests
    from topospread.kube.objects import OwnerReference, Pod
    from topospread.kube.selectors import Selector
    from topospread.spread.constraints import Constraint


class ReservationTemplate:
    """The common part of all reservations for pods of one shape, encoded once."""

    __slots__ = ("_constraints", "_relevant")

    def __init__(self, pod: Pod, requests: Requests, constraints: Sequence[Constraint]) -> None:
        digest_input = StoredReservation(
            labels=pod.labels,
            requests=dict(requests),
            owner=None if pod.owner is None else _owner(pod.owner),
        )
        judged_by = StoredReservation(constraints=map(_constraint, constraints))
        # Fields that stand one behind the other are one message, and these are in their order.
        self._relevant = digest_input.SerializeToString(deterministic=True)
        self._constraints = judged_by.SerializeToString(deterministic=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the encoded part."""
        return len(self._relevant) + len(self._constraints)

    def held(self, key: Key, uid: str, node: str, name: str = "") -> StoredObject:
        """The reservation of a node for one pod; the store adds when it is due.

        Args:
            key: where it is stored.
            uid: of the pod.
            node: its name.
            name: the reservation's own id, greater than that of any before it for the pod.
        """
        digest_input = StoredReservation(node=node).SerializeToString() + self._relevant
        # No decision depends on the constraints that it was judged by.
        digest = hashlib.blake2b(uid.encode() + b"\0" + digest_input, digest_size=DIGEST_BYTES)
        payload = digest_input + self._constraints
        return StoredObject(key, payload, digest.digest(), resource_version=name, uid=uid)


def reservation_key(namespace: str, name: str) -> Key:
    """The key of the reservation for a pod."""
    return Key(Kind.RESERVATION, namespace, name)


def reservation_row(stored: StoredObject) -> ReservationRow:
    """Read a stored reservation for counting."""
    message = parse_stored(StoredReservation, stored.payload)
    labels = tuple(sorted(message.labels.items()))
    requests = tuple(sorted(message.requests.items()))
    return ReservationRow(
        stored.uid, labels, message.node, stored.expires_at, requests, stored.resource_version
    )


def _owner(owner: OwnerReference) -> StoredOwner:
    return StoredOwner(
        api_version=owner.api_version,
        kind=owner.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
    )


def _constraint(constraint: Constraint) -> kubernetes_pb2.TopologySpreadConstraint:
    """A constraint with defaults filled in and matchLabelKeys merged, as it was judged."""
    honours_taints = constraint.eligibility.tolerations is not None
    return kubernetes_pb2.TopologySpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        when_unsatisfiable=DO_NOT_SCHEDULE,
        label_selector=selector_message(constraint.group.selector),
        min_domains=constraint.min_domains,
        node_taints_policy=HONOR if honours_taints else IGNORE,
    )


def selector_message(selector: Selector) -> kubernetes_pb2.LabelSelector | None:
    """Encode a selector; None for the one that matches nothing."""
    if selector.nothing:
        return None
    return kubernetes_pb2.LabelSelector(
        match_expressions=[
            kubernetes_pb2.LabelSelectorRequirement(
                key=each.key, operator=each.operator, values=each.values
            )
            for each in selector.requirements
        ]
    )


Labels = tuple[tuple[str, str], ...]

_LABELS: Final = 4096
_LABEL_BYTES: Final = 512
"""Labels that are remembered, and how long they are at most; a key and a value have 380 bytes."""

_WORKLOADS: Final[dict[Kind, type[WorkloadMessage]]] = {
    Kind.SERVICE: kubernetes_pb2.Service,
    Kind.REPLICATION_CONTROLLER: kubernetes_pb2.ReplicationController,
    Kind.REPLICA_SET: kubernetes_pb2.ReplicaSet,
    Kind.STATEFUL_SET: kubernetes_pb2.StatefulSet,
}


class ChangeDecoder:
    """Reads stored objects as changes of the index; what pods have in common is read once.

    Stored maps are sorted, so the pods of one template have the same encoded labels, and share one
    tuple here; pods with a label of their own share the strings of the others. Not thread-safe: one
    decoder a thread.
    """

    def __init__(self) -> None:
        self._shapes: Cache[bytes, Labels] = Cache(BUDGETS["rows"])
        self._label = lru_cache(_LABELS)(_read_label)
        self._requests: Cache[Hashable, tuple[Requests, bytes]] = Cache(BUDGETS["rows"])

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
        kind = _workload(key.kind).DESCRIPTOR.name
        workload = None if stored is None else decode_workload(key.kind, stored.payload)
        return WorkloadChange(kind, key.namespace, key.name, workload)

    def pod(self, payload: bytes) -> PodRow:
        """One pod."""
        pod = parse_stored(stored_pb2.CountedPod, payload)
        shape, labels = self._shape(payload)
        node = pod.spec.node_name
        ended = pod.status.phase in TERMINAL_PHASES
        remains = not ended and not pod.metadata.HasField("deletion_timestamp")
        requests, encoded = self._requests_of(pod.spec)
        return PodRow(
            labels,
            node,
            counted=bool(node) and remains,
            requests=requests if node and not ended else None,
            template=shape + encoded if remains else None,
        )

    def _shape(self, payload: bytes) -> tuple[bytes, Labels]:
        frame = parse_stored(frames_pb2.PodFrame, payload)
        shape = shape_key(frame)
        labels = self._shapes.get(shape)
        if labels is None:
            labels = self.labels(frame.metadata.labels)
            self._shapes.put(shape, labels, 300 + 2 * len(shape))
        return shape, labels

    def _requests_of(self, spec: stored_pb2.CountedPodSpec) -> tuple[Requests, bytes]:
        """What a pod requests, and that as the bytes of a v1.Pod that has nothing else.

        Whether gates hold it is in the bytes, too, but not which: they come and go one by one.
        """
        held = bool(spec.scheduling_gates) and not spec.node_name
        encoded = (
            tuple(spec.containers),
            tuple(spec.init_containers),
            tuple(spec.overhead),
            spec.resources,
            held,
        )
        known = self._requests.get(encoded)
        if known is None:
            only = stored_pb2.CountedPod()
            for name in ("containers", "init_containers", "overhead"):
                getattr(only.spec, name).extend(getattr(spec, name))
            if spec.HasField("resources"):
                only.spec.resources = spec.resources
            if held:
                only.spec.scheduling_gates.append(b"")
            whole = parse_stored(kubernetes_pb2.PodSpec, only.spec.SerializeToString())
            known = lenient_requests(whole), only.SerializeToString()
            read_from = sum([40 + len(part) for part in (*encoded[0], *encoded[1], *encoded[2])])
            self._requests.put(encoded, known, 600 + 3 * (read_from + len(encoded[3])))
        return known

    def labels(self, encoded: Iterable[bytes]) -> Labels:
        """A label set, sorted by key."""
        read = [self._label(e) if len(e) <= _LABEL_BYTES else _read_label(e) for e in encoded]
        # By way of a dict: of two labels with one key, protobuf takes the last.
        return tuple(sorted(dict(read).items()))


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
    """One Service, ReplicationController, ReplicaSet or StatefulSet."""
    return workload_from_proto(parse_stored(_workload(kind), payload))


def _workload(kind: Kind) -> type[WorkloadMessage]:
    if kind not in _WORKLOADS:
        raise CorruptValue(f"{kind.name} is no workload")
    return _WORKLOADS[kind]
