"""What cluster-autoscaler asks, made of what a real one sent."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from topospread.generated.cluster_autoscaler import expander_pb2 as pb
from topospread_client import object_from_manifest, pod_from_manifest

if TYPE_CHECKING:
    import grpc

    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

SAMPLE = Path(__file__).parents[1] / "samples" / "expander-request-real-ca.bin"
METHOD = "/grpcplugin.Expander/BestOptions"
HOST = "kubernetes.io/hostname"


def sample() -> pb.BestOptionsRequest:
    """A request of cluster-autoscaler 1.36: one pod, which spreads over zones; a group a zone."""
    return pb.BestOptionsRequest.FromString(SAMPLE.read_bytes())


def best(
    channel: grpc.Channel, request: pb.BestOptionsRequest | bytes, **more: Any
) -> pb.BestOptionsResponse:
    """The answer to a call."""
    ask: Any = channel.unary_unary(METHOD, response_deserializer=pb.BestOptionsResponse.FromString)
    raw = request if isinstance(request, bytes) else request.SerializeToString()
    answer: pb.BestOptionsResponse = ask(raw, timeout=30, **more)
    return answer


def groups(answer: pb.BestOptionsResponse) -> list[str]:
    """The ids of the chosen groups."""
    return [option.node_group_id for option in answer.options]


def node(name: str, cpu: str = "4", **labels: str) -> dict[str, Any]:
    """A node, or a template of some; labels with ``zone`` for short."""
    found = {"topology.kubernetes.io/zone" if k == "zone" else k: v for k, v in labels.items()}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOST: name, **found}},
        "status": {"allocatable": {"cpu": cpu, "pods": "110"}},
    }


def written(manifest: dict[str, Any]) -> ClusterObject:
    """An object to apply."""
    made = object_from_manifest(manifest)
    assert made is not None, "its kind is known"
    return made


def pod(name: str, on: str = "", key: str = "", cpu: str = "1", app: str = "web") -> dict[str, Any]:
    """A pod that takes cpu, bound or pending; with a key it spreads over that, hard."""
    requests = {"requests": {"cpu": cpu}}
    spec: dict[str, Any] = {"containers": [{"name": "c", "resources": requests}]}
    if on:
        spec["nodeName"] = on
    if key:
        constraint = {
            "maxSkew": 1,
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": {"app": app}},
        }
        spec["topologySpreadConstraints"] = [constraint]
    metadata = {"name": name, "namespace": "default", "labels": {"app": app}}
    return {"kind": "Pod", "metadata": metadata, "spec": spec}


def asked(*options: tuple[dict[str, Any], int, list[dict[str, Any]]]) -> pb.BestOptionsRequest:
    """A request: for each option its template, whose name is the group's, its count and pods."""
    request = pb.BestOptionsRequest()
    for template, count, pods in options:
        name = template["metadata"]["name"]
        encoded = [pod_from_manifest(each).SerializeToString() for each in pods]
        request.options.add(node_group_id=name, node_count=count, pod_bytes=encoded)
        request.node_bytes_map[name] = written(template).node.SerializeToString()
    return request


def as_before_1_34(request: pb.BestOptionsRequest) -> pb.BestOptionsRequest:
    """The same in the fields that older autoscalers have."""
    older = pb.BestOptionsRequest(node_map=dict(request.node_bytes_map))
    for option in request.options:
        older.options.add(
            node_group_id=option.node_group_id,
            node_count=option.node_count,
            pod=list(option.pod_bytes),
        )
    return older
