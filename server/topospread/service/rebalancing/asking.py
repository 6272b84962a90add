"""What a rebalance is asked, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from topospread.kube.selectors import EVERYTHING
from topospread.replica.replicas import NEWEST_AT_HAND, Consistency
from topospread.service.asks import DEFAULT_CLUSTER, NO_SETTINGS, SettingsAsk

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.kube.selectors import Selector
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.spread.constraints import Constraint

SYSTEM_CRITICAL: Final = 2_000_000_000
"""Kubernetes' lowest priority of pods that the cluster itself needs."""

DEFAULT_SEARCH: Final = 5.0
MAX_SEARCH: Final = 60.0
"""Seconds that a search may take."""


@dataclass(frozen=True, slots=True)
class EvictionFilters:
    """Which pods may be evicted.

    Attributes:
        priority_threshold: only pods of a lower priority.
        evict_bare_pods: also pods without a controller, which nobody makes again.
        protect_pods_with_pvc: not those that mount a persistent volume claim.
        protect_selector: not those with these labels; None: no such.
    """

    priority_threshold: int = SYSTEM_CRITICAL
    evict_bare_pods: bool = False
    protect_pods_with_pvc: bool = False
    protect_selector: Selector | None = None


@dataclass(frozen=True, slots=True)
class EvictionLimits:
    """How many evictions are allowed; None: any number."""

    max_evictions: int | None = None
    max_evictions_per_node: int | None = None
    max_evictions_per_namespace: int | None = None


@dataclass(frozen=True, slots=True)
class RebalanceAsk:
    """What is asked.

    Attributes:
        namespace: empty for all.
        excluded: namespaces that are left alone.
        selector: of the pods whose constraints are to hold, and which may be evicted.
        soft: also constraints that only prefer.
        search: seconds that may be spent on the search.
    """

    deadline: float
    cluster: str = DEFAULT_CLUSTER
    namespace: str = ""
    excluded: frozenset[str] = frozenset()
    selector: Selector = EVERYTHING
    consistency: Consistency = NEWEST_AT_HAND
    settings: SettingsAsk = NO_SETTINGS
    soft: bool = False
    filters: EvictionFilters = EvictionFilters()
    limits: EvictionLimits = EvictionLimits()
    search: float = DEFAULT_SEARCH


class Optimality(Enum):
    """What is known of a number of evictions."""

    PROVED = auto()
    BEST_FOUND = auto()


class Outcome(Enum):
    """What became of constraints that depend on one another."""

    PLANNED = auto()
    OVER_LIMIT = auto()
    IMPOSSIBLE = auto()
    NOT_FOUND = auto()


@dataclass(frozen=True, slots=True)
class Judged:
    """One constraint, before and after the plan.

    Attributes:
        constraint: as the first of the pods has it that say the same.
        wanted: whether it is one of those asked for; others must not get worse.
    """

    constraint: Constraint
    wanted: bool
    skew_before: int
    skew_after: int


@dataclass(frozen=True, slots=True)
class Eviction:
    """One step: evict the pod; its replacement passes the filters on `target` then.

    Attributes:
        group: position of the group that it is for.
        fitting: nodes that the replacement passes on at that moment.
    """

    group: int
    namespace: str
    name: str
    uid: str
    node: str
    target: str
    fitting: int
    priority: int
    deletion_cost: int


@dataclass(frozen=True, slots=True)
class Group:
    """Constraints that depend on one another, at least one of them above its maxSkew.

    Attributes:
        evictions: that it needs; −1 when that is not known.
        at_once: its pods must all be evicted before the first replacement is placed.
        reason: why there is no plan; empty when there is one.
    """

    constraints: Sequence[Judged]
    outcome: Outcome
    optimality: Optimality
    evictions: int
    reason: str = ""
    at_once: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """The answer.

    Attributes:
        view: the state that was looked at, and `replica` who follows it.
        constraints: distinct ones that were asked for.
        violated: of these, above their maxSkew now.
        left: of these, above it after the plan.
        stuck: pods of the groups that may not be evicted, by why.
        notes: what the caller ought to know.
    """

    view: View
    replica: Replica
    evictions: Sequence[Eviction]
    groups: Sequence[Group]
    constraints: int
    violated: int
    left: int
    stuck: Mapping[str, int]
    not_modelled: Sequence[str]
    notes: Sequence[str] = ()

    @property
    def optimality(self) -> Optimality:
        """Of all of it: proved only if each group's is."""
        proved = all(group.optimality is Optimality.PROVED for group in self.groups)
        return Optimality.PROVED if proved else Optimality.BEST_FOUND
