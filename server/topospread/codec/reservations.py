"""Converts reservations to their stored form, and back."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from topospread.codec.parsing import parse_stored
from topospread.generated.internal.v1.stored_pb2 import StoredOwner, StoredReservation
from topospread.index.changes import ReservationRow
from topospread.kube.objects import DO_NOT_SCHEDULE, HONOR, IGNORE
from topospread.store.model import Key, Kind, StoredObject
from topospread.store.values import DIGEST_BYTES
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as kube

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.kube.demands import Requests
    from topospread.kube.objects import OwnerReference, Pod
    from topospread.kube.selectors import Selector
    from topospread.spread.constraints import Constraint


class ReservationTemplate:
    """The common part of all reservations for pods of one shape, encoded once.

    Args:
        pod: any of them, for labels and owner.
        requests: what each takes, in the scheduler's units.
        constraints: the hard ones that each is judged by.
    """

    __slots__ = ("_constraints", "_relevant")

    def __init__(self, pod: Pod, requests: Requests, constraints: Sequence[Constraint]) -> None:
        digest_input = StoredReservation(
            labels=pod.labels,
            requests=dict(requests),
            owner=None if pod.owner is None else _owner(pod.owner),
        )
        judged_by = StoredReservation(constraints=map(_constraint, constraints))
        # Fields that stand one behind the other are one message, and these are in their order.
        self._relevant = digest_input.SerializeToString(deterministic=True)
        self._constraints = judged_by.SerializeToString(deterministic=True)

    @property
    def nbytes(self) -> int:
        """Bytes of the encoded part."""
        return len(self._relevant) + len(self._constraints)

    def held(self, key: Key, uid: str, node: str, name: str = "") -> StoredObject:
        """The reservation of a node for one pod; the store adds when it is due.

        Args:
            key: where it is stored.
            uid: of the pod.
            node: its name.
            name: the reservation's own id, greater than that of any before it for the pod.
        """
        digest_input = StoredReservation(node=node).SerializeToString() + self._relevant
        # No decision depends on the constraints that it was judged by.
        digest = hashlib.blake2b(uid.encode() + b"\0" + digest_input, digest_size=DIGEST_BYTES)
        payload = digest_input + self._constraints
        return StoredObject(key, payload, digest.digest(), resource_version=name, uid=uid)


def reservation_key(namespace: str, name: str) -> Key:
    """The key of the reservation for a pod."""
    return Key(Kind.RESERVATION, namespace, name)


def reservation_row(stored: StoredObject) -> ReservationRow:
    """Read a stored reservation for counting.

    Raises:
        CorruptValue: the payload cannot be read.
    """
    message = parse_stored(StoredReservation, stored.payload)
    labels = tuple(sorted(message.labels.items()))
    requests = tuple(sorted(message.requests.items()))
    return ReservationRow(
        stored.uid, labels, message.node, stored.expires_at, requests, stored.resource_version
    )


def _owner(owner: OwnerReference) -> StoredOwner:
    return StoredOwner(
        api_version=owner.api_version,
        kind=owner.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
    )


def _constraint(constraint: Constraint) -> kube.TopologySpreadConstraint:
    """A constraint with defaults filled in and matchLabelKeys merged, as it was judged."""
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
