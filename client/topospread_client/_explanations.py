"""Why a pod fits where it does: what ExplainPod answers."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, TypeAlias

from topospread_client._answers import Answer

if TYPE_CHECKING:
    from topospread_client._answers import SpreadConstraint, Verdict
    from topospread_client._enums import MinimumReason, WarningKind


@dataclass(frozen=True, slots=True)
class NodeReason:
    """Nodes that are refused for one reason, in upstream's words."""

    reason: str
    node_count: int


@dataclass(frozen=True, slots=True)
class ExcludedNodes:
    """Nodes that a constraint does not count, each by the first reason that holds for it."""

    missing_key_count: int
    affinity_count: int
    cordoned_count: int
    tainted_count: int


@dataclass(frozen=True, slots=True)
class ScoreRange:
    """The scores of some nodes, 0 to 100."""

    lowest: int
    highest: int


@dataclass(frozen=True, slots=True)
class DomainExplanation:
    """One domain of a constraint.

    Attributes:
        value: of the topology key.
        pod_count: matching pods that count, with those of `reserved_pod_count`.
        reserved_pod_count: places held for pods that match.
        uncounted_pod_count: matching pods on nodes that do not count.
        node_count: nodes with this value.
        eligible_node_count: those of them that count.
        excluded: those that do not.
        node_reasons: nodes that the scheduler's other filters refuse, most frequent reason first.
        usable_node_count: nodes that these leave.
        fitting_node_count: nodes that these and all hard constraints leave.
        skew: matching pods here once the pod came, less the global minimum.
        holds_minimum: no eligible domain has fewer pods.
        allowed: whether the constraint lets the pod come here.
        scores: of soft constraints, those of the fitting nodes; None without any.
    """

    value: str
    pod_count: int
    reserved_pod_count: int
    uncounted_pod_count: int
    node_count: int
    eligible_node_count: int
    excluded: ExcludedNodes
    node_reasons: tuple[NodeReason, ...]
    usable_node_count: int
    fitting_node_count: int
    skew: int
    holds_minimum: bool
    allowed: bool
    scores: ScoreRange | None


@dataclass(frozen=True, slots=True)
class MinimumExplanation:
    """The global minimum.

    Attributes:
        value: what counts.
        reason: why.
        lowest_pod_count: the fewest pods of an eligible domain.
        lowest_domain_count: how many eligible domains have so few.
        note: why it is taken as 0, or why its holders take no pod; else empty.
    """

    value: int
    reason: MinimumReason | None
    lowest_pod_count: int
    lowest_domain_count: int
    note: str


@dataclass(frozen=True, slots=True)
class ConstraintExplanation:
    """The account of one constraint.

    Attributes:
        index: position in the pod's list, or in the profile's.
        self_match: the pod adds itself to the domain it goes to.
        keyless_node_count: nodes that lack the topology key.
        eligible_node_count: nodes that count.
        excluded: nodes that have the key and do not count.
        domain_count: values that a node has.
        eligible_domain_count: those with an eligible node.
        rejected_domain_count: those that are closed to the pod.
        rejected_node_count: nodes that no earlier constraint refuses and this one does.
        rejected_alone_node_count: usable nodes that nothing else refuses.
        weight: of soft constraints, by what pods are multiplied in the score.
        domains: those with the fewest pods, then those with the most.
        leading_domain_count: how many of `domains` stand before those that are left out.
        unlisted_domain_count: how many are left out.
    """

    index: int
    constraint: SpreadConstraint
    self_match: bool
    keyless_node_count: int
    eligible_node_count: int
    excluded: ExcludedNodes
    domain_count: int
    eligible_domain_count: int
    minimum: MinimumExplanation
    rejected_domain_count: int
    rejected_node_count: int
    rejected_alone_node_count: int
    weight: float
    domains: tuple[DomainExplanation, ...]
    leading_domain_count: int
    unlisted_domain_count: int


@dataclass(frozen=True, slots=True)
class SetMaxSkew:
    """Another maxSkew."""

    max_skew: int


@dataclass(frozen=True, slots=True)
class SetMinDomains:
    """Another minDomains."""

    min_domains: int


