"""Warnings about objects of a cluster, as kube-apiserver's warnings: nothing here is refused.

An API server accepted these objects. Pods of requests are validated instead
(:mod:`topospread.kube.validation`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.codec.pods import pod_from_proto, workload_from_proto
from topospread.kube.affinity import compile_requirements
from topospread.kube.objects import (
    DO_NOT_SCHEDULE,
    HONOR,
    IGNORE,
    SCHEDULE_ANYWAY,
    LabelSelector,
    NodeRequirements,
    Pod,
    SpreadConstraint,
)
from topospread.kube.selectors import SelectorError, compile_selector
from topospread.kube.taints import EFFECTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb
    from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

PHASES: Final = ("", "Pending", "Running", "Succeeded", "Failed", "Unknown")


def warnings_of(message: ClusterObject) -> list[str]:
    """Warnings about an object, for a person to read; mostly none."""
    match message.WhichOneof("content"):
        case "node":
            return list(_of_node(message.node))
        case "pod":
            return list(_of_pod(message.pod))
        case "replica_set":
            return list(
                _of_selector("spec.selector", workload_from_proto(message.replica_set).selector)
            )
        case "stateful_set":
            return list(
                _of_selector("spec.selector", workload_from_proto(message.stateful_set).selector)
            )
    return []


def _of_node(node: pb.Node) -> Iterator[str]:
    for index, taint in enumerate(node.spec.taints):
        if taint.effect not in EFFECTS:
            yield f'spec.taints[{index}].effect: "{taint.effect}" is unknown and keeps no pod away'


def _of_pod(message: pb.Pod) -> Iterator[str]:
    pod = pod_from_proto(message)
    if sum(owner.controller for owner in message.metadata.owner_references) > 1:
        yield "metadata.ownerReferences: several controllers; the first one is taken"
    if pod.phase not in PHASES:
        yield f'status.phase: "{pod.phase}" is unknown; the pod counts as running'
    for index, constraint in enumerate(pod.constraints):
        yield from _of_constraint(f"spec.topologySpreadConstraints[{index}]", constraint)
    yield from _of_affinity(pod)


def _of_constraint(path: str, constraint: SpreadConstraint) -> Iterator[str]:
    if constraint.when_unsatisfiable not in (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY):
        unknown = constraint.when_unsatisfiable
        yield f'{path}.whenUnsatisfiable: "{unknown}" is unknown; the constraint does nothing'
    for name, policy in (
        ("nodeAffinityPolicy", constraint.node_affinity_policy),
        ("nodeTaintsPolicy", constraint.node_taints_policy),
    ):
        if policy not in (None, HONOR, IGNORE):
            yield f'{path}.{name}: "{policy}" is unknown and acts as {IGNORE}'
    yield from _of_selector(f"{path}.labelSelector", constraint.label_selector)


def _of_selector(path: str, selector: LabelSelector | None) -> Iterator[str]:
    try:
        compile_selector(selector)
    except SelectorError as error:
        yield f"{path}: {error}"


def _of_affinity(pod: Pod) -> Iterator[str]:
    path = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution"
    for index, term in enumerate(pod.requirements.terms or ()):
        if not compile_requirements(NodeRequirements(terms=(term,))).terms:
            yield f"{path}.nodeSelectorTerms[{index}]: does not parse or is empty; matches no node"
