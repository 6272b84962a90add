"""Judging node classes instead of nodes: the same answers from a few dozen numbers.

Nodes that a pod's constraints cannot tell apart are one *class*. Where a constraint spreads over
hostnames, a node's own number of matching pods matters, too; nodes of one class that hold the same
number are one *cell*. A verdict is then a class's, up to a limit on a node's own pods, and only the
cells at the front of the order are looked into for names. Facts this rests on:

- nodes of a class share their domains, so each constraint over domains sees them alike;
- a node's own pods enter a score with a positive weight, and a limit from above: within a class,
  fewer pods are never worse. So the extremes of a class are its emptiest and its fullest node, and
  its cells are in order already.

Few classes are quicker to walk in plain Python than to hand to NumPy, and the walk does not let go
of the interpreter's lock, so that a decision does not queue behind other threads. With many classes
(:data:`MAX_CLASSES`), or with two groups that would have to be counted per node at once,
:func:`plan` says None and the algebra per node (:mod:`~topospread.spread.filtering`,
:mod:`~topospread.spread.scoring`) answers. Both must agree.
"""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.spread.scoring import MAX_NODE_SCORE
from topospread.spread.topology import GroupKey, Partition, Traits
from topospread.spread.verdicts import FITS, LABEL_MISSING, TOO_SKEWED, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.spread.constraints import Constraint, PodConstraints
    from topospread.spread.topology import Topology

MAX_CLASSES: Final = 64
"""Past it, arrays over all nodes are quicker."""

SLICE: Final = 256
"""Slots that are looked at in one go; NumPy holds the interpreter's lock up to some 500."""

_NO_LIMIT: Final = 1 << 62


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """How one constraint sees the classes; lists have one entry a class.

    Attributes:
        per_node: whether it looks at a node's own pods (hostnames) instead of a domain's.
        domain: the domain; −1 without the label. Empty when per node.
        labelled: whether the nodes have the label.
        eligible: whether the nodes are counted; looked at for hard constraints per node.
        present: the domains with an eligible node. Empty when per node.
        size: how many domains have an eligible node.
    """

    constraint: Constraint
    per_node: bool
    domain: Sequence[int]
    labelled: Sequence[bool]
    eligible: Sequence[bool]
    present: Sequence[int]
    size: int


@dataclass(frozen=True, slots=True, eq=False)
class Plan:
    """What follows from a pod's constraints and the nodes alone; valid for one node table.

    Attributes:
        group: whose pods are counted per node; None when no constraint does.
        ignored: [classes] whether scoring passes the nodes over.
    """

    partition: Partition
    hard: tuple[Term, ...]
    soft: tuple[Term, ...]
    group: GroupKey | None
    ignored: Sequence[bool]


@dataclass(slots=True, eq=False)
class Judged:
    """The judgement of all nodes.

    Attributes:
        verdicts: nodes by verdict.
        top: slot, raw and normalized score of the best nodes, best first.
        counted_at, filtered_at, weighed_at: when PreFilter's, Filter's and PreScore's part was
            done, on the caller's clock.
    """

    verdicts: Sequence[int]
    top: Sequence[tuple[int, int, int]]
    counted_at: float
    filtered_at: float
    weighed_at: float


def plan(constraints: PodConstraints, topology: Topology) -> Plan | None:
    """Prepare to judge classes; None when nodes must be judged one by one."""
    hard, soft = constraints.hard.constraints, constraints.soft.constraints
    own_hard = [c for c in hard if topology.domains(c.topology_key).unique]
    own_soft = [c for c in soft if c.is_hostname]
    shared_soft = [c for c in soft if not c.is_hostname]
    groups = {c.group for c in (*own_hard, *own_soft) if not c.group.counts_nothing}
    # Under the System defaults nodes without a label share the domain "" with those that have it.
    blank = any("" in topology.domains(c.topology_key).number for c in shared_soft)
    # A raw score below 0 is out of order: upstream takes −1 for "ignored".
    negative = any(c.max_skew < 1 for c in soft)
    if len(groups) > 1 or negative or (blank and not constraints.require_all_keys):
        return None
    shared = [c for c in hard if c not in own_hard] + shared_soft
    traits = Traits(
        keys=tuple(dict.fromkeys(c.topology_key for c in shared)),
        labels=tuple(dict.fromkeys(c.topology_key for c in (*own_hard, *own_soft))),
        eligibilities=tuple(dict.fromkeys(c.eligibility for c in own_hard)),
    )
    partition = topology.partition(traits)
    if partition.size > MAX_CLASSES:
        return None
    soft_terms = tuple(_term(c, c.is_hostname, partition, traits, topology) for c in soft)
    require = constraints.require_all_keys
    return Plan(
        partition,
        tuple(_term(c, c in own_hard, partition, traits, topology) for c in hard),
        soft_terms,
        next(iter(groups), None),
        [require and not all(t.labelled[c] for t in soft_terms) for c in range(partition.size)],
    )


