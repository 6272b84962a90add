"""Reservations on the wire."""

from __future__ import annotations

from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import placement_service_pb2 as pb

if TYPE_CHECKING:
    from topospread.index.changes import ReservationRow


def timestamp(milliseconds: int) -> Timestamp | None:
    """A point in time that may be absent."""
    if not milliseconds:
        return None
    message = Timestamp()
    message.FromMilliseconds(milliseconds)
    return message


def reservation_message(namespace: str, name: str, row: ReservationRow) -> pb.Reservation:
    """What is held for a pod."""
    return pb.Reservation(
        pod=common_pb2.PodReference(namespace=namespace, name=name, uid=row.uid),
        node=row.node_name,
        labels=dict(row.labels),
        expire_time=timestamp(row.expires_at),
        reservation_id=row.id,
    )
