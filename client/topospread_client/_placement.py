"""Operations of PlacementService: reservations of nodes for pods that are not bound yet.

PlacePod and ReserveNode have an id for each call, and mark retries: then a reservation that another
call made for the pod meanwhile stays. ReleaseReservation is retried where it names the reservation.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread_client import _arguments as arguments
from topospread_client import _decoding as decoding
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._answers import Answer
from topospread_client._operations import ClientSession, Operation, PagedList, call, call_with_retry
from topospread_client._references import pod_reference
from topospread_proto.v1 import placement_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import datetime

    from topospread_client._answers import Verdict
    from topospread_client._enums import ConstraintValidation, Fit
    from topospread_client._references import PodReference
    from topospread_client._requests import Consistency, LabelSelector, PodSource, Settings


@dataclass(frozen=True, kw_only=True)
class PlacePodResponse(Answer):
    """Node that was chosen and reserved for a pod.

    Attributes:
        node: None when no node fits.
        verdict: Success, or why not.
        message: kube-scheduler's message when no node fits.
        already_bound: the pod runs on that node; there is no reservation.
        expire_time: of the reservation; None without one.
        not_modelled: features of the pod that were not considered.
        conflict_count: how often changes of others made a result void before this one.
        reservation_id: for release_reservation; a renewal has another one. Empty without a
            reservation.
    """

    node: str | None
    verdict: Verdict
    message: str
    already_bound: bool
    expire_time: datetime | None
    not_modelled: tuple[str, ...]
    conflict_count: int
    reservation_id: str


@dataclass(frozen=True, kw_only=True)
class ReserveNodeResponse(Answer):
    """Whether a node was reserved for a pod; the fields are PlacePodResponse's.

    Attributes:
        node: that is reserved, or that the pod runs on already, which may be another; None when it
            was refused.
    """

    node: str | None
    verdict: Verdict
    already_bound: bool
    expire_time: datetime | None
    conflict_count: int
    reservation_id: str


@dataclass(frozen=True, kw_only=True)
class ReleaseReservationResponse(Answer):
    """Whether this call ended a reservation.

    False, too, when an earlier try did whose response was lost. Either way there is no reservation
    any more.
    """

    released: bool


@dataclass(frozen=True, slots=True)
class Reservation:
    """Reservation of a node for a pod; `labels` are the pod's, by which it is counted."""

    pod: PodReference
    node: str
    labels: Mapping[str, str]
    expire_time: datetime | None
    reservation_id: str


@dataclass(frozen=True, kw_only=True)
class GetReservationResponse(Answer):
    """Reservation of one pod."""

    reservation: Reservation


@dataclass(frozen=True, kw_only=True)
class ListReservationsResponse(Answer):
    """Page of reservations; ``next_page_token`` is empty on the last one."""

    reservations: tuple[Reservation, ...]
    next_page_token: str


