"""topospread.v1.Placement: decode, call the use case, encode."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from google.protobuf.timestamp_pb2 import Timestamp

from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.kube.violations import required
from topospread.service.asks import DEFAULT_CLUSTER, NO_SETTINGS, Ask
from topospread.service.place import Preference, place
from topospread.service.reserve import list_reservations, release, reserve
from topospread.service.wanted import DEFAULT_LIFETIME
from topospread.store.api import MAX_LIFETIME
from topospread.transports.grpc.calls import Call, Method, Unary
from topospread.transports.grpc.cluster_state import traced
from topospread.transports.grpc.decode import fit_of, nodes_of, pod_of, settings_of
from topospread.transports.grpc.encode import status_message
from topospread_proto.v1 import frames_pb2
from topospread_proto.v1 import placement_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator

    from google.protobuf.duration_pb2 import Duration

    from topospread.service.holding import Holding
    from topospread.service.wanted import Held, Wanted
    from topospread.telemetry.metrics import Metrics

SERVICE: Final = "topospread.v1.Placement"


class PlacementServicer:
    """Each method takes a request and a call, and raises what the use case raises."""

    def __init__(self, holding: Holding, metrics: Metrics) -> None:
        self._holding = holding
        self._metrics = metrics

    def methods(self) -> dict[str, tuple[Method, str]]:
        """The methods by name, with the pool that each runs on: all wait for the store."""
        return {
            "Place": (Unary(frames_pb2.PlaceFrame, self.place), "state"),
            "Reserve": (Unary(frames_pb2.ReserveFrame, self.reserve), "state"),
            "Release": (Unary(pb.ReleaseRequest, self.release), "state"),
            "ListReservations": (
                Unary(pb.ListReservationsRequest, self.list_reservations),
                "state",
            ),
        }

    def place(self, request: frames_pb2.PlaceFrame, call: Call) -> pb.PlaceResponse:
        """Placement.Place."""
        preference = Preference(fit_of(request.fit), request.seed)
        wanted = self._wanted(request, call)
        if request.HasField("candidates"):
            wanted.ask.nodes = nodes_of(request.candidates)
        with self._counted("Place", wanted):
            held = place(self._holding, wanted, preference, traced(call, request.cluster))
        self._told("Place", wanted, held, call)
        return pb.PlaceResponse(
            revision=held.token,
            node=held.node,
            status=status_message(held.status),
            message=held.message,
            already_bound=held.already_bound,
            expires_at=_timestamp(held.expires_at),
            not_modelled=wanted.demand.not_modelled,
            conflicts=wanted.conflicts,
            reservation_id=held.id,
        )

    def reserve(self, request: frames_pb2.ReserveFrame, call: Call) -> pb.ReserveResponse:
        """Placement.Reserve."""
        if not request.node:
            raise InvalidRequest.of([required("node", "")])
        wanted = self._wanted(request, call)
        with self._counted("Reserve", wanted):
            held = reserve(self._holding, wanted, request.node, traced(call, request.cluster))
        self._told("Reserve", wanted, held, call)
        return pb.ReserveResponse(
            revision=held.token,
            status=status_message(held.status),
            already_bound=held.already_bound,
            expires_at=_timestamp(held.expires_at),
            conflicts=wanted.conflicts,
            reservation_id=held.id,
        )

    def release(self, request: pb.ReleaseRequest, call: Call) -> pb.ReleaseResponse:
        """Placement.Release."""
        if not request.name:
            raise InvalidRequest.of([required("name", "")])
        released = release(
            self._holding,
            request.cluster or DEFAULT_CLUSTER,
            (request.namespace or DEFAULT_NAMESPACE, request.name, request.uid),
            request.reservation_id,
            timeout=call.left(),
            traced=traced(call, request.cluster),
        )
        return pb.ReleaseResponse(revision=released.token, released=released.released)

    def list_reservations(
        self, request: pb.ListReservationsRequest, call: Call
    ) -> pb.ListReservationsResponse:
        """Placement.ListReservations."""
        page = list_reservations(
            self._holding.engine.replicas,
            request.cluster or DEFAULT_CLUSTER,
            request.namespace,
            (request.page_size, request.page_token),
            call.deadline,
        )
        return pb.ListReservationsResponse(
            revision=page.token,
            reservations=[
                pb.Reservation(
                    namespace=namespace,
                    name=name,
                    uid=row.uid,
                    node=row.node_name,
                    labels=dict(row.labels),
                    expires_at=_timestamp(row.expires_at),
                    reservation_id=row.id,
                )
                for namespace, name, row in page.held
            ],
            next_page_token=page.next,
        )

    def _wanted(
        self, request: frames_pb2.PlaceFrame | frames_pb2.ReserveFrame, call: Call
    ) -> Wanted:
        ask = Ask(
            deadline=call.deadline,
            cluster=request.cluster or DEFAULT_CLUSTER,
            settings=settings_of(request.settings) if request.HasField("settings") else NO_SETTINGS,
            validate=request.validate,
        )
        lifetime = _milliseconds(request.ttl) if request.HasField("ttl") else DEFAULT_LIFETIME
        if request.is_repeat and not request.request_id:
            raise InvalidRequest.of(
                [required("requestId", "a call that is a repeat has the id of the first one")]
            )
        wanted = self._holding.wanted(ask, pod_of(request), lifetime)
        wanted.request_id, wanted.is_repeat = request.request_id, request.is_repeat
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


def _milliseconds(ttl: Duration) -> int:
    milliseconds = ttl.seconds * 1000 + ttl.nanos // 1_000_000
    if not 0 < milliseconds <= MAX_LIFETIME:
        raise InvalidRequest.of(
            [
                FieldViolation(
                    "ttl",
                    "must be at least a millisecond and at most 168h",
                    bad_value=f"{milliseconds / 1000:g}s",
                )
            ]
        )
    return milliseconds


def _timestamp(milliseconds: int) -> Timestamp | None:
    if not milliseconds:
        return None
    timestamp = Timestamp()
    timestamp.FromMilliseconds(milliseconds)
    return timestamp
