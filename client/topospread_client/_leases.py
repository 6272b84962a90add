"""Operations of LeaseService: the lease of the one process that syncs a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread_client import _arguments as arguments
from topospread_client import _decoding as decoding
from topospread_client import _rpcs as rpcs
from topospread_client._answers import Answer
from topospread_client._operations import ClientSession, Operation, call
from topospread_proto.v1 import lease_service_pb2 as pb

if TYPE_CHECKING:
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Lease:
    """Lease of the process that syncs a cluster.

    Attributes:
        fencing_token: grows with each new holder; the writes of its holder name it. None for
            callers that do not hold the lease.
        lease_duration: seconds, as the holder requested them.
        expire_time: by the store's clock.
        remaining: seconds until then.
    """

    holder_identity: str
    fencing_token: int | None
    lease_duration: float
    expire_time: datetime | None
    remaining: float


@dataclass(frozen=True, kw_only=True)
class AcquireLeaseResponse(Answer):
    """Lease as it is now; the caller holds it where `acquired` is true."""

    acquired: bool
    lease: Lease


@dataclass(frozen=True, kw_only=True)
class RenewLeaseResponse(Answer):
    """Lease as it is now."""

    lease: Lease


@dataclass(frozen=True, kw_only=True)
class ReleaseLeaseResponse(Answer):
    """Response of release_lease: the caller does not hold the lease any more."""


@dataclass(frozen=True, kw_only=True)
class GetLeaseResponse(Answer):
    """Lease of a cluster, with its holder."""

    lease: Lease


def acquire_lease(
    session: ClientSession,
    holder_identity: str,
    lease_duration: float,
    *,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[AcquireLeaseResponse]:
    """Acquire the lease of a cluster if it is free or the caller's own.

    Args:
        holder_identity: of the caller; unique among all that ever call.
        lease_duration: seconds until it ends unless it is renewed, at most an hour.
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Returns:
        The lease, also where another holds it; its fencing token goes with its holder's writes.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = arguments.request(
        pb.AcquireLeaseRequest,
        cluster=cluster or session.cluster,
        holder_identity=holder_identity,
        lease_duration=arguments.duration(lease_duration, "leaseDuration"),
    )
    reply = yield from call(rpcs.ACQUIRE_LEASE, request, timeout, traceparent)
    return decoding.answer(AcquireLeaseResponse, reply)


def renew_lease(
    session: ClientSession,
    holder_identity: str,
    fencing_token: int,
    lease_duration: float,
    *,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[RenewLeaseResponse]:
    """Renew the caller's own lease.

    Args:
        holder_identity: who acquired it.
        fencing_token: the lease's.
        lease_duration: seconds from now on.
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        LeaseLost: another holds the lease, or it has expired.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.RenewLeaseRequest,
        cluster=cluster or session.cluster,
        holder_identity=holder_identity,
        fencing_token=fencing_token,
        lease_duration=arguments.duration(lease_duration, "leaseDuration"),
    )
    reply = yield from call(rpcs.RENEW_LEASE, request, timeout, traceparent)
    return decoding.answer(RenewLeaseResponse, reply)


def release_lease(
    session: ClientSession,
    holder_identity: str,
    fencing_token: int,
    *,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ReleaseLeaseResponse]:
    """Release the caller's own lease, so that the next holder need not wait for its end.

    Args:
        holder_identity: who acquired it.
        fencing_token: the lease's.
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = arguments.request(
        pb.ReleaseLeaseRequest,
        cluster=cluster or session.cluster,
        holder_identity=holder_identity,
        fencing_token=fencing_token,
    )
    reply = yield from call(rpcs.RELEASE_LEASE, request, timeout, traceparent)
    return decoding.answer(ReleaseLeaseResponse, reply)


def get_lease(
    session: ClientSession,
    *,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[GetLeaseResponse]:
    """Get the lease of a cluster without acquiring it.

    Args:
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        NotFound: the lease is free.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(pb.GetLeaseRequest, cluster=cluster or session.cluster)
    reply = yield from call(rpcs.GET_LEASE, request, timeout, traceparent)
    return decoding.answer(GetLeaseResponse, reply)
