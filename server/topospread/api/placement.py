"""topospread.v1.PlacementService: decode, call the use case, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.api.decode import (
    candidates_of,
    fit_of,
    label_matcher,
    node_of,
    reference_of,
    request_id_of,
    reservation_ttl_of,
)
from topospread.api.envelope import (
    pod_of,
    raise_all_violations,
    read_cluster,
    read_envelope,
    read_page,
    shared_request,
)
from topospread.calls.call import Call, Method, Unary, store_spans
from topospread.errors import InvalidRequest, ObjectNotFound
from topospread.generated.internal.v1 import frames_pb2
from topospread.kube.violations import Problems
from topospread.service.messages import (
    meta_of,
    reservation_message,
    revision_meta,
    timestamp,
    verdict_message,
)
from topospread.service.placement.place import (
    Preference,
    list_reservations,
    place,
    release,
    reserve,
)
from topospread.store.checks import wrong_words
from topospread.store.model import Key, Kind
from topospread_proto.v1 import placement_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from topospread.replica.replicas import Replicas
    from topospread.service.decisions.request import NodeSelection, PodRef
    from topospread.service.placement.places import Places
    from topospread.service.placement.tasks import PlacementRequest, PlacementResult
    from topospread.service.state.write import Traced
    from topospread.telemetry.metrics import Metrics, Placed

    _Frame = TypeVar("_Frame", frames_pb2.PlacePodFrame, frames_pb2.ReserveNodeFrame)
    _Nodes = NodeSelection | None
    _Hold = Callable[[Places, PlacementRequest, Traced], PlacementResult]


class PlacementServicer:
    """The methods that hold places; each raises what the use case raises."""

    def __init__(self, places: Places, metrics: Metrics) -> None:
        self._places = places
        self._metrics = metrics
        for call in ("PlacePod", "ReserveNode"):
            metrics.expect_placements(call)

    def methods(self) -> dict[str, Method]:
        return {
            "PlacePod": Unary(frames_pb2.PlacePodFrame, self.place),
            "ReserveNode": Unary(frames_pb2.ReserveNodeFrame, self.reserve),
            "ReleaseReservation": Unary(pb.ReleaseReservationRequest, self.release),
        }

    def place(self, request: frames_pb2.PlacePodFrame, call: Call) -> pb.PlacePodResponse:
        placement, result = self._held(request, call, _best_node)
        return pb.PlacePodResponse(
            meta=revision_meta(result.token, result.version),
            node=result.node,
            verdict=verdict_message(result.status),
            message=result.message,
            already_bound=result.already_bound,
            expire_time=timestamp(result.expires_at),
            not_modelled=placement.not_modelled,
            conflict_count=placement.conflicts,
            reservation_id=result.id,
        )

    def reserve(self, request: frames_pb2.ReserveNodeFrame, call: Call) -> pb.ReserveNodeResponse:
        placement, result = self._held(request, call, _named_node)
        return pb.ReserveNodeResponse(
            node=result.node,
            meta=revision_meta(result.token, result.version),
            verdict=verdict_message(result.status),
            not_modelled=placement.not_modelled,
            already_bound=result.already_bound,
            expire_time=timestamp(result.expires_at),
            conflict_count=placement.conflicts,
            reservation_id=result.id,
        )

    def release(
        self, request: pb.ReleaseReservationRequest, call: Call
    ) -> pb.ReleaseReservationResponse:
        wrong = Problems()
        cluster = read_cluster(request, wrong)
        pod = wrong.read(_reserved_pod, request)
        wrong.raise_all()
        released = release(
            self._places,
            cluster,
            (pod.namespace, pod.name, pod.uid),
            request.reservation_id,
            timeout=call.time_left(),
            traced=store_spans(call, request.cluster),
        )
        return pb.ReleaseReservationResponse(
            meta=revision_meta(released.token), released=released.released
        )

    def _held(
        self, request: _Frame, call: Call, read: Callable[[_Frame], tuple[_Nodes, _Hold]]
    ) -> tuple[PlacementRequest, PlacementResult]:
        """Hold a place, count and record it.

        Args:
            request: of PlacePod or ReserveNode.
            call: it.
            read: returns the candidates, and how one of them is held.
        """
        method, metrics = call.method.name, self._metrics
        placement: PlacementRequest | None = None
        try:
            nodes, hold = read(request)
            shared = shared_request(request, call, nodes)
            request_id = request_id_of(request)
            placement = self._places.new_request(
                shared,
                pod_of(request),
                reservation_ttl_of(request),
                request_id=request_id,
                is_repeat=request.is_repeat or bool(request_id and _tried_before(call)),
            )
            result = hold(self._places, placement, store_spans(call, request.cluster))
        except InvalidRequest as wrong:
            raise_all_violations(wrong, request, self._places.engine)
            raise
        finally:
            # Also of calls that fail because of them.
            for _ in range(placement.conflicts if placement is not None else 0):
                metrics.placement_conflict(method)
        outcome: Placed = "bound" if result.already_bound else "held" if result.node else "refused"
        metrics.placement(method, outcome)
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.cluster": placement.decision.cluster,
                    "topospread.revision": result.token,
                    "topospread.status": result.status.code.label,
                    "topospread.node": result.node,
                    "topospread.conflicts": placement.conflicts,
                }
            )
        return placement, result


def _best_node(request: frames_pb2.PlacePodFrame) -> tuple[_Nodes, _Hold]:
    preference = Preference(fit_of(request.fit), request.seed)
    nodes = candidates_of(request.candidates) if request.HasField("candidates") else None
    return nodes, lambda places, wanted, traced: place(places, wanted, preference, traced)


def _named_node(request: frames_pb2.ReserveNodeFrame) -> tuple[_Nodes, _Hold]:
    return None, lambda places, wanted, traced: reserve(places, wanted, node_of(request), traced)


class ReservationServicer:
    """The methods that read what is held; each raises what the use case raises."""

    def __init__(self, replicas: Replicas) -> None:
        self._replicas = replicas

    def methods(self) -> dict[str, Method]:
        return {
            "GetReservation": Unary(pb.GetReservationRequest, self.get),
            "ListReservations": Unary(pb.ListReservationsRequest, self.list),
        }

    def get(self, request: pb.GetReservationRequest, call: Call) -> pb.GetReservationResponse:
        wrong = Problems()
        cluster = read_cluster(request, wrong)
        pod = wrong.read(reference_of, request.pod)
        shared = read_envelope(request, wrong)
        wrong.raise_all()
        replica, view = self._replicas.resolve(cluster, shared.consistency, call.deadline)
        row = view.snapshot.reservations.of(pod.namespace, pod.name, pod.uid)
        if row is None:
            name = f"{pod.namespace}/{pod.name}"
            raise ObjectNotFound(f"no node is held for pod {name}", "Reservation", name, cluster)
        return pb.GetReservationResponse(
            meta=meta_of(view, replica),
            reservation=reservation_message(pod.namespace, pod.name, row),
        )

    def list(self, request: pb.ListReservationsRequest, call: Call) -> pb.ListReservationsResponse:
        wrong = Problems()
        cluster = read_cluster(request, wrong)
        matches = wrong.read(label_matcher, request)
        ask = read_page(request, wrong)
        wrong.read(ask.place)
        shared = read_envelope(request, wrong)
        wrong.raise_all()
        first, after = ask.place()
        replica, view = self._replicas.resolve(cluster, shared.consistency, call.deadline)
        held, more = list_reservations(
            view.snapshot.reservations,
            request.namespace,
            matches or (lambda _: True),
            after,
            ask.most,
        )
        return pb.ListReservationsResponse(
            # All pages tell the first one's revision.
            meta=revision_meta(first) if first else meta_of(view, replica),
            reservations=[reservation_message(*each) for each in held],
            next_page_token=ask.next(first or view.token, *held[-1][:2]) if more else "",
        )


def _reserved_pod(request: pb.ReleaseReservationRequest) -> PodRef:
    """The pod of the reservation that is to be released.

    Raises:
        InvalidRequest: no pod can have that name or uid.
    """
    pod = reference_of(request.pod)
    wrong = wrong_words(Key(Kind.RESERVATION, pod.namespace, pod.name), pod.uid)
    if wrong:
        raise InvalidRequest.of([each.below("pod") for each in wrong])
    return pod


def _tried_before(call: Call) -> bool:
    """Whether gRPC itself repeats the call, by its caller's service config."""
    return any(key == "grpc-previous-rpc-attempts" for key, _ in call.context.metadata())
