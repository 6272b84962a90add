"""Reservations: how they are stored, and what of them is counted.

A payload that cannot be read raises CorruptValue.
"""

from __future__ import annotations

import hashlib
from dataclasses import asdict
from typing import TYPE_CHECKING

from topospread.codec.parsing import parse_stored
from topospread.codec.pod_parts import affinity_terms, lenient_selector
from topospread.generated.internal.v1.stored_pb2 import (
    StoredDisk,
    StoredHolds,
    StoredOwner,
    StoredPort,
    StoredReservation,
)
from topospread.index.changes import ReservationRow
from topospread.kube.demands import Demand, Disk, HostPort, PodVolume, holds_of
from topospread.kube.objects import DO_NOT_SCHEDULE, HONOR, IGNORE
from topospread.store.model import Key, Kind, StoredObject
from topospread.store.values import DIGEST_BYTES
from topospread_proto.kubernetes.v1 import kubernetes_pb2

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.kube.demands import Holds
    from topospread.kube.objects import OwnerReference, Pod
    from topospread.kube.selectors import Selector
    from topospread.spread.constraints import Constraint


class ReservationTemplate:
    """The common part of all reservations for pods of one shape, encoded once."""

    __slots__ = ("_constraints", "_relevant")

    def __init__(self, pod: Pod, demand: Demand, constraints: Sequence[Constraint]) -> None:
        digest_input = StoredReservation(
            labels=pod.labels,
            requests=dict(demand.requests),
            owner=None if pod.owner is None else _owner(pod.owner),
            holds=_holds_message(demand),
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
    """Read a stored reservation for counting."""
    message = parse_stored(StoredReservation, stored.payload)
    labels = tuple(sorted(message.labels.items()))
    requests = tuple(sorted(message.requests.items()))
    holds = _holds_from(message.holds, stored.key) if message.HasField("holds") else None
    return ReservationRow(
        stored.uid,
        labels,
        message.node,
        stored.expires_at,
        requests,
        stored.resource_version,
        holds,
    )


def _holds_message(demand: Demand) -> StoredHolds | None:
    """What a pod will hold, whatever its name; None for nothing."""
    disks = [each.disk for each in demand.volumes if each.disk is not None]
    made = StoredHolds(
        ports=[
            StoredPort(host_port=each.port, protocol=each.protocol, host_ip=each.ip)
            for each in demand.ports
        ],
        disks=[StoredDisk(**asdict(disk)) for disk in disks],
        claims=[each.claim for each in demand.volumes if each.claim],
        ephemeral=[each.name for each in demand.volumes if each.ephemeral],
        terms=[
            kubernetes_pb2.PodAffinityTerm(
                label_selector=selector_message(each.selector),
                namespaces=each.namespaces,
                topology_key=each.topology_key,
                namespace_selector=(
                    None
                    if each.namespace_selector is None
                    else selector_message(each.namespace_selector)
                ),
            )
            for each in demand.anti_affinity
        ],
        priority=demand.priority,
    )
    return made if made.ByteSize() else None


def _holds_from(message: StoredHolds, key: Key) -> Holds | None:
    """What the pod with this key will hold."""
    disks = [
        Disk(each.plugin, each.handle, each.read_only, tuple(each.monitors))
        for each in message.disks
    ]
    volumes = [PodVolume("", claim) for claim in message.claims]
    volumes += [PodVolume(name, ephemeral=True) for name in message.ephemeral]
    volumes += [PodVolume("", disk=disk) for disk in disks]
    anti_affinity = kubernetes_pb2.PodAffinity(
        required_during_scheduling_ignored_during_execution=message.terms
    )
    demand = Demand(
        ports=tuple([HostPort(e.host_port, e.protocol, e.host_ip) for e in message.ports]),
        volumes=tuple(volumes),
        anti_affinity=affinity_terms(anti_affinity, "", key.namespace, None, lenient_selector),
        priority=message.priority,
    )
    return holds_of(demand, key.namespace, key.name)


def _owner(owner: OwnerReference) -> StoredOwner:
    return StoredOwner(
        api_version=owner.api_version,
        kind=owner.kind,
        name=owner.name,
        uid=owner.uid,
        controller=True,
    )


def _constraint(constraint: Constraint) -> kubernetes_pb2.TopologySpreadConstraint:
    """A constraint with defaults filled in and matchLabelKeys merged, as it was judged."""
    honours_taints = constraint.eligibility.tolerations is not None
    return kubernetes_pb2.TopologySpreadConstraint(
        max_skew=constraint.max_skew,
        topology_key=constraint.topology_key,
        when_unsatisfiable=DO_NOT_SCHEDULE,
        label_selector=selector_message(constraint.group.selector),
        min_domains=constraint.min_domains,
        node_taints_policy=HONOR if honours_taints else IGNORE,
    )


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