def place_pod(
    session: ClientSession,
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
    """Choose the best node for a pod and reserve it.

    Args:
        pod: a message, a manifest, bytes of a v1.Pod, or the name of a pod in the state.
        candidates: names to choose from; None chooses from all nodes.
        fit: `Fit.SPREAD_ONLY`, `Fit.NODE` (name, cordon, affinity, taints) or
            `Fit.NODE_AND_RESOURCES`; None applies the last without candidates and the first with
            them.
        reservation_ttl: seconds until the reservation expires; None is the server's 60.
        seed: orders equal nodes, so that callers with different seeds choose different ones.
        cluster: None takes the client's.
        settings: None takes the profile of the pod's schedulerName.
        validation: `ConstraintValidation.STRICT` refuses what an API server would refuse in the
            pod's constraints, and fields of manifests that Kubernetes does not have.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        Conflict: others changed the state again and again until the time-out.
        InvalidRequest: all errors in the pod and the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.PlacePodRequest,
        cluster=cluster or session.cluster,
        pod=requests.pod_source(pod, validation=validation),
        candidates=requests.selection(candidates),
        fit=requests.fit_message(fit),
        reservation_ttl=arguments.duration(reservation_ttl, "reservationTtl"),
        settings=requests.settings_message(settings),
        seed=seed or "",
        validation=requests.validation_message(validation),
        request_id=str(uuid.uuid4()),
    )
    mark_retry = _mark_retry(request)
    reply = yield from call_with_retry(rpcs.PLACE_POD, request, timeout, traceparent, mark_retry)
    return decoding.answer(PlacePodResponse, reply)


def reserve_node(
    session: ClientSession,
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
    """Reserve one node for a pod, if its hard constraints allow it.

    Args:
        pod: a message, a manifest, bytes of a v1.Pod, or the name of a pod in the state.
        node: its name.
        reservation_ttl: seconds until the reservation expires; None is the server's 60.
        cluster: None takes the client's.
        settings: None takes the profile of the pod's schedulerName.
        validation: `ConstraintValidation.STRICT` refuses what an API server would refuse in the
            pod's constraints, and fields of manifests that Kubernetes does not have.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        As `place_pod`.
    """
    request = arguments.request(
        pb.ReserveNodeRequest,
        cluster=cluster or session.cluster,
        pod=requests.pod_source(pod, validation=validation),
        node=node,
        reservation_ttl=arguments.duration(reservation_ttl, "reservationTtl"),
        settings=requests.settings_message(settings),
        validation=requests.validation_message(validation),
        request_id=str(uuid.uuid4()),
    )
    mark_retry = _mark_retry(request)
    reply = yield from call_with_retry(rpcs.RESERVE_NODE, request, timeout, traceparent, mark_retry)
    return decoding.answer(ReserveNodeResponse, reply)


def release_reservation(
    session: ClientSession,
    pod: PodReference | str,
    *,
    reservation_id: str | None = None,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ReleaseReservationResponse]:
    """End the reservation of a pod.

    With a reservation's id the call is retried when the server was out of reach: it ends only that
    reservation, not one that was made or renewed since. Without an id the call is not retried.

    Args:
        pod: its name; the reservation of a pod with another uid than it names stays.
        reservation_id: from a response of `place_pod`, `reserve_node` or `list_reservations`; None
            ends any reservation of the pod.
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = arguments.request(
        pb.ReleaseReservationRequest,
        cluster=cluster or session.cluster,
        pod=pod_reference(pod),
        reservation_id=reservation_id or "",
    )
    make = call_with_retry if reservation_id else call
    reply = yield from make(rpcs.RELEASE_RESERVATION, request, timeout, traceparent)
    return decoding.answer(ReleaseReservationResponse, reply)


def get_reservation(
    session: ClientSession,
    pod: PodReference | str,
    *,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[GetReservationResponse]:
    """Get the reservation of one pod.

    Args:
        pod: its name.
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        NotFound: there is no reservation, or no such cluster.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.GetReservationRequest,
        cluster=cluster or session.cluster,
        pod=pod_reference(pod),
        consistency=requests.consistency_message(consistency),
    )
    reply = yield from call(rpcs.GET_RESERVATION, request, timeout, traceparent)
    return decoding.answer(GetReservationResponse, reply)


def list_reservations_page(
    session: ClientSession,
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
    """List a page of reservations, ordered by the pods' namespaces and names as bytes.

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
    request = arguments.request(
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
    session: ClientSession,
    *,
    namespace: str | None = None,
    label_selector: LabelSelector | None = None,
    page_size: int | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> PagedList[Reservation]:
    """List all reservations, page by page; later pages may have newer ones.

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

    return PagedList(fetch, lambda page: page.reservations)


def _mark_retry(
    request: pb.PlacePodRequest | pb.ReserveNodeRequest,
) -> Callable[[], None]:
    def mark() -> None:
        request.is_repeat = True

    return mark
