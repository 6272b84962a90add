"""The messages of constraints, made for what is listed.

20,000 of them take 2.9 kB each, so an inspection keeps values: 0.3 kB, with what they share. Of a
row that was listed its bytes are kept, for lists are asked for again and again: 0.4 kB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.service.inspecting.statuses import NO_OWNER
from topospread.service.messages import constraint_message
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread.service.inspecting.statuses import ConstraintStatus, State


def status_message(status: ConstraintStatus, limit: int) -> pb.ConstraintStatus:
    """The message of a status.

    Args:
        status: of the constraint.
        limit: domains to list.
    """
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
        owner = pb.WorkloadReference(kind=key.owner.kind, name=key.owner.name)
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
        pending_pod_count=status.pending,
        blocked_pod_count=status.blocked,
        domain_count=spread.domain_count,
        eligible_domain_count=spread.membership.size,
        allowed_domain_count=spread.allowed_domain_count,
        message=status.message,
        domains=[common_pb2.DomainCount(value=value, pod_count=pods) for value, pods in listed],
        leading_domain_count=shown_first,
        unlisted_domain_count=spread.membership.size - len(listed),
        findings=status.findings,
    )


def total_messages(totals: Mapping[State, int]) -> list[pb.SpreadStateCount]:
    """How many constraints are in each state."""
    return [
        pb.SpreadStateCount(state=state, constraint_count=count) for state, count in totals.items()
    ]
