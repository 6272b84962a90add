"""What a server answers to Simulate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread_client import decoding
from topospread_client.answers import Answer, Status
from topospread_client.explanations import pod_explanation
from topospread_proto.v1 import simulate_pb2 as detail

if TYPE_CHECKING:
    from topospread_client.explanations import PodExplanation
    from topospread_proto.v1 import planner_pb2 as pb


@dataclass(frozen=True, slots=True)
class Placement:
    """A pod and the node it would go to; `node_group` is empty for nodes of the state."""

    namespace: str
    pod: str
    node: str
    node_group: str = ""


@dataclass(frozen=True, slots=True)
class PendingPods:
    """Pods that fit nowhere, for one reason.

    Attributes:
        pods: names of the first of them.
        count: how many they are.
        message: kube-scheduler's words.
        explanation: of the first of them, at the state it was refused at; None where there are more
            reasons than are explained.
    """

    namespace: str
    pods: tuple[str, ...]
    count: int
    status: Status
    message: str
    explanation: PodExplanation | None = None


@dataclass(frozen=True, slots=True)
class DomainChange:
    """Matching pods of a domain before and after; None where no eligible node is in it."""

    value: str
    before: int | None
    after: int | None


@dataclass(frozen=True, slots=True)
class SpreadChange:
    """How one constraint sees the cluster before and after.

    Attributes:
        pods: position of the pods that have it among those asked about; None for pods of drained
            nodes.
        pod: namespace and name of the first that has it.
        domains: those that changed first; not all where there are many.
    """

    pods: int | None
    topology_key: str
    when_unsatisfiable: str
    max_skew: int
    min_domains: int
    skew_before: int
    skew_after: int
    domains_before: int
    domains_after: int
    domains: tuple[DomainChange, ...]
    pod: str = ""


@dataclass(frozen=True, slots=True)
class JoinedNodes:
    """Nodes of one group that joined: how many, and the names of the first of them."""

    node_group: str
    count: int
    nodes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FewestNodes:
    """The fewest nodes with which all pods fit.

    Attributes:
        all_fit: whether some number of nodes makes all fit.
        nodes: by node group.
        proved: no fewer nodes do; otherwise the search ended at its bound.
        simulations: how many combinations were tried.
    """

    all_fit: bool
    nodes: tuple[JoinedNodes, ...]
    proved: bool
    simulations: int

    @property
    def count(self) -> int:
        """Nodes in all."""
        return sum(group.count for group in self.nodes)


@dataclass(frozen=True, kw_only=True)
class Simulation(Answer):
    """What would happen.

    Attributes:
        placed: pods that found a node.
        pending: pods that did not.
        placements: in the order of placing.
        pending_pods: why, in order.
        spread: constraint by constraint.
        not_modelled: what of the pods was not looked at.
        warnings: what in the request can hardly be meant.
        joined: the nodes that joined, by node group.
        evicted: pods and reservations that drained nodes lost, without pods that were removed.
        fewest: when it was asked for.
        advice: what would make all pods fit, tried out; only where no nodes join.
        rescheduled: pods of drained nodes that were to be placed anew; the first placements and
            pending pods are of these.
    """

    placed: int
    pending: int
    placements: tuple[Placement, ...] = ()
    pending_pods: tuple[PendingPods, ...] = ()
    spread: tuple[SpreadChange, ...] = ()
    not_modelled: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    joined: tuple[JoinedNodes, ...] = ()
    evicted: int = 0
    fewest: FewestNodes | None = None
    advice: tuple[str, ...] = ()
    rescheduled: int = 0


def simulation(message: pb.SimulateResponse, traceparent: str | None) -> Simulation:
    """Simulate's answer."""
    return Simulation(
        revision=message.revision,
        stale_for=decoding.stale_for(message),
        traceparent=traceparent,
        placed=message.placed,
        pending=message.pending,
        placements=tuple(
            Placement(p.namespace, p.pod, p.node, p.node_group) for p in message.placements
        ),
        pending_pods=tuple(map(_pending, message.pending_pods)),
        spread=tuple(map(_spread, message.spread)),
        not_modelled=tuple(message.not_modelled),
        warnings=tuple(message.warnings),
        joined=tuple(map(_joined, message.joined)),
        evicted=message.evicted,
        fewest=_fewest(message.fewest) if message.HasField("fewest") else None,
        advice=tuple(message.advice),
        rescheduled=message.rescheduled,
    )


def _pending(message: detail.PendingPods) -> PendingPods:
    return PendingPods(
        namespace=message.namespace,
        pods=tuple(message.pods),
        count=message.count,
        status=decoding.status(message.status),
        message=message.message,
        explanation=pod_explanation(message.explanation)
        if message.HasField("explanation")
        else None,
    )


def _spread(message: detail.SpreadChange) -> SpreadChange:
    return SpreadChange(
        pods=message.pods if message.HasField("pods") else None,
        pod=message.pod,
        topology_key=message.topology_key,
        when_unsatisfiable=message.when_unsatisfiable,
        max_skew=message.max_skew,
        min_domains=message.min_domains,
        skew_before=message.skew_before,
        skew_after=message.skew_after,
        domains_before=message.domains_before,
        domains_after=message.domains_after,
        domains=tuple(
            DomainChange(
                domain.value,
                domain.before if domain.HasField("before") else None,
                domain.after if domain.HasField("after") else None,
            )
            for domain in message.domains
        ),
    )


def _joined(message: detail.JoinedNodes) -> JoinedNodes:
    return JoinedNodes(message.node_group, message.count, tuple(message.nodes))


def _fewest(message: detail.FewestNodes) -> FewestNodes:
    return FewestNodes(
        all_fit=message.all_fit,
        nodes=tuple(map(_joined, message.nodes)),
        proved=message.optimal == detail.OPTIMALITY_PROVED,
        simulations=message.simulations,
    )
