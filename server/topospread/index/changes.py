"""Changes that the builder folds: nodes, pods and workloads, stripped to what is counted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topospread.kube.demands import Requests
    from topospread.kube.objects import Node, Workload


@dataclass(frozen=True, slots=True)
class PodRow:
    """The part of a pod that counting looks at.

    Attributes:
        labels: (key, value) pairs sorted by key: equal label sets are equal tuples.
        node_name: where it is bound; empty while it waits. The node may be unknown (yet).
        counted: bound, not terminating and not in a terminal phase (upstream facts 7 and 8).
        requests: (resource, amount) that it takes from its node, sorted; None when it is not bound
            or has ended. A terminating pod still takes its part.
        template: of its pod class; None when it has none, being on its way out or ended.
    """

    labels: tuple[tuple[str, str], ...]
    node_name: str
    counted: bool
    requests: Requests | None = None
    template: bytes | None = None


@dataclass(frozen=True, slots=True)
class PodChange:
    """A pod as it is now; ``row`` is None when it is gone."""

    namespace: str
    name: str
    row: PodRow | None


@dataclass(frozen=True, slots=True)
class ReservationRow:
    """A place reserved for a pod; it counts like a pod that is bound there.

    Attributes:
        uid: of the pod; empty when it is not known.
        labels: as a PodRow's.
        expires_at: milliseconds since 1970 on the store's clock; 0 for never.
        requests: (resource, amount) that the pod will take, sorted.
        id: of the call that made or renewed it, and when; empty when an older server did.
    """

    uid: str
    labels: tuple[tuple[str, str], ...]
    node_name: str
    expires_at: int = 0
    requests: Requests = ()
    id: str = ""

    @property
    def counted(self) -> bool:
        """Always true: a reservation counts as soon as it is there."""
        return True

    def is_for(self, uid: str) -> bool:
        """Whether the reservation is for the pod with a uid; an empty uid is unknown."""
        return not uid or self.uid in ("", uid)


@dataclass(frozen=True, slots=True)
class ReservationChange:
    """The reservation for a pod as it is now; ``row`` is None when it has ended."""

    namespace: str
    name: str
    row: ReservationRow | None


@dataclass(frozen=True, slots=True)
class NodeChange:
    """A node as it is now; ``node`` is None when it is gone."""

    name: str
    node: Node | None


@dataclass(frozen=True, slots=True)
class WorkloadChange:
    """A Service, RC, RS or STS as it is now; ``workload`` is None when it is gone."""

    kind: str
    namespace: str
    name: str
    workload: Workload | None


IndexChange = PodChange | ReservationChange | NodeChange | WorkloadChange
