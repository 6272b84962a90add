"""Simulate: placing pods on the live state plus hypothetical changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread_client import _arguments as arguments
from topospread_client import _decoding as decoding
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._answers import Answer
from topospread_client._operations import ClientSession, Operation, call
from topospread_client._references import PodReference
from topospread_client._scenarios import PodsToPlace, Scenario
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
from topospread_proto.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from topospread_client._answers import SpreadConstraint, Verdict
    from topospread_client._enums import Optimality
    from topospread_client._explain import Explanation
    from topospread_client._requests import Consistency, PodSource


@dataclass(frozen=True, slots=True)
class SimulatedPlacement:
    """Pod and the node it would go to; `node_group` is empty for nodes of the state."""

    pod: PodReference
    node: str
    node_group: str


@dataclass(frozen=True, slots=True)
class PendingPods:
    """Pods that fit nowhere, for one reason.

    Attributes:
        pods: the first of them.
        pod_count: how many they are.
        message: of kube-scheduler.
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
    """Number of matching pods of a domain before and after; None without an eligible node."""

    value: str
    pod_count_before: int | None
    pod_count_after: int | None


@dataclass(frozen=True, slots=True)
class SpreadChange:
    """Skews and domains of one constraint before and after.

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
    """Fewest nodes with which all pods fit; they are `joined` in the response.

    Attributes:
        all_fit: whether some number of nodes makes all fit; if not, the most that may join did.
        simulation_count: how many combinations were tried.
    """

    all_fit: bool
    optimality: Optimality | None
    simulation_count: int


@dataclass(frozen=True, kw_only=True)
class SimulateResponse(Answer):
    """Result of a simulation.

    Attributes:
        placed_pod_count: pods that found a node.
        pending_pod_count: pods that did not.
        placements: in the order of placing.
        pending_pods: those without a node, by reason, in order.
        spread_changes: constraint by constraint.
        not_modelled: features of the pods that were not considered.
        warnings: about unlikely values in the request.
        joined: the nodes that joined, by node group.
        evicted_pod_count: pods and reservations that drained nodes lost, without pods that were
            removed.
        fewest_nodes: when it was asked for.
        advice: changes that would make all pods fit, tried out; only where no nodes join.
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


def simulate(
    session: ClientSession,
    pods: PodSource | PodsToPlace | Iterable[PodSource | PodsToPlace],
    *,
    scenario: Scenario | None = None,
    find_fewest_nodes: bool = False,
    reschedule: bool = False,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[SimulateResponse]:
    """Place pods one by one on the live state plus changes; nothing is written.

    Args:
        pods: one pod as for `evaluate_pod`, or `PodsToPlace`, or several of both, placed in order.
        scenario: hypothetical changes; None for the live state as it is.
        find_fewest_nodes: look for the fewest nodes of the node groups with which all pods fit.
        reschedule: place the pods of drained nodes anew, before all others; `pods` may be empty.
        cluster: None takes the client's.
        consistency: None takes the newest state at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        InvalidRequest: all errors in the request.
        NotFound: the cluster or a pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    if isinstance(pods, PodsToPlace | Pod | PodReference | Mapping | str | bytes):
        pods = [pods]
    validation = scenario.validation if isinstance(scenario, Scenario) else None
    request = arguments.request(
        pb.SimulateRequest,
        cluster=cluster or session.cluster,
        pods=[
            (each if isinstance(each, PodsToPlace) else PodsToPlace(each)).message(
                where, validation
            )
            for where, each in arguments.with_paths(pods, "pods")
        ],
        scenario=requests.part_message(scenario, Scenario, "scenario"),
        consistency=requests.consistency_message(consistency),
        find_fewest_nodes=find_fewest_nodes,
        reschedule=reschedule,
    )
    reply = yield from call(rpcs.SIMULATE, request, timeout, traceparent)
    return decoding.answer(SimulateResponse, reply)
