"""The account of one constraint: its domains, their pods and nodes, and the global minimum."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.kube.objects import HONOR, Toleration
from topospread.kube.selectors import selector_text
from topospread.service.explaining.findings import (
    ConstraintFinding,
    DomainFinding,
    Exclusion,
    Minimum,
)
from topospread.service.fit import CORDONED_TAINT
from topospread.spread.scoring import ignored_nodes, soft_counts, weight_of
from topospread.spread.topology import Eligibility

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.kube.objects import SpreadConstraint
    from topospread.service.explaining.case import Case
    from topospread.spread.constraints import Constraint
    from topospread.spread.topology import Bools, Ints

CORDON_TOLERATED: Final = Toleration(
    key=CORDONED_TAINT.key, operator="Exists", effect=CORDONED_TAINT.effect
)


@dataclass(frozen=True, slots=True, eq=False)
class _Columns:
    """What is told of each domain, [domains] each."""

    pods: Ints
    reserved: Ints
    not_counted: Ints
    nodes: Ints
    eligible: Ints
    excluded: Sequence[tuple[Exclusion, Ints]]
    refused: Sequence[tuple[str, Ints]]
    usable: Ints
    fitting: Ints
    skew: Ints
    lowest: Bools
    allowed: Bools
    scores: tuple[Ints, Ints, Ints] | None


def accounts(case: Case, limit: int) -> Iterator[ConstraintFinding]:
    """The account of every constraint, by its place in the pod's list.

    Args:
        case: the pod, judged.
        limit: domains to list of each constraint.
    """
    found = []
    for position, (constraint, (index, spec)) in enumerate(
        zip(case.hard, case.specs(hard=True), strict=False)
    ):
        found.append(_account(case, constraint, index, spec, limit, position))
    for constraint, (index, spec) in zip(case.soft, case.specs(hard=False), strict=False):
        found.append(_account(case, constraint, index, spec, limit, None))
    yield from sorted(found, key=lambda each: each.index)


def _account(
    case: Case,
    constraint: Constraint,
    index: int,
    spec: SpreadConstraint,
    limit: int,
    position: int | None,
) -> ConstraintFinding:
    snapshot, eligibility = case.snapshot, constraint.eligibility
    column = snapshot.domains(constraint.topology_key)
    membership = snapshot.membership(eligibility, constraint.topology_key)
    pods, reserved, not_counted = _pods(case, constraint, position)
    lowest = int(pods[membership.present].min()) if membership.size else 0
    because = Minimum.LOWEST
    if not membership.size:
        because = Minimum.NO_DOMAINS
    elif position is not None and membership.size < constraint.min_domains:
        because = Minimum.FEW_DOMAINS
    minimum = lowest if because is Minimum.LOWEST else 0
    excluded = list(_excluded(case, constraint))
    by_domain = _ByDomain(column.ids, len(column.values))
    columns = _Columns(
        pods=pods,
        reserved=reserved,
        not_counted=not_counted,
        nodes=by_domain.nodes(snapshot.alive),
        eligible=membership.nodes,
        excluded=[(reason, by_domain.nodes(mask)) for reason, mask in excluded],
        refused=[(reason, by_domain.nodes(mask)) for reason, mask in case.refusals],
        usable=by_domain.nodes(case.usable),
        fitting=by_domain.nodes(case.fitting),
        skew=pods + int(constraint.self_match) - minimum,
        lowest=membership.present & (pods == lowest),
        allowed=np.ones(pods.size, dtype=np.bool_)
        if position is None
        else ~case.states[position].rejected,
        scores=_scores(case, by_domain) if position is None else None,
    )
    there = np.flatnonzero(columns.nodes)
    first, last = _ends(there.tolist(), pods, column.values, limit)
    rejected = ~columns.allowed & (columns.nodes > 0)
    earlier, alone = (0, 0) if position is None else _refused_nodes(case, position)
    return ConstraintFinding(
        index=index,
        topology_key=constraint.topology_key,
        hard=position is not None,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains,
        selector=selector_text(constraint.group.selector),
        self_match=constraint.self_match,
        honors_affinity=_honors_affinity(case, spec),
        honors_taints=eligibility.tolerations is not None,
        nodes_without_key=int(np.count_nonzero(snapshot.alive & (column.ids < 0))),
        eligible=int(membership.nodes.sum()),
        excluded=tuple((reason, n) for reason, mask in excluded if (n := _size(mask))),
        domains=int(there.size),
        eligible_domains=membership.size,
        minimum=minimum,
        minimum_because=because,
        lowest=lowest,
        lowest_domains=int(np.count_nonzero(columns.lowest)),
        note=_note(constraint, because, columns, column.values, membership.size),
        rejected_domains=int(np.count_nonzero(rejected)),
        rejected_nodes=earlier,
        rejected_alone=alone,
        weight=0.0 if position is not None else _weight(case, constraint),
        listed=tuple(_domain(columns, column.values, d) for d in (*first, *last)),
        unlisted=int(there.size) - len(first) - len(last),
        shown_first=len(first),
    )


class _ByDomain:
    """Adds up over the nodes of each domain."""

    def __init__(self, ids: np.ndarray[tuple[int], np.dtype[np.int32]], size: int) -> None:
        self.ids = ids
        self._there = ids >= 0
        self.size = size

    def nodes(self, mask: Bools) -> Ints:
        """[domains] how many nodes are in the mask."""
        return np.bincount(self.ids[mask & self._there], minlength=self.size).astype(np.int64)

    def sum(self, values: Ints, mask: Bools) -> Ints:
        """[domains] the sum over the nodes in the mask."""
        chosen = mask & self._there
        return np.bincount(self.ids[chosen], weights=values[chosen], minlength=self.size).astype(
            np.int64
        )


def _pods(case: Case, constraint: Constraint, position: int | None) -> tuple[Ints, Ints, Ints]:
    """Matching pods of each domain: counted, reserved of those, and on nodes not counted."""
    snapshot, key = case.snapshot, constraint.topology_key
    column = snapshot.domains(key)
    by_domain = _ByDomain(column.ids, len(column.values))
    nothing = np.zeros(len(column.values), dtype=np.int64)
    if constraint.group.counts_nothing:
        return (nothing if position is None else case.states[position].counts), nothing, nothing
    everywhere = snapshot.node_counts(constraint.group).astype(np.int64)
    total = by_domain.sum(everywhere, snapshot.alive)
    counted_on = snapshot.mask(constraint.eligibility)
    if position is not None:
        counted = snapshot.domain_counts(constraint.group, constraint.eligibility, key)
        pods = case.states[position].counts
    elif constraint.is_hostname:
        counted = pods = total  # whatever the policies say (upstream fact 29)
        counted_on = snapshot.alive
    else:
        pods = soft_counts(constraint, snapshot, case.constraints.require_all_keys)
        counted = np.minimum(pods, total)
    held = by_domain.sum(case.reserved(constraint.group), counted_on)
    return pods, held, total - counted


def _excluded(case: Case, constraint: Constraint) -> Iterator[tuple[Exclusion, Bools]]:
    """[slots] nodes that have the key and are not counted, by the first reason."""
    snapshot, eligibility = case.snapshot, constraint.eligibility
    left = snapshot.alive & (snapshot.domains(constraint.topology_key).ids >= 0)
    parts = [(Exclusion.KEY_MISSING, Eligibility(keys=eligibility.keys))]
    if eligibility.requirements is not None:
        parts.append((Exclusion.AFFINITY, Eligibility(requirements=eligibility.requirements)))
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
    yield Exclusion.CORDONED, left & snapshot.mask(tolerant) & ~snapshot.mask(strict)
    yield Exclusion.TAINTED, left & ~snapshot.mask(tolerant)


def _scores(case: Case, by_domain: _ByDomain) -> tuple[Ints, Ints, Ints] | None:
    """[domains] nodes with a score, their lowest and their highest."""
    scored = case.normalized
    if scored is None:
        return None
    slots, scores = scored
    ids = by_domain.ids[slots]
    there = ids >= 0
    size = by_domain.size
    low, high = np.full(size, 101, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    np.minimum.at(low, ids[there], scores[there])
    np.maximum.at(high, ids[there], scores[there])
    return np.bincount(ids[there], minlength=size), low, high


def _weight(case: Case, constraint: Constraint) -> float:
    scored = case.normalized
    if scored is None:
        return 0.0
    candidates, snapshot = scored[0], case.snapshot
    ignored = ignored_nodes(
        case.soft, snapshot, candidates, require_all_keys=case.constraints.require_all_keys
    )
    return weight_of(constraint, snapshot, candidates, ignored)


def _refused_nodes(case: Case, position: int) -> tuple[int, int]:
    """Nodes that this constraint is the first to refuse, and usable ones that it alone refuses."""
    first = case.snapshot.alive & ~case.allowing[position]
    for allowed in case.allowing[:position]:
        first = first & allowed
    return _size(first), _size(case.but_for(position) & ~case.allowing[position])


def _size(mask: Bools) -> int:
    return int(np.count_nonzero(mask))


def _honors_affinity(case: Case, spec: SpreadConstraint) -> bool:
    policy = spec.node_affinity_policy
    return not case.rules.gates.node_inclusion_policy or policy is None or policy == HONOR


def _ends(
    there: Sequence[int], pods: Ints, values: Sequence[str], limit: int
) -> tuple[list[int], list[int]]:
    """The domains with the fewest pods and those with the most, ascending by pods and value."""

    def place(domain: int) -> tuple[int, str]:
        return int(pods[domain]), values[domain]

    if len(there) <= limit:
        return sorted(there, key=place), []
    few = math.ceil(limit / 2)
    first = heapq.nsmallest(few, there, key=place)
    last = heapq.nlargest(limit - few, there, key=place)
    return first, last[::-1]


def _domain(columns: _Columns, values: Sequence[str], domain: int) -> DomainFinding:
    scores = None
    if columns.scores is not None and columns.scores[0][domain]:
        scores = int(columns.scores[1][domain]), int(columns.scores[2][domain])
    return DomainFinding(
        value=values[domain],
        pods=int(columns.pods[domain]),
        reserved=int(columns.reserved[domain]),
        not_counted=int(columns.not_counted[domain]),
        nodes=int(columns.nodes[domain]),
        eligible=int(columns.eligible[domain]),
        excluded=tuple((r, n) for r, by in columns.excluded if (n := int(by[domain]))),
        refused=_most_frequent((r, int(by[domain])) for r, by in columns.refused),
        usable=int(columns.usable[domain]),
        fitting=int(columns.fitting[domain]),
        skew=int(columns.skew[domain]),
        holds_minimum=bool(columns.lowest[domain]),
        allowed=bool(columns.allowed[domain]),
        scores=scores,
    )


def _most_frequent(counted: Iterator[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted(((r, n) for r, n in counted if n), key=lambda each: (-each[1], each[0])))


def _note(
    constraint: Constraint,
    because: Minimum,
    columns: _Columns,
    values: Sequence[str],
    eligible: int,
) -> str:
    """Who holds the minimum and why, and why the pod cannot go there."""
    key = constraint.topology_key
    if because is Minimum.NO_DOMAINS:
        return f"no node counts for {key}: the minimum is taken as 0"
    if because is Minimum.FEW_DOMAINS:
        return (
            f"minDomains {constraint.min_domains}, but {eligible} eligible "
            f"domain{'s' * (eligible != 1)}: the minimum is taken as 0"
        )
    holders = np.flatnonzero(columns.lowest)
    if int(columns.usable[holders].sum()):
        return ""
    whys = _most_frequent((r, int(by[holders].sum())) for r, by in columns.refused)
    nodes = int(columns.nodes[holders].sum())
    who = min(values[d] for d in holders.tolist())
    if holders.size > 1:
        who += f" and {holders.size - 1} more"
    why = ", ".join(f"{n} {reason}" for reason, n in whys)
    return (
        f"{who} hold{'s' * (holders.size == 1)} the minimum of {int(columns.pods[holders[0]])}, "
        f"but can take no pod: {why} (of {nodes} node{'s' * (nodes != 1)})"
    )
