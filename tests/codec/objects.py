"""Objects for the codec's tests: one pod with everything, and changes of it."""

from collections.abc import Callable
from typing import Any

from topospread_client import object_from_manifest
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

Change = Callable[[kube.Pod], object]


def made(manifest: dict[str, Any]) -> ClusterObject:
    message = object_from_manifest(manifest)
    assert message is not None
    return message


def full_pod() -> ClusterObject:
    """A pod with every field that messages declare, most of them as an API server has them."""
    pod = kube.Pod()
    meta, spec, status = pod.metadata, pod.spec, pod.status
    meta.name, meta.namespace, meta.uid, meta.resource_version = "p", "team", "u-1", "12"
    meta.generate_name, meta.generation = "p-", 3
    meta.creation_timestamp.seconds, meta.creation_timestamp.nanos = 1_700_000_000, 0
    meta.labels.update({"app": "a", "rev": "1", "": "odd"})
    meta.annotations.update({"controller.kubernetes.io/pod-deletion-cost": "-5", "big": "x" * 999})
    meta.owner_references.add(kind="Node", name="n", api_version="v1")
    meta.owner_references.add(
        kind="ReplicaSet", name="rs", uid="u-2", api_version="apps/v1", controller=True
    )
    spec.node_name, spec.scheduler_name, spec.priority = "n1", "default-scheduler", 7
    spec.priority_class_name, spec.preemption_policy = "high", "Never"
    spec.node_selector["disk"] = "ssd"
    spec.scheduling_gates.add(name="wait")
    spec.volumes.add(name="tmp")
    spec.volumes.add(name="v").volume_source.persistent_volume_claim.claim_name = "claim"
    spec.overhead["cpu"].string = "10m"
    container = spec.containers.add(name="c")
    container.resources.requests["cpu"].string = "250m"
    container.resources.limits["cpu"].string = "1"
    container.resources.limits["memory"].string = "1Gi"
    container.ports.add(container_port=80)
    container.ports.add(container_port=81, host_port=8080, protocol="TCP")
    container.restart_policy_rules.add(action="Restart")
    spec.init_containers.add(name="sidecar", restart_policy="Always")
    spec.tolerations.add(key="k", operator="Exists", toleration_seconds=30)
    required = spec.affinity.node_affinity.required_during_scheduling_ignored_during_execution
    term = required.node_selector_terms.add()
    term.match_expressions.add(key="disk", operator="In", values=["ssd"])
    anti = spec.affinity.pod_anti_affinity.required_during_scheduling_ignored_during_execution
    apart = anti.add(topology_key="zone", match_label_keys=["rev"])
    apart.label_selector.match_labels["app"] = "a"
    anti.add(topology_key="h", namespaces=["team", "other"]).label_selector.SetInParent()
    constraint = spec.topology_spread_constraints.add(
        max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule", min_domains=2
    )
    constraint.label_selector.SetInParent()
    status.phase, status.nominated_node_name = "Running", "n9"
    status.start_time.seconds = 1_700_000_005
    ready = status.conditions.add(type="Ready", status="True", reason="x", message="y")
    ready.last_transition_time.seconds = 1_700_000_010
    ready.last_probe_time.seconds = 1_700_000_020
    status.conditions.add(type="PodScheduled", status="True")
    runs = status.container_statuses.add(name="c", ready=True, restart_count=2)
    runs.allocated_resources["cpu"].string = "250m"
    runs.allocated_resources["memory"].string = "1024Mi"
    runs.resources.requests["cpu"].string = "0.25"
    runs.resources.requests["memory"].string = "1Gi"
    runs.resources.limits["cpu"].string = "1"
    status.container_statuses.add(name="d", ready=True)
    status.init_container_statuses.add(name="sidecar", restart_count=1)
    return ClusterObject(pod=pod)


def changed(change: Change) -> ClusterObject:
    """The full pod after a change."""
    message = full_pod()
    change(message.pod)
    return message
