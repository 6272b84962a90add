"""Simulate: what would happen. It changes nothing, and may be repeated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from topospread_client import _decoding as decoding
from topospread_client import _given as given
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._operations import Operation, Session, call
from topospread_client._references import PodReference
from topospread_client._scenarios import PodsToPlace, Scenario
from topospread_client._simulations import SimulateResponse
from topospread_proto.kubernetes.v1.kubernetes_pb2 import Pod
from topospread_proto.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from topospread_client._requests import Consistency, PodSource


def simulate(
    session: Session,
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
        scenario: what is supposed; None: the live state as it is.
        find_fewest_nodes: look for the fewest nodes of the node groups with which all pods fit.
        reschedule: place the pods of drained nodes anew, before all others; `pods` may be empty.
        cluster: None takes the client's.
        consistency: None takes the newest state at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        InvalidRequest: everything that is wrong.
        NotFound: the cluster or a pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    if isinstance(pods, PodsToPlace | Pod | PodReference | Mapping | str | bytes):
        pods = [pods]
    request = given.request(
        pb.SimulateRequest,
        cluster=cluster or session.cluster,
        pods=[
            (each if isinstance(each, PodsToPlace) else PodsToPlace(each)).message(where)
            for where, each in given.each(pods, "pods")
        ],
        scenario=requests.carried(scenario, Scenario, "scenario"),
        consistency=requests.consistency_message(consistency),
        find_fewest_nodes=find_fewest_nodes,
        reschedule=reschedule,
    )
    reply = yield from call(rpcs.SIMULATE, request, timeout, traceparent)
    return decoding.answer(SimulateResponse, reply)
