"""A pod's effective constraints: its own, or the profile's defaults.

Sources: KEP-895, KEP-1258 (defaults), KEP-3022 (minDomains), KEP-3094 (policies), KEP-3243
(matchLabelKeys).
Hard and soft constraints are made apart because upstream parses only those of the phase at hand: an
invalid soft selector does not fail PreFilter (upstream fact 5).
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from topospread.kube.affinity import CompiledRequirements, compile_requirements
from topospread.kube.objects import (
    DO_NOT_SCHEDULE,
    HONOR,
    HOSTNAME_LABEL,
    SCHEDULE_ANYWAY,
    Pod,
    SpreadConstraint,
)
from topospread.kube.selectors import Selector, SelectorError, compile_selector
from topospread.spread.topology import Eligibility, GroupKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from topospread.spread.settings import FeatureGates, Rules

HARD_ERROR: Final = "get constraints from pod: obtaining pod's hard topology spread constraints: "
SOFT_ERROR: Final = "calculating preScoreState: obtaining pod's soft topology spread constraints: "


@dataclass(frozen=True, slots=True)
class Constraint:
    """A compiled constraint.

    Attributes:
        group: which pods are counted: of the pod's namespace, by the selector with matchLabelKeys
            merged in, or by the one deduced for default constraints.
        min_domains: 1 when the pod has none.
        self_match: whether the incoming pod adds itself to the domain it goes to.
        eligibility: which nodes are counted.
        when_unsatisfiable: DoNotSchedule or ScheduleAnyway.
        honors_affinity: nodeAffinityPolicy; a pod without affinity has the same eligibility either
            way.
        counts_nothing: no pod of the state is counted: the selector is nil, or it is empty in a
            version that counts nothing then. What-ifs match an empty one all the same.
    """

    topology_key: str
    max_skew: int
    group: GroupKey
    min_domains: int
    self_match: bool
    eligibility: Eligibility
    when_unsatisfiable: str = DO_NOT_SCHEDULE
    honors_affinity: bool = True
    counts_nothing: bool = field(default=False, repr=False)

    @property
    def honors_taints(self) -> bool:
        """The nodeTaintsPolicy."""
        return self.eligibility.tolerations is not None

    @property
    def is_hostname(self) -> bool:
        """Whether scoring counts per node instead of per domain (upstream fact 29)."""
        return self.topology_key == HOSTNAME_LABEL


@dataclass(frozen=True, slots=True)
class ConstraintSet:
    """All constraints of a pod for one phase, or why they could not be made.

    Attributes:
        error: upstream's text when a selector does not parse; ``constraints`` is empty then.
    """

    constraints: tuple[Constraint, ...] = ()
    error: str = ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Distinct topology keys in order of first use."""
        return tuple(dict.fromkeys(c.topology_key for c in self.constraints))


@dataclass(frozen=True, slots=True)
class PodConstraints:
    """The effective constraints of a pod.

    Attributes:
        hard: DoNotSchedule, judged by PreFilter and Filter.
        soft: ScheduleAnyway, judged by PreScore and Score.
        require_all_keys: scoring ignores nodes that lack one of the soft keys; False only under the
            System defaults (upstream fact 26).
        defaulted: the constraints are the profile's, not the pod's.
        requirements: the pod's node affinity, compiled.
    """

    hard: ConstraintSet
    soft: ConstraintSet
    require_all_keys: bool
    defaulted: bool
    requirements: CompiledRequirements


def pod_constraints(pod: Pod, rules: Rules, default_selector: Selector | None) -> PodConstraints:
    """Make a pod's effective constraints.

    Args:
        pod: the incoming pod.
        rules: profile and gates.
        default_selector: what Services and the owner select for this pod; looked at only when the
            pod has no constraints of its own. None and empty mean that there is nothing to spread
            (upstream fact 23).
    """
    requirements = compile_requirements(pod.requirements)
    defaulted = not pod.constraints
    if defaulted:
        chosen: Iterable[SpreadConstraint] = ()
        if (
            rules.gates.default_spread
            and default_selector is not None
            and not default_selector.empty
        ):
            chosen = rules.profile.defaults
        replacement = default_selector
    else:
        chosen = pod.constraints
        replacement = None
    # Upstream asks for all keys unless its built-in defaults are in force and the pod has no
    # constraints.
    require_all = not (defaulted and rules.profile.system_defaulted)
    chosen = tuple(chosen)
    return PodConstraints(
        hard=_phase(pod, chosen, DO_NOT_SCHEDULE, rules, requirements, replacement, True),
        soft=_phase(pod, chosen, SCHEDULE_ANYWAY, rules, requirements, replacement, require_all),
        require_all_keys=require_all,
        defaulted=defaulted,
        requirements=requirements,
    )


