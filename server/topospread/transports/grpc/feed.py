"""topospread.v1.Feed: decode, call the use case, encode."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from topospread.service.asks import DEFAULT_CLUSTER
from topospread.transports.grpc.calls import Call, Method, Unary
from topospread_proto.v1 import feed_pb2 as pb

if TYPE_CHECKING:
    from topospread.service.feeders import Feeders

SERVICE: Final = "topospread.v1.Feed"


class FeedServicer:
    """Each method takes a request and a call, and raises what the use case raises."""

    def __init__(self, feeders: Feeders) -> None:
        self._feeders = feeders

    def methods(self) -> dict[str, tuple[Method, str]]:
        """The methods by name, with the pool that each runs on: all wait for the store."""
        return {
            "Hold": (Unary(pb.HoldRequest, self.hold), "state"),
            "Leave": (Unary(pb.LeaveRequest, self.leave), "state"),
        }

    def hold(self, request: pb.HoldRequest, call: Call) -> pb.HoldResponse:
        """Feed.Hold."""
        cluster = request.cluster or DEFAULT_CLUSTER
        call.span.set("topospread.cluster", cluster)
        lease = self._feeders.hold(
            cluster,
            request.holder,
            request.lifetime.seconds + request.lifetime.nanos / 1e9,
            timeout=call.left(),
        )
        response = pb.HoldResponse(
            held=lease.holder == request.holder, fence=lease.fence, holder=lease.holder
        )
        response.left.FromTimedelta(timedelta(milliseconds=lease.left))
        return response

    def leave(self, request: pb.LeaveRequest, call: Call) -> pb.LeaveResponse:
        """Feed.Leave."""
        cluster = request.cluster or DEFAULT_CLUSTER
        call.span.set("topospread.cluster", cluster)
        self._feeders.leave(cluster, request.holder, timeout=call.left())
        return pb.LeaveResponse()
