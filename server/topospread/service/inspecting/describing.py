"""One constraint in full: its domains with their nodes, and its pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topospread.errors import ObjectNotFound
from topospread.service.explaining.constraint_reports import (
    explain_constraint,
    explained_constraints,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.service.explaining.context import EvaluationContext
    from topospread.service.inspecting.inspector import Inspection
    from topospread.service.inspecting.inventory import RowPods
    from topospread.service.inspecting.statuses import ConstraintStatus
    from topospread.spread.constraints import Constraint
    from topospread_proto.v1.explanation_pb2 import ConstraintExplanation


class NodePods(NamedTuple):
    """Matching pods on one node.

    Attributes:
        reserved: places held for pods, of these.
        eligible: the constraint counts the node.
        usable: the scheduler's other filters leave it to the next replica.
    """

    node: str
    pods: int
    reserved: int
    eligible: bool
    usable: bool


class OwnedPod(NamedTuple):
    """A pod that has the constraint.

    Attributes:
        node: empty while it waits for one.
        domain: of its node; None without one, and where the node lacks the key.
    """

    name: str
    node: str
    domain: str | None


@dataclass(frozen=True, slots=True, eq=False)
class Description:
    """A constraint in full.

    Attributes:
        report: what an explanation of the next replica says of it.
        nodes: for each domain that the report lists, those with the most matching pods.
        unlisted_nodes: for each of these domains, how many are left out.
        pods: those that wait first, then by domain and name.
    """

    status: ConstraintStatus
    report: ConstraintExplanation
    nodes: Sequence[Sequence[NodePods]]
    unlisted_nodes: Sequence[int]
    pods: Sequence[OwnedPod]
    unlisted_pods: int


class DescriptionLimits(NamedTuple):
    """How much of a constraint is described: domains, nodes of each, pods."""

    domains: int
    nodes: int
    pods: int


def describe(inspection: Inspection, constraint_id: str, limits: DescriptionLimits) -> Description:
    """Describe a constraint.

    Args:
        inspection: the state.
        constraint_id: from a list.
        limits: how much.

    Raises:
        NotFound: there is none with this id.
    """
    status = inspection.statuses.get(constraint_id)
    if status is None:
        cluster = inspection.replica.cluster
        text = f"no constraint in a list of cluster {cluster!r} has the id {constraint_id!r:.80}"
        raise ObjectNotFound(text, "Constraint", constraint_id[:80], cluster)
    pods = inspection.rows[constraint_id]
    template = max(pods.waiting, key=lambda each: pods.waiting[each])
    context = template.context(inspection.view.snapshot)
    key = status.key
    explained = next(
        each
        for each in explained_constraints(context)
        if (each.index, each.constraint) == (key.index, key.constraint)
    )
    report = explain_constraint(context, explained, limits.domains)
    nodes_of = _DomainNodes(context, key.constraint, limits.nodes)
    listed = [nodes_of(domain.value) for domain in report.domains]
    members = sorted(_pods(inspection, status, pods), key=_waiting_first)
    return Description(
        status=status,
        report=report,
        nodes=[nodes for nodes, _ in listed],
        unlisted_nodes=[unlisted for _, unlisted in listed],
        pods=members[: limits.pods],
        unlisted_pods=max(0, len(members) - limits.pods),
    )


class _DomainNodes:
    """Finds the nodes of a constraint's domains.

    Args:
        context: the next replica, judged.
        constraint: whose domains.
        limit: nodes of each.
    """

    def __init__(self, context: EvaluationContext, constraint: Constraint, limit: int) -> None:
        snapshot, group = context.snapshot, constraint.group
        self._names = snapshot.nodes.names
        self._domains = snapshot.domains(constraint.topology_key)
        self._limit = limit
        self._pods = (
            np.zeros(snapshot.alive.size, dtype=np.int32)
            if group.counts_nothing
            else snapshot.node_counts(group)
        )
        self._reserved = context.reserved(group)
        self._eligible = snapshot.mask(constraint.eligibility)
        self._usable = context.usable

    def __call__(self, value: str) -> tuple[list[NodePods], int]:
        """The nodes of a domain with the most matching pods, and how many others it has."""
        slots = np.flatnonzero(self._domains.ids == self._domains.number[value]).tolist()
        slots.sort(key=lambda slot: (-int(self._pods[slot]), self._names[slot]))
        found = [
            NodePods(
                self._names[slot],
                int(self._pods[slot]),
                int(self._reserved[slot]),
                bool(self._eligible[slot]),
                bool(self._usable[slot]),
            )
            for slot in slots[: self._limit]
        ]
        return found, len(slots) - len(found)


def _pods(inspection: Inspection, status: ConstraintStatus, pods: RowPods) -> Iterator[OwnedPod]:
    """The pods that have it, as of this moment."""
    snapshot = inspection.view.snapshot
    domains = snapshot.domains(status.key.constraint.topology_key)
    for _, name, node in inspection.replica.members(pods.classes):
        slot = snapshot.slot(node) if node else -1
        number = int(domains.ids[slot]) if slot >= 0 else -1
        yield OwnedPod(name, node, domains.values[number] if number >= 0 else None)


def _waiting_first(pod: OwnedPod) -> tuple[bool, str, str]:
    return bool(pod.node), pod.domain or "", pod.name