def needs_default_selector(pod: Pod, rules: Rules) -> bool:
    """Whether Services and owners decide this pod's constraints."""
    return not pod.constraints and rules.gates.default_spread and bool(rules.profile.defaults)


def _phase(
    pod: Pod,
    constraints: tuple[SpreadConstraint, ...],
    action: str,
    rules: Rules,
    requirements: CompiledRequirements,
    replacement: Selector | None,
    require_all_keys: bool,
) -> ConstraintSet:
    own = [c for c in constraints if c.when_unsatisfiable == action]
    keys = tuple(dict.fromkeys(c.topology_key for c in own)) if require_all_keys else ()
    made: list[Constraint] = []
    # By policies: to hash one looks at all of the pod's affinity and tolerations.
    eligibilities: dict[tuple[bool, bool], Eligibility] = {}
    for constraint in own:
        try:
            selector = effective_selector(constraint, pod.labels, rules)
        except SelectorError as cause:
            prefix = HARD_ERROR if action == DO_NOT_SCHEDULE else SOFT_ERROR
            return ConstraintSet(error=prefix + str(cause))
        if replacement is not None:
            selector = replacement  # replaces what matchLabelKeys made, too (upstream fact 3)
        policies = _honoured(constraint, rules)
        eligibility = eligibilities.get(policies)
        if eligibility is None:
            eligibility = _eligibility(policies, keys, pod, rules, requirements)
            eligibilities[policies] = eligibility
        made.append(
            Constraint(
                topology_key=constraint.topology_key,
                max_skew=constraint.max_skew,
                group=GroupKey(pod.namespace, selector),
                min_domains=_min_domains(constraint, rules),
                self_match=selector.matches(pod.labels),
                eligibility=eligibility,
                when_unsatisfiable=action,
                honors_affinity=policies[0],
                counts_nothing=selector.nothing
                or (selector.empty and not rules.release.counts_empty_selector),
            )
        )
    return ConstraintSet(tuple(made))


def effective_selector(
    constraint: SpreadConstraint, labels: Mapping[str, str], rules: Rules
) -> Selector:
    """The constraint's selector with the pod's values of matchLabelKeys added (KEP-3243).

    Keys that the pod lacks are skipped; a nil selector stays match-nothing.
    """
    selector = compile_selector(constraint.label_selector)
    if rules.gates.match_label_keys and rules.gates.scheduler_merge:
        pairs = [(key, labels[key]) for key in constraint.match_label_keys if key in labels]
        if pairs:
            selector = selector.merged(pairs)
    return selector


def _min_domains(constraint: SpreadConstraint, rules: Rules) -> int:
    if constraint.min_domains is None or not rules.gates.min_domains:
        return 1
    return constraint.min_domains


def _honoured(constraint: SpreadConstraint, rules: Rules) -> tuple[bool, bool]:
    """Whether a constraint honours (node affinity, taints)."""
    if not rules.gates.node_inclusion_policy:
        return True, False
    # Upstream compares with Honor alone: any other value acts as Ignore.
    affinity, taints = constraint.node_affinity_policy, constraint.node_taints_policy
    return affinity is None or affinity == HONOR, taints == HONOR


def _eligibility(
    honoured: tuple[bool, bool],
    keys: tuple[str, ...],
    pod: Pod,
    rules: Rules,
    requirements: CompiledRequirements,
) -> Eligibility:
    affinity, taints = honoured
    return Eligibility(
        keys=keys,
        requirements=requirements if affinity and not requirements.matches_all else None,
        tolerations=pod.tolerations if taints else None,
        comparison_operators=rules.gates.taint_comparison_operators and taints,
    )


def drop_disabled_fields(
    constraints: Iterable[SpreadConstraint], gates: FeatureGates
) -> tuple[SpreadConstraint, ...]:
    """Constraints of a new pod as the API server stores them: no field whose gate is off.

    Such a field is dropped silently (KEP-3022, KEP-3094, KEP-3243). An update of a pod that has
    the field already would keep it.
    """
    policies = gates.node_inclusion_policy
    return tuple(
        replace(
            c,
            min_domains=c.min_domains if gates.min_domains else None,
            node_affinity_policy=c.node_affinity_policy if policies else None,
            node_taints_policy=c.node_taints_policy if policies else None,
            match_label_keys=c.match_label_keys if gates.match_label_keys else (),
        )
        for c in constraints
    )
