"""Reads the resource requests of pods, once for all pods of one template."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.cache import BUDGETS, LARGEST_KEY, Cache
from topospread.codec.parsing import parse_request
from topospread.errors import FieldViolation, InvalidRequest
from topospread.generated.internal.v1 import frames_pb2
from topospread.kube.demands import (
    HOST_PORTS,
    POD_AFFINITY,
    SCHEDULING_GATES,
    VOLUMES,
    Container,
    Demand,
    QuantityError,
    parse_quantity,
    pod_requests,
)
from topospread.kube.violations import invalid
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
    from fractions import Fraction

    from topospread.kube.demands import Requests

    Amounts = Callable[[Mapping[str, pb.Quantity], str], dict[str, Fraction]]

ALWAYS: Final = "Always"
MAX_AMOUNTS: Final = 5000
"""Requests and limits of one pod in all of its containers."""

MAX_RESOURCES: Final = 100
"""Different resources of one pod: each may be a reason of its own in an answer."""


class DemandReader:
    """Reads demands, those of one template only once; threads may share a reader."""

    def __init__(self) -> None:
        self._known: Cache[Hashable, Demand] = Cache(BUDGETS["demands"])

    def of(self, encoded: bytes) -> tuple[Demand, str]:
        """The demand in the bytes of a v1.Pod, and the node that the pod is bound to.

        Raises:
            InvalidRequest: the bytes are no pod, or a quantity is invalid.
        """
        spec = parse_request(frames_pb2.DemandFrame, encoded, pb.Pod).spec
        key = (
            tuple(spec.volumes),
            tuple(spec.containers),
            tuple(spec.affinity),
            tuple(spec.init_containers),
            tuple(spec.overhead),
            tuple(spec.scheduling_gates),
            tuple(spec.resources),
        )
        demand = self._known.get(key)
        if demand is None:
            demand = demand_of(parse_request(pb.Pod, encoded, frame=frames_pb2.DemandFrame).spec)
            read_from = sum([40 + len(part) for parts in key for part in parts])
            if read_from <= LARGEST_KEY:
                self._known.put(key, demand, 800 + read_from + demand.nbytes)
        return demand, spec.node_name


def demand_of(spec: pb.PodSpec) -> Demand:
    """Read what a pod demands of its node.

    Raises:
        InvalidRequest: too many resources, or an invalid quantity, with the path to it.
    """
    _check_amounts(spec)
    return Demand(_requests(spec, amounts), tuple(_not_modelled(spec)))


def _check_amounts(spec: pb.PodSpec) -> None:
    """Limit the number of amounts before any of them is read."""
    of_containers = [each.resources for each in (*spec.containers, *spec.init_containers)]
    given = [each.limits for each in of_containers] + [each.requests for each in of_containers]
    given += [spec.overhead, spec.resources.requests]
    if sum(map(len, given)) > MAX_AMOUNTS:
        raise _too_many(f"more than {MAX_AMOUNTS} requests and limits in all containers")
    if len(set[str]().union(*given)) > MAX_RESOURCES:
        raise _too_many(f"more than {MAX_RESOURCES} different resources")


def _too_many(what: str) -> InvalidRequest:
    return InvalidRequest.of([FieldViolation("spec.containers", what, "Too many")])


def lenient_requests(spec: pb.PodSpec) -> Requests:
    """Requests of a pod of the cluster; an invalid quantity counts as 0."""
    return _requests(spec, lenient_amounts)


def lenient_demand(spec: pb.PodSpec) -> Demand:
    """Demand of a pod of the cluster; an invalid quantity counts as 0."""
    return Demand(lenient_requests(spec), tuple(_not_modelled(spec)))


def _requests(spec: pb.PodSpec, read: Amounts) -> Requests:
    return pod_requests(
        list(_containers(spec.containers, "spec.containers", read)),
        list(_containers(spec.init_containers, "spec.initContainers", read)),
        read(spec.overhead, "spec.overhead"),
        read(spec.resources.requests, "spec.resources.requests"),
    )


def amounts(given: Mapping[str, pb.Quantity], path: str) -> dict[str, Fraction]:
    """Quantities by resource."""
    found: dict[str, Fraction] = {}
    # Sorted: a map's keys come in another order in each process.
    for name, quantity in sorted(given.items()):
        try:
            found[name] = parse_quantity(quantity.string)
        except QuantityError as cause:
            raise InvalidRequest.of(
                [invalid(f"{path}[{name}]", quantity.string, str(cause))]
            ) from cause
    return found


def lenient_amounts(given: Mapping[str, pb.Quantity], path: str = "") -> dict[str, Fraction]:
    """Quantities by resource of an object of the cluster; an invalid one is left out."""
    del path
    found: dict[str, Fraction] = {}
    for name, quantity in given.items():
        try:
            found[name] = parse_quantity(quantity.string)
        except QuantityError:
            continue
    return found


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


def _not_modelled(spec: pb.PodSpec) -> Iterator[str]:
    containers = (*spec.containers, *spec.init_containers)
    if any(port.host_port for each in containers for port in each.ports):
        yield HOST_PORTS
    if any(v.volume_source.HasField("persistent_volume_claim") for v in spec.volumes):
        yield VOLUMES
    for affinity in (spec.affinity.pod_affinity, spec.affinity.pod_anti_affinity):
        if affinity.required_during_scheduling_ignored_during_execution:
            yield POD_AFFINITY
            break
    if spec.scheduling_gates:
        yield SCHEDULING_GATES
