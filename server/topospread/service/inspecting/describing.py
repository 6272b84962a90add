"""Messages of constraints: of a row of a list, and of one in full with its domains, nodes and pods.

20,000 rows take 2.9 kB each, so an inspection keeps values: 0.3 kB, with what they share. Of a row
that was listed its bytes are kept, for lists are asked for again and again: 0.4 kB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from topospread.errors import ObjectNotFound
from topospread.service.explaining.constraint_reports import (
    explain_constraint,
    explained_constraints,
)
from topospread.service.explaining.counted_pods import NO_OWNER
from topospread.service.messages import constraint_message
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import inspector_service_pb2 as pb
from topospread_proto.v1.common_pb2 import PodReference

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from topospread.service.explaining.context import EvaluationContext
    from topospread.service.inspecting.cluster_inspector import Inspection
    from topospread.service.inspecting.inventory import RowPods
    from topospread.service.inspecting.statuses import ConstraintStatus, State
    from topospread.spread.constraints import Constraint
    from topospread_proto.v1.explanation_pb2 import DomainExplanation


def status_message(status: ConstraintStatus, limit: int) -> pb.ConstraintStatus:
    """The message of a status."""
    kept = status.listed.get(limit)
    if kept is not None:
        return pb.ConstraintStatus.FromString(kept)
    message = _status(status, limit)
    # Of one limit: callers choose it.
    status.listed.clear()
    status.listed[limit] = message.SerializeToString()
    return message


def _status(status: ConstraintStatus, limit: int) -> pb.ConstraintStatus:
    key, spread = status.key, status.spread
    listed, shown_first = spread.listed(limit)
    owner = None
    if key.owner != NO_OWNER:
        owner = common_pb2.WorkloadReference(kind=key.owner.kind, name=key.owner.name)
    return pb.ConstraintStatus(
        constraint_id=key.id,
        constraint=constraint_message(key.constraint),
        owner=owner,
        defaulted=key.defaulted,
        state=status.state,
        skew=spread.skew,
        global_minimum=spread.minimum,
        minimum_reason=spread.minimum_because,
        lowest_pod_count=spread.lowest,
        highest_pod_count=spread.highest,
        pod_count=spread.pods,
        bound_pod_count=status.bound,
        pending_pod_count=status.pending + status.gated,
        blocked_pod_count=status.blocked,
        domain_count=spread.domain_count,
        eligible_domain_count=spread.membership.size,
        allowed_domain_count=spread.allowed_domain_count,
        message=status.message,
        domains=[common_pb2.DomainCount(value=value, pod_count=pods) for value, pods in listed],
        leading_domain_count=shown_first,
        unlisted_domain_count=spread.membership.size - len(listed),
        findings=status.findings,
        not_modelled=status.gaps,
        gated_pod_count=status.gated,
        waiting_reason=status.waiting_reason,
        counted=None if status.sharing is None else status.sharing.message,
    )


def total_messages(totals: Mapping[State, int]) -> list[pb.SpreadStateCount]:
    """How many constraints are in each state."""
    return [
        pb.SpreadStateCount(state=state, constraint_count=count) for state, count in totals.items()
    ]


class DescriptionLimits(NamedTuple):
    """How much of a constraint is described: domains, nodes of each, pods."""

    domains: int
    nodes: int
    pods: int


def describe(
    inspection: Inspection, constraint_id: str, limits: DescriptionLimits
) -> pb.GetConstraintResponse:
    """Describe a constraint.

    Raises:
        NotFound: there is none with this id.
    """
    status = inspection.statuses.get(constraint_id)
    if status is None:
        cluster = inspection.replica.cluster
        text = f"no constraint in a list of cluster {cluster!r} has the id {constraint_id!r:.80}"
        raise ObjectNotFound(text, "Constraint", constraint_id[:80], cluster)
    pods = inspection.rows[constraint_id]
    context = pods.next.context(inspection.view.snapshot)
    key = status.key
    explained = next(
        each
        for each in explained_constraints(context)
        if (each.index, each.constraint) == (key.index, key.constraint)
    )
    report = explain_constraint(context, explained, limits.domains)
    nodes_of = _DomainNodes(context, key.constraint, limits.nodes)
    members = sorted(_pods(inspection, status, pods), key=_waiting_first)
    return pb.GetConstraintResponse(
        constraint=status_message(status, limits.domains),
        domains=map(nodes_of, report.domains),
        leading_domain_count=report.leading_domain_count,
        unlisted_domain_count=report.unlisted_domain_count,
        pods=members[: limits.pods],
        unlisted_pod_count=max(0, len(members) - limits.pods),
    )


class _DomainNodes:
    """Finds the nodes of a constraint's domains."""

    def __init__(self, context: EvaluationContext, constraint: Constraint, limit: int) -> None:
        snapshot = context.snapshot
        self._names = snapshot.nodes.names
        self._domains = snapshot.domains(constraint.topology_key)
        self._limit = limit
        self._pods = (
            np.zeros(snapshot.alive.size, dtype=np.int32)
            if constraint.counts_nothing
            else snapshot.node_counts(constraint.group)
        )
        self._reserved = context.reserved(constraint)
        self._eligible = snapshot.mask(constraint.eligibility)
        self._usable = context.usable

    def __call__(self, domain: DomainExplanation) -> pb.ConstraintDomain:
        """A domain with its nodes, those with the most matching pods first."""
        slots = np.flatnonzero(self._domains.ids == self._domains.number[domain.value]).tolist()
        slots.sort(key=lambda slot: (-int(self._pods[slot]), self._names[slot]))
        shown = slots[: self._limit]
        return pb.ConstraintDomain(
            domain=domain,
            nodes=[
                pb.NodeCount(
                    node=self._names[slot],
                    pod_count=int(self._pods[slot]),
                    reserved_pod_count=int(self._reserved[slot]),
                    eligible=bool(self._eligible[slot]),
                    usable=bool(self._usable[slot]),
                )
                for slot in shown
            ],
            unlisted_node_count=len(slots) - len(shown),
        )


def _pods(
    inspection: Inspection, status: ConstraintStatus, pods: RowPods
) -> Iterator[pb.ConstraintPod]:
    snapshot = inspection.view.snapshot
    domains = snapshot.domains(status.key.constraint.topology_key)
    for _, name, node in inspection.replica.members().of(pods.classes):
        slot = snapshot.slot(node) if node else -1
        number = int(domains.ids[slot]) if slot >= 0 else -1
        yield pb.ConstraintPod(
            pod=PodReference(namespace=status.key.namespace, name=name),
            node=node,
            domain=domains.values[number] if number >= 0 else None,
        )


def _waiting_first(pod: pb.ConstraintPod) -> tuple[bool, str, str]:
    return bool(pod.node), pod.domain, pod.pod.name
