"""Reservations to what the store holds, and back."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topospread.codec.parsing import kept
from topospread.index.changes import ReservationRow
from topospread.kube.objects import DO_NOT_SCHEDULE, HONOR, IGNORE
from topospread.store.api import Key, Kind, StoredObject
from topospread.store.values import DIGEST_BYTES
from topospread_proto.v1 import kubernetes_pb2 as kube
from topospread_proto.v1.internal_pb2 import StoredOwner, StoredReservation

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.kube.objects import OwnerReference, Pod
    from topospread.kube.selectors import Selector
    from topospread.spread.constraints import Constraint


@dataclass(frozen=True, slots=True)
class Reservation:
    """A place held for a pod.

    Attributes:
        requests: what the pod takes, in the scheduler's units.
        constraints: the hard ones that allowed the node.
    """

    pod: Pod
    node: str
    requests: Mapping[str, int] = field(default_factory=dict)
    constraints: Sequence[Constraint] = ()


def reservation_key(namespace: str, name: str) -> Key:
    """Where the reservation for a pod is stored."""
    return Key(Kind.RESERVATION, namespace, name)


def stored_reservation(reservation: Reservation) -> StoredObject:
    """A reservation as it is stored; the store adds when it is due."""
    pod = reservation.pod
    message = StoredReservation(
        node=reservation.node,
        labels=pod.labels,
        requests=reservation.requests,
        owner=None if pod.owner is None else _owner(pod.owner),
        constraints=map(_constraint, reservation.constraints),
    )
    payload = message.SerializeToString(deterministic=True)
    # By which constraints it was judged matters to nobody's decision.
    message.ClearField("constraints")
    digest = hashlib.blake2b(pod.uid.encode(), digest_size=DIGEST_BYTES)
    digest.update(b"\0" + message.SerializeToString(deterministic=True))
    key = reservation_key(pod.namespace, pod.name)
    return StoredObject(key, payload, digest.digest(), uid=pod.uid)


def reservation_row(stored: StoredObject) -> ReservationRow:
    """A stored reservation as it is counted.

    Raises:
        CorruptValue: the payload cannot be read.
    """
    message = kept(StoredReservation, stored.payload)
    labels = tuple(sorted(message.labels.items()))
    requests = tuple(sorted(message.requests.items()))
    return ReservationRow(stored.uid, labels, message.node, stored.expires_at, requests)


def _owner(owner: OwnerReference) -> StoredOwner:
    return StoredOwner(
        api_version=owner.api_version,
        kind=owner.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
    )


def _constraint(constraint: Constraint) -> kube.TopologySpreadConstraint:
    """A constraint as it was judged: defaults filled in, matchLabelKeys merged."""
    honours_taints = constraint.eligibility.tolerations is not None
    return kube.TopologySpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        when_unsatisfiable=DO_NOT_SCHEDULE,
        label_selector=_selector(constraint.group.selector),
        min_domains=constraint.min_domains,
        node_taints_policy=HONOR if honours_taints else IGNORE,
    )


def _selector(selector: Selector) -> kube.LabelSelector | None:
    if selector.nothing:
        return None
    return kube.LabelSelector(
        match_expressions=[
            kube.LabelSelectorRequirement(key=each.key, operator=each.operator, values=each.values)
            for each in selector.requirements
        ]
    )
