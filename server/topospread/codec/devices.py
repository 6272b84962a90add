"""Stored claims to devices, classes and slices to values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.codec.owners import controlling
from topospread.codec.pods import node_terms
from topospread.kube.devices import (
    ALL_DEVICES,
    EXACT_COUNT,
    Allocation,
    DeviceClass,
    DeviceId,
    DeviceRequest,
    PodResourceClaim,
    ResourceClaim,
    ResourceSlice,
    selected_driver,
)
from topospread.kube.objects import NodeRequirements

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

EXPRESSIONS: Final = "CEL expressions"

MAX_REQUESTS: Final = 32
"""Of a claim, as the API server takes."""


def pod_resource_claims(pod: pb.Pod) -> tuple[PodResourceClaim, ...]:
    """A pod's claims to devices, in their order, but those that turned out not to be needed."""
    made = {each.name: each for each in pod.status.resource_claim_statuses}
    found = []
    for each in pod.spec.resource_claims:
        if each.HasField("resource_claim_name"):
            found.append(PodResourceClaim(each.name, each.resource_claim_name))
        elif not each.HasField("resource_claim_template_name"):
            found.append(PodResourceClaim(each.name, unsupported=True))
        elif each.name not in made:
            found.append(PodResourceClaim(each.name, generated=True))
        elif made[each.name].HasField("resource_claim_name"):
            name = made[each.name].resource_claim_name
            found.append(PodResourceClaim(each.name, name, generated=True))
    return tuple(found)


def device_class(message: pb.DeviceClass) -> DeviceClass:
    """Read a class."""
    drivers, special = _selected(message.spec.selectors)
    resource = message.spec.extended_resource_name
    return DeviceClass(message.metadata.name, drivers, resource, special)


def resource_claim(message: pb.ResourceClaim) -> ResourceClaim:
    """Read a claim."""
    meta, devices = message.metadata, message.spec.devices
    special = "constraints" if devices.constraints else ""
    if len(devices.requests) > MAX_REQUESTS:
        special = f"more than {MAX_REQUESTS} requests"
    allocation = None
    if message.status.HasField("allocation"):
        allocation = _allocation(message.status.allocation)
    owner = controlling(meta.owner_references)
    return ResourceClaim(
        meta.namespace,
        meta.name,
        "" if owner is None else owner.uid,
        terminating=meta.HasField("deletion_timestamp"),
        requests=tuple(map(_request, devices.requests[:MAX_REQUESTS])),
        special=special,
        allocation=allocation,
    )


def resource_slice(message: pb.ResourceSlice) -> ResourceSlice:
    """Read a slice."""
    spec = message.spec
    return ResourceSlice(
        message.metadata.name,
        spec.driver,
        spec.pool.name,
        spec.pool.generation,
        spec.pool.resource_slice_count,
        spec.node_name,
        _affinity(spec.node_selector) if spec.HasField("node_selector") else None,
        spec.all_nodes,
        tuple([each.name for each in spec.devices]),
        _special_of_slice(spec),
    )


def _special_of_slice(spec: pb.ResourceSliceSpec) -> str:
    if spec.per_device_node_selection:
        return "nodes of each device"
    if spec.shared_counters or any(each.consumes_counters for each in spec.devices):
        return "partitions of devices"
    if any(each.taints for each in spec.devices):
        return "taints of devices"
    if any(each.allow_multiple_allocations for each in spec.devices):
        return "shared devices"
    if any(each.binding_conditions for each in spec.devices):
        return "binding conditions"
    return ""


def _request(request: pb.DeviceRequest) -> DeviceRequest:
    if not request.HasField("exactly"):
        classes = [
            (f"{request.name}/{each.name}", each.device_class_name)
            for each in request.first_available
        ]
        special = "alternatives (firstAvailable)" if classes else "a request of an unknown type"
        return DeviceRequest(tuple(classes), special=special)
    exactly = request.exactly
    drivers, special = _selected(exactly.selectors)
    mode = exactly.allocation_mode or EXACT_COUNT
    for found, text in (
        (exactly.admin_access, "administrative access"),
        (exactly.HasField("capacity"), "capacity of devices"),
        (mode not in (EXACT_COUNT, ALL_DEVICES), f"allocation mode {mode[:64]}"),
    ):
        if found:
            special = text
    return DeviceRequest(
        ((request.name, exactly.device_class_name),),
        None if mode == ALL_DEVICES else max(1, exactly.count),
        drivers,
        special,
    )


def _allocation(allocation: pb.AllocationResult) -> Allocation:
    results = allocation.devices.results
    waits = any(each.binding_conditions for each in results)
    return Allocation(
        tuple(
            DeviceId(each.driver, each.pool, each.device)
            for each in results
            if not each.admin_access and not each.HasField("share_id")
        ),
        _affinity(allocation.node_selector) if allocation.HasField("node_selector") else None,
        "binding conditions" if waits else "",
    )


def _selected(selectors: Iterable[pb.DeviceSelector]) -> tuple[frozenset[str], str]:
    """The drivers that selectors ask for, and what else they do."""
    drivers = [selected_driver(each.cel.expression) for each in selectors]
    known = frozenset(each for each in drivers if each is not None)
    return known, EXPRESSIONS if None in drivers else ""


def _affinity(selector: pb.NodeSelector) -> NodeRequirements:
    return NodeRequirements(terms=node_terms(selector))
