"""The operation Explain: why a pod fits where it does, and what would let it in elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread_client import explanations, requests, rpcs
from topospread_client.operations import Operation, Session, call
from topospread_proto.v1 import placement_pb2
from topospread_proto.v1 import spread_engine_pb2 as engine

if TYPE_CHECKING:
    from topospread_client.explanations import Explained
    from topospread_client.requests import Consistency, PodLike, Settings


def explain(
    session: Session,
    pod: PodLike,
    *,
    fit: placement_pb2.Fit.ValueType | None = None,
    domain_limit: int = 0,
    cluster: str | None = None,
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validate: bool = False,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Explained]:
    """Explain by constraint and domain where a pod may go, and what would let it in elsewhere.

    Args:
        session: what the client's operations share.
        pod: a message, a manifest, bytes of a v1.Pod, or ``namespace/name`` of a pod in the state.
        fit: what to ask beside spreading: placement.SPREAD_ONLY, NODE or NODE_AND_RESOURCES; None
            asks for the last.
        domain_limit: domains to list of each constraint, at most 1000; 0 lists 20.
        cluster: None takes the client's.
        settings: None takes the profile of the pod's schedulerName.
        consistency: None answers from the newest snapshot at hand.
        validate: refuse what an API server would refuse in the pod's constraints.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        InvalidRequest: everything that is wrong with the pod or the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    subject = requests.subject(pod)
    request = engine.ExplainRequest(
        cluster=cluster or session.cluster,
        pod=subject.pod,
        pod_ref=subject.pod_ref,
        settings=requests.carried(settings),
        consistency=requests.carried(consistency),
        validate=validate,
        fit=fit or placement_pb2.FIT_UNSPECIFIED,
        domain_limit=domain_limit,
    )
    reply = yield from call(rpcs.EXPLAIN, request, timeout, traceparent)
    return explanations.explained(reply.message, reply.traceparent)
