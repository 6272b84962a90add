"""The operations of a feeder: the lease to be the only one for its cluster."""

from __future__ import annotations

from dataclasses import dataclass

from topospread_client import requests, rpcs
from topospread_client.operations import Operation, Session, call
from topospread_proto.v1 import feed_pb2 as pb


@dataclass(frozen=True, slots=True)
class Lease:
    """Who may feed a cluster, and until when.

    Attributes:
        held: the one who asked has it.
        fence: its token, which grows with each new holder; the writes of its holder name it.
        holder: who has it.
        left: seconds until it ends unless it is renewed.
    """

    held: bool
    fence: int
    holder: str
    left: float


def hold(
    session: Session,
    holder: str,
    lifetime: float,
    *,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Lease]:
    """Take the lease to feed a cluster if it is free, or renew one's own.

    Args:
        session: what the client's operations share.
        holder: who asks; unique among all that ever ask.
        lifetime: seconds until it ends unless it is renewed, at most an hour.
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Returns:
        The lease as it is now; its fence goes with the writes of its holder.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = pb.HoldRequest(
        cluster=cluster or session.cluster, holder=holder, lifetime=requests.duration(lifetime)
    )
    reply = yield from call(rpcs.HOLD, request, timeout, traceparent)
    found = reply.message
    return Lease(
        held=found.held,
        fence=found.fence,
        holder=found.holder,
        left=found.left.ToTimedelta().total_seconds(),
    )


def leave(
    session: Session,
    holder: str,
    *,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[None]:
    """Give one's own lease back, so that the next feeder need not wait for its end.

    Args:
        session: what the client's operations share.
        holder: who had it.
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = pb.LeaveRequest(cluster=cluster or session.cluster, holder=holder)
    yield from call(rpcs.LEAVE, request, timeout, traceparent)
