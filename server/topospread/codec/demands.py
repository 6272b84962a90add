"""Reads the resource requests of pods, once for all pods of one template."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import TYPE_CHECKING, Final, TypeVar

from topospread.cache import BUDGETS, LARGEST_KEY, Cache
from topospread.codec.amounts import amounts, lenient_amounts
from topospread.codec.devices import pod_resource_claims
from topospread.codec.parsing import parse_request
from topospread.codec.pod_parts import (
    ALWAYS,
    INFEASIBLE,
    NEVER,
    RESIZE_PENDING,
    affinity_terms,
    check_affinity_parts,
    host_ports,
    lenient_selector,
    limits_of_the_pod,
    needed_features,
    pod_volumes,
)
from topospread.codec.pods import selector_of
from topospread.errors import FieldViolation, InvalidRequest
from topospread.generated.internal.v1 import frames_pb2
from topospread.kube.demands import Container, Demand, pod_requests
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Iterator, Mapping

    from topospread.codec.amounts import Amounts
    from topospread.codec.pod_parts import ReadSelector
    from topospread.kube.demands import Requests

_N = TypeVar("_N", int, Fraction)

MAX_AMOUNTS: Final = 5000
"""Requests and limits of one pod in all of its containers."""

MAX_RESOURCES: Final = 100
"""Different resources of one pod: each may be a reason of its own in an answer."""

SYSTEM_PRIORITIES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""The classes that every cluster has."""

LONGEST_NAME: Final = 253
"""Characters of a class's name."""


class DemandReader:
    """Reads demands, those of one template only once; threads may share a reader."""

    def __init__(self) -> None:
        self._known: Cache[Hashable, Demand] = Cache(BUDGETS["demands"])

    def of(self, encoded: bytes) -> tuple[Demand, str]:
        """The demand in the bytes of a v1.Pod, and the node that the pod is bound to.

        Raises:
            InvalidRequest: the bytes are no pod, or a quantity is invalid.
        """
        frame = parse_request(frames_pb2.DemandFrame, encoded, pb.Pod)
        meta, spec = frame.metadata, frame.spec
        parts = (
            tuple(spec.volumes),
            tuple(spec.containers),
            tuple(spec.affinity),
            # Terms are about the pod's namespace, and may have its labels in them.
            tuple(meta.labels) if spec.affinity else (),
            tuple(spec.init_containers),
            tuple(spec.overhead),
            tuple(spec.scheduling_gates),
            tuple(spec.resource_claims),
            tuple(frame.status.resource_claim_statuses) if spec.resource_claims else (),
            tuple(spec.resources),
        )
        stored = bool(meta.uid and frame.status.phase)
        of_terms = (meta.namespace, stored) if spec.affinity else ()
        of_class = "" if stored or spec.HasField("priority") else spec.priority_class_name
        key = (parts, of_terms, spec.host_network, spec.priority, of_class, spec.preemption_policy)
        demand = self._known.get(key)
        if demand is None:
            demand = demand_of(parse_request(pb.Pod, encoded, frame=frames_pb2.DemandFrame))
            demand = replace(demand, node_name="")
            read_from = sum([40 + len(part) for each in parts for part in each])
            if read_from <= LARGEST_KEY:
                self._known.put(key, demand, 1200 + read_from + demand.nbytes)
        if spec.node_name:
            demand = replace(demand, node_name=spec.node_name)
        return demand, spec.node_name


def demand_of(pod: pb.Pod) -> Demand:
    """Read what a pod demands of its node.

    Raises:
        InvalidRequest: too many resources, too many or invalid terms of inter-pod affinity, or an
            invalid quantity, with the path to it.
    """
    _check_amounts(pod.spec)
    check_affinity_parts(pod.spec.affinity)
    # An API server gives each pod that it stores a uid and a phase, and merges label keys.
    stored, spec = bool(pod.metadata.uid and pod.status.phase), pod.spec
    demand = _demand(pod, _requests(spec, amounts), selector_of, merged=stored)
    name = spec.priority_class_name
    if stored or not name or spec.HasField("priority"):
        return demand
    # What the API server does to a new pod.
    if name in SYSTEM_PRIORITIES:
        return replace(demand, priority=SYSTEM_PRIORITIES[name])
    return replace(demand, priority_class=name[:LONGEST_NAME])


def _demand(pod: pb.Pod, requests: Requests, read: ReadSelector, *, merged: bool) -> Demand:
    spec = pod.spec
    namespace = pod.metadata.namespace or DEFAULT_NAMESPACE
    labels = None if merged else pod.metadata.labels
    affinity, path = spec.affinity, "spec.affinity"
    return Demand(
        requests,
        node_name=spec.node_name,
        ports=host_ports(spec),
        volumes=pod_volumes(spec.volumes),
        affinity=affinity_terms(
            affinity.pod_affinity, f"{path}.podAffinity", namespace, labels, read
        ),
        anti_affinity=affinity_terms(
            affinity.pod_anti_affinity, f"{path}.podAntiAffinity", namespace, labels, read
        ),
        priority=spec.priority,
        preempts=spec.preemption_policy != NEVER,
        needed_features=needed_features(spec),
        gated=bool(spec.scheduling_gates),
        resource_claims=pod_resource_claims(pod),
    )


