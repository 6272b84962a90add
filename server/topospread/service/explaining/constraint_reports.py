"""The findings on each constraint: its domains, their pods and nodes, and the global minimum."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.kube.label_syntax import label_text
from topospread.kube.objects import Toleration
from topospread.service.fit.node_unschedulable import CORDONED_TAINT
from topospread.service.messages import constraint_message
from topospread.spread.scoring import ignored_nodes, soft_counts, weight_of
from topospread.spread.topology import Eligibility
from topospread.wording import counted
from topospread_proto.v1 import explanation_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from topospread.kube.objects import SpreadConstraint
    from topospread.service.explaining.context import EvaluationContext
    from topospread.spread.constraints import Constraint
    from topospread.spread.topology import Bools, Domains, Ints, Membership


CORDON_TOLERATED: Final = Toleration(
    key=CORDONED_TAINT.key, operator="Exists", effect=CORDONED_TAINT.effect
)


def explained_constraints(context: EvaluationContext) -> list[ExplainedConstraint]:
    """Every constraint, ordered by its index in the pod's list."""
    explained = [
        ExplainedConstraint(constraint, spec, index, position)
        for position, (constraint, (index, spec)) in enumerate(
            zip(context.hard, context.specs(hard=True), strict=False)
        )
    ]
    explained += [
        ExplainedConstraint(constraint, spec, index, None)
        for constraint, (index, spec) in zip(context.soft, context.specs(hard=False), strict=False)
    ]
    explained.sort(key=lambda each: each.index)
    return explained


def explain_constraint(
    context: EvaluationContext, explained: ExplainedConstraint, limit: int
) -> pb.ConstraintExplanation:
    """The account of one constraint."""
    checkpoint()
    constraint, position, columns = (
        explained.constraint,
        explained.position,
        domain_columns(context, explained),
    )
    there = np.flatnonzero(columns.nodes)
    first, last = _ends(columns, there.tolist(), limit)
    eligible_domains = int(np.count_nonzero(columns.eligible))
    refused, alone = (0, 0) if position is None else _refused_nodes(context, position)
    return pb.ConstraintExplanation(
        index=explained.index,
        constraint=constraint_message(constraint),
        self_match=constraint.self_match,
        keyless_node_count=context.snapshot.node_count - int(columns.nodes.sum()),
        eligible_node_count=int(columns.eligible.sum()),
        excluded=pb.ExcludedNodes(**{why: int(by.sum()) for why, by in columns.excluded}),
        domain_count=int(there.size),
        eligible_domain_count=eligible_domains,
        minimum=pb.MinimumExplanation(
            value=columns.minimum,
            reason=columns.because,
            lowest_pod_count=columns.least,
            lowest_domain_count=_size(columns.lowest),
            note=_note(context, constraint, columns, eligible_domains),
        ),
        rejected_domain_count=_size(~columns.allowed & (columns.nodes > 0)),
        rejected_node_count=refused,
        rejected_alone_node_count=alone,
        weight=0.0 if position is not None else _weight(context, constraint),
        domains=[_domain(columns, domain) for domain in (*first, *last)],
        leading_domain_count=len(first),
        unlisted_domain_count=int(there.size) - len(first) - len(last),
        usable_domain_count=int(np.count_nonzero(columns.usable_eligible)),
        missing_keys=_missing_keys(context, constraint),
    )


def _missing_keys(context: EvaluationContext, constraint: Constraint) -> list[str]:
    """Other constraints' keys that nodes lack which have this one's."""
    domains = context.snapshot.domains
    nodes = context.snapshot.alive & (domains(constraint.topology_key).ids >= 0)
    return [key for key in constraint.eligibility.keys if (nodes & (domains(key).ids < 0)).any()]


def _weight(context: EvaluationContext, constraint: Constraint) -> float:
    scored = context.normalized
    if scored is None:
        return 0.0
    candidates, snapshot = scored[0], context.snapshot
    ignored = ignored_nodes(
        context.soft, snapshot, candidates, require_all_keys=context.constraints.require_all_keys
    )
    return weight_of(constraint, snapshot, candidates, ignored)


