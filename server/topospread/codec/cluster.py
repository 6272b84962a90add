"""Messages of nodes and workloads to nodes and workloads."""

from __future__ import annotations

from topospread.codec.demands import known_amounts
from topospread.codec.pods import selector_from_proto
from topospread.kube.demands import in_units
from topospread.kube.objects import DEFAULT_NAMESPACE, Node, Taint, Workload
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

WorkloadMessage = pb.Service | pb.ReplicationController | pb.ReplicaSet | pb.StatefulSet


def node_from_proto(node: pb.Node) -> Node:
    """A node as spreading sees it."""
    return Node(
        name=node.metadata.name,
        labels=dict(node.metadata.labels),
        taints=tuple(Taint(t.key, t.value, t.effect) for t in node.spec.taints),
        unschedulable=node.spec.unschedulable,
        allocatable=tuple(sorted(in_units(known_amounts(node.status.allocatable)).items())),
    )


def workload_from_proto(workload: WorkloadMessage) -> Workload:
    """A Service, ReplicationController, ReplicaSet or StatefulSet; its kind is the message's."""
    selector = None
    pairs: tuple[tuple[str, str], ...] = ()
    if isinstance(workload, pb.Service | pb.ReplicationController):
        pairs = tuple(sorted(workload.spec.selector.items()))
    elif workload.spec.HasField("selector"):
        selector = selector_from_proto(workload.spec.selector)
    return Workload(
        kind=workload.DESCRIPTOR.name,
        namespace=workload.metadata.namespace or DEFAULT_NAMESPACE,
        name=workload.metadata.name,
        selector=selector,
        match_labels=pairs,
    )
