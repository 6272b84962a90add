"""The operations of Placement: places that are held, so that maxSkew holds across schedulers.

Place and Reserve have an id for each call, and say when they are repeated: then what others hold
for the pod by now stays. Release is repeated where it names the reservation that it ends.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Final

from topospread_client import places, requests, rpcs
from topospread_client.operations import Operation, Session, call, call_again
from topospread_client.places import Placed, Released, Reservations, Reserved
from topospread_proto.v1 import placement_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread_client.requests import PodLike, Settings

SPREAD_ONLY: Final = pb.FIT_SPREAD_ONLY
NODE: Final = pb.FIT_NODE
NODE_AND_RESOURCES: Final = pb.FIT_NODE_AND_RESOURCES
"""How much of "does it fit" Place asks beside spreading."""

PAGE: Final = 1000


def place(
    session: Session,
    pod: PodLike,
    *,
    candidates: Sequence[str] | None = None,
    fit: pb.Fit.ValueType | None = None,
    ttl: float | None = None,
    seed: str = "",
    cluster: str | None = None,
    settings: Settings | None = None,
    validate: bool = False,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Placed]:
    """Choose the best node for a pod and hold it.

    Args:
        session: what the client's operations share.
        pod: a message, a manifest, bytes of a v1.Pod, or ``namespace/name`` of a pod in the state.
        candidates: names to choose from; None chooses from all nodes.
        fit: SPREAD_ONLY, NODE (name, cordon, affinity, taints) or NODE_AND_RESOURCES; None asks for
            the last without candidates and for the first with them.
        ttl: seconds to hold it for; None is the server's 60.
        seed: tells callers apart: equal nodes are ordered by it.
        cluster: None takes the client's.
        settings: None takes the profile of the pod's schedulerName.
        validate: refuse what an API server would refuse in the pod's constraints.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        Conflict: others changed the state again and again until the time-out.
        InvalidRequest: everything that is wrong with the pod or the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    subject = requests.subject(pod)
    request = pb.PlaceRequest(
        cluster=cluster or session.cluster,
        pod=subject.pod,
        pod_ref=subject.pod_ref,
        candidates=requests.selection(candidates),
        fit=fit or pb.FIT_UNSPECIFIED,
        ttl=requests.duration(ttl),
        settings=requests.carried(settings),
        seed=seed,
        validate=validate,
        request_id=_request_id(),
    )
    reply = yield from call_again(rpcs.PLACE, request, timeout, traceparent, _is_repeat(request))
    return places.placed(reply.message, reply.traceparent)


def reserve(
    session: Session,
    pod: PodLike,
    node: str,
    *,
    ttl: float | None = None,
    cluster: str | None = None,
    settings: Settings | None = None,
    validate: bool = False,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Reserved]:
    """Hold one node for a pod, if its hard constraints allow it.

    Args:
        session: what the client's operations share.
        pod: as for `place`.
        node: its name.
        ttl: as for `place`.
        cluster: None takes the client's.
        settings: as for `place`.
        validate: as for `place`.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        As `place`.
    """
    subject = requests.subject(pod)
    request = pb.ReserveRequest(
        cluster=cluster or session.cluster,
        pod=subject.pod,
        pod_ref=subject.pod_ref,
        node=node,
        ttl=requests.duration(ttl),
        settings=requests.carried(settings),
        validate=validate,
        request_id=_request_id(),
    )
    reply = yield from call_again(rpcs.RESERVE, request, timeout, traceparent, _is_repeat(request))
    return places.reserved(reply.message, reply.traceparent)


def release(
    session: Session,
    name: str,
    *,
    namespace: str = "",
    uid: str = "",
    reservation_id: str = "",
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Released]:
    """End what is held for a pod.

    With a reservation's id the call is repeated when the server was out of reach: it ends only that
    one, not what was made or renewed since. Without it the call is not repeated.

    Args:
        session: what the client's operations share.
        name: of the pod.
        namespace: of the pod; empty means ``default``.
        uid: when given, what is held for a pod of another uid stays.
        reservation_id: of what is to end, as `place`, `reserve` or `reservations` told it; empty
            for whatever is held.
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = pb.ReleaseRequest(
        cluster=cluster or session.cluster,
        namespace=namespace,
        name=name,
        uid=uid,
        reservation_id=reservation_id,
    )
    if reservation_id:
        reply = yield from call_again(rpcs.RELEASE, request, timeout, traceparent)
    else:
        reply = yield from call(rpcs.RELEASE, request, timeout, traceparent)
    return Released(
        revision=reply.message.revision,
        traceparent=reply.traceparent,
        released=reply.message.released,
    )


def reservations(
    session: Session,
    *,
    namespace: str = "",
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Reservations]:
    """All places that are held.

    Args:
        session: what the client's operations share.
        namespace: of the pods; empty means all.
        cluster: None takes the client's.
        timeout: seconds for each page; None takes the client's.
        traceparent: parent of the server's spans.

    Raises:
        NotFound: the cluster is not in the state.
        TopospreadClientError: any other failure of a call.
    """
    request = pb.ListReservationsRequest(
        cluster=cluster or session.cluster, namespace=namespace, page_size=PAGE
    )
    reply = yield from call(rpcs.LIST_RESERVATIONS, request, timeout, traceparent)
    found = [*reply.message.reservations]
    revision = reply.message.revision
    while token := reply.message.next_page_token:
        request.page_token = token
        reply = yield from call(rpcs.LIST_RESERVATIONS, request, timeout, traceparent)
        found += reply.message.reservations
    return Reservations(
        revision=revision,
        traceparent=reply.traceparent,
        reservations=tuple(map(places.reservation, found)),
    )


def _request_id() -> int:
    return secrets.randbits(64) or 1  # 0 is none


def _is_repeat(
    request: pb.PlaceRequest | pb.ReserveRequest,
) -> Callable[[], None]:
    def say_so() -> None:
        request.is_repeat = True

    return say_so