def _refused_nodes(context: EvaluationContext, position: int) -> tuple[int, int]:
    """Nodes that this constraint is the first to refuse, and usable ones that it alone refuses."""
    first = context.snapshot.alive & ~context.allowing[position]
    for allowed in context.allowing[:position]:
        first = first & allowed
    return _size(first), _size(context.only_blocked_by(position) & ~context.allowing[position])


def _size(mask: Bools) -> int:
    return int(np.count_nonzero(mask))


def _ends(columns: DomainColumns, there: list[int], limit: int) -> tuple[list[int], list[int]]:
    """The domains with the fewest pods and those with the most, ascending by pods and value."""
    pods, values = columns.pods.tolist(), columns.values

    def place(domain: int) -> tuple[int, str]:
        return pods[domain], values[domain]

    if len(there) <= limit:
        return sorted(there, key=place), []
    few = math.ceil(limit / 2)
    first = heapq.nsmallest(few, there, key=place)
    last = heapq.nlargest(limit - few, there, key=place)
    return first, last[::-1]


def _domain(columns: DomainColumns, domain: int) -> pb.DomainExplanation:
    scores = None
    if columns.scores is not None and columns.scores[0][domain]:
        _, lowest, highest = columns.scores
        scores = pb.ScoreRange(lowest=int(lowest[domain]), highest=int(highest[domain]))
    return pb.DomainExplanation(
        value=columns.values[domain],
        pod_count=int(columns.pods[domain]),
        reserved_pod_count=int(columns.reserved[domain]),
        uncounted_pod_count=int(columns.not_counted[domain]),
        node_count=int(columns.nodes[domain]),
        eligible_node_count=int(columns.eligible[domain]),
        excluded=pb.ExcludedNodes(**{why: int(by[domain]) for why, by in columns.excluded}),
        node_reasons=[
            pb.NodeReason(reason=why, node_count=nodes)
            for why, nodes in _most_frequent((r, int(by[domain])) for r, by in columns.refused)
        ],
        usable_node_count=int(columns.usable[domain]),
        fitting_node_count=int(columns.fitting[domain]),
        skew=int(columns.skew[domain]),
        holds_minimum=bool(columns.lowest[domain]),
        allowed=bool(columns.allowed[domain]),
        scores=scores,
    )


def _most_frequent(counted: Iterable[tuple[str, int]]) -> list[tuple[str, int]]:
    return sorted(((r, n) for r, n in counted if n), key=lambda each: (-each[1], each[0]))


def _note(
    context: EvaluationContext, constraint: Constraint, columns: DomainColumns, eligible: int
) -> str:
    """The reason for the global minimum, or why no domain at it can take the pod."""
    if columns.because is pb.MINIMUM_REASON_NO_DOMAINS:
        return f"set so because no node with {label_text(constraint.topology_key)} counts"
    if columns.because is pb.MINIMUM_REASON_FEW_DOMAINS:
        return f"set so because {few_domains_text(constraint, eligible)}"
    domains = context.snapshot.domains(constraint.topology_key)
    unusable = unusable_text(context, domains.spread(columns.lowest) & context.snapshot.alive)
    holders = np.flatnonzero(columns.lowest)
    return f"held by {domains_text(domains, holders)}, {unusable}" if unusable else ""


def unusable_text(context: EvaluationContext, nodes: Bools) -> str:
    """Why the pod can use none of some nodes; empty where it can use one.

    Args:
        context: the pod at its state.
        nodes: [slots] nodes that there are.
    """
    if (nodes & context.usable).any():
        return ""
    total = _size(nodes)
    those = "whose only node cannot" if total == 1 else f"none of whose {total} nodes can"
    whys = _most_frequent(context.refused_by(nodes).items())
    return f"{those} take the pod: {', '.join(f'{number} {why}' for why, number in whys)}"


def few_domains_text(constraint: Constraint, eligible: int) -> str:
    """That there are fewer eligible domains than minDomains."""
    there = "is" if eligible == 1 else "are"
    domains = counted(eligible, "eligible domain")
    return f"minDomains is {constraint.min_domains} and there {there} {domains}"


