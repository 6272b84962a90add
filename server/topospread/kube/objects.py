"""Kubernetes objects as frozen values: only the fields that spreading, fitting and ranking look at.

Values compare and hash by content, so equal pod parts can be interned and used as cache keys.
``None`` and empty differ wherever they differ upstream (a nil label selector matches nothing, an
empty one everything). Mappings are plain dicts that are not changed after construction; types that
are used as keys hold tuples.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HOSTNAME_LABEL: Final = "kubernetes.io/hostname"
ZONE_LABEL: Final = "topology.kubernetes.io/zone"
DEFAULT_NAMESPACE: Final = "default"

DO_NOT_SCHEDULE: Final = "DoNotSchedule"
SCHEDULE_ANYWAY: Final = "ScheduleAnyway"
HONOR: Final = "Honor"
IGNORE: Final = "Ignore"

TERMINAL_PHASES: Final = frozenset({"Succeeded", "Failed"})
"""Phases of pods that have ended: they hold nothing and are not counted (upstream fact 8)."""


@dataclass(frozen=True, slots=True)
class LabelExpression:
    """A matchExpressions entry as written, with its operator unchecked."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """metav1.LabelSelector as written; ``match_labels`` sorted by key."""

    match_labels: tuple[tuple[str, str], ...] = ()
    match_expressions: tuple[LabelExpression, ...] = ()


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """v1.TopologySpreadConstraint as written; nothing defaulted."""

    max_skew: int
    topology_key: str
    when_unsatisfiable: str
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Taint:
    """v1.Taint."""

    key: str
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class Toleration:
    """v1.Toleration; tolerationSeconds does not matter to scheduling."""

    key: str = ""
    operator: str = ""
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class NodeExpression:
    """A v1.NodeSelectorRequirement as written."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeTerm:
    """v1.NodeSelectorTerm: all must hold; an empty term matches no node."""

    match_expressions: tuple[NodeExpression, ...] = ()
    match_fields: tuple[NodeExpression, ...] = ()


@dataclass(frozen=True, slots=True)
class NodeRequirements:
    """A pod's conditions on nodes: nodeSelector and required node affinity.

    Attributes:
        node_selector: sorted (key, value) pairs; all must hold.
        terms: None without required affinity; otherwise one term must hold (an empty tuple
            matches nothing).
    """

    node_selector: tuple[tuple[str, str], ...] = ()
    terms: tuple[NodeTerm, ...] | None = None


@dataclass(frozen=True, slots=True)
class OwnerReference:
    """The controlling owner of a pod (``controller: true``)."""

    api_version: str
    kind: str
    name: str
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, incoming or stored.

    Attributes:
        owner: the controlling owner only; other owners do not matter.
        terminating: whether deletionTimestamp is set; such pods are not counted.
    """

    name: str
    namespace: str = DEFAULT_NAMESPACE
    uid: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    owner: OwnerReference | None = None
    terminating: bool = False
    node_name: str = ""
    phase: str = ""
    scheduler_name: str = ""
    requirements: NodeRequirements = NodeRequirements()
    tolerations: tuple[Toleration, ...] = ()
    constraints: tuple[SpreadConstraint, ...] = ()


@dataclass(frozen=True, slots=True)
class Node:
    """A node.

    Attributes:
        unschedulable: cordoned; spreading looks only at the taint that goes with it.
        allocatable: (resource, amount) in the scheduler's units, sorted; empty when not reported.
        declared_features: sorted (KEP-5328).
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    allocatable: tuple[tuple[str, int], ...] = ()
    declared_features: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Workload:
    """A Service, ReplicationController, ReplicaSet or StatefulSet: what selects pods. Or a Job.

    Attributes:
        kind: ``Service``, ``ReplicationController``, ``ReplicaSet``, ``StatefulSet`` or ``Job``.
        selector: of RS and STS; None is nil.
        match_labels: of Service and RC, sorted pairs.
        controller: its own, as a ReplicaSet's Deployment; None without one.
    """

    kind: str
    namespace: str
    name: str
    selector: LabelSelector | None = None
    match_labels: tuple[tuple[str, str], ...] = ()
    controller: OwnerReference | None = None
