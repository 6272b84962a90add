"""Why a pod fits where it does: explanations as frozen values, and how messages become them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from topospread_client import decoding
from topospread_client.answers import Answer, Status
from topospread_proto.v1 import explain_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Mapping

    from topospread_proto.v1 import spread_engine_pb2 as engine

MinimumReason = Literal["Lowest", "FewDomains", "NoDomains"]

_MINIMA: Final[Mapping[int, MinimumReason]] = {
    pb.MINIMUM_REASON_LOWEST: "Lowest",
    pb.MINIMUM_REASON_FEW_DOMAINS: "FewDomains",
    pb.MINIMUM_REASON_NO_DOMAINS: "NoDomains",
}


@dataclass(frozen=True, slots=True)
class DomainExplanation:
    """One domain of a constraint.

    Attributes:
        value: of the topology key.
        pods: matching pods that count, with what is reserved.
        reserved: how many of them are places held for pods.
        not_counted: matching pods on nodes that do not count.
        nodes: nodes with this value.
        eligible_nodes: those of them that count.
        excluded: the others by reason: ``missing_key``, ``affinity``, ``cordoned``, ``tainted``.
        refused: nodes that the scheduler's other filters refuse, by upstream's reasons.
        usable_nodes: nodes that these leave.
        fitting_nodes: nodes that these and all hard constraints leave.
        skew: matching pods here once the pod came, less the global minimum.
        holds_minimum: no eligible domain has fewer pods.
        allowed: whether the constraint lets the pod come here.
        scores: of soft constraints, (lowest, highest) normalized score of the fitting nodes.
    """

    value: str
    pods: int
    reserved: int
    not_counted: int
    nodes: int
    eligible_nodes: int
    excluded: Mapping[str, int]
    refused: Mapping[str, int]
    usable_nodes: int
    fitting_nodes: int
    skew: int
    holds_minimum: bool
    allowed: bool
    scores: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class Minimum:
    """The global minimum.

    Attributes:
        value: what counts.
        reason: ``Lowest``; ``FewDomains`` than minDomains, or ``NoDomains``: taken as 0.
        lowest: the fewest pods of an eligible domain.
        holders: how many eligible domains have so few.
        note: why it is taken as 0, or why its holders take no pod; else empty.
    """

    value: int
    reason: MinimumReason
    lowest: int
    holders: int
    note: str


@dataclass(frozen=True, slots=True)
class ConstraintExplanation:
    """The account of one constraint.

    Attributes:
        index: position in the pod's list, or in the profile's.
        hard: DoNotSchedule; otherwise ScheduleAnyway.
        selector: as kubectl writes selectors.
        self_match: the pod adds itself to the domain it goes to.
        honors_affinity, honors_taints: the policies in force.
        nodes_without_key: nodes that lack the topology key.
        eligible_nodes: nodes that count.
        excluded: nodes that have the key and do not count, by reason.
        domains: values that a node has.
        eligible_domains: those with an eligible node.
        rejected_domains: those that are closed to the pod.
        rejected_nodes: nodes that no earlier constraint refuses and this one does.
        rejected_alone: usable nodes that nothing else refuses.
        weight: of soft constraints, by what pods are multiplied in the score.
        first, last: domains with the fewest pods and, when not all are listed, with the most.
        unlisted: how many lie between them.
    """

    index: int
    topology_key: str
    hard: bool
    max_skew: int
    min_domains: int
    selector: str
    self_match: bool
    honors_affinity: bool
    honors_taints: bool
    nodes_without_key: int
    eligible_nodes: int
    excluded: Mapping[str, int]
    domains: int
    eligible_domains: int
    minimum: Minimum
    rejected_domains: int
    rejected_nodes: int
    rejected_alone: int
    weight: float
    first: tuple[DomainExplanation, ...]
    last: tuple[DomainExplanation, ...]
    unlisted: int


@dataclass(frozen=True, slots=True)
class Change:
    """One change of a suggestion; which fields mean something follows from its kind.

    Attributes:
        kind: as in the API, for example ``MaxSkew``, ``MoreDomains``, ``FewerPods``.
        constraint: index; None where it concerns no constraint.
    """

    kind: str
    constraint: int | None
    topology_key: str
    domain: str
    number: int
    value: str


@dataclass(frozen=True, slots=True)
class Suggestion:
    """Changes that together let the pod in, as judging it again has shown.

    Attributes:
        fitting: nodes that the pod fits then.
    """

    changes: tuple[Change, ...]
    text: str
    fitting: int


@dataclass(frozen=True, slots=True)
class Warned:
    """A constraint that cannot do what its author meant.

    Attributes:
        kind: as in the API, for example ``SelfMismatch``.
        constraint: index; None where the pod as a whole is meant.
    """

    kind: str
    constraint: int | None
    text: str


@dataclass(frozen=True, slots=True)
class PodExplanation:
    """Why a pod fits where it does.

    Attributes:
        status: PreFilter's.
        nodes: in the cluster.
        passing: nodes that pass Filter.
        fitting: those of them that the scheduler's other filters leave.
        message: kube-scheduler's when no node fits; else empty.
        refused: nodes that the other filters refuse, by upstream's reasons.
        defaulted: the constraints are the profile's.
        suggestions: what would let the pod in; only when no node fits.
        not_modelled: what of the pod was not looked at.
    """

    status: Status
    nodes: int
    passing: int
    fitting: int
    message: str
    refused: Mapping[str, int]
    defaulted: bool
    constraints: tuple[ConstraintExplanation, ...]
    suggestions: tuple[Suggestion, ...]
    warnings: tuple[Warned, ...]
    not_modelled: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Explained(Answer):
    """Explain's answer."""

    explanation: PodExplanation


