"""Kubernetes JSON to the server's values, the way that the client and the codec make them."""

from typing import Any

from topospread.codec.pods import node_from_proto, pod_from_proto, workload_from_proto
from topospread.kube.objects import LabelSelector, Node, Pod, Workload
from topospread_client import object_from_manifest, pod_from_manifest

Json = dict[str, Any]


def pod(manifest: Json) -> Pod:
    return pod_from_proto(pod_from_manifest(manifest))


def node(manifest: Json) -> Node:
    message = object_from_manifest(manifest)
    assert message is not None
    return node_from_proto(message.node)


def workload(manifest: Json) -> Workload:
    message = object_from_manifest(manifest)
    assert message is not None
    return workload_from_proto(getattr(message, message.WhichOneof("content") or ""))


def selector(manifest: Json | None) -> LabelSelector | None:
    spec = {"topologySpreadConstraints": [{"labelSelector": manifest}]}
    return pod({"spec": spec}).constraints[0].label_selector
