"""The account of one constraint: its domains, their pods and nodes, and the global minimum."""

from __future__ import annotations

import heapq
import math
from typing import TYPE_CHECKING

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.service.explaining.candidates import plural
from topospread.service.explaining.columns import Columns, Told, columns_of
from topospread.service.explaining.findings import ConstraintFinding, DomainFinding, Minimum
from topospread.spread.scoring import ignored_nodes, weight_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.service.explaining.case import Case
    from topospread.spread.constraints import Constraint
    from topospread.spread.topology import Bools


def accounts(case: Case, limit: int) -> tuple[ConstraintFinding, ...]:
    """The account of every constraint, by its place in the pod's list.

    Args:
        case: the pod, judged.
        limit: domains to list of each constraint.
    """
    told = [
        Told(constraint, spec, index, position)
        for position, (constraint, (index, spec)) in enumerate(
            zip(case.hard, case.specs(hard=True), strict=False)
        )
    ]
    told += [
        Told(constraint, spec, index, None)
        for constraint, (index, spec) in zip(case.soft, case.specs(hard=False), strict=False)
    ]
    told.sort(key=lambda each: each.index)
    return tuple(_account(case, each, limit) for each in told)


def _account(case: Case, told: Told, limit: int) -> ConstraintFinding:
    checkpoint()
    constraint, position, columns = told.constraint, told.position, columns_of(case, told)
    there = np.flatnonzero(columns.nodes)
    first, last = _ends(columns, there.tolist(), limit)
    eligible_domains = int(np.count_nonzero(columns.eligible))
    refused, alone = (0, 0) if position is None else _refused_nodes(case, position)
    return ConstraintFinding(
        index=told.index,
        constraint=constraint,
        self_match=constraint.self_match,
        nodes_without_key=case.snapshot.node_count - int(columns.nodes.sum()),
        eligible=int(columns.eligible.sum()),
        excluded=tuple((why, n) for why, by in columns.excluded if (n := int(by.sum()))),
        domains=int(there.size),
        eligible_domains=eligible_domains,
        minimum=columns.minimum,
        minimum_because=columns.because,
        lowest=columns.least,
        lowest_domains=_size(columns.lowest),
        note=_note(constraint, columns, eligible_domains),
        rejected_domains=_size(~columns.allowed & (columns.nodes > 0)),
        rejected_nodes=refused,
        rejected_alone=alone,
        weight=0.0 if position is not None else _weight(case, constraint),
        listed=tuple(_domain(columns, domain) for domain in (*first, *last)),
        unlisted=int(there.size) - len(first) - len(last),
        shown_first=len(first),
    )


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


def _ends(columns: Columns, there: list[int], limit: int) -> tuple[list[int], list[int]]:
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


def _domain(columns: Columns, domain: int) -> DomainFinding:
    scores = None
    if columns.scores is not None and columns.scores[0][domain]:
        scores = int(columns.scores[1][domain]), int(columns.scores[2][domain])
    return DomainFinding(
        value=columns.values[domain],
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


def _note(constraint: Constraint, columns: Columns, eligible: int) -> str:
    """Why the minimum is set, or why none of who holds it can take the pod."""
    if columns.because is Minimum.NO_DOMAINS:
        return f"set so because no node with {constraint.topology_key} counts"
    if columns.because is Minimum.FEW_DOMAINS:
        return (
            f"set so because minDomains is {constraint.min_domains} and there "
            f"{'is' if eligible == 1 else 'are'} {plural(eligible, 'eligible domain')}"
        )
    holders = np.flatnonzero(columns.lowest)
    if int(columns.usable[holders].sum()):
        return ""
    who = min(columns.values[d] for d in holders.tolist()) or '""'
    if holders.size > 1:
        who += f" and {holders.size - 1} more"
    nodes = int(columns.nodes[holders].sum())
    those = "whose only node cannot" if nodes == 1 else f"none of whose {nodes} nodes can"
    whys = _most_frequent((why, int(by[holders].sum())) for why, by in columns.refused)
    reasons = ", ".join(f"{number} {why}" for why, number in whys)
    return f"held by {who}, {those} take the pod: {reasons}"
