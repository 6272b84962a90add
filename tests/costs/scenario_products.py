"""Lists of what-ifs, nodes and pods that meet; see :mod:`tests.costs.products`.

Fields that are in no product have the reason here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.conformance.objects import object_of
from tests.costs.label_products import CONSTRAINTS, nodes, spreading, workloads
from tests.costs.products import (
    FEWER,
    HOSTNAME,
    ZONE,
    Product,
    evaluate,
    node,
    pod,
    simulate,
    source,
    to_place,
)
from topospread_proto.v1 import (
    common_pb2,
    decision_service_pb2,
    planner_service_pb2,
    scenario_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from google.protobuf.message import Message

    from tests.costs.products import Json


def asked(_: int) -> Json:
    return pod("asked")


def many_pods(size: int) -> list[Json]:
    """Pods with a label and a name each."""
    return [pod(f"s{i}", "", {"app": f"a{i}"}) for i in range(size)]


def on_nodes(size: int) -> list[common_pb2.PodOnNode]:
    return [
        common_pb2.PodOnNode(pod=source(each), node=f"node-{i % 4}")
        for i, each in enumerate(many_pods(size))
    ]


def of_state(size: int) -> list[common_pb2.PodOnNode]:
    """Pods that are there."""
    refs = [common_pb2.PodReference(namespace="default", name=f"p{i}") for i in range(size)]
    return [
        common_pb2.PodOnNode(pod=common_pb2.PodSource(ref=ref), node=f"node-{i % 4}")
        for i, ref in enumerate(refs)
    ]


def named(size: int) -> common_pb2.NodeSelection:
    names = [f"node-{100 + i}" for i in range(size)]
    return common_pb2.NodeSelection(names=common_pb2.NodeNames(names=names))


def batch(size: int) -> Message:
    return decision_service_pb2.BatchEvaluatePodsRequest(pods=map(source, many_pods(size)))


def what_if(**changes: Any) -> tuple[str, Callable[[int], Message]]:
    """A simulation of one pod with changes by size."""

    def make(size: int) -> Message:
        hypothetical = {name: of(size) for name, of in changes.items()}
        made = planner_service_pb2.SimulateRequest(pods=[to_place(asked(0))])
        made.scenario.changes.CopyFrom(scenario_pb2.SupposedChanges(**hypothetical))
        return made

    return "Simulate", make


def groups(size: int) -> list[scenario_pb2.NodeGroup]:
    template = object_of(node(0)).node
    return [
        scenario_pb2.NodeGroup(name=f"g{i}", template=template, node_count=1) for i in range(size)
    ]


def variants(size: int) -> list[scenario_pb2.NodeGroup]:
    (made,) = groups(1)
    made.node_count = size
    made.variants.extend(scenario_pb2.NodeLabels(labels={ZONE: f"z{i}"}) for i in range(size))
    return [made]


def drained(size: int) -> list[scenario_pb2.DrainedNode]:
    return [scenario_pb2.DrainedNode(node=f"node-{100 + i}") for i in range(size)]


def set_anew(size: int) -> list[scenario_pb2.ConstraintChange]:
    return [
        scenario_pb2.ConstraintChange(
            match=scenario_pb2.ConstraintMatch(topology_key=ZONE),
            set=scenario_pb2.ConstraintValues(max_skew=i + 2),
        )
        for i in range(size)
    ]


def ranked(size: int) -> Message:
    """Pods and nodes that come with the request, constraints and values."""
    made = planner_service_pb2.RankDeletionsRequest(delete_count=1)
    made.label_selector.match_labels["app"] = "web"
    for each in range(size):
        made.pods.append(source(pod(f"p{each}", f"node-{each}")).object)
        made.nodes.append(object_of(node(each)).node)
    one = made.constraints.add(topology_key=HOSTNAME)
    one.limited_values.extend(f"node-{each}" for each in range(size))
    return made


def owned(size: int) -> Message:
    """Pods of a Deployment with as many replica sets."""
    made = planner_service_pb2.RankDeletionsRequest(delete_count=1)
    made.label_selector.match_labels["app"] = "web"
    for each in range(size):
        name = f"rs{each}"
        of = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name}
        manifest = pod(f"p{each}", f"node-{each % 4}")
        manifest["metadata"]["ownerReferences"] = [{**of, "controller": True}]
        made.pods.append(source(manifest).object)
        owned = made.replica_sets.add()
        owned.metadata.namespace, owned.metadata.name, owned.metadata.uid = "default", name, name
        owned.metadata.owner_references.add(
            api_version="apps/v1", kind="Deployment", name="web", uid="web", controller=True
        )
    return made


def constrained(size: int) -> Message:
    made = planner_service_pb2.RankDeletionsRequest(delete_count=1)
    made.label_selector.match_labels["app"] = "web"
    for each in range(size):
        made.constraints.add(topology_key=f"k{each}")
    return made


def of_web(size: int) -> Sequence[Json]:
    return [pod(f"p{i}", f"node-{i % 4}") for i in range(size)]


def rebalance(size: int) -> Message:
    return planner_service_pb2.PlanRebalanceRequest(
        excluded_namespaces=[f"n{i}" for i in range(size)]
    )


def requesting(size: int) -> Json:
    """A pod that requests many resources, in as many containers."""
    containers = [
        {"name": f"c{i}", "resources": {"requests": {f"example.com/r{i}": "1"}}}
        for i in range(size)
    ]
    return pod("asked", containers=containers)


def offering(size: int) -> Sequence[Json]:
    """A node that has many resources, and declares many features."""
    made = node(100)
    made["status"]["allocatable"] |= {f"example.com/r{i}": "1" for i in range(size)}
    made["status"]["declaredFeatures"] = [f"F{i}" for i in range(size)]
    return [made]


def whole_pods(size: int) -> list[Json]:
    return [pod(f"s{i}") for i in range(size)]


ONE_BY_ONE: Final = "each pod is placed after those before it; at most limits.max_simulated_pods"

OF_SCENARIOS: Final[dict[str, Product]] = {
    "pods of a batch × workloads": Product(
        ("BatchEvaluatePodsRequest.pods",),
        ("BatchEvaluatePods", batch),
        come=workloads,
        sizes=FEWER,
    ),
    "added pods × workloads": Product(
        ("EvaluatePodRequest.add_pods", "FilterRequest.add_pods", "ScoreRequest.add_pods",
         "PreFilterRequest.add_pods"),
        evaluate(asked, add_pods=on_nodes),
        come=workloads,
    ),
    "added pods × constraints": Product(
        ("EvaluatePodRequest.add_pods", "PodSpec.topology_spread_constraints"),
        evaluate(spreading, add_pods=on_nodes),
        sizes=CONSTRAINTS,
        walked="each pod is counted by each constraint; 64 constraints at most",
    ),
    "removed pods × workloads": Product(
        ("EvaluatePodRequest.remove_pods", "FilterRequest.remove_pods", "ScoreRequest.remove_pods",
         "PreFilterRequest.remove_pods"),
        evaluate(asked, remove_pods=of_state),
        come=workloads,
    ),
    "named nodes × nodes": Product(
        ("NodeNames.names", "NodeIndices.indices"), evaluate(asked, candidates=named), come=nodes
    ),
    "simulated pods × nodes": Product(
        ("SimulateRequest.pods",), simulate(whole_pods), come=nodes, sizes=FEWER, walked=ONE_BY_ONE
    ),
    "groups of nodes × nodes": Product(
        ("SupposedChanges.add_node_groups",), what_if(add_node_groups=groups), come=nodes
    ),
    "variants × nodes": Product(
        ("NodeGroup.variants", "NodeLabels.labels"), what_if(add_node_groups=variants), come=nodes
    ),
    "drained nodes × nodes": Product(
        ("SupposedChanges.drain_nodes",), what_if(drain_nodes=drained), come=nodes
    ),
    "supposed pods × workloads": Product(
        ("SupposedChanges.add_pods",), what_if(add_pods=on_nodes), come=workloads
    ),
    "pods that are gone × workloads": Product(
        ("SupposedChanges.delete_pods",),
        what_if(delete_pods=lambda n: [each.pod.ref for each in of_state(n)]),
        come=workloads,
    ),
    "changes of constraints × nodes": Product(
        ("SupposedChanges.constraint_changes",), what_if(constraint_changes=set_anew), come=nodes
    ),
    "ranked pods × nodes × values": Product(
        ("RankDeletionsRequest.pods", "RankDeletionsRequest.nodes",
         "RankConstraint.limited_values"),
        ("RankDeletions", ranked),
    ),
    "ranked pods × replica sets": Product(
        ("RankDeletionsRequest.pods", "RankDeletionsRequest.replica_sets"),
        ("RankDeletions", owned),
        sizes=FEWER,
    ),
    "ranked pods × constraints": Product(
        ("RankDeletionsRequest.constraints",),
        ("RankDeletions", constrained),
        come=of_web,
        sizes=CONSTRAINTS,
        walked="the skew of each constraint after each deletion; 64 constraints at most",
    ),
    "excluded namespaces × pods": Product(
        ("PlanRebalanceRequest.excluded_namespaces",), ("PlanRebalance", rebalance), come=of_web
    ),
    "requests × resources of a node": Product(
        ("PodSpec.containers", "ResourceRequirements.requests", "NodeStatus.allocatable",
         "NodeStatus.declared_features"),
        evaluate(requesting),
        come=offering,
    ),
}  # fmt: skip

IN_NONE: Final[Mapping[str, str]] = {
    each: reason
    for reason, fields in {
        "items of a write or of a list that a feed sends, each stored by itself": """
            ApplyObjectsRequest.objects DeleteObjectsRequest.objects ReplaceBatch.objects
            ApplyObjectsRequest.unknown_kinds ReplaceStart.kinds WatchObjectsRequest.kinds""",
        "versions by kind, of which there are some twenty": """
            ApplyObjectsRequest.observed DeleteObjectsRequest.observed ObservedVersions.versions""",
        "the expander's: bench.campaigns.growth grows each, and tests/expander asks": """
            BestOptionsRequest.node_bytes_map BestOptionsRequest.node_map
            BestOptionsRequest.options Option.pod Option.pod_bytes""",
        "values of an enumeration": "ConstraintFilter.states Settings.feature_gates",
        "the profile's, as many as a pod's constraints, in whose place they are": """
            PodTopologySpreadArgs.default_constraints""",
        "summed up, or read once, for the pod or claim that it is in": """
            Container.restart_policy_rules ContainerStatus.allocated_resources
            PodSpec.init_containers PodSpec.overhead PodSpec.scheduling_gates
            PodStatus.allocated_resources PodStatus.conditions PodStatus.container_statuses
            PodStatus.init_container_statuses ResourceRequirements.limits
            ObjectMeta.annotations ObjectMeta.owner_references NodeStatus.capacity
            PersistentVolumeClaimSpec.access_modes""",
        "looked up by name for each claim of the pod": "PodStatus.resource_claim_statuses",
        "labels by key, as match_expressions, which are in products": """
            LabelSelector.match_labels ReplicationControllerSpec.selector ServiceSpec.selector
            Reservation.labels""",
        "makes a claim, class or slice one that decides nothing (special)": """
            Device.binding_conditions Device.consumes_counters Device.taints
            DeviceClaim.constraints DeviceRequest.first_available
            DeviceRequestAllocationResult.binding_conditions ExactDeviceRequest.selectors
            ResourceSliceSpec.shared_counters""",
    }.items()
    for each in fields.split()
}
"""By field, why it is in no product."""
