"""The operations of LeaseService: the lease to be the only one who feeds a cluster."""

from __future__ import annotations

from topospread_client import _decoding as decoding
from topospread_client import _given as given
from topospread_client import _rpcs as rpcs
from topospread_client._answers import (
    AcquireLeaseResponse,
    GetLeaseResponse,
    ReleaseLeaseResponse,
    RenewLeaseResponse,
)
from topospread_client._operations import Operation, Session, call
from topospread_proto.v1 import lease_service_pb2 as pb


def acquire_lease(
    session: Session,
    holder_identity: str,
    lease_duration: float,
    *,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[AcquireLeaseResponse]:
    """Take the lease to feed a cluster if it is free or one's own; else say who has it.

    Args:
        holder_identity: who asks; unique among all that ever ask.
        lease_duration: seconds until it ends unless it is renewed, at most an hour.
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Returns:
        The lease as it is now; its fencing token goes with the writes of its holder.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = given.request(
        pb.AcquireLeaseRequest,
        cluster=cluster or session.cluster,
        holder_identity=holder_identity,
        lease_duration=given.duration(lease_duration, "leaseDuration"),
    )
    reply = yield from call(rpcs.ACQUIRE_LEASE, request, timeout, traceparent)
    return decoding.answer(AcquireLeaseResponse, reply)


def renew_lease(
    session: Session,
    holder_identity: str,
    fencing_token: int,
    lease_duration: float,
    *,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[RenewLeaseResponse]:
    """Have one's own lease last longer.

    Args:
        holder_identity: who acquired it.
        fencing_token: the lease's.
        lease_duration: seconds from now on.
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        LeaseLost: it is another's, or has ended.
        TopospreadClientError: any other failure of the call.
    """
    request = given.request(
        pb.RenewLeaseRequest,
        cluster=cluster or session.cluster,
        holder_identity=holder_identity,
        fencing_token=fencing_token,
        lease_duration=given.duration(lease_duration, "leaseDuration"),
    )
    reply = yield from call(rpcs.RENEW_LEASE, request, timeout, traceparent)
    return decoding.answer(RenewLeaseResponse, reply)


def release_lease(
    session: Session,
    holder_identity: str,
    fencing_token: int,
    *,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ReleaseLeaseResponse]:
    """Give one's own lease back, so that the next holder need not wait for its end.

    Args:
        holder_identity: who acquired it.
        fencing_token: the lease's.
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = given.request(
        pb.ReleaseLeaseRequest,
        cluster=cluster or session.cluster,
        holder_identity=holder_identity,
        fencing_token=fencing_token,
    )
    reply = yield from call(rpcs.RELEASE_LEASE, request, timeout, traceparent)
    return decoding.answer(ReleaseLeaseResponse, reply)


def get_lease(
    session: Session,
    *,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[GetLeaseResponse]:
    """Who has the lease; nothing is taken.

    Args:
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        NotFound: nobody has it.
        TopospreadClientError: any other failure of the call.
    """
    request = given.request(pb.GetLeaseRequest, cluster=cluster or session.cluster)
    reply = yield from call(rpcs.GET_LEASE, request, timeout, traceparent)
    return decoding.answer(GetLeaseResponse, reply)
