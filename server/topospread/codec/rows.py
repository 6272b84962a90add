"""Decodes stored objects into changes of the index; quick, because a start reads every object.

A pod's payload is read as a message that declares only what counting looks at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.bounded import Bounded, Budget
from topospread.codec.demands import lenient_requests
from topospread.codec.parsing import parse_stored
from topospread.codec.pods import WorkloadMessage, node_from_proto, workload_from_proto
from topospread.codec.reservations import reservation_row
from topospread.errors import CorruptValue
from topospread.generated.internal.v1 import stored_pb2
from topospread.index.changes import (
    IndexChange,
    NodeChange,
    PodChange,
    PodRow,
    ReservationChange,
    WorkloadChange,
)
from topospread.kube.objects import TERMINAL_PHASES, Node, Workload
from topospread.kube.workloads import (
    REPLICA_SET,
    REPLICATION_CONTROLLER,
    SERVICE,
    STATEFUL_SET,
)
from topospread.store.model import Key, Kind, StoredObject
from topospread_proto.kubernetes.v1 import kubernetes_pb2

if TYPE_CHECKING:
    from collections.abc import Hashable

    from topospread.kube.demands import Requests

Labels = tuple[tuple[str, str], ...]

_WORKLOADS: Final[dict[Kind, tuple[str, type[WorkloadMessage]]]] = {
    Kind.SERVICE: (SERVICE, kubernetes_pb2.Service),
    Kind.REPLICATION_CONTROLLER: (REPLICATION_CONTROLLER, kubernetes_pb2.ReplicationController),
    Kind.REPLICA_SET: (REPLICA_SET, kubernetes_pb2.ReplicaSet),
    Kind.STATEFUL_SET: (STATEFUL_SET, kubernetes_pb2.StatefulSet),
}


class ChangeDecoder:
    """Reads stored objects as changes of the index; equal label sets of pods are read once.

    Stored maps are sorted, so the pods of one template have the same encoded labels, and share one
    tuple here. Not thread-safe: one decoder a thread.
    """

    def __init__(self, budget: Budget | None = None) -> None:
        budget = budget or Budget.usual("rows")
        self._label_sets: Bounded[tuple[bytes, ...], Labels] = Bounded(budget)
        self._requests: Bounded[Hashable, Requests] = Bounded(budget)

    def change(self, key: Key, stored: StoredObject | None) -> IndexChange:
        """A write or, with None, a deletion.

        Raises:
            CorruptValue: the payload cannot be read or is another node's, or the kind is none of
                the cluster's objects.
        """
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
        kind, _ = _workload(key.kind)
        workload = None if stored is None else decode_workload(key.kind, stored.payload)
        return WorkloadChange(kind, key.namespace, key.name, workload)

    def pod(self, payload: bytes) -> PodRow:
        """One pod.

        Raises:
            CorruptValue: the payload cannot be read.
        """
        pod = parse_stored(stored_pb2.CountedPod, payload)
        meta = pod.metadata
        labels = self.labels(tuple(meta.labels))
        node = pod.spec.node_name
        if not node or pod.status.phase in TERMINAL_PHASES:
            return PodRow(labels, node, counted=False)
        counted = not meta.HasField("deletion_timestamp")
        return PodRow(labels, node, counted, self._requests_of(pod.spec))

    def _requests_of(self, spec: stored_pb2.CountedPodSpec) -> Requests:
        encoded = (
            tuple(spec.containers),
            tuple(spec.init_containers),
            tuple(spec.overhead),
            spec.resources,
        )
        requests = self._requests.get(encoded)
        if requests is None:
            whole = parse_stored(kubernetes_pb2.PodSpec, spec.SerializeToString())
            requests = lenient_requests(whole)
            read_from = sum([40 + len(part) for part in (*encoded[0], *encoded[1], *encoded[2])])
            self._requests.put(encoded, requests, 500 + 2 * (read_from + len(encoded[3])))
        return requests

    def labels(self, encoded: tuple[bytes, ...]) -> Labels:
        """A label set, sorted by key.

        Args:
            encoded: its labels, each as the bytes of a message.

        Raises:
            CorruptValue: the bytes are no labels.
        """
        labels = self._label_sets.get(encoded)
        return self._read(encoded) if labels is None else labels

    def _read(self, encoded: tuple[bytes, ...]) -> Labels:
        labels = [parse_stored(stored_pb2.CountedLabel, label) for label in encoded]
        # By way of a dict: of two labels with one key, protobuf takes the last.
        pairs = tuple(sorted({label.key: label.value for label in labels}.items()))
        size = 300 + sum([220 + 2 * len(label) for label in encoded])
        self._label_sets.put(encoded, pairs, size)
        return pairs


def decode_pod(payload: bytes) -> PodRow:
    """One pod; :class:`ChangeDecoder` is quicker for many.

    Raises:
        CorruptValue: the payload cannot be read.
    """
    return ChangeDecoder().pod(payload)


def decode_node(payload: bytes) -> Node:
    """One node.

    Raises:
        CorruptValue: the payload cannot be read.
    """
    return node_from_proto(parse_stored(kubernetes_pb2.Node, payload))


def decode_workload(kind: Kind, payload: bytes) -> Workload:
    """One Service, ReplicationController, ReplicaSet or StatefulSet.

    Raises:
        CorruptValue: the payload cannot be read, or the kind is none of these.
    """
    _, message = _workload(kind)
    return workload_from_proto(parse_stored(message, payload))


def _workload(kind: Kind) -> tuple[str, type[WorkloadMessage]]:
    if kind not in _WORKLOADS:
        raise CorruptValue(f"{kind.name} is no workload")
    return _WORKLOADS[kind]
