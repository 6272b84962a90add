"""Lists that meet in a computation, each as long as is accepted: what is stored, what is asked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from bench.campaigns.grown import pod
from bench.campaigns.measured import HOSTNAME
from topospread_proto.kubernetes.v1 import kubernetes_pb2
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

MIB: Final = "1Mi"
_POOL: Final = "pool"
_DRIVER: Final = "driver.example.com"
_CLASS: Final = "wide"


@dataclass(frozen=True)
class Product:
    """Two or more lists that meet.

    Attributes:
        pod: the n-th pod to judge, another one each time; None where none is asked about.
        stored: what is in the state beside the usual nodes and pods.
        selector: of a list or of watches.
        watches: of constraints, with the selector.
    """

    pod: Callable[[int], Any] | None = None
    stored: Callable[[], Iterator[state_pb.ClusterObject]] = lambda: iter(())
    selector: Callable[[int], Any] | None = None
    watches: int = 0

    def objects(self) -> Sequence[state_pb.ClusterObject]:
        """What is stored."""
        return [*self.stored()]


def _named(kind: str, **metadata: str) -> tuple[state_pb.ClusterObject, Any]:
    """An object that is stored, and its content, which is of that kind."""
    made = state_pb.ClusterObject()
    content = getattr(made, kind)
    for field, value in metadata.items():
        setattr(content.metadata, field, value)
    return made, content


def _bound(name: str, spec: Any) -> state_pb.ClusterObject:
    made, content = _named("pod", name=name, namespace="default")
    content.CopyFrom(pod())
    content.metadata.name, content.metadata.namespace = name, "default"
    content.spec.MergeFrom(spec)
    content.spec.node_name = "node-1"
    return made


# ------------------------------ affinity: terms, namespaces, values


def _crossed(number: int, side: int = 2499) -> Any:
    """A term with as many namespaces as values."""
    made = pod()
    affinity = made.spec.affinity.pod_anti_affinity
    term = affinity.required_during_scheduling_ignored_during_execution.add(topology_key=HOSTNAME)
    term.namespaces.extend(f"namespace-{each}" for each in range(side))
    values = [f"value-{number}-{each}" for each in range(side)]
    term.label_selector.match_expressions.add(key="app", operator="In", values=values)
    return made


def _crossed_pods() -> Iterator[state_pb.ClusterObject]:
    for number in range(4):
        yield _bound(f"crossed-{number}", _crossed(1000 + number).spec)


def _selecting(number: int) -> Any:
    """Terms that select namespaces by labels, each by another."""
    made = pod()
    affinity = made.spec.affinity.pod_affinity
    for each in range(100):
        term = affinity.required_during_scheduling_ignored_during_execution.add(
            topology_key=HOSTNAME
        )
        values = [f"team-{number}-{each}", f"team-{each}"]
        term.namespace_selector.match_expressions.add(key="team", operator="In", values=values)
        term.label_selector.match_labels["app"] = "app-1"
    return made


def _namespaces() -> Iterator[state_pb.ClusterObject]:
    for number in range(10_000):
        made, content = _named("namespace", name=f"namespace-{number}")
        content.metadata.labels["team"] = f"team-{number % 200}"
        yield made


# ------------------------------ ports and disks


def _ports(first: int) -> Any:
    made = kubernetes_pb2.PodSpec()
    container = made.containers.add()
    for each in range(9_000):
        container.ports.add(container_port=1, host_port=first + each, host_ip="10.0.0.1")
    return made


def _asking_ports(number: int) -> Any:
    made = pod()
    made.spec.MergeFrom(_ports(1000 + number))
    return made


def _held_ports() -> Iterator[state_pb.ClusterObject]:
    for number in range(4):
        yield _bound(f"ports-{number}", _ports(1000 + number))


def _images(number: int) -> Any:
    made = kubernetes_pb2.PodSpec()
    for each in range(30):
        rbd = made.volumes.add(name=f"v-{each}").volume_source.rbd
        rbd.image, rbd.pool = f"image-{each}", "rbd"
        rbd.monitors.extend(f"10.{number}.{one // 250}.{one % 250}" for one in range(300))
    return made


def _asking_images(number: int) -> Any:
    made = pod()
    made.spec.MergeFrom(_images(number))
    return made


def _held_images() -> Iterator[state_pb.ClusterObject]:
    for number in range(30):
        yield _bound(f"images-{number}", _images(100 + number))


# ------------------------------ taints


def _tainted() -> Iterator[state_pb.ClusterObject]:
    for number in range(2_000):
        made, node = _named("node", name=f"team-{number}")
        node.metadata.labels[HOSTNAME] = f"team-{number}"
        node.spec.taints.add(key="dedicated", value=f"team-{number}", effect="NoSchedule")
        for resource in ("cpu", "memory", "pods"):
            node.status.allocatable[resource].string = "110"
        yield made


def _tolerating(number: int) -> Any:
    made = pod()
    for each in range(4_900):
        made.spec.tolerations.add(
            key="dedicated", operator="Equal", value=f"team-{each + 1000 + number}"
        )
    return made


# ------------------------------ claims, volumes, capacities


def _claiming(number: int) -> Any:
    made = pod()
    made.metadata.name = f"claiming-{number}"
    for each in range(500):
        source = made.spec.volumes.add(name=f"v-{each}").volume_source
        source.persistent_volume_claim.claim_name = f"claim-{(each + number) % 500}"
    return made


def _storage_class(mode: str) -> state_pb.ClusterObject:
    made, content = _named("storage_class", name=_CLASS)
    content.provisioner = _DRIVER
    content.volume_binding_mode = mode
    return made


def _claims(count: int) -> Iterator[state_pb.ClusterObject]:
    for number in range(count):
        made, claim = _named("persistent_volume_claim", name=f"claim-{number}", namespace="default")
        claim.spec.storage_class_name = _CLASS
        claim.spec.access_modes.append("ReadWriteOnce")
        claim.spec.resources.requests["storage"].string = MIB
        claim.status.phase = "Pending"
        yield made


def _volumes(count: int, terms: int) -> Iterator[state_pb.ClusterObject]:
    for number in range(count):
        made, volume = _named("persistent_volume", name=f"volume-{number}")
        volume.spec.storage_class_name = _CLASS
        volume.spec.access_modes.append("ReadWriteOnce")
        volume.spec.capacity["storage"].string = MIB
        volume.status.phase = "Available"
        for each in range(terms):
            term = volume.spec.node_affinity.required.node_selector_terms.add()
            expression = term.match_expressions.add(key=HOSTNAME, operator="In")
            expression.values.append(f"node-{number + each}")
        yield made


def _claims_and_volumes() -> Iterator[state_pb.ClusterObject]:
    yield _storage_class("WaitForFirstConsumer")
    yield from _claims(500)
    yield from _volumes(600, 1)


def _claims_and_terms() -> Iterator[state_pb.ClusterObject]:
    yield _storage_class("WaitForFirstConsumer")
    yield from _claims(500)
    yield from _volumes(200, 1_000)


def _claims_and_capacities() -> Iterator[state_pb.ClusterObject]:
    yield _storage_class("WaitForFirstConsumer")
    driver, content = _named("csi_driver", name=_DRIVER)
    content.spec.storage_capacity = True
    yield driver
    yield from _claims(500)
    for number in range(1_000):
        made, capacity = _named("csi_storage_capacity", name=f"c-{number}", namespace="default")
        capacity.storage_class_name = _CLASS
        capacity.capacity.string = MIB if number % 2 else "1Ki"
        capacity.node_topology.match_labels[HOSTNAME] = f"node-{number}"
        yield made


# ------------------------------ devices


def _slices() -> Iterator[state_pb.ClusterObject]:
    made, device_class = _named("device_class", name="device")
    device_class.spec.selectors.add().cel.expression = f'device.driver == "{_DRIVER}"'
    yield made
    for number in range(400):
        made, content = _named("resource_slice", name=f"slice-{number}")
        spec = content.spec
        spec.driver, spec.pool.name, spec.node_name = _DRIVER, _POOL, f"node-{number}"
        spec.pool.name, spec.pool.resource_slice_count = f"{_POOL}-{number}", 1
        for each in range(500):
            spec.devices.add(name=f"device-{each}")
        yield made
    for number in range(100):
        made, claim = _named("resource_claim", name=f"devices-{number}", namespace="default")
        for each in range(32):
            request = claim.spec.devices.requests.add(name=f"r-{each}")
            request.exactly.device_class_name, request.exactly.count = "device", 4
        yield made


def _asking_devices(number: int) -> Any:
    made = pod()
    for each in range(10):
        claim = made.spec.resource_claims.add(name=f"c-{each}")
        claim.resource_claim_name = f"devices-{(number * 10 + each) % 100}"
    return made


# ------------------------------ selectors


def _selector(number: int, expressions: int = 4_990) -> Any:
    made = kubernetes_pb2.LabelSelector()
    for each in range(expressions):
        made.match_expressions.add(key="app", operator="NotIn", values=[f"none-{number}-{each}"])
    return made


def _constrained() -> Iterator[state_pb.ClusterObject]:
    """Pods with a constraint each that no other has."""
    for number in range(10_000):
        made, content = _named("pod", name=f"own-{number}", namespace="default")
        content.CopyFrom(pod())
        content.metadata.name, content.metadata.namespace = f"own-{number}", "default"
        content.spec.node_name = f"node-{number % 1000}"
        content.metadata.labels["app"] = f"own-{number}"
        constraint = content.spec.topology_spread_constraints[0]
        constraint.label_selector.match_labels["app"] = f"own-{number}"
        yield made


PRODUCTS: Final[Mapping[str, Product]] = {
    "namespaces and values": Product(pod=_crossed),
    "namespaces and values of stored pods": Product(pod=_crossed, stored=_crossed_pods),
    "terms and namespaces": Product(pod=_selecting, stored=_namespaces),
    "host ports": Product(pod=_asking_ports, stored=_held_ports),
    "images and monitors": Product(pod=_asking_images, stored=_held_images),
    "tolerations and taints": Product(pod=_tolerating, stored=_tainted),
    "claims and volumes": Product(pod=_claiming, stored=_claims_and_volumes),
    "volumes and terms": Product(pod=_claiming, stored=_claims_and_terms),
    "claims and capacities": Product(pod=_claiming, stored=_claims_and_capacities),
    "devices and requests": Product(pod=_asking_devices, stored=_slices),
    "expressions and pods": Product(selector=_selector),
    "expressions and watches": Product(
        selector=lambda number: _selector(number, 400), stored=_constrained, watches=60
    ),
}
"""By name; every one is accepted as long as it is here."""
