"""topospread.v1.LeaseService: decode, call the use case, encode."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from topospread.calls.call import Call, Method, Unary
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import lease_service_pb2 as pb

if TYPE_CHECKING:
    from google.protobuf.duration_pb2 import Duration

    from topospread.service.state.leases import Leases
    from topospread.store.model import Lease

_NO_STATE: Final = common_pb2.ResponseMeta()
"""Leases are not part of the state that revisions count."""


class LeaseServicer:
    """Each method takes a request and a call, and raises what the use case raises."""

    def __init__(self, leases: Leases) -> None:
        self._leases = leases

    def methods(self) -> dict[str, Method]:
        return {
            "AcquireLease": Unary(pb.AcquireLeaseRequest, self.acquire),
            "RenewLease": Unary(pb.RenewLeaseRequest, self.renew),
            "ReleaseLease": Unary(pb.ReleaseLeaseRequest, self.release),
            "GetLease": Unary(pb.GetLeaseRequest, self.get),
        }

    def acquire(self, request: pb.AcquireLeaseRequest, call: Call) -> pb.AcquireLeaseResponse:
        lease = self._leases.acquire(
            _cluster(request.cluster, call),
            request.holder_identity,
            _seconds(request.lease_duration),
            timeout=call.time_left(),
        )
        own = lease.holder == request.holder_identity
        return pb.AcquireLeaseResponse(
            meta=_NO_STATE, acquired=own, lease=_lease(lease, with_token=own)
        )

    def renew(self, request: pb.RenewLeaseRequest, call: Call) -> pb.RenewLeaseResponse:
        lease = self._leases.renew(
            _cluster(request.cluster, call),
            request.holder_identity,
            request.fencing_token,
            _seconds(request.lease_duration),
            timeout=call.time_left(),
        )
        return pb.RenewLeaseResponse(meta=_NO_STATE, lease=_lease(lease, with_token=True))

    def release(self, request: pb.ReleaseLeaseRequest, call: Call) -> pb.ReleaseLeaseResponse:
        self._leases.release(
            _cluster(request.cluster, call),
            request.holder_identity,
            request.fencing_token,
            timeout=call.time_left(),
        )
        return pb.ReleaseLeaseResponse(meta=_NO_STATE)

    def get(self, request: pb.GetLeaseRequest, call: Call) -> pb.GetLeaseResponse:
        lease = self._leases.get(_cluster(request.cluster, call), timeout=call.time_left())
        return pb.GetLeaseResponse(meta=_NO_STATE, lease=_lease(lease, with_token=False))


def _cluster(name: str, call: Call) -> str:
    cluster = name or DEFAULT_CLUSTER
    call.span.set("topospread.cluster", cluster)
    return cluster


def _seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _lease(lease: Lease, *, with_token: bool) -> pb.Lease:
    """Encode a lease; only its holder gets the token."""
    message = pb.Lease(
        holder_identity=lease.holder, fencing_token=lease.fence if with_token else None
    )
    if lease.granted_for:
        message.lease_duration.FromTimedelta(timedelta(milliseconds=lease.granted_for))
    message.expire_time.FromMilliseconds(lease.until)
    message.remaining.FromTimedelta(timedelta(milliseconds=lease.left))
    return message