def domains_text(domains: Domains, chosen: NDArray[np.intp]) -> str:
    """The first of some domains, and how many others there are."""
    # By rank, because there are thousands of hostnames.
    first = label_text(domains.values[chosen[np.argmin(domains.rank[chosen])]])
    return first if chosen.size == 1 else f"{first} and {chosen.size - 1} more"


@dataclass(frozen=True, slots=True)
class ExplainedConstraint:
    """A constraint to be explained.

    Attributes:
        constraint: as it is judged.
        spec: as it was written.
        index: its place in the pod's list.
        position: its place among the hard ones; None for a soft one.
    """

    constraint: Constraint
    spec: SpreadConstraint
    index: int
    position: int | None


@dataclass(frozen=True, slots=True, eq=False)
class DomainColumns:
    """The fields of DomainReport as arrays, each [domains].

    Attributes:
        values: of the topology key; no node may have some of them any more.
        excluded, refused: by reason.
        usable_eligible: nodes that are both.
        lowest: whether an eligible domain has the fewest pods.
        scores: nodes with a score, their lowest and their highest; None without any.
        least: the fewest pods of an eligible domain; 0 without one.
        minimum: the global minimum.
        because: why it is that.
    """

    values: Sequence[str]
    pods: Ints
    reserved: Ints
    not_counted: Ints
    nodes: Ints
    eligible: Ints
    excluded: Sequence[tuple[str, Ints]]
    refused: Sequence[tuple[str, Ints]]
    usable: Ints
    usable_eligible: Ints
    fitting: Ints
    skew: Ints
    lowest: Bools
    allowed: Bools
    scores: tuple[Ints, Ints, Ints] | None
    least: int
    minimum: int
    because: pb.MinimumReason.ValueType


def domain_columns(context: EvaluationContext, explained: ExplainedConstraint) -> DomainColumns:
    """The columns of a constraint."""
    constraint, snapshot = explained.constraint, context.snapshot
    by_domain = _ByDomain(snapshot.domains(constraint.topology_key))
    membership = snapshot.membership(constraint.eligibility, constraint.topology_key)
    pods, reserved, not_counted = _pods(context, explained, by_domain)
    refused = _refused(context, by_domain)
    hard = explained.position is not None
    least, because = minimum_rule(constraint, membership, pods, hard=hard)
    minimum = least if because is pb.MINIMUM_REASON_LOWEST else 0
    return DomainColumns(
        values=by_domain.domains.values,
        pods=pods,
        reserved=reserved,
        not_counted=not_counted,
        nodes=by_domain.nodes(snapshot.alive),
        eligible=membership.nodes,
        excluded=[(why, by_domain.nodes(mask)) for why, mask in _excluded(context, constraint)],
        refused=list(refused.items()),
        usable=by_domain.nodes(context.usable),
        usable_eligible=by_domain.nodes(context.usable & snapshot.mask(constraint.eligibility)),
        fitting=by_domain.nodes(context.fitting),
        skew=pods + int(constraint.self_match) - minimum,
        lowest=membership.present & (pods == least),
        allowed=_allowed(context, explained, pods),
        scores=None if hard else _scores(context, by_domain),
        least=least,
        minimum=minimum,
        because=because,
    )


def _refused(context: EvaluationContext, by_domain: _ByDomain) -> dict[str, Ints]:
    """[domains] nodes that the other filters refuse, by reason: one may have several codes."""
    nodes = {id(mask): by_domain.nodes(mask) for _, mask in context.refusals}
    found: dict[str, Ints] = {}
    for why, mask in context.refusals:
        reason, here = why.reasons[0], nodes[id(mask)]
        found[reason] = found[reason] + here if reason in found else here
    return found