def _check_amounts(spec: pb.PodSpec) -> None:
    """Limit the number of amounts before any of them is read."""
    of_containers = [each.resources for each in (*spec.containers, *spec.init_containers)]
    given = [each.limits for each in of_containers] + [each.requests for each in of_containers]
    given += [spec.overhead, spec.resources.requests, spec.resources.limits]
    if sum(map(len, given)) > MAX_AMOUNTS:
        raise _too_many(f"more than {MAX_AMOUNTS} requests and limits in all containers")
    if len(set[str]().union(*given)) > MAX_RESOURCES:
        raise _too_many(f"more than {MAX_RESOURCES} different resources")


def _too_many(what: str) -> InvalidRequest:
    return InvalidRequest.of([FieldViolation("spec.containers", what, "Too many")])


def lenient_requests(spec: pb.PodSpec) -> Requests:
    """Requests of a pod of the cluster; an invalid quantity counts as 0."""
    return _requests(spec, lenient_amounts)


def running_requests(pod: pb.Pod) -> Requests:
    """What a pod of the cluster takes of its node, which may be more than its spec says.

    While it is resized, the largest of its spec, of what the node has set aside for its containers,
    and of what these run with; without the spec where the resize is infeasible. What the status
    says of the whole pod goes before what it says of the containers.
    """
    status = pod.status
    infeasible = any(
        each.type == RESIZE_PENDING and each.reason == INFEASIBLE for each in pod.status.conditions
    )
    allocated, actual = pb.PodSpec(), pb.PodSpec()
    allocated.CopyFrom(pod.spec)
    statuses = {each.name: each for each in pod.status.init_container_statuses}
    statuses |= {each.name: each for each in pod.status.container_statuses}
    for container in (*allocated.containers, *allocated.init_containers):
        known = statuses.get(container.name)
        if known is not None and known.allocated_resources:
            _replace_requests(container, known.allocated_resources)
        elif infeasible:
            container.ClearField("resources")
    actual.CopyFrom(allocated)
    for container in (*actual.containers, *actual.init_containers):
        known = statuses.get(container.name)
        if known is not None and known.resources.requests:
            _replace_requests(container, known.resources.requests)
    if status.allocated_resources and status.resources.requests:
        allocated = _as_one_container(status.allocated_resources)
        actual = _as_one_container(status.resources.requests)
    whole_pod = _of_whole_pod(pod.spec, lenient_amounts)
    if whole_pod and status.HasField("resources"):
        given = [lenient_amounts(status.resources.requests)]
        given.append(lenient_amounts(status.allocated_resources))
        whole_pod = _largest(given if infeasible else [*given, whole_pod])
    largest = _largest(
        dict(_requests_of(spec, lenient_amounts, pod.spec.overhead, whole_pod))
        for spec in ((allocated, actual) if infeasible else (allocated, actual, pod.spec))
    )
    return tuple(sorted(largest.items()))


def _as_one_container(amounts: Mapping[str, pb.Quantity]) -> pb.PodSpec:
    spec = pb.PodSpec(containers=[pb.Container()])
    _replace_requests(spec.containers[0], amounts)
    return spec


def _largest(given: Iterable[Mapping[str, _N]]) -> dict[str, _N]:
    """The largest amount of each resource."""
    largest: dict[str, _N] = {}
    for each in given:
        for name, amount in each.items():
            largest[name] = max(amount, largest.get(name, amount))
    return largest


def _replace_requests(container: pb.Container, amounts: Mapping[str, pb.Quantity]) -> None:
    container.ClearField("resources")
    for name, amount in amounts.items():
        container.resources.requests[name].CopyFrom(amount)


def lenient_demand(pod: pb.Pod) -> Demand:
    """Demand of a pod of the cluster; an invalid quantity counts as 0.

    The label keys of its terms are merged where the stored pod has any.
    """
    return _demand(pod, lenient_requests(pod.spec), lenient_selector, merged=False)


def _requests(spec: pb.PodSpec, read: Amounts) -> Requests:
    return _requests_of(spec, read, spec.overhead, _of_whole_pod(spec, read))


def _of_whole_pod(spec: pb.PodSpec, read: Amounts) -> dict[str, Fraction]:
    limits = read(dict(limits_of_the_pod(spec)), "spec.resources.limits")
    return limits | read(spec.resources.requests, "spec.resources.requests")


def _requests_of(
    spec: pb.PodSpec,
    read: Amounts,
    overhead: Mapping[str, pb.Quantity],
    whole_pod: Mapping[str, Fraction],
) -> Requests:
    """Requests of containers, with an overhead and the whole pod's own requests."""
    return pod_requests(
        list(_containers(spec.containers, "spec.containers", read)),
        list(_containers(spec.init_containers, "spec.initContainers", read)),
        read(overhead, "spec.overhead"),
        whole_pod,
    )


def _containers(
    containers: Iterable[pb.Container], path: str, read: Amounts
) -> Iterator[Container]:
    for index, container in enumerate(containers):
        here = f"{path}[{index}].resources"
        resources = container.resources
        # What the API server does to a new pod: a limit without a request is a request, too.
        requests = read(resources.limits, f"{here}.limits")
        requests.update(read(resources.requests, f"{here}.requests"))
        yield Container(requests, container.restart_policy == ALWAYS)
