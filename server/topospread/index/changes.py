"""Changes that the builder folds: objects, stripped to what is counted or looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topospread.kube.demands import Holds, Requests
    from topospread.kube.objects import Node, Workload
    from topospread.kube.versions import KubernetesVersion
    from topospread.kube.volumes import ClusterValue


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
        holds: what it holds of its node beside amounts; None for nothing, as of most pods, and
            where it takes nothing.
        nominated: of one that waits, as it would be on the node where preemption makes room for it.
    """

    labels: tuple[tuple[str, str], ...]
    node_name: str
    counted: bool
    requests: Requests | None = None
    template: bytes | None = None
    holds: Holds | None = None
    nominated: PodRow | None = None

    @property
    def terminating(self) -> bool:
        """Whether it is about to end, and takes its part of its node until then."""
        return not self.counted and self.requests is not None


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
        holds: as a PodRow's.
    """

    uid: str
    labels: tuple[tuple[str, str], ...]
    node_name: str
    expires_at: int = 0
    requests: Requests = ()
    id: str = ""
    holds: Holds | None = None

    @property
    def terminating(self) -> bool:
        """Never."""
        return False

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
    """A Service, RC, RS, STS or Job as it is now; ``workload`` is None when it is gone."""

    kind: str
    namespace: str
    name: str
    workload: Workload | None


@dataclass(frozen=True, slots=True)
class VersionChange:
    """The Kubernetes version that the cluster reports as it is now; None when it reports none."""

    version: KubernetesVersion | None


@dataclass(frozen=True, slots=True)
class ObjectChange:
    """A volume, a namespace or the like as it is now; ``value`` is None when it is gone.

    Attributes:
        kind: as Kubernetes writes it.
        namespace: empty for kinds without.
    """

    kind: str
    namespace: str
    name: str
    value: ClusterValue | None


@dataclass(frozen=True, slots=True)
class KindChange:
    """Whether a feed reads all objects of a kind; ``unknown`` says why not, empty if it does."""

    kind: str
    unknown: str


@dataclass(frozen=True, slots=True)
class UnreadableChange:
    """Whether a stored object cannot be read, so that it is left out.

    Attributes:
        key: kind, namespace (empty for kinds without) and name.
    """

    key: tuple[str, str, str]
    unreadable: bool


IndexChange = (
    PodChange
    | ReservationChange
    | NodeChange
    | WorkloadChange
    | ObjectChange
    | KindChange
    | VersionChange
    | UnreadableChange
)
