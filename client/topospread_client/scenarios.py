"""What Simulate is asked to suppose, as callers write it → parts of its request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from topospread_client.errors import InvalidRequest, Violation
from topospread_client.manifests import object_from_manifest
from topospread_client.requests import PodLike, subject
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import kubernetes_pb2 as kube
from topospread_proto.v1 import simulate_pb2 as pb

NodeLike: TypeAlias = kube.Node | Mapping[str, Any]
"""A node as a message or as a manifest."""

_MOST = 2**32 - 1


@dataclass(frozen=True, slots=True)
class Pods:
    """Pods of one template.

    Attributes:
        pod: a message, a manifest (of a pod or of a workload that makes pods), bytes of a v1.Pod,
            or ``namespace/name`` of a pod in the state.
        replicas: how many, named NAME-0, NAME-1 …; None: one, under the pod's own name.
    """

    pod: PodLike
    replicas: int | None = None

    def message(self, path: str) -> pb.PodsToPlace:
        """As the request carries it.

        Raises:
            InvalidRequest: replicas that cannot be; bytes that are no v1.Pod.
            ManifestError: a manifest that is no pod.
        """
        given = subject(self.pod)
        replicas = None
        if self.replicas is not None:
            replicas = _count(self.replicas, f"{path}.replicas")
        return pb.PodsToPlace(pod=given.pod, pod_ref=given.pod_ref, replicas=replicas)


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that join.

    Attributes:
        template: what each is like: labels, taints, status.allocatable.
        count: how many; when the fewest are looked for, the most that may join, 0 for no bound.
        name: tells groups apart in the answer; empty: the template's name.
        variants: labels that the nodes take in turn, one mapping a zone.
    """

    template: NodeLike
    count: int = 1
    name: str = ""
    variants: Sequence[Mapping[str, str]] = ()

    def message(self, path: str) -> pb.NodeGroup:
        """As the request carries it.

        Raises:
            InvalidRequest: a count that cannot be, or a manifest of another kind.
            ManifestError: a manifest that cannot be read.
        """
        return pb.NodeGroup(
            name=self.name,
            template=_node(self.template),
            count=_count(self.count, f"{path}.count"),
            variants=[pb.NodeLabels(labels=labels) for labels in self.variants],
        )


@dataclass(frozen=True, slots=True)
class Drain:
    """A node that is emptied; with `stays` it is still there, with a NoSchedule taint."""

    node: str
    stays: bool = False

    def message(self) -> pb.DrainedNode:
        """As the request carries it."""
        mode = pb.DRAIN_MODE_TAINTED if self.stays else pb.DRAIN_MODE_GONE
        return pb.DrainedNode(node=self.node, mode=mode)


@dataclass(frozen=True, slots=True)
class ConstraintChange:
    """Other values for the pods' constraints with one key; None leaves a value as it is.

    Attributes:
        when_unsatisfiable: only those that say this; empty: all with the key.
        min_domains: 0 takes it away.
    """

    topology_key: str
    when_unsatisfiable: str = ""
    max_skew: int | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    new_when_unsatisfiable: str | None = None

    def message(self) -> pb.ConstraintChange:
        """As the request carries it."""
        return pb.ConstraintChange(
            topology_key=self.topology_key,
            when_unsatisfiable=self.when_unsatisfiable,
            max_skew=self.max_skew,
            min_domains=self.min_domains,
            node_affinity_policy=self.node_affinity_policy,
            node_taints_policy=self.node_taints_policy,
            new_when_unsatisfiable=self.new_when_unsatisfiable,
        )


def references(names: Iterable[str]) -> Iterable[common.PodReference]:
    """Pods of the state, each as ``namespace/name``."""
    for name in names:
        space, _, own = name.rpartition("/")
        yield common.PodReference(namespace=space, name=own)


def _node(given: NodeLike) -> kube.Node:
    if isinstance(given, kube.Node):
        return given
    made = object_from_manifest(given)
    if made is None or not made.HasField("node"):
        raise InvalidRequest(f"kind {given.get('kind')!r}: the template of nodes must be a Node")
    return made.node


def _count(number: int, path: str) -> int:
    if 0 <= number <= _MOST:
        return number
    bound = "greater than or equal to 0" if number < 0 else f"at most {_MOST}"
    violation = Violation(path, "Invalid value", f"must be {bound}")
    raise InvalidRequest(violation.text, violations=(violation,))
