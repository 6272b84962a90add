"""Messages that several responses share: constraints, selectors, reservations."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from google.protobuf.timestamp_pb2 import Timestamp

from topospread.kube.objects import HONOR, IGNORE
from topospread.kube.selectors import Selector, selector_text
from topospread_proto.kubernetes.v1 import kubernetes_pb2
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import placement_service_pb2 as pb

if TYPE_CHECKING:
    from topospread.index.changes import ReservationRow
    from topospread.spread.constraints import Constraint


NO_HISTORY: Final = "none"
"""The store identity of a cluster of which the store holds nothing."""

_ID_BYTES: Final = 8


def constraint_message(constraint: Constraint) -> common_pb2.SpreadConstraint:
    """Encode a constraint, with the id that it has in every response."""
    message = common_pb2.SpreadConstraint(
        namespace=constraint.group.namespace,
        topology_key=constraint.topology_key,
        when_unsatisfiable=constraint.when_unsatisfiable,
        label_selector=selector_message(constraint.group.selector),
        selector_text=selector_text(constraint.group.selector),
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains,
        node_affinity_policy=HONOR if constraint.honors_affinity else IGNORE,
        node_taints_policy=HONOR if constraint.honors_taints else IGNORE,
    )
    written = message.SerializeToString(deterministic=True)
    message.id = blake2b(written, digest_size=_ID_BYTES).hexdigest()
    return message


def selector_message(selector: Selector) -> kubernetes_pb2.LabelSelector | None:
    """Encode a selector; None for the one that matches nothing."""
    if selector.nothing:
        return None
    return kubernetes_pb2.LabelSelector(
        match_expressions=[
            kubernetes_pb2.LabelSelectorRequirement(
                key=each.key, operator=each.operator, values=each.values
            )
            for each in selector.requirements
        ]
    )


def timestamp(milliseconds: int) -> Timestamp | None:
    """Encode a point in time; 0 is none."""
    if not milliseconds:
        return None
    message = Timestamp()
    message.FromMilliseconds(milliseconds)
    return message


def reservation_message(namespace: str, name: str, row: ReservationRow) -> pb.Reservation:
    """Encode a reservation."""
    return pb.Reservation(
        pod=common_pb2.PodReference(namespace=namespace, name=name, uid=row.uid),
        node=row.node_name,
        labels=dict(row.labels),
        expire_time=timestamp(row.expires_at),
        reservation_id=row.id,
    )
