"""What would happen: what Simulate answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread_client._answers import Answer

if TYPE_CHECKING:
    from topospread_client._answers import SpreadConstraint, Verdict
    from topospread_client._enums import Optimality
    from topospread_client._explanations import Explanation
    from topospread_client._references import PodReference


@dataclass(frozen=True, slots=True)
class SimulatedPlacement:
    """A pod and the node it would go to; `node_group` is empty for nodes of the state."""

    pod: PodReference
    node: str
    node_group: str


@dataclass(frozen=True, slots=True)
class PendingPods:
    """Pods that fit nowhere, for one reason.

    Attributes:
        pods: the first of them.
        pod_count: how many they are.
        message: kube-scheduler's words.
        explanation: of the first of them, at the state it was refused at; None where there are more
            reasons than are explained.
    """

    pods: tuple[PodReference, ...]
    pod_count: int
    verdict: Verdict
    message: str
    explanation: Explanation | None


@dataclass(frozen=True, slots=True)
class DomainChange:
    """Matching pods of a domain before and after; None where no eligible node is in it."""

    value: str
    pod_count_before: int | None
    pod_count_after: int | None


@dataclass(frozen=True, slots=True)
class SpreadChange:
    """How one constraint sees the cluster before and after.

    Attributes:
        pods_index: position in the request's pods of the first that have it; None for pods of
            drained nodes.
        pod: the first pod that has it.
        domains: those that changed first; not all where there are many.
    """

    constraint: SpreadConstraint
    pods_index: int | None
    pod: PodReference
    skew_before: int
    skew_after: int
    domain_count_before: int
    domain_count_after: int
    domains: tuple[DomainChange, ...]


@dataclass(frozen=True, slots=True)
class JoinedNodes:
    """Nodes of one group that joined: how many, and the names of the first of them."""

    node_group: str
    node_count: int
    node_names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FewestNodes:
    """What is known of the fewest nodes with which all pods fit; the answer's `joined` are these.

    Attributes:
        all_fit: whether some number of nodes makes all fit; if not, the most that may join did.
        simulation_count: how many combinations were tried.
    """

    all_fit: bool
    optimality: Optimality | None
    simulation_count: int


@dataclass(frozen=True, kw_only=True)
class SimulateResponse(Answer):
    """What would happen.

    Attributes:
        placed_pod_count: pods that found a node.
        pending_pod_count: pods that did not.
        placements: in the order of placing.
        pending_pods: why, in order.
        spread_changes: constraint by constraint.
        not_modelled: what of the pods was not looked at.
        warnings: what in the request can hardly be meant.
        joined: the nodes that joined, by node group.
        evicted_pod_count: pods and reservations that drained nodes lost, without pods that were
            removed.
        fewest_nodes: when it was asked for.
        advice: what would make all pods fit, tried out; only where no nodes join.
        rescheduled_pod_count: pods of drained nodes that were to be placed anew; the first
            placements and pending pods are of these.
    """

    placed_pod_count: int
    pending_pod_count: int
    placements: tuple[SimulatedPlacement, ...]
    pending_pods: tuple[PendingPods, ...]
    spread_changes: tuple[SpreadChange, ...]
    not_modelled: tuple[str, ...]
    warnings: tuple[str, ...]
    joined: tuple[JoinedNodes, ...]
    evicted_pod_count: int
    fewest_nodes: FewestNodes | None
    advice: tuple[str, ...]
    rescheduled_pod_count: int
