"""Constraints and how their pods are spread: what the operations of InspectorService answer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread_client import _arguments as arguments
from topospread_client._answers import Answer
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from topospread_client._answers import DomainCount, SpreadConstraint
    from topospread_client._enums import MinimumReason, SpreadState
    from topospread_client._explain import DomainExplanation, Finding
    from topospread_client._references import PodReference


@dataclass(frozen=True, slots=True)
class WorkloadReference:
    """Controller of pods.

    Attributes:
        kind: as StatefulSet; Deployment for the pods of a ReplicaSet that belongs to one.
    """

    kind: str
    name: str

    def message(self, path: str) -> pb.WorkloadReference:
        """Message of the request."""
        return arguments.part(path, pb.WorkloadReference, kind=self.kind, name=self.name)


@dataclass(frozen=True, slots=True)
class ConstraintStatus:
    """Constraint that pods of one controller have, and how they are spread.

    Attributes:
        constraint_id: of this constraint of this owner, the same on every server.
        owner: None for pods without a controller.
        defaulted: the constraint is the profile's.
        state: the worst that holds.
        skew: pods of the fullest eligible domain less the global minimum.
        global_minimum: as explain_pod has it.
        minimum_reason: why it is that.
        lowest_pod_count: the fewest matching pods of an eligible domain.
        highest_pod_count: the most.
        pod_count: matching pods on nodes that count, with places held.
        bound_pod_count: pods of the owner that have the constraint and a node.
        pending_pod_count: those that wait for a node.
        blocked_pod_count: those of them that a node could take if this constraint were not.
        domain_count: values of the key that a node has.
        eligible_domain_count: those of them with an eligible node.
        allowed_domain_count: those of these that allow the next replica.
        message: for people, why it is in its state; empty when it is satisfied.
        domains: eligible ones with the fewest pods, then those with the most.
        leading_domain_count: how many of `domains` stand before those that are left out.
        unlisted_domain_count: how many are left out.
        findings: what is wrong with it.
    """

    constraint_id: str
    constraint: SpreadConstraint
    owner: WorkloadReference | None
    defaulted: bool
    state: SpreadState
    skew: int
    global_minimum: int
    minimum_reason: MinimumReason | None
    lowest_pod_count: int
    highest_pod_count: int
    pod_count: int
    bound_pod_count: int
    pending_pod_count: int
    blocked_pod_count: int
    domain_count: int
    eligible_domain_count: int
    allowed_domain_count: int
    message: str
    domains: tuple[DomainCount, ...]
    leading_domain_count: int
    unlisted_domain_count: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True)
class SpreadStateCount:
    """Number of constraints in one state."""

    state: SpreadState
    constraint_count: int


@dataclass(frozen=True, kw_only=True)
class ListConstraintsResponse(Answer):
    """Page of constraints; ``next_page_token`` is empty on the last one.

    Attributes:
        totals: of all constraints that pass the filter but for its states, over all pages; each
            state once, the worst first.
    """

    constraints: tuple[ConstraintStatus, ...]
    next_page_token: str
    totals: tuple[SpreadStateCount, ...]


@dataclass(frozen=True, slots=True)
class NodeCount:
    """Matching pods on one node.

    Attributes:
        reserved_pod_count: places held for pods, of `pod_count`.
        eligible: the constraint counts the node.
        usable: the scheduler's other filters leave it to the next replica.
    """

    node: str
    pod_count: int
    reserved_pod_count: int
    eligible: bool
    usable: bool


@dataclass(frozen=True, slots=True)
class ConstraintDomain:
    """Domain of a constraint.

    Attributes:
        domain: as explain_pod has it of the next replica.
        nodes: those with the most matching pods first.
        unlisted_node_count: how many are left out.
    """

    domain: DomainExplanation
    nodes: tuple[NodeCount, ...]
    unlisted_node_count: int


@dataclass(frozen=True, slots=True)
class ConstraintPod:
    """Pod of a constraint's owner.

    Attributes:
        node: None while it waits for one.
        domain: of its node; None without a node, and where the node lacks the key.
    """

    pod: PodReference
    node: str | None
    domain: str | None


@dataclass(frozen=True, kw_only=True)
class GetConstraintResponse(Answer):
    """One constraint with its domains, their nodes, and its pods.

    Attributes:
        domains: those with the fewest pods, then those with the most.
        leading_domain_count: how many of `domains` stand before those that are left out.
        unlisted_domain_count: how many are left out.
        pods: those that wait first, then by domain and name.
        unlisted_pod_count: how many are left out.
    """

    constraint: ConstraintStatus
    domains: tuple[ConstraintDomain, ...]
    leading_domain_count: int
    unlisted_domain_count: int
    pods: tuple[ConstraintPod, ...]
    unlisted_pod_count: int


@dataclass(frozen=True, kw_only=True)
class WatchConstraintsResponse(Answer):
    """Changes of constraints up to one revision; `ConstraintTable` takes them in.

    Attributes:
        complete: the constraints are all that there are, with those of the messages before it of
            the same revision.
        constraints: new ones, and those of which something differs.
        deleted_constraint_ids: of those that are gone, or pass the filter no more.
        partial: more of the same revision follow.
        totals: as in a list.
    """

    complete: bool
    constraints: tuple[ConstraintStatus, ...]
    deleted_constraint_ids: tuple[str, ...]
    partial: bool
    totals: tuple[SpreadStateCount, ...]


class ConstraintTable:
    """What a watch has told so far: the constraints by their ids.

    ::

        table = ConstraintTable()
        for changes in client.watch_constraints():
            if table.apply(changes):
                show(table.constraints)

    Attributes:
        constraints: by id, in no order.
        totals: of the newest message.
    """

    def __init__(self) -> None:
        self.constraints: dict[str, ConstraintStatus] = {}
        self.totals: tuple[SpreadStateCount, ...] = ()
        self._unfinished: str | None = None

    def apply(self, changes: WatchConstraintsResponse) -> bool:
        """Take a message in.

        Returns:
            Whether the table is now that of the message's revision: False while more follow.
        """
        if changes.complete and self._unfinished != changes.revision:
            self.constraints.clear()
        for each in changes.constraints:
            self.constraints[each.constraint_id] = each
        for gone in changes.deleted_constraint_ids:
            self.constraints.pop(gone, None)
        self.totals = changes.totals
        # A watch that is cut amid changes begins again with all, maybe at the same revision.
        self._unfinished = changes.revision if changes.partial and changes.complete else None
        return not changes.partial
