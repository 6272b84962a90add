"""The parts of an explanation, as plain values.

Everything is counted; no pod is named, and no node but where its name is a domain. So an
explanation can be shown to every caller who may ask about the pod.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from topospread.spread.constraints import Constraint
    from topospread.spread.findings import Finding
    from topospread.spread.verdicts import Status

Reasons = tuple[tuple[str, int], ...]
"""(reason, nodes), most frequent first."""


class ExclusionReason(Enum):
    """The reason why a constraint does not count a node: the first that holds."""

    KEY_MISSING = "lacks the key of another constraint"
    AFFINITY = "not matched by the pod's node affinity or selector"
    CORDONED = "cordoned, and not tolerated"
    TAINTED = "has a taint that is not tolerated"


class MinimumRule(Enum):
    """The rule that sets the global minimum."""

    LOWEST = "the fewest matching pods that a domain has"
    FEW_DOMAINS = "fewer eligible domains than minDomains: taken as 0"
    NO_DOMAINS = "no eligible domain: taken as 0"


@dataclass(frozen=True, slots=True)
class DomainReport:
    """The findings on one domain of one constraint.

    Attributes:
        pods: matching pods that count, with what is reserved.
        reserved: how many of them are places held for pods.
        not_counted: matching pods on nodes that the constraint excludes.
        nodes: all that have this value of the key.
        eligible: those that the constraint counts.
        excluded: the others, by reason.
        refused: nodes that the scheduler's other filters refuse, by upstream's reasons.
        usable: nodes that they leave.
        fitting: nodes that these filters and all hard constraints leave.
        skew: matching pods here after the pod came, less the global minimum.
        holds_minimum: no eligible domain has fewer pods.
        allowed: the constraint lets the pod come here; soft ones always do.
        scores: (lowest, highest) normalized score of the fitting nodes here; None without a score.
    """

    value: str
    pods: int
    reserved: int
    not_counted: int
    nodes: int
    eligible: int
    excluded: tuple[tuple[ExclusionReason, int], ...]
    refused: Reasons
    usable: int
    fitting: int
    skew: int
    holds_minimum: bool
    allowed: bool
    scores: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class ConstraintReport:
    """The findings on one constraint.

    Attributes:
        index: position in the pod's list, or in the profile's when `defaulted` holds.
        constraint: as it is judged by: with what matchLabelKeys add, and the policies in force.
        self_match: the pod adds itself to the domain it goes to.
        nodes_without_key: nodes that lack the topology key.
        eligible: nodes that count.
        excluded: nodes that have the key and do not count, by reason.
        domains: values of the key that a node has.
        eligible_domains: domains with an eligible node.
        minimum: the global minimum.
        minimum_because: why it is that.
        lowest: fewest matching pods of an eligible domain; 0 without one.
        lowest_domains: how many have so few.
        note: the same for people, with why those domains do not take the pod; empty when they do.
        rejected_domains: domains that the constraint closes to the pod.
        rejected_nodes: nodes that no earlier constraint refuses, and this one does.
        rejected_alone: usable nodes that nothing but this constraint refuses.
        weight: of soft constraints, by which pods are multiplied: ln(domains + 2).
        listed: domains with the fewest pods and with the most, ascending by pods and value.
        unlisted: how many are not shown.
        shown_first: how many of `listed` stand before those that are not shown.
        usable_domains: domains with an eligible node that the scheduler's other filters leave.
    """

    index: int
    constraint: Constraint
    self_match: bool
    nodes_without_key: int
    eligible: int
    excluded: tuple[tuple[ExclusionReason, int], ...]
    domains: int
    eligible_domains: int
    minimum: int
    minimum_because: MinimumRule
    lowest: int
    lowest_domains: int
    note: str
    rejected_domains: int
    rejected_nodes: int
    rejected_alone: int
    weight: float
    listed: tuple[DomainReport, ...]
    unlisted: int
    shown_first: int
    usable_domains: int


class ChangeKind(Enum):
    """The kind of thing that a suggestion changes."""

    MAX_SKEW = "maxSkew"
    MIN_DOMAINS = "minDomains"
    MORE_DOMAINS = "more domains"
    FEWER_PODS = "fewer pods"
    TAINTS_POLICY = "nodeTaintsPolicy"
    AFFINITY_POLICY = "nodeAffinityPolicy"
    LABEL_NODES = "label nodes"
    SCHEDULE_ANYWAY = "whenUnsatisfiable"
    UNCORDON = "uncordon"
    TOLERATE = "tolerate"


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a suggestion.

    Attributes:
        constraint: its index; −1 where it is about no constraint.
        topology_key: of the constraint.
        domain: where; empty where it does not matter.
        number: the new value, or how many pods, domains or nodes.
        value: the new value where that is a word.
    """

    kind: ChangeKind
    constraint: int = -1
    topology_key: str = ""
    domain: str = ""
    number: int = 0
    value: str = ""


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Changes that, made together, let the pod in; tried out by judging the pod again.

    Attributes:
        text: for people.
        fitting: nodes that the pod fits then.
    """

    changes: tuple[Change, ...]
    text: str
    fitting: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """The explanation of where a pod fits and why.

    Attributes:
        status: PreFilter's: Success, Skip without hard constraints, Error.
        nodes: in the cluster.
        passing: nodes that pass Filter, which looks at the hard constraints alone.
        fitting: those of them that the scheduler's other filters leave, too.
        message: kube-scheduler's, when no node fits.
        refused: nodes that the other filters refuse, by upstream's reasons.
        defaulted: the constraints are the profile's.
        constraints: hard and soft, by index.
        suggestions: when no node fits.
        not_modelled: what of the pod was not looked at.
    """

    status: Status
    nodes: int
    passing: int
    fitting: int
    message: str
    refused: Reasons
    defaulted: bool
    constraints: tuple[ConstraintReport, ...]
    suggestions: tuple[Suggestion, ...]
    findings: tuple[Finding, ...]
    not_modelled: tuple[str, ...]
