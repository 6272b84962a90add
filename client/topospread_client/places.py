"""What a server answers about places that it holds for pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC
from typing import TYPE_CHECKING

from topospread_client import decoding
from topospread_client.answers import Answer, Status

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime

    from google.protobuf.timestamp_pb2 import Timestamp

    from topospread_proto.v1 import placement_pb2 as pb


@dataclass(frozen=True, kw_only=True)
class Placed(Answer):
    """Where a pod's place is.

    Attributes:
        node: None when no node fits.
        status: Success, or why not.
        message: kube-scheduler's words for why no node fits.
        already_bound: the pod runs on that node; nothing is held for it.
        expires_at: until when the place is held; None when none is.
        not_modelled: what of the pod was not looked at.
        conflicts: how often others' changes made a judgement void before this one held.
        reservation_id: of what is held, for `release`; a renewal has another one. Empty when
            nothing is held.
    """

    node: str | None
    status: Status
    message: str = ""
    already_bound: bool = False
    expires_at: datetime | None = None
    not_modelled: tuple[str, ...] = ()
    conflicts: int = 0
    reservation_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Reserved(Answer):
    """Whether a node is held for a pod.

    Attributes:
        status: Success, or the verdict that refused it.
        already_bound: the pod runs already, on this node or on another.
        expires_at: until when the place is held; None when none is.
        conflicts: as Placed's.
        reservation_id: as Placed's.
    """

    status: Status
    already_bound: bool = False
    expires_at: datetime | None = None
    conflicts: int = 0
    reservation_id: str = ""


@dataclass(frozen=True, kw_only=True)
class Released(Answer):
    """Whether this call ended what was held.

    False, too, when a try of it did whose answer was lost. Either way it is not held any more.
    """

    released: bool


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place held for a pod; `uid` is empty when it is not known. `id` is for `release`."""

    namespace: str
    name: str
    uid: str
    node: str
    labels: Mapping[str, str] = field(default_factory=dict)
    expires_at: datetime | None = None
    id: str = ""


@dataclass(frozen=True, kw_only=True)
class Reservations(Answer):
    """All places that are held, ordered by the pods' namespaces and names.

    Later ones may have been read at a later revision.
    """

    reservations: tuple[Reservation, ...]


def placed(message: pb.PlaceResponse, traceparent: str | None) -> Placed:
    """Place's answer."""
    return Placed(
        revision=message.revision,
        traceparent=traceparent,
        node=message.node or None,
        status=decoding.status(message.status),
        message=message.message,
        already_bound=message.already_bound,
        expires_at=_time(message.expires_at) if message.HasField("expires_at") else None,
        not_modelled=tuple(message.not_modelled),
        conflicts=message.conflicts,
        reservation_id=message.reservation_id,
    )


def reserved(message: pb.ReserveResponse, traceparent: str | None) -> Reserved:
    """Reserve's answer."""
    return Reserved(
        revision=message.revision,
        traceparent=traceparent,
        status=decoding.status(message.status),
        already_bound=message.already_bound,
        expires_at=_time(message.expires_at) if message.HasField("expires_at") else None,
        conflicts=message.conflicts,
        reservation_id=message.reservation_id,
    )


def reservation(message: pb.Reservation) -> Reservation:
    """One place that is held."""
    return Reservation(
        namespace=message.namespace,
        name=message.name,
        uid=message.uid,
        node=message.node,
        labels=dict(message.labels),
        expires_at=_time(message.expires_at) if message.HasField("expires_at") else None,
        id=message.reservation_id,
    )


def _time(stamp: Timestamp) -> datetime:
    return stamp.ToDatetime(tzinfo=UTC)