def explained(message: engine.ExplainResponse, traceparent: str | None) -> Explained:
    """Explain's answer."""
    return Explained(
        revision=message.revision,
        stale_for=decoding.stale_for(message),
        traceparent=traceparent,
        explanation=pod_explanation(message.explanation),
    )


def pod_explanation(message: pb.Explanation) -> PodExplanation:
    """An explanation, of Explain or of a pod that a simulation left pending."""
    return PodExplanation(
        status=decoding.status(message.status),
        nodes=message.nodes,
        passing=message.passing,
        fitting=message.fitting,
        message=message.message,
        refused={each.reason: each.nodes for each in message.refused},
        defaulted=message.defaulted,
        constraints=tuple(_constraint(each) for each in message.constraints),
        suggestions=tuple(
            Suggestion(tuple(_change(c) for c in each.changes), each.text, each.fitting)
            for each in message.suggestions
        ),
        warnings=tuple(
            Warned(_word(pb.WarningKind.Name(each.kind), 2), _index(each), each.text)
            for each in message.warnings
        ),
        not_modelled=tuple(message.not_modelled),
    )


def _constraint(message: pb.ConstraintExplanation) -> ConstraintExplanation:
    listed = tuple(_domain(each) for each in message.listed)
    minimum = message.minimum
    return ConstraintExplanation(
        index=message.index,
        topology_key=message.topology_key,
        hard=message.hard,
        max_skew=message.max_skew,
        min_domains=message.min_domains,
        selector=message.selector,
        self_match=message.self_match,
        honors_affinity=message.honors_affinity,
        honors_taints=message.honors_taints,
        nodes_without_key=message.nodes_without_key,
        eligible_nodes=message.eligible_nodes,
        excluded=_excluded(message.excluded),
        domains=message.domains,
        eligible_domains=message.eligible_domains,
        minimum=Minimum(
            minimum.value,
            _MINIMA.get(minimum.reason, "Lowest"),
            minimum.lowest,
            minimum.holders,
            minimum.note,
        ),
        rejected_domains=message.rejected_domains,
        rejected_nodes=message.rejected_nodes,
        rejected_alone=message.rejected_alone,
        weight=message.weight,
        first=listed[: message.listed_first],
        last=listed[message.listed_first :],
        unlisted=message.unlisted,
    )


def _domain(message: pb.DomainExplanation) -> DomainExplanation:
    scores = message.scores
    return DomainExplanation(
        value=message.value,
        pods=message.pods,
        reserved=message.reserved,
        not_counted=message.not_counted,
        nodes=message.nodes,
        eligible_nodes=message.eligible_nodes,
        excluded=_excluded(message.excluded),
        refused={each.reason: each.nodes for each in message.refused},
        usable_nodes=message.usable_nodes,
        fitting_nodes=message.fitting_nodes,
        skew=message.skew,
        holds_minimum=message.holds_minimum,
        allowed=message.allowed,
        scores=(scores.lowest, scores.highest) if message.HasField("scores") else None,
    )


def _excluded(message: pb.ExcludedNodes) -> dict[str, int]:
    return {field.name: nodes for field, nodes in message.ListFields()}


def _change(message: pb.SuggestedChange) -> Change:
    return Change(
        kind=_word(pb.ChangeKind.Name(message.kind), 2),
        constraint=_index(message),
        topology_key=message.topology_key,
        domain=message.domain,
        number=message.number,
        value=message.value,
    )


def _index(message: pb.SuggestedChange | pb.ConstraintWarning) -> int | None:
    return message.constraint if message.HasField("constraint") else None


def _word(name: str, prefix: int) -> str:
    """``CHANGE_KIND_MAX_SKEW`` as ``MaxSkew``."""
    return "".join(part.title() for part in name.split("_")[prefix:])
