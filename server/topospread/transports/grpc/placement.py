"""topospread.v1.PlacementService: decode, call the use case, encode."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

from topospread.errors import InvalidRequest
from topospread.generated.internal.v1 import frames_pb2
from topospread.service.asks import DEFAULT_CLUSTER, NO_SETTINGS, Ask
from topospread.service.place import Preference, place
from topospread.service.reserve import get_reservation, list_reservations, release, reserve
from topospread.store.api import Key, Kind
from topospread.store.checks import check_cluster, wrong_words
from topospread.transports.grpc.calls import Call, Method, Unary
from topospread.transports.grpc.cluster_state import demand_of, label_query, page_ask, traced
from topospread.transports.grpc.decode import (
    candidates_of,
    fit_of,
    lifetime_of,
    node_of,
    pod_of,
    reference_of,
    request_id_of,
    settings_of,
    strict,
)
from topospread.transports.grpc.encode import meta_of, revision_meta, verdict_message
from topospread.transports.grpc.mistakes import tell_everything, together
from topospread.transports.grpc.reservation import reservation_message, timestamp
from topospread_proto.v1 import placement_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.service.holding import Holding
    from topospread.service.wanted import Held, Wanted
    from topospread.telemetry.metrics import Metrics

SERVICE: Final = "topospread.v1.PlacementService"


class PlacementServicer:
    """Each method takes a request and a call, and raises what the use case raises."""

    def __init__(self, holding: Holding, metrics: Metrics) -> None:
        self._holding = holding
        self._metrics = metrics

    def methods(self) -> dict[str, tuple[Method, str]]:
        """The methods by name, with the pool that each runs on: all wait for the store."""
        return {
            "PlacePod": (Unary(frames_pb2.PlacePodFrame, self.place), "state"),
            "ReserveNode": (Unary(frames_pb2.ReserveNodeFrame, self.reserve), "state"),
            "ReleaseReservation": (Unary(pb.ReleaseReservationRequest, self.release), "state"),
            "GetReservation": (Unary(pb.GetReservationRequest, self.get_reservation), "state"),
            "ListReservations": (
                Unary(pb.ListReservationsRequest, self.list_reservations),
                "state",
            ),
        }

    def place(self, request: frames_pb2.PlacePodFrame, call: Call) -> pb.PlacePodResponse:
        """PlacementService.PlacePod."""
        try:
            preference = Preference(fit_of(request.fit), request.seed)
            wanted = self._wanted(request, call)
            if request.HasField("candidates"):
                wanted.ask.nodes = candidates_of(request.candidates)
            with self._counted("PlacePod", wanted):
                held = place(self._holding, wanted, preference, traced(call, request.cluster))
        except InvalidRequest as wrong:
            tell_everything(wrong, request, self._holding.engine)
            raise
        self._told("PlacePod", wanted, held, call)
        return pb.PlacePodResponse(
            meta=revision_meta(held.token),
            node=held.node,
            verdict=verdict_message(held.status),
            message=held.message,
            already_bound=held.already_bound,
            expire_time=timestamp(held.expires_at),
            not_modelled=wanted.demand.not_modelled,
            conflict_count=wanted.conflicts,
            reservation_id=held.id,
        )

    def reserve(self, request: frames_pb2.ReserveNodeFrame, call: Call) -> pb.ReserveNodeResponse:
        """PlacementService.ReserveNode."""
        try:
            wanted = self._wanted(request, call)
            node = node_of(request)
            with self._counted("ReserveNode", wanted):
                held = reserve(self._holding, wanted, node, traced(call, request.cluster))
        except InvalidRequest as wrong:
            tell_everything(wrong, request, self._holding.engine)
            raise
        self._told("ReserveNode", wanted, held, call)
        return pb.ReserveNodeResponse(
            node=held.node,
            meta=revision_meta(held.token),
            verdict=verdict_message(held.status),
            already_bound=held.already_bound,
            expire_time=timestamp(held.expires_at),
            conflict_count=wanted.conflicts,
            reservation_id=held.id,
        )

    def release(
        self, request: pb.ReleaseReservationRequest, call: Call
    ) -> pb.ReleaseReservationResponse:
        """PlacementService.ReleaseReservation."""
        cluster = request.cluster or DEFAULT_CLUSTER
        together(partial(check_cluster, cluster), lambda: _held_for(request))
        pod = reference_of(request.pod)
        released = release(
            self._holding,
            cluster,
            (pod.namespace, pod.name, pod.uid),
            request.reservation_id,
            timeout=call.left(),
            traced=traced(call, request.cluster),
        )
        return pb.ReleaseReservationResponse(
            meta=revision_meta(released.token), released=released.released
        )

    def get_reservation(
        self, request: pb.GetReservationRequest, call: Call
    ) -> pb.GetReservationResponse:
        """PlacementService.GetReservation."""
        cluster = request.cluster or DEFAULT_CLUSTER
        together(
            partial(check_cluster, cluster),
            lambda: reference_of(request.pod),
            partial(demand_of, request),
        )
        pod = reference_of(request.pod)
        replica, view, row = get_reservation(
            self._holding.engine.replicas,
            cluster,
            pod,
            demand_of(request),
            call.deadline,
        )
        return pb.GetReservationResponse(
            meta=meta_of(view, replica),
            reservation=reservation_message(pod.namespace, pod.name, row),
        )

    def list_reservations(
        self, request: pb.ListReservationsRequest, call: Call
    ) -> pb.ListReservationsResponse:
        """PlacementService.ListReservations."""
        cluster, ask = request.cluster or DEFAULT_CLUSTER, page_ask(request)
        together(
            partial(check_cluster, cluster),
            partial(label_query, request),
            lambda: ask.most,
            ask.place,
            partial(demand_of, request),
        )
        page = list_reservations(
            self._holding.engine.replicas,
            cluster,
            (request.namespace, label_query(request) or (lambda _: True)),
            ask,
            demand_of(request),
            call.deadline,
        )
        meta = revision_meta(page.token)
        if page.state is not None:
            replica, view = page.state
            meta = meta_of(view, replica)
        return pb.ListReservationsResponse(
            meta=meta,
            reservations=[
                reservation_message(namespace, name, row) for namespace, name, row in page.held
            ],
            next_page_token=page.next,
        )

    def _wanted(
        self, request: frames_pb2.PlacePodFrame | frames_pb2.ReserveNodeFrame, call: Call
    ) -> Wanted:
        ask = Ask(
            deadline=call.deadline,
            cluster=request.cluster or DEFAULT_CLUSTER,
            settings=settings_of(request.settings) if request.HasField("settings") else NO_SETTINGS,
            validate=strict(request.validation),
        )
        request_id = request_id_of(request)
        wanted = self._holding.wanted(ask, pod_of(request), lifetime_of(request))
        wanted.request_id, wanted.is_repeat = request_id, request.is_repeat
        return wanted

    @contextmanager
    def _counted(self, name: str, wanted: Wanted) -> Iterator[None]:
        """Count the conflicts, also of calls that gave up on them."""
        try:
            yield
        finally:
            for _ in range(wanted.conflicts):
                self._metrics.placement_conflict(name)

    def _told(self, name: str, wanted: Wanted, held: Held, call: Call) -> None:
        result = "bound" if held.already_bound else "held" if held.node else "refused"
        self._metrics.placement(name, result)
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.cluster": wanted.ask.cluster,
                    "topospread.revision": held.token,
                    "topospread.status": held.status.code.label,
                    "topospread.node": held.node,
                    "topospread.conflicts": wanted.conflicts,
                }
            )


def _held_for(request: pb.ReleaseReservationRequest) -> None:
    """Check which reservation is to end.

    Raises:
        InvalidRequest: what cannot be that of any.
    """
    pod = reference_of(request.pod)
    wrong = wrong_words(Key(Kind.RESERVATION, pod.namespace, pod.name), pod.uid)
    if wrong:
        raise InvalidRequest.of([each.below("pod") for each in wrong])
