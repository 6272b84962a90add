"""What the store keeps of a pod: the fields that decide, each in one way of writing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from topospread.codec.amounts import lenient_amounts
from topospread.codec.demands import running_requests
from topospread.codec.pod_parts import (
    INFEASIBLE,
    NEVER,
    RESIZE_PENDING,
    RESTART_ALL,
    limits_of_the_pod,
)
from topospread.generated.internal.v1 import stored_pb2 as pb
from topospread.kube.demands import TCP
from topospread.kube.objects import TERMINAL_PHASES
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as api

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from google.protobuf.internal.containers import RepeatedCompositeFieldContainer
    from google.protobuf.message import Message

READY: Final = "Ready"
POD_SCHEDULED: Final = "PodScheduled"

LONGEST_MESSAGE: Final = 2048
"""Characters of a condition's message that are kept; a scheduler's has some hundred."""

_P = TypeVar("_P", bound="Message")


def tidy_pod(pod: pb.StoredPod, *, merged: bool) -> None:
    """Leave what decides.

    Args:
        pod: as it came, without fields that are unknown.
        merged: its terms have the label keys in their selectors.
    """
    _tidy_spec(pod.spec, merged=merged)
    _tidy_status(pod)


def _tidy_spec(spec: pb.StoredPodSpec, *, merged: bool) -> None:
    keep(spec.volumes, lambda volume: volume.volume_source.ByteSize() > 0)
    for volume in spec.volumes:
        if not volume.volume_source.HasField("ephemeral"):
            volume.ClearField("name")
    for containers in (spec.containers, spec.init_containers):
        for container in containers:
            _tidy_ports(container, on_host=spec.host_network)
            keep(container.restart_policy_rules, lambda rule: rule.action == RESTART_ALL)
            _default_requests(container.resources)
            clear_if_empty(container, "resources")
    spec.ClearField("host_network")
    for name, limit in limits_of_the_pod(spec):
        spec.resources.requests[name].CopyFrom(limit)
    spec.resources.limits.clear()
    clear_if_empty(spec, "resources")
    if not spec.priority:
        spec.ClearField("priority")
    if spec.preemption_policy != NEVER:
        spec.ClearField("preemption_policy")
    _tidy_affinity(spec.affinity, merged=merged)
    clear_if_empty(spec, "affinity")


def _tidy_ports(container: pb.StoredContainer, *, on_host: bool) -> None:
    for port in container.ports:
        if on_host and not port.host_port:
            port.host_port = port.container_port
        port.ClearField("container_port")
        if port.protocol == TCP:
            port.ClearField("protocol")
    keep(container.ports, lambda port: port.host_port != 0)


def _default_requests(resources: pb.StoredResources) -> None:
    """Default requests to limits, as the API server does for a new pod."""
    for name, limit in resources.limits.items():
        if name not in resources.requests:
            resources.requests[name].CopyFrom(limit)
    resources.limits.clear()


def _tidy_affinity(affinity: api.Affinity, *, merged: bool) -> None:
    if not affinity.node_affinity.HasField("required_during_scheduling_ignored_during_execution"):
        affinity.ClearField("node_affinity")
    if merged:
        for each in (affinity.pod_affinity, affinity.pod_anti_affinity):
            for term in each.required_during_scheduling_ignored_during_execution:
                term.ClearField("match_label_keys")
                term.ClearField("mismatch_label_keys")
    clear_if_empty(affinity, "pod_affinity")
    clear_if_empty(affinity, "pod_anti_affinity")


def _tidy_status(pod: pb.StoredPod) -> None:
    spec, status = pod.spec, pod.status
    ended = status.phase in TERMINAL_PHASES
    waits = not spec.node_name and not ended
    kinds = {READY, POD_SCHEDULED if waits else RESIZE_PENDING}
    keep(status.conditions, lambda each: each.type in kinds)
    # That a resize waits does not matter, but that it will never come.
    keep(status.conditions, lambda each: each.type != RESIZE_PENDING or each.reason == INFEASIBLE)
    infeasible = not ended and any(each.type == RESIZE_PENDING for each in status.conditions)
    for condition in status.conditions:
        if condition.type == RESIZE_PENDING:
            condition.ClearField("status")
            condition.ClearField("last_transition_time")
        if condition.type != POD_SCHEDULED:
            condition.ClearField("message")
            if condition.type == READY:
                condition.ClearField("reason")
        elif len(condition.message) > LONGEST_MESSAGE:
            condition.message = condition.message[:LONGEST_MESSAGE]
        clear_if_empty(condition, "last_transition_time")
    takes = spec.node_name and not ended
    for containers, statuses in (
        (spec.containers, status.container_statuses),
        (spec.init_containers, status.init_container_statuses),
    ):
        requests = {each.name: each.resources.requests for each in containers}
        for each in statuses:
            each.resources.limits.clear()
            own = requests.get(each.name) if takes else None
            if own is None or not (infeasible or _differs(each, own)):
                each.ClearField("allocated_resources")
                each.ClearField("resources")
            clear_if_empty(each, "resources")
        keep(statuses, lambda each: each.restart_count != 0 or _has_amounts(each))
    if status.HasField("resources"):
        status.resources.limits.clear()
    if not (takes and _pod_differs(pod)):
        status.ClearField("allocated_resources")
        status.ClearField("resources")
    if not waits:
        status.ClearField("nominated_node_name")
        status.ClearField("resource_claim_statuses")


def _pod_differs(pod: pb.StoredPod) -> bool:
    """Whether what the status says of the whole pod decides what it takes."""
    if not (pod.status.allocated_resources or pod.status.resources.requests):
        return False
    whole = api.Pod.FromString(pod.SerializeToString())
    takes = running_requests(whole)
    whole.status.ClearField("allocated_resources")
    whole.status.ClearField("resources")
    return running_requests(whole) != takes


def _differs(status: pb.StoredContainerStatus, requests: Mapping[str, api.Quantity]) -> bool:
    """Whether a container takes something else than its spec says."""
    own = lenient_amounts(requests)
    return any(
        given and lenient_amounts(given) != own
        for given in (status.allocated_resources, status.resources.requests)
    )


def _has_amounts(
    status: pb.StoredContainerStatus | pb.RelevantContainerStatus,
) -> bool:
    return bool(status.allocated_resources) or status.HasField("resources")


def relevant_part(encoded: bytes) -> pb.RelevantPod:
    """The part of a stored pod that others' decisions rest on."""
    part = pb.RelevantPod.FromString(encoded)
    part.DiscardUnknownFields()
    for statuses in (part.status.container_statuses, part.status.init_container_statuses):
        keep(statuses, _has_amounts)
    clear_if_empty(part, "status")
    clear_if_empty(part.spec, "affinity")
    return part


def keep(parts: RepeatedCompositeFieldContainer[_P], wanted: Callable[[_P], bool]) -> None:
    """Remove the other elements."""
    for index in reversed(range(len(parts))):
        if not wanted(parts[index]):
            del parts[index]


def clear_if_empty(message: Message, field: str) -> None:
    """Make an empty sub-message an absent one; for fields where that means the same."""
    if message.HasField(field) and not getattr(message, field).ByteSize():
        message.ClearField(field)
