"""Encodes what the Inspector says of constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.service.inspecting.statuses import NO_OWNER, SpreadState
from topospread.service.messages import constraint_message
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topospread.service.inspecting.describing import Description, DescriptionLimits
    from topospread.service.inspecting.statuses import ConstraintStatus

STATES: Final = {state: pb.SpreadState.Value(f"SPREAD_STATE_{state.name}") for state in SpreadState}


def status_message(status: ConstraintStatus, limit: int) -> pb.ConstraintStatus:
    """Encode a status; made once for a limit, for lists are asked for again and again.

    Args:
        status: of the constraint.
        limit: domains to list.
    """
    made: pb.ConstraintStatus | None = status.made.get(limit)
    if made is None:
        made = status.made[limit] = _status(status, limit)
    return made


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
        state=STATES[status.state],
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


def total_messages(totals: Mapping[SpreadState, int]) -> Iterable[pb.SpreadStateCount]:
    """Encode how many constraints are in each state."""
    return [
        pb.SpreadStateCount(state=STATES[state], constraint_count=count)
        for state, count in totals.items()
    ]


def description_message(
    found: Description, meta: common_pb2.ResponseMeta, limits: DescriptionLimits
) -> pb.GetConstraintResponse:
    """Encode a description."""
    report = found.report
    namespace = found.status.key.namespace
    return pb.GetConstraintResponse(
        meta=meta,
        constraint=status_message(found.status, limits.domains),
        domains=[
            pb.ConstraintDomain(
                domain=domain,
                nodes=[
                    pb.NodeCount(
                        node=node.node,
                        pod_count=node.pods,
                        reserved_pod_count=node.reserved,
                        eligible=node.eligible,
                        usable=node.usable,
                    )
                    for node in nodes
                ],
                unlisted_node_count=unlisted,
            )
            for domain, nodes, unlisted in zip(
                report.domains, found.nodes, found.unlisted_nodes, strict=True
            )
        ],
        leading_domain_count=report.leading_domain_count,
        unlisted_domain_count=report.unlisted_domain_count,
        pods=[
            pb.ConstraintPod(
                pod=common_pb2.PodReference(namespace=namespace, name=pod.name),
                node=pod.node,
                domain=pod.domain,
            )
            for pod in found.pods
        ],
        unlisted_pod_count=found.unlisted_pods,
    )
