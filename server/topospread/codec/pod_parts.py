"""Reads the parts of a pod that other filters than resources look at: ports, volumes, terms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.codec.pods import selector_from_proto, selector_of
from topospread.errors import InvalidRequest
from topospread.kube.demands import (
    ALL_ADDRESSES,
    AWS_EBS,
    AZURE_DISK,
    CINDER,
    GCE_PD,
    HUGE_PAGES,
    ISCSI,
    PORTWORX,
    RBD,
    TCP,
    VSPHERE,
    Disk,
    HostPort,
    PodVolume,
)
from topospread.kube.pod_affinity import UNTOLD, affinity_term, with_label_keys
from topospread.kube.selectors import NOTHING, SelectorError, compile_selector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from topospread.generated.internal.v1 import stored_pb2
    from topospread.kube.pod_affinity import AffinityTerm
    from topospread.kube.selectors import Selector
    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

    ReadSelector = Callable[[pb.LabelSelector, str], Selector]

IN_TREE: Final = {
    "gce_persistent_disk": (GCE_PD, "pd_name"),
    "aws_elastic_block_store": (AWS_EBS, "volume_id"),
    "azure_disk": (AZURE_DISK, "disk_uri"),
    "cinder": (CINDER, "volume_id"),
    "vsphere_volume": (VSPHERE, "volume_path"),
    "portworx_volume": (PORTWORX, "volume_id"),
}
"""In-tree sources of volumes, a pod's own and persistent ones: the plugin, and the field of the
volume's name.
"""

ALWAYS: Final = "Always"
RESTART_ALL: Final = "RestartAllContainers"
RESTART_ALL_FEATURE: Final = "RestartAllContainersOnContainerExits"
RESIZE_PENDING: Final = "PodResizePending"
INFEASIBLE: Final = "Infeasible"
"""A condition of a pod, and its reason where its node cannot give what it asks for."""

NEVER: Final = "Never"
"""A preemptionPolicy."""

MAX_AFFINITY_TERMS: Final = 100
"""Required terms of one pod's inter-pod affinity: real ones have one to four, and another pod has
to match all terms of an affinity at once.
"""

MAX_INDEXED_PARTS: Final = 10_000
"""Labels, ports, volumes and their monitors, resources and parts of terms of a pod of the cluster:
real ones have dozens. The index keeps up to a kilobyte for each.
"""

MAX_AFFINITY_PARTS: Final = 5000
"""Expressions, values and namespaces of one pod's inter-pod affinity in all terms."""


def host_ports(spec: pb.PodSpec) -> tuple[HostPort, ...]:
    """Ports of the node that containers and sidecars take, each once."""
    found: dict[HostPort, None] = {}
    sidecars = [each for each in spec.init_containers if each.restart_policy == ALWAYS]
    for container in (*spec.containers, *sidecars):
        for each in container.ports:
            number = each.host_port or (each.container_port if spec.host_network else 0)
            if number > 0:
                found[HostPort(number, each.protocol or TCP, each.host_ip or ALL_ADDRESSES)] = None
    return tuple(found)


def pod_volumes(volumes: Iterable[pb.Volume]) -> tuple[PodVolume, ...]:
    """Volumes with a claim or a disk."""
    return tuple([read for each in volumes if (read := _volume(each)) is not None])


def _volume(volume: pb.Volume) -> PodVolume | None:
    source = volume.volume_source
    if source.HasField("persistent_volume_claim"):
        claim = source.persistent_volume_claim
        return PodVolume(volume.name, claim.claim_name, read_only=claim.read_only)
    if source.HasField("ephemeral"):
        return PodVolume(volume.name, ephemeral=True)
    disk = _disk(source)
    if disk is None:
        return None
    return PodVolume(volume.name, disk=disk, read_only=disk.read_only)


def _disk(source: pb.VolumeSource) -> Disk | None:
    if source.HasField("iscsi"):
        return Disk(ISCSI, source.iscsi.iqn, source.iscsi.read_only)
    if source.HasField("rbd"):
        rbd = source.rbd
        handle = f"{rbd.pool or 'rbd'}/{rbd.image}"
        return Disk(RBD, handle, rbd.read_only, tuple(sorted(set(rbd.monitors))))
    for field, found in source.ListFields():
        if field.name in IN_TREE:
            plugin, name = IN_TREE[field.name]
            return Disk(plugin, getattr(found, name), getattr(found, "read_only", False))
    return None