def _term(
    constraint: Constraint,
    per_node: bool,
    partition: Partition,
    traits: Traits,
    topology: Topology,
) -> Term:
    key, eligibility = constraint.topology_key, constraint.eligibility
    membership = topology.membership(eligibility, key)
    if not per_node:
        domain = partition.domains[traits.keys.index(key)].tolist()
        labelled = [d >= 0 for d in domain]
        present = np.flatnonzero(membership.present).tolist()
        return Term(constraint, False, domain, labelled, labelled, present, membership.size)
    labelled = partition.labelled[traits.labels.index(key)].tolist()
    eligible = labelled
    if eligibility in traits.eligibilities:
        eligible = partition.eligible[traits.eligibilities.index(eligibility)].tolist()
    return Term(constraint, True, (), labelled, eligible, (), membership.size)


@dataclass(slots=True, eq=False)
class _ClassFit:
    """The nodes of one class that pass.

    Attributes:
        number: of the class.
        row: row[n] nodes hold n matching pods; cut off at the limit.
        first, last: the emptiest and the fullest node's pods.
        matching: matching pods over the hard constraints' domains, without a node's own.
        own: how often a node's own pods are added to that.
        raw: the raw score of a node with so many own pods.
    """

    number: int
    row: Sequence[int]
    first: int
    last: int
    matching: int
    own: int
    raw: Callable[[int], int]


def judge(plan: Plan, topology: Topology, top_k: int, clock: Callable[[], float]) -> Judged:
    """Judge all nodes by class.

    Args:
        plan: for these constraints and this topology's nodes.
        topology: the state.
        top_k: how many of the best nodes to name.
        clock: seconds.
    """
    rows = _rows(plan, topology)
    criteria = [_criterion(term, topology, rows) for term in plan.hard]
    counted_at = clock()
    verdicts = [0] * len(VERDICTS)
    fits = list(_filter(plan, criteria, rows, verdicts))
    filtered_at = clock()
    if not fits:
        return Judged(verdicts, (), counted_at, filtered_at, filtered_at)
    normalized = _score(plan, topology, fits)
    weighed_at = clock()
    top = _names(plan, topology, fits, normalized, top_k)
    return Judged(verdicts, top, counted_at, filtered_at, weighed_at)


def _rows(plan: Plan, topology: Topology) -> Sequence[Sequence[int]]:
    """For each class: how many nodes hold 0, 1, 2 … matching pods."""
    if plan.group is None:
        return [(nodes,) for nodes in plan.partition.nodes.tolist()]
    rows: list[list[int]] = topology.count_of_counts(plan.group, plan.partition).tolist()
    return rows


# ------------------------------ filtering


def _filter(
    plan: Plan,
    criteria: Sequence[_Criterion],
    rows: Sequence[Sequence[int]],
    verdicts: list[int],
) -> Iterator[_ClassFit]:
    """The classes with nodes that pass; the others' nodes are added to the verdicts."""
    judged = list(zip(plan.hard, criteria, strict=True))
    for number, row in enumerate(rows):
        limit, failure, matching, own = _NO_LIMIT, FITS, 0, 0
        for term, (counts, allowed) in judged:
            if not term.labelled[number]:
                failure = LABEL_MISSING
            elif not term.per_node:
                here = counts[term.domain[number]]
                matching += here
                failure = TOO_SKEWED if here > allowed else FITS
            elif term.eligible[number] and not term.constraint.group.counts_nothing:
                own += 1
                limit = min(limit, allowed)
            else:
                # A domain without eligible nodes has no pods (upstream fact 10).
                failure = TOO_SKEWED if allowed < 0 else FITS
            if failure:
                break
        within = row[: max(limit, -1) + 1] if limit < len(row) else row
        nodes = sum(within)
        # A node above the limit failed before the class did (upstream fact 12).
        verdicts[TOO_SKEWED] += sum(row) - nodes
        verdicts[failure] += nodes
        if nodes and not failure:
            first = next(n for n, held in enumerate(within) if held)
            last = len(within) - 1
            while not within[last]:
                last -= 1
            yield _ClassFit(number, within, first, last, matching, own, _nothing)


_Criterion = tuple["Sequence[int]", int]
"""Matching pods by domain (empty when per node), and how many a domain may hold already."""


def _criterion(term: Term, topology: Topology, rows: Sequence[Sequence[int]]) -> _Criterion:
    """What a hard constraint asks; see :mod:`~topospread.spread.filtering`."""
    constraint, minimum = term.constraint, 0
    counts: Sequence[int] = ()
    enough = term.size and term.size >= constraint.min_domains
    if term.per_node:
        if enough and not constraint.group.counts_nothing:
            held = (row for row, counted in zip(rows, term.eligible, strict=True) if counted)
            minimum = min(next(n for n, nodes in enumerate(row) if nodes) for row in held)
    else:
        counts = _domain_counts(constraint, topology)
        if enough:
            minimum = min([counts[domain] for domain in term.present])
    return counts, constraint.max_skew + minimum - constraint.self_match