@dataclass(frozen=True, slots=True)
class AddDomains:
    """More domains, each with a node that the pod can use."""

    domain_count: int


@dataclass(frozen=True, slots=True)
class RemovePods:
    """Fewer matching pods in one domain."""

    domain: str
    pod_count: int


@dataclass(frozen=True, slots=True)
class SetNodeTaintsPolicy:
    """Another nodeTaintsPolicy."""

    node_taints_policy: str


@dataclass(frozen=True, slots=True)
class SetNodeAffinityPolicy:
    """Another nodeAffinityPolicy."""

    node_affinity_policy: str


@dataclass(frozen=True, slots=True)
class LabelNodes:
    """The topology key on one of the nodes that lack it, for example with the value `domain`."""

    node_count: int
    domain: str


@dataclass(frozen=True, slots=True)
class SetWhenUnsatisfiable:
    """Another whenUnsatisfiable."""

    when_unsatisfiable: str


@dataclass(frozen=True, slots=True)
class UncordonNodes:
    """Nodes that are cordoned, and that the pod could go to otherwise."""

    node_count: int


@dataclass(frozen=True, slots=True)
class AddToleration:
    """A taint that the pod should tolerate, as kubectl writes it."""

    taint: str


Change: TypeAlias = (
    SetMaxSkew
    | SetMinDomains
    | AddDomains
    | RemovePods
    | SetNodeTaintsPolicy
    | SetNodeAffinityPolicy
    | LabelNodes
    | SetWhenUnsatisfiable
    | UncordonNodes
    | AddToleration
)


@dataclass(frozen=True, slots=True)
class SuggestedChange:
    """One change to the pod, to its fellows or to the nodes; all but one are None.

    Attributes:
        constraint_index: None where it concerns no constraint.
        topology_key: of the constraint.
    """

    constraint_index: int | None
    topology_key: str
    set_max_skew: SetMaxSkew | None
    set_min_domains: SetMinDomains | None
    add_domains: AddDomains | None
    remove_pods: RemovePods | None
    set_node_taints_policy: SetNodeTaintsPolicy | None
    set_node_affinity_policy: SetNodeAffinityPolicy | None
    label_nodes: LabelNodes | None
    set_when_unsatisfiable: SetWhenUnsatisfiable | None
    uncordon_nodes: UncordonNodes | None
    add_toleration: AddToleration | None

    @property
    def change(self) -> Change | None:
        """The one that is given; None for one that this client does not know."""
        given = (getattr(self, each.name) for each in fields(self)[2:])
        return next((each for each in given if each is not None), None)


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Changes that together let the pod in, as judging it again has shown.

    Attributes:
        text: the same for people.
        fitting_node_count: nodes that the pod fits then.
    """

    changes: tuple[SuggestedChange, ...]
    text: str
    fitting_node_count: int


@dataclass(frozen=True, slots=True)
class ConstraintWarning:
    """A constraint that cannot do what its author meant.

    Attributes:
        constraint_index: None where the pod as a whole is meant.
        text: the same for people.
    """

    kind: WarningKind
    constraint_index: int | None
    text: str


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a pod fits where it does.

    Attributes:
        verdict: PreFilter's.
        node_count: nodes in the cluster.
        feasible_node_count: nodes that pass Filter.
        fitting_node_count: those of them that the scheduler's other filters leave.
        message: kube-scheduler's when no node fits; else empty.
        node_reasons: nodes that the other filters refuse, most frequent reason first.
        defaulted: the constraints are the profile's.
        suggestions: what would let the pod in; only when no node fits.
        not_modelled: what of the pod was not looked at.
    """

    verdict: Verdict
    node_count: int
    feasible_node_count: int
    fitting_node_count: int
    message: str
    node_reasons: tuple[NodeReason, ...]
    defaulted: bool
    constraints: tuple[ConstraintExplanation, ...]
    suggestions: tuple[Suggestion, ...]
    warnings: tuple[ConstraintWarning, ...]
    not_modelled: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class ExplainPodResponse(Answer):
    """Why a pod fits where it does.

    Attributes:
        domain_limit: how many domains were listed of each constraint at most.
    """

    explanation: Explanation
    domain_limit: int
