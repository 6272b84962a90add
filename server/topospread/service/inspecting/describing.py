"""One constraint in full: its domains with their nodes, and its pods."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topospread.errors import ObjectNotFound
from topospread.service.explaining.constraint_reports import constraint_reports

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.service.explaining.context import EvaluationContext
    from topospread.service.explaining.reports import ConstraintReport
    from topospread.service.inspecting.inspector import Inspection
    from topospread.service.inspecting.inventory import RowPods
    from topospread.service.inspecting.statuses import ConstraintStatus


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
    report: ConstraintReport
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
        text = f"no pod of cluster {cluster!r} has a constraint with the id {constraint_id!r:.80}"
        raise ObjectNotFound(text, "Constraint", constraint_id[:80], cluster)
    pods = inspection.rows[constraint_id]
    template = max(pods.waiting, key=lambda each: pods.waiting[each])
    context = template.context(inspection.view.snapshot)
    key = status.key
    report = next(
        each
        for each in constraint_reports(context, limits.domains)
        if (each.index, each.constraint) == (key.index, key.constraint)
    )
    listed = [_nodes(context, report, domain.value, limits.nodes) for domain in report.listed]
    members = sorted(_pods(inspection, status, pods), key=_waiting_first)
    return Description(
        status=status,
        report=report,
        nodes=[nodes for nodes, _ in listed],
        unlisted_nodes=[unlisted for _, unlisted in listed],
        pods=members[: limits.pods],
        unlisted_pods=max(0, len(members) - limits.pods),
    )


def _nodes(
    context: EvaluationContext, report: ConstraintReport, value: str, limit: int
) -> tuple[list[NodePods], int]:
    """The nodes of a domain with the most matching pods, and how many others it has."""
    snapshot, constraint = context.snapshot, report.constraint
    domains = snapshot.domains(constraint.topology_key)
    slots = np.flatnonzero(snapshot.alive & (domains.ids == domains.number[value]))
    group = constraint.group
    pods = np.zeros(snapshot.alive.size, dtype=np.int64)
    if not group.counts_nothing:
        pods = pods + snapshot.node_counts(group)
    names = [snapshot.nodes.names[slot] for slot in slots.tolist()]
    order = sorted(range(len(names)), key=lambda i: (-int(pods[slots[i]]), names[i]))[:limit]
    reserved = context.reserved(group)
    eligible = snapshot.mask(constraint.eligibility)
    found = [
        NodePods(
            names[i],
            int(pods[slots[i]]),
            int(reserved[slots[i]]),
            bool(eligible[slots[i]]),
            bool(context.usable[slots[i]]),
        )
        for i in order
    ]
    return found, len(names) - len(found)


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
