"""Simulate: what would happen. It changes nothing, and may be repeated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from topospread_client import requests, rpcs, scenarios, simulations
from topospread_client.operations import Operation, Session, call
from topospread_client.scenarios import Drain, Pods
from topospread_proto.v1 import placement_pb2
from topospread_proto.v1 import planner_pb2 as pb
from topospread_proto.v1 import simulate_pb2 as detail

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread_client.requests import Consistency, PodGiven, PodLike, Settings
    from topospread_client.scenarios import ConstraintChange, NodeGroup
    from topospread_client.simulations import Simulation


def simulate(
    session: Session,
    pods: PodLike | Pods | Sequence[PodLike | Pods],
    *,
    replicas: int | None = None,
    add_nodes: Sequence[NodeGroup] = (),
    drain: Iterable[str | Drain] = (),
    add_pods: Iterable[tuple[PodGiven, str]] = (),
    remove_pods: Iterable[str] = (),
    constraints: Iterable[ConstraintChange] = (),
    fit: placement_pb2.Fit.ValueType | None = None,
    seed: str = "",
    fewest_nodes: bool = False,
    reschedule: bool = False,
    cluster: str | None = None,
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validate: bool = False,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Simulation]:
    """Place pods one by one on the live state plus changes; nothing is written.

    Args:
        session: what the client's operations share.
        pods: one pod as for `evaluate`, or `Pods`, or several of both, placed in order.
        replicas: how many of each that does not say so itself; None: one, under its own name.
        add_nodes: nodes that join.
        drain: nodes that are emptied and gone, by name; or `Drain`, for those that stay, tainted.
        add_pods: pods that run, each with its node; an empty node stands for the pod's own.
        remove_pods: pods of the state that are gone, as ``namespace/name``.
        constraints: other values for the pods' constraints.
        fit: how much is asked beside spreading, as for `place`; None: all.
        seed: orders equal nodes, as for `place`.
        fewest_nodes: look for the fewest nodes of `add_nodes` with which all pods fit.
        reschedule: place the pods of drained nodes anew, before all others; `pods` may be empty.
        cluster: None takes the client's.
        settings: None takes the profiles of the pods' schedulerNames.
        consistency: None takes the newest state at hand.
        validate: refuse what an API server would refuse in the pods' constraints.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        InvalidRequest: everything that is wrong.
        NotFound: the cluster or a pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    several: Sequence[PodLike | Pods] = (
        pods if isinstance(pods, Sequence) and not isinstance(pods, str | bytes) else [pods]
    )
    given = [pod if isinstance(pod, Pods) else Pods(pod, replicas) for pod in several]
    request = pb.SimulateRequest(
        cluster=cluster or session.cluster,
        pods=[each.message(f"pods[{number}]") for number, each in enumerate(given)],
        settings=requests.carried(settings),
        consistency=requests.carried(consistency),
        changes=detail.SupposedChanges(
            add_nodes=[
                group.message(f"changes.addNodes[{number}]")
                for number, group in enumerate(add_nodes)
            ],
            drain=[(Drain(node) if isinstance(node, str) else node).message() for node in drain],
            add_pods=requests.pods_on_nodes(add_pods),
            remove_pods=scenarios.references(remove_pods),
            constraints=[change.message() for change in constraints],
        ),
        fit=fit or placement_pb2.FIT_UNSPECIFIED,
        seed=seed,
        validate=validate,
        fewest_nodes=fewest_nodes,
        reschedule=reschedule,
    )
    reply = yield from call(rpcs.SIMULATE, request, timeout, traceparent)
    return simulations.simulation(reply.message, reply.traceparent)