def _domain_counts(constraint: Constraint, topology: Topology) -> Sequence[int]:
    key = constraint.topology_key
    if constraint.group.counts_nothing:
        return [0] * len(topology.domains(key).values)
    counts: list[int] = topology.domain_counts(
        constraint.group, constraint.eligibility, key
    ).tolist()
    return counts


# ------------------------------ scoring


def _score(
    plan: Plan, topology: Topology, fits: Sequence[_ClassFit]
) -> Callable[[_ClassFit, int], int]:
    """Give each class its raw score; returns the normalized score of (class, own pods)."""
    if not plan.soft:
        return lambda _, __: 0
    counted = [fit for fit in fits if not plan.ignored[fit.number]]
    parts = [_part(term, topology, counted) for term in plan.soft]
    for fit in counted:
        fit.raw = _raw_of([part(fit.number) for part in parts])
    if not counted:
        return lambda _, __: 0
    lowest = min([fit.raw(fit.first) for fit in counted])
    highest = max([fit.raw(fit.last) for fit in counted])
    ignored = plan.ignored

    def normalized(fit: _ClassFit, own: int) -> int:
        if ignored[fit.number]:
            return 0
        if highest == 0:
            return MAX_NODE_SCORE
        return MAX_NODE_SCORE * (highest + lowest - fit.raw(own)) // highest

    return normalized


Part = tuple[float, float]
"""What one constraint adds to a raw score: a constant, and so much a pod of the node's own."""


def _part(
    term: Term, topology: Topology, counted: Sequence[_ClassFit]
) -> Callable[[int], Part | None]:
    """What a constraint adds for each class; None where the label is missing."""
    constraint, labelled = term.constraint, term.labelled
    least = float(constraint.max_skew - 1)
    if term.per_node:
        weight = math.log(sum(sum(fit.row) for fit in counted) + 2)
        each = 0.0 if constraint.group.counts_nothing else weight
        return lambda number: (least, each) if labelled[number] else None
    # Without the label counts as one domain, too (upstream fact 26).
    weight = math.log(len({term.domain[fit.number] for fit in counted}) + 2)
    counts, domain = _domain_counts(constraint, topology), term.domain
    return lambda n: (counts[domain[n]] * weight + least, 0.0) if labelled[n] else None


def _raw_of(parts: Sequence[Part | None]) -> Callable[[int], int]:
    """The raw score by own pods; added up in the constraints' order, as floating point demands."""
    there = [part for part in parts if part is not None]

    def raw(own: int) -> int:
        total = 0.0
        for constant, each in there:
            total += own * each + constant if each else constant
        return _round_half_away(total)

    return raw


def _round_half_away(value: float) -> int:
    """Go's math.Round, for what is not negative."""
    whole = int(value)
    return whole + 1 if value - whole >= 0.5 else whole


def _nothing(own: int) -> int:
    del own
    return 0


# ------------------------------ names


def _names(
    plan: Plan,
    topology: Topology,
    fits: Sequence[_ClassFit],
    normalized: Callable[[_ClassFit, int], int],
    top_k: int,
) -> list[tuple[int, int, int]]:
    """The best nodes: by score, then fewest matching pods in the hard domains, then by name."""
    named: list[tuple[int, int, int]] = []
    queue = [_cell(fit, fit.first, normalized) for fit in fits]
    heapq.heapify(queue)
    while queue and len(named) < top_k:
        front = queue[0][:2]
        tied: list[tuple[int, int, int]] = []
        cells = 0
        while queue and queue[0][:2] == front:
            _, _, _, own, fit = heapq.heappop(queue)
            raw, score = fit.raw(own), -front[0]
            tied += [(s, raw, score) for s in _members(plan, topology, fit, own, top_k)]
            cells += 1
            following = next((n for n in range(own + 1, fit.last + 1) if fit.row[n]), None)
            if following is not None:
                heapq.heappush(queue, _cell(fit, following, normalized))
        if cells > 1:
            rank = plan.partition.rank
            tied.sort(key=lambda node: int(rank[node[0]]))
        named += tied
    return named[:top_k]


_Cell = tuple[int, int, int, int, _ClassFit]
"""Smaller is better: score, matching pods; class and own pods make it unique."""


def _cell(fit: _ClassFit, own: int, normalized: Callable[[_ClassFit, int], int]) -> _Cell:
    return (-normalized(fit, own), fit.matching + fit.own * own, fit.number, own, fit)


def _members(plan: Plan, topology: Topology, fit: _ClassFit, own: int, top_k: int) -> Sequence[int]:
    """The slots of the first nodes of a cell by name."""
    slots = plan.partition.members[fit.number]
    if plan.group is None:
        first: list[int] = slots[:top_k].tolist()
        return first
    found: list[int] = []
    held = topology.node_counts(plan.group)
    # In slices, because the first few are nearly always in the first one, and because NumPy lets go
    # of the interpreter's lock over longer arrays: each time a wait for other threads.
    for begin in range(0, slots.size, SLICE):
        part = slots[begin : begin + SLICE]
        found += part[held[part] == own].tolist()
        if len(found) >= top_k:
            break
    return found[:top_k]
