"""The operations of PlacementService: nodes that are held, so that maxSkew holds across all.

PlacePod and ReserveNode have an id for each call, and say when they are repeated: then what others
hold for the pod by now stays. ReleaseReservation is repeated where it names the reservation that it
ends.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from topospread_client import _decoding as decoding
from topospread_client import _given as given
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._answers import (
    GetReservationResponse,
    ListReservationsResponse,
    PlacePodResponse,
    ReleaseReservationResponse,
    Reservation,
    ReserveNodeResponse,
)
from topospread_client._operations import Listing, Operation, Session, call, call_again
from topospread_client._references import pod_reference
from topospread_proto.v1 import placement_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread_client._enums import ConstraintValidation, Fit
    from topospread_client._references import PodReference
    from topospread_client._requests import Consistency, LabelSelector, PodSource, Settings


def place_pod(
    session: Session,
    pod: PodSource,
    *,
    candidates: Sequence[str] | None = None,
    fit: Fit | None = None,
    reservation_ttl: float | None = None,
    seed: str | None = None,
    cluster: str | None = None,
    settings: Settings | None = None,
    validation: ConstraintValidation | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[PlacePodResponse]:
    """Choose the best node for a pod and hold it.

    Args:
        pod: a message, a manifest, bytes of a v1.Pod, or the name of a pod in the state.
        candidates: names to choose from; None chooses from all nodes.
        fit: SPREAD_ONLY, NODE (name, cordon, affinity, taints) or NODE_AND_RESOURCES; None asks for
            the last without candidates and for the first with them.
        reservation_ttl: seconds to hold it for; None is the server's 60.
        seed: tells callers apart: equal nodes are ordered by it.
        cluster: None takes the client's.
        settings: None takes the profile of the pod's schedulerName.
        validation: STRICT refuses what an API server would refuse in the pod's constraints.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        Conflict: others changed the state again and again until the time-out.
        InvalidRequest: everything that is wrong with the pod or the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    request = given.request(
        pb.PlacePodRequest,
        cluster=cluster or session.cluster,
        pod=requests.pod_source(pod),
        candidates=requests.selection(candidates),
        fit=requests.fit_message(fit),
        reservation_ttl=given.duration(reservation_ttl, "reservationTtl"),
        settings=requests.settings_message(settings),
        seed=seed or "",
        validation=requests.validation_message(validation),
        request_id=str(uuid.uuid4()),
    )
    repeat = _is_repeat(request)
    reply = yield from call_again(rpcs.PLACE_POD, request, timeout, traceparent, repeat)
    return decoding.answer(PlacePodResponse, reply)


def reserve_node(
    session: Session,
    pod: PodSource,
    node: str,
    *,
    reservation_ttl: float | None = None,
    cluster: str | None = None,
    settings: Settings | None = None,
    validation: ConstraintValidation | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ReserveNodeResponse]:
    """Hold one node for a pod, if its hard constraints allow it.

    Args:
        pod: as for `place_pod`.
        node: its name.
        reservation_ttl: as for `place_pod`.
        cluster: None takes the client's.
        settings: as for `place_pod`.
        validation: as for `place_pod`.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        As `place_pod`.
    """
    request = given.request(
        pb.ReserveNodeRequest,
        cluster=cluster or session.cluster,
        pod=requests.pod_source(pod),
        node=node,
        reservation_ttl=given.duration(reservation_ttl, "reservationTtl"),
        settings=requests.settings_message(settings),
        validation=requests.validation_message(validation),
        request_id=str(uuid.uuid4()),
    )
    repeat = _is_repeat(request)
    reply = yield from call_again(rpcs.RESERVE_NODE, request, timeout, traceparent, repeat)
    return decoding.answer(ReserveNodeResponse, reply)


def release_reservation(
    session: Session,
    pod: PodReference | str,
    *,
    reservation_id: str | None = None,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ReleaseReservationResponse]:
    """End what is held for a pod.

    With a reservation's id the call is repeated when the server was out of reach: it ends only that
    one, not what was made or renewed since. Without it the call is not repeated.

    Args:
        pod: its name; what is held for a pod of another uid than it names stays.
        reservation_id: of what is to end, as `place_pod`, `reserve_node` or `list_reservations`
            told it; None for whatever is held.
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = given.request(
        pb.ReleaseReservationRequest,
        cluster=cluster or session.cluster,
        pod=pod_reference(pod),
        reservation_id=reservation_id or "",
    )
    make = call_again if reservation_id else call
    reply = yield from make(rpcs.RELEASE_RESERVATION, request, timeout, traceparent)
    return decoding.answer(ReleaseReservationResponse, reply)


def get_reservation(
    session: Session,
    pod: PodReference | str,
    *,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[GetReservationResponse]:
    """What is held for one pod.

    Args:
        pod: its name.
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        NotFound: nothing is held for it, or there is no such cluster.
        TopospreadClientError: any other failure of the call.
    """
    request = given.request(
        pb.GetReservationRequest,
        cluster=cluster or session.cluster,
        pod=pod_reference(pod),
        consistency=requests.consistency_message(consistency),
    )
    reply = yield from call(rpcs.GET_RESERVATION, request, timeout, traceparent)
    return decoding.answer(GetReservationResponse, reply)


def list_reservations_page(
    session: Session,
    *,
    namespace: str | None = None,
    label_selector: LabelSelector | None = None,
    page_size: int | None = None,
    page_token: str | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ListReservationsResponse]:
    """Some places that are held, ordered by the pods' namespaces and names as bytes.

    Args:
        namespace: of the pods; None means all.
        label_selector: of the pods: a message, labels that must be equal, or a query as kubectl's
            ``-l`` takes it; None selects all.
        page_size: at most 5,000; None leaves it to the server.
        page_token: from the page before, asked for with the same arguments.
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        NotFound: there is no such cluster.
        TopospreadClientError: any other failure of the call.
    """
    request = given.request(
        pb.ListReservationsRequest,
        cluster=cluster or session.cluster,
        namespace=namespace or "",
        label_selector=requests.label_selector(label_selector),
        page_size=page_size or 0,
        page_token=page_token or "",
        consistency=requests.consistency_message(consistency),
    )
    reply = yield from call(rpcs.LIST_RESERVATIONS, request, timeout, traceparent)
    return decoding.answer(ListReservationsResponse, reply)


def list_reservations(
    session: Session,
    *,
    namespace: str | None = None,
    label_selector: LabelSelector | None = None,
    page_size: int | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Listing[Reservation]:
    """All places that are held, fetched page by page; later pages may hold newer ones.

    Args:
        namespace: of the pods; None means all.
        label_selector: of the pods: a message, labels that must be equal, or a query as kubectl's
            ``-l`` takes it; None selects all.
        page_size: at most 5,000; None leaves it to the server.
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds for each page; None takes the client's.
        traceparent: parent of the server's spans.

    Raises:
        NotFound: there is no such cluster.
        TopospreadClientError: any other failure of a call.
    """

    def fetch(page_token: str | None) -> Operation[ListReservationsResponse]:
        return list_reservations_page(
            session,
            namespace=namespace,
            label_selector=label_selector,
            page_size=page_size,
            page_token=page_token,
            cluster=cluster,
            consistency=consistency,
            timeout=timeout,
            traceparent=traceparent,
        )

    return Listing(fetch, lambda page: page.reservations)


def _is_repeat(
    request: pb.PlacePodRequest | pb.ReserveNodeRequest,
) -> Callable[[], None]:
    def say_so() -> None:
        request.is_repeat = True

    return say_so
