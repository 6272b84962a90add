"""Each finding that lint makes: how grave it is, what it means, and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from topospread.spread.findings import FindingCode

if TYPE_CHECKING:
    from collections.abc import Mapping


class Severity(Enum):
    """How grave a finding is; in order, the gravest first.

    Attributes:
        ERROR: it is refused, it cannot do what it says, or pods or rollouts wait forever.
        WARNING: it probably does something else than its author meant.
        INFO: worth knowing.
    """

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the gravest."""
        return _ORDER.index(self)

    def at_least(self, other: Severity) -> bool:
        """Whether it is as grave as another, or graver."""
        return self.rank <= other.rank


_ORDER: Final = tuple(Severity)


@dataclass(frozen=True, slots=True)
class LintRule:
    """One kind of finding.

    Attributes:
        severity: where a finding does not have its own.
        summary: what is wrong, without numbers.
        mend: what to do about it.
    """

    severity: Severity
    summary: str
    mend: str


@dataclass(frozen=True, slots=True)
class LintFinding:
    """One finding on a workload.

    Attributes:
        severity: as found here; knowledge of a cluster may make it graver.
        constraint: index in the pod's list; −1 for the workload as a whole.
        text: what is wrong, with the object's own numbers.
    """

    code: FindingCode
    severity: Severity
    constraint: int
    text: str

    @property
    def rule(self) -> LintRule:
        """The texts of every finding with its code."""
        return RULES[self.code]


def found(
    code: FindingCode, constraint: int, text: str, severity: Severity | None = None
) -> LintFinding:
    """A finding, as grave as its rule says unless told otherwise."""
    return LintFinding(code, severity or RULES[code].severity, constraint, text)


_E: Final = Severity.ERROR
_W: Final = Severity.WARNING
_I: Final = Severity.INFO

RULES: Final[Mapping[FindingCode, LintRule]] = {
    FindingCode.INVALID_CONSTRAINT: LintRule(
        _E, "the API server refuses the constraint", "Write the field as the API server wants it."
    ),
    FindingCode.UNKNOWN_FIELD: LintRule(
        _E,
        "Kubernetes has no such field: the API server drops it, or refuses the manifest",
        "Spell the field as Kubernetes does.",
    ),
    FindingCode.SELF_MISMATCH: LintRule(
        _E,
        "the pod does not match its own labelSelector, so its replicas are not spread",
        "Let the constraint's labelSelector match the labels of the pod template.",
    ),
    FindingCode.NIL_SELECTOR: LintRule(
        _E,
        "without a labelSelector a constraint counts no pod and spreads nothing",
        "Give the constraint the workload's own labelSelector.",
    ),
    FindingCode.EMPTY_SELECTOR: LintRule(
        _E,
        "with an empty labelSelector kube-scheduler counts no pod and spreads nothing",
        "Give the constraint the workload's own labelSelector.",
    ),
    FindingCode.KEY_ON_NO_NODE: LintRule(
        _E, "no node has the topology key", "Use a key that nodes have, or label the nodes."
    ),
    FindingCode.TOO_FEW_DOMAINS: LintRule(
        _E,
        "the domains have no place for all replicas",
        "Raise maxSkew, lower minDomains, set nodeTaintsPolicy: Honor, or add domains.",
    ),
    FindingCode.ROLLOUT_DEADLOCK: LintRule(
        _W,
        "a rollout may wait forever: its surge pod needs a place beside all old pods",
        "Set matchLabelKeys: [pod-template-hash], or maxUnavailable to at least 1.",
    ),
    FindingCode.ROLLOUT_SKEW: LintRule(
        _W,
        "a rollout counts the pods that it replaces, and may leave the new ones skewed",
        "Set matchLabelKeys: [pod-template-hash], so that each revision is spread by itself.",
    ),
    FindingCode.UNUSABLE_NODES_COUNTED: LintRule(
        _W,
        "nodes count that the pod cannot use: their domains keep the global minimum at 0",
        "Set nodeTaintsPolicy: Honor, and leave nodeAffinityPolicy at Honor.",
    ),
    FindingCode.MIN_DOMAINS_OUT_OF_REACH: LintRule(
        _W,
        "minDomains is above the domains that there are: each takes at most maxSkew pods",
        "Lower minDomains, or let an autoscaler make the domains.",
    ),
    FindingCode.MIN_DOMAINS_IGNORED: LintRule(
        _W,
        "minDomains does nothing",
        "Leave minDomains out, or set whenUnsatisfiable: DoNotSchedule.",
    ),
    FindingCode.MAX_SKEW_TOO_LARGE: LintRule(
        _W,
        "maxSkew is not below the number of replicas: the constraint can refuse nothing",
        "Lower maxSkew; 1 spreads as evenly as it goes.",
    ),
    FindingCode.SINGLE_DOMAIN: LintRule(
        _W,
        "the pod can go to one domain alone, so nothing is spread",
        "Admit more values of the key, or spread over another key.",
    ),
    FindingCode.LABEL_KEY_MISSING: LintRule(
        _W,
        "a key of matchLabelKeys is no label of the pod, so it does nothing",
        "Name a label that the pods have: pod-template-hash of a Deployment's, "
        "controller-revision-hash of a StatefulSet's.",
    ),
    FindingCode.WIDER_SELECTOR: LintRule(
        _W,
        "the labelSelector counts pods of other workloads, too",
        "Give the constraint all labels of the workload's own selector.",
    ),
    FindingCode.DEPRECATED_KEY: LintRule(
        _W, "the topology key is deprecated, and nodes may lack it", "Use its successor."
    ),
    FindingCode.MISSPELT_KEY: LintRule(
        _W, "the topology key looks like a well-known one", "Spell the key as nodes have it."
    ),
    FindingCode.KEY_ON_SOME_NODES: LintRule(
        _I, "some nodes lack the topology key", "Label these nodes, or keep the pod off them."
    ),
    FindingCode.DEFAULTS_REPLACED: LintRule(
        _I,
        "the workload's own constraints take the place of the scheduler's defaults",
        "Add the defaults to the workload's constraints if you relied on them.",
    ),
    FindingCode.NO_CONSTRAINTS: LintRule(
        _I,
        "several replicas and no topologySpreadConstraints",
        "Add a constraint, or leave it to the scheduler's defaults.",
    ),
    FindingCode.VOLUMES_PIN_PODS: LintRule(
        _I,
        "a volume holds its pod in a domain that a hard constraint may close to it",
        "Set whenUnsatisfiable: ScheduleAnyway, or bind volumes that every domain can reach.",
    ),
    FindingCode.DEFAULTS_WITHOUT_ZONE: LintRule(
        _I, "nodes lack the zone that the System defaults spread over", "Label the nodes."
    ),
    FindingCode.DEFAULTS_WITHOUT_SELECTOR: LintRule(
        _I,
        "no Service and no owner selects the pod, so the scheduler's defaults do not apply",
        "Add a constraint, or a Service that selects the pod.",
    ),
}
"""By code; what is not here is said by explanations alone."""
