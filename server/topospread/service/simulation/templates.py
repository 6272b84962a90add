"""Whether a workload's template is that of its pods."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.codec.amounts import lenient_amounts
from topospread.codec.pod_parts import host_ports, pod_volumes
from topospread.codec.stored import stored_form
from topospread.kube.demands import claim_name
from topospread.spread.settings import DEFAULT_PROFILE
from topospread.store.model import Kind
from topospread_client import CONTROLLER_LABELS
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from topospread.kube.demands import Disk

WRITTEN: Final = frozenset(label for labels in CONTROLLER_LABELS.values() for label in labels)
"""Labels that controllers write."""


def changes(template: pb.Pod, newest: pb.Pod) -> Iterator[str]:
    """The fields in which a template differs from one of its pods, as far as these decide.

    What admission and controllers add to pods is no difference.
    """
    given = pb.Pod.FromString(
        stored_form(Kind.POD, template.SerializeToString()).SerializeToString()
    )
    own, theirs = given.spec, newest.spec
    labels = {k: v for k, v in given.metadata.labels.items() if k not in WRITTEN}
    if any(newest.metadata.labels.get(key) != value for key, value in labels.items()):
        yield "labels"
    if [*map(_constraint, own.topology_spread_constraints)] != [
        *map(_constraint, theirs.topology_spread_constraints)
    ]:
        yield "topologySpreadConstraints"
    if own.node_selector != theirs.node_selector:
        yield "nodeSelector"
    if own.affinity.node_affinity != theirs.affinity.node_affinity or any(
        _terms(mine, mine) != _terms(other, mine)
        for mine, other in (
            (own.affinity.pod_affinity, theirs.affinity.pod_affinity),
            (own.affinity.pod_anti_affinity, theirs.affinity.pod_anti_affinity),
        )
    ):
        yield "affinity"
    known = {each.SerializeToString() for each in theirs.tolerations}
    if any(each.SerializeToString() not in known for each in own.tolerations):
        yield "tolerations"
    if (own.scheduler_name or DEFAULT_PROFILE) != (theirs.scheduler_name or DEFAULT_PROFILE):
        yield "schedulerName"
    containers = {each.name: each.resources for each in _containers(theirs)}
    if any(each.name not in containers for each in _containers(own)):
        yield "containers"
    both = [(each.resources, containers.get(each.name)) for each in _containers(own)]
    if any(
        there is not None and _differ(mine, there)
        for mine, there in ((own.resources, theirs.resources), *both)
    ):
        yield "requests"
    if {*host_ports(own)} != {*host_ports(theirs)}:
        yield "host ports"
    pod = newest.metadata.name
    if _volumes(template.spec, pod) != _volumes(theirs, pod):
        yield "volumes"
    if [*own.resource_claims] != [*theirs.resource_claims]:
        yield "resourceClaims"


def _containers(spec: pb.PodSpec) -> list[pb.Container]:
    return [*spec.init_containers, *spec.containers]


def _differ(own: pb.ResourceRequirements, theirs: pb.ResourceRequirements) -> bool:
    """Whether one of the amounts that a template names is another; admission adds others."""
    there = lenient_amounts(theirs.requests)
    return any(there.get(name) != each for name, each in lenient_amounts(own.requests).items())


def _volumes(spec: pb.PodSpec, pod: str) -> set[tuple[str, Disk | None]]:
    """The claims and disks of a pod by this name."""
    return {(claim_name(each, pod), each.disk) for each in pod_volumes(spec.volumes)}


def _without_label_keys(selector: pb.LabelSelector, keys: Iterable[str]) -> object:
    """A selector without what the API server adds for label keys."""
    added = WRITTEN.union(keys)
    expressions = frozenset(
        (each.key, each.operator, frozenset(each.values))
        for each in selector.match_expressions
        if each.key not in added
    )
    return frozenset(selector.match_labels.items()), expressions


def _constraint(each: pb.TopologySpreadConstraint) -> object:
    keys = frozenset(each.match_label_keys)
    return (
        each.topology_key,
        each.max_skew,
        each.when_unsatisfiable,
        each.min_domains or 1,
        each.node_affinity_policy or "Honor",
        each.node_taints_policy or "Ignore",
        keys,
        _without_label_keys(each.label_selector, keys) if each.HasField("label_selector") else None,
    )


def _terms(of: pb.PodAffinity, template: pb.PodAffinity) -> list[object]:
    """The required terms; label keys are those of the template, which stored pods lack."""
    own = template.required_during_scheduling_ignored_during_execution
    keys = {key for each in own for key in (*each.match_label_keys, *each.mismatch_label_keys)}
    return [
        (
            each.topology_key,
            frozenset(each.namespaces),
            _without_label_keys(each.label_selector, keys),
        )
        for each in of.required_during_scheduling_ignored_during_execution
    ]