def affinity_terms(
    given: pb.PodAffinity,
    path: str,
    namespace: str,
    labels: Mapping[str, str] | None,
    read: ReadSelector = selector_of,
) -> tuple[AffinityTerm, ...]:
    """Required terms of a pod; those without a topology key are UNTOLD.

    Args:
        given: affinity or anti-affinity.
        path: of it.
        namespace: of the pod.
        labels: of the pod, where the label keys are still to be merged; None: they are.
        read: compiles a selector.
    """
    return tuple(_terms(given, path, namespace, labels, read))


def _terms(
    given: pb.PodAffinity,
    path: str,
    namespace: str,
    labels: Mapping[str, str] | None,
    read: ReadSelector,
) -> Iterator[AffinityTerm]:
    for index, term in enumerate(given.required_during_scheduling_ignored_during_execution):
        here = f"{path}.requiredDuringSchedulingIgnoredDuringExecution[{index}]"
        if not term.topology_key:
            yield UNTOLD
            continue
        selector = NOTHING
        if term.HasField("label_selector"):
            selector = read(term.label_selector, f"{here}.labelSelector")
        if labels is not None:
            keys = term.match_label_keys, term.mismatch_label_keys
            selector = with_label_keys(selector, labels, *keys)
        chosen = None
        if term.HasField("namespace_selector"):
            chosen = read(term.namespace_selector, f"{here}.namespaceSelector")
        yield affinity_term(namespace, term.topology_key, selector, term.namespaces, chosen)


def lenient_selector(given: pb.LabelSelector, path: str = "") -> Selector:
    """A selector of an object of the cluster; one that does not parse matches nothing."""
    del path
    try:
        return compile_selector(selector_from_proto(given))
    except SelectorError:
        return NOTHING


def check_affinity_parts(affinity: pb.Affinity) -> None:
    """Limit the expressions of a pod's terms before any of them is compiled."""
    for each in (affinity.pod_affinity, affinity.pod_anti_affinity):
        if len(each.required_during_scheduling_ignored_during_execution) > MAX_AFFINITY_TERMS:
            text = f"more than {MAX_AFFINITY_TERMS} required terms"
            raise InvalidRequest.at("spec.affinity", text, "Too many")
    if sum(_parts(affinity)) > MAX_AFFINITY_PARTS:
        text = f"more than {MAX_AFFINITY_PARTS} expressions, values and namespaces"
        raise InvalidRequest.at("spec.affinity", text, "Too many")


def _parts(affinity: pb.Affinity) -> Iterator[int]:
    """The expressions, values and namespaces of each required term."""
    for each in (affinity.pod_affinity, affinity.pod_anti_affinity):
        for term in each.required_during_scheduling_ignored_during_execution:
            selectors = (term.label_selector, term.namespace_selector)
            yield 1 + len(term.namespaces)
            yield len(term.match_label_keys) + len(term.mismatch_label_keys)
            yield sum(len(selector.match_labels) for selector in selectors)
            yield sum(1 + len(e.values) for s in selectors for e in s.match_expressions)


def too_much(pod: pb.Pod) -> str:
    """Why the index does not keep a pod of the cluster, or empty."""
    spec = pod.spec
    containers = (*spec.containers, *spec.init_containers)
    of_containers = sum(
        len(each.ports) + len(each.resources.requests) + len(each.resources.limits)
        for each in containers
    )
    monitors = sum(len(each.volume_source.rbd.monitors) for each in spec.volumes)
    others = (pod.metadata.labels, spec.volumes, spec.resource_claims, spec.overhead)
    parts = of_containers + monitors + sum(map(len, others)) + sum(_parts(spec.affinity))
    if parts <= MAX_INDEXED_PARTS:
        return ""
    return (
        f"it has {parts} labels, ports, volumes, monitors, resources and parts of terms of"
        f" inter-pod affinity together, of one pod at most {MAX_INDEXED_PARTS} are kept"
    )


def needed_features(spec: pb.PodSpec) -> tuple[str, ...]:
    """Features that the node must declare."""
    for container in (*spec.containers, *spec.init_containers):
        if any(rule.action == RESTART_ALL for rule in container.restart_policy_rules):
            return (RESTART_ALL_FEATURE,)
    return ()


def limits_of_the_pod(
    spec: pb.PodSpec | stored_pb2.StoredPodSpec,
) -> list[tuple[str, pb.Quantity]]:
    """Limits of the whole pod that are requests of it, too, as the API server defaults them.

    Those of a resource that no container asks for, and of huge pages, which are not overcommitted.
    """
    if not spec.resources.limits:
        return []
    named = set(spec.resources.requests)
    for container in (*spec.containers, *spec.init_containers):
        for amounts in (container.resources.requests, container.resources.limits):
            named |= {name for name in amounts if not name.startswith(HUGE_PAGES)}
    return [(name, limit) for name, limit in spec.resources.limits.items() if name not in named]
