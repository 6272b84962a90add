"""Counting without an index: a cluster as dictionaries, and each count as a loop over its pods."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from topospread.index.changes import (
    IndexChange,
    NodeChange,
    PodChange,
    PodRow,
    ReservationChange,
    ReservationRow,
    WorkloadChange,
)
from topospread.kube.tolerations import Tolerations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread.kube.demands import Holds
    from topospread.kube.objects import Node, Workload
    from topospread.spread.topology import Eligibility, GroupKey

_K = TypeVar("_K")
_V = TypeVar("_V")


@dataclass
class Cluster:
    """What is known of a cluster after some changes."""

    nodes: dict[str, Node] = field(default_factory=dict)
    pods: dict[tuple[str, str], PodRow] = field(default_factory=dict)
    workloads: dict[tuple[str, str, str], Workload] = field(default_factory=dict)
    reservations: dict[tuple[str, str], ReservationRow] = field(default_factory=dict)

    def change(self, changes: Iterable[IndexChange]) -> None:
        """Let changes happen."""
        for change in changes:
            match change:
                case PodChange(namespace, name, row):
                    put(self.pods, (namespace, name), row)
                case ReservationChange(namespace, name, held):
                    put(self.reservations, (namespace, name), held)
                case NodeChange(name, node):
                    put(self.nodes, name, node)
                case WorkloadChange(kind, namespace, name, workload):
                    put(self.workloads, (kind, namespace, name), workload)

    def changes(self) -> list[IndexChange]:
        """What makes this cluster out of an empty one."""
        return [
            *(PodChange(namespace, name, row) for (namespace, name), row in self.pods.items()),
            *(ReservationChange(*pod, held) for pod, held in self.reservations.items()),
            *(NodeChange(name, node) for name, node in self.nodes.items()),
            *(WorkloadChange(*key, workload) for key, workload in self.workloads.items()),
        ]

    def copy(self) -> Cluster:
        """The cluster as it is now."""
        parts = (self.nodes, self.pods, self.workloads, self.reservations)
        return Cluster(*map(dict, parts))  # type: ignore[arg-type] # each is what it was

    def pods_by_node(self, group: GroupKey) -> dict[str, int]:
        """Matching pods on each node, and reservations for such pods."""
        counted = [
            (namespace, row)
            for (namespace, _), row in self.pods.items()
            if row.counted or (group.terminating and row.node_name and row.requests is not None)
        ]
        counted += [
            (namespace, PodRow(held.labels, held.node_name, counted=True))
            for (namespace, _), held in self.reservations.items()
        ]
        found = Counter(
            row.node_name
            for namespace, row in counted
            if namespace in (group.namespaces or {group.namespace})
            and group.selector.matches(dict(row.labels))
        )
        return {name: found[name] for name in self.nodes}

    def members(self) -> dict[tuple[str, bytes], list[tuple[str, str]]]:
        """Name and node of the pods of each class, which its namespace and template name."""
        found: dict[tuple[str, bytes], list[tuple[str, str]]] = {}
        for (namespace, name), row in sorted(self.pods.items()):
            if row.template is not None:
                found.setdefault((namespace, row.template), []).append((name, row.node_name))
        return found

    def taken(self, resource: str) -> dict[str, int]:
        """What pods and reservations take of a resource of each node."""
        found = dict.fromkeys(self.nodes, 0)
        pods = [(row.node_name, row.requests) for row in self.pods.values()]
        held = [(row.node_name, row.requests) for row in self.reservations.values()]
        for node_name, requests in (*pods, *held):
            if requests is not None and node_name in found:
                found[node_name] += 1 if resource == "pods" else dict(requests).get(resource, 0)
        return found

    def rows(self) -> list[PodRow | ReservationRow]:
        """Those of pods and reservations."""
        return [*self.pods.values(), *self.reservations.values()]

    def holding(self) -> list[tuple[str, Holds]]:
        """The node of each pod and reservation on a known node that holds anything, and what."""
        return [
            (row.node_name, row.holds)
            for row in self.rows()
            if row.holds is not None and row.node_name in self.nodes
        ]

    def priorities(self) -> dict[str, list[int]]:
        """The priorities of the pods and reservations that take something, by node."""
        found: dict[str, list[int]] = {name: [] for name in self.nodes}
        for row in self.rows():
            if row.requests is not None and row.node_name in found:
                found[row.node_name].append(0 if row.holds is None else row.holds.priority)
        return found

    def eligible(self, eligibility: Eligibility) -> set[str]:
        """Names of the eligible nodes."""
        return {name for name, node in self.nodes.items() if is_eligible(node, eligibility)}

    def domains(self, key: str) -> dict[str, str]:
        """The domain of each node that has the label."""
        return {name: node.labels[key] for name, node in self.nodes.items() if key in node.labels}

    def nodes_by_domain(self, eligibility: Eligibility, key: str) -> dict[str, int]:
        """Eligible nodes in each domain that has any."""
        eligible, domains = self.eligible(eligibility), self.domains(key)
        return dict(Counter(domain for name, domain in domains.items() if name in eligible))

    def pods_by_domain(self, group: GroupKey, eligibility: Eligibility, key: str) -> dict[str, int]:
        """Matching pods on eligible nodes of each domain that has any such node."""
        pods, domains = self.pods_by_node(group), self.domains(key)
        counts = dict.fromkeys(self.nodes_by_domain(eligibility, key), 0)
        for name in self.eligible(eligibility) & set(domains):
            counts[domains[name]] += pods[name]
        return counts


def put(content: dict[_K, _V], key: _K, value: _V | None) -> None:
    """Note what there is under a key now; None: nothing."""
    if value is None:
        content.pop(key, None)
    else:
        content[key] = value


def is_eligible(node: Node, eligibility: Eligibility) -> bool:
    """Whether a node has the keys, fulfils the requirements and has no taint in the way."""
    required, tolerations = eligibility.requirements, eligibility.tolerations
    return (
        all(key in node.labels for key in eligibility.keys)
        and (required is None or required.matches(node.name, node.labels))
        and (
            tolerations is None
            or Tolerations(
                tolerations, comparison_operators=eligibility.comparison_operators
            ).tolerate(node.taints)
        )
    )