class _ByDomain:
    """Sums over the nodes of each domain."""

    def __init__(self, domains: Domains) -> None:
        self.domains = domains
        self.size = len(domains.values)
        self._there = domains.ids >= 0

    def nodes(self, mask: Bools) -> Ints:
        ids = self.domains.ids[mask & self._there]
        return np.bincount(ids, minlength=self.size).astype(np.int64)

    def sum(self, values: Ints, mask: Bools) -> Ints:
        chosen = mask & self._there
        ids = self.domains.ids[chosen]
        return np.bincount(ids, weights=values[chosen], minlength=self.size).astype(np.int64)


def minimum_rule(
    constraint: Constraint, membership: Membership, pods: Ints, *, hard: bool
) -> tuple[int, pb.MinimumReason.ValueType]:
    """The fewest pods of an eligible domain, and whether that is the global minimum."""
    if not membership.size:
        return 0, pb.MINIMUM_REASON_NO_DOMAINS
    least = int(pods[membership.present].min())
    if hard and membership.size < constraint.min_domains:
        return least, pb.MINIMUM_REASON_FEW_DOMAINS
    return least, pb.MINIMUM_REASON_LOWEST


def _allowed(context: EvaluationContext, explained: ExplainedConstraint, pods: Ints) -> Bools:
    if explained.position is None:
        return np.ones(pods.size, dtype=np.bool_)
    return ~context.states[explained.position].rejected


def _pods(
    context: EvaluationContext, explained: ExplainedConstraint, by_domain: _ByDomain
) -> tuple[Ints, Ints, Ints]:
    """Matching pods of each domain: counted, reserved of those, and on nodes not counted."""
    constraint, position, snapshot = explained.constraint, explained.position, context.snapshot
    nothing = np.zeros(by_domain.size, dtype=np.int64)
    if constraint.counts_nothing:
        return (nothing if position is None else context.states[position].counts), nothing, nothing
    everywhere = snapshot.node_counts(constraint.group).astype(np.int64)
    total = by_domain.sum(everywhere, snapshot.alive)
    counted_on = snapshot.mask(constraint.eligibility)
    if position is not None:
        key = constraint.topology_key
        counted = snapshot.domain_counts(constraint.group, constraint.eligibility, key)
        pods = context.states[position].counts
    elif constraint.is_hostname:
        counted = pods = total  # whatever the policies say (upstream fact 29)
        counted_on = snapshot.alive
    else:
        pods = soft_counts(constraint, snapshot, context.constraints.require_all_keys)
        counted = np.minimum(pods, total)
    held = by_domain.sum(context.reserved(constraint), counted_on)
    return pods, held, total - counted


def _excluded(context: EvaluationContext, constraint: Constraint) -> Iterator[tuple[str, Bools]]:
    """[slots] nodes that have the key and are not counted, by the first reason."""
    snapshot, eligibility = context.snapshot, constraint.eligibility
    left = snapshot.alive & (snapshot.domains(constraint.topology_key).ids >= 0)
    parts = [("missing_key_count", Eligibility(keys=eligibility.keys))]
    if eligibility.requirements is not None:
        parts.append(("affinity_count", Eligibility(requirements=eligibility.requirements)))
    for reason, part in parts:
        mask = snapshot.mask(part)
        yield reason, left & ~mask
        left = left & mask
    if eligibility.tolerations is None:
        return
    compares = eligibility.comparison_operators
    tolerant = Eligibility(
        tolerations=(*eligibility.tolerations, CORDON_TOLERATED), comparison_operators=compares
    )
    strict = Eligibility(tolerations=eligibility.tolerations, comparison_operators=compares)
    yield "cordoned_count", left & snapshot.mask(tolerant) & ~snapshot.mask(strict)
    yield "tainted_count", left & ~snapshot.mask(tolerant)


def _scores(context: EvaluationContext, by_domain: _ByDomain) -> tuple[Ints, Ints, Ints] | None:
    """[domains] nodes with a score, their lowest and their highest."""
    scored = context.normalized
    if scored is None:
        return None
    slots, scores = scored
    ids = by_domain.domains.ids[slots]
    there = ids >= 0
    size = by_domain.size
    low, high = np.full(size, 101, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    np.minimum.at(low, ids[there], scores[there])
    np.maximum.at(high, ids[there], scores[there])
    return np.bincount(ids[there], minlength=size), low, high
