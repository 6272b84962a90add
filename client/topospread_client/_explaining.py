"""The operation ExplainPod: why a pod fits where it does, and what would let it in elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread_client import _decoding as decoding
from topospread_client import _given as given
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._explanations import ExplainPodResponse
from topospread_client._operations import Operation, Session, call
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from topospread_client._enums import ConstraintValidation, Fit
    from topospread_client._requests import Consistency, PodSource, Settings


def explain_pod(
    session: Session,
    pod: PodSource,
    *,
    fit: Fit | None = None,
    domain_limit: int | None = None,
    cluster: str | None = None,
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validation: ConstraintValidation | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ExplainPodResponse]:
    """Explain by constraint and domain where a pod may go, and what would let it in elsewhere.

    Args:
        pod: a message, a manifest, bytes of a v1.Pod, or the name of a pod in the state.
        fit: what to ask beside spreading; None asks for NODE_AND_RESOURCES.
        domain_limit: domains to list of each constraint, at most 1000; None lists 20.
        cluster: None takes the client's.
        settings: None takes the profile of the pod's schedulerName.
        consistency: None answers from the newest snapshot at hand.
        validation: STRICT refuses what an API server would refuse in the pod's constraints.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        InvalidRequest: everything that is wrong with the pod or the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    request = given.request(
        pb.ExplainPodRequest,
        cluster=cluster or session.cluster,
        pod=requests.pod_source(pod),
        settings=requests.settings_message(settings),
        consistency=requests.consistency_message(consistency),
        validation=requests.validation_message(validation),
        fit=requests.fit_message(fit),
        domain_limit=domain_limit or 0,
    )
    reply = yield from call(rpcs.EXPLAIN_POD, request, timeout, traceparent)
    return decoding.answer(ExplainPodResponse, reply)
