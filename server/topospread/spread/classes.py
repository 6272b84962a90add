"""Judging node classes instead of nodes: the same answers from a few dozen numbers.

Nodes that a pod's constraints cannot distinguish are one *class*. Where a constraint spreads over
hostnames, a node's own number of matching pods matters, too; nodes of one class that hold the same
number are one *cell*. A verdict is then a class's, up to a limit on a node's own pods, and only the
cells at the front of the order are looked into for names. Facts this rests on:

- nodes of a class share their domains, so each constraint over domains sees them alike;
- a node's own pods enter a score with a positive weight, and a limit from above: within a class,
  fewer pods are never worse. So the extremes of a class are its emptiest and its fullest node, and
  its cells are in order already.

Few classes are quicker to walk in plain Python than to hand to NumPy, and the walk does not
release the interpreter's lock, so that a decision does not queue behind other threads. With many
classes (:data:`~topospread.spread.plans.MAX_CLASSES`), or with two groups that would have to be
counted per node at once, :func:`~topospread.spread.plans.plan` returns None and the algebra per
node (:mod:`~topospread.spread.filtering`, :mod:`~topospread.spread.scoring`) answers. Both must
agree.

What depends on one group's counts alone (a constraint's criterion, the cells) is kept with that
version of the counts and shared by all calls until the next pod comes or goes.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.spread.cells import KEPT
from topospread.spread.scoring import MAX_NODE_SCORE
from topospread.spread.verdicts import FITS, LABEL_MISSING, TOO_SKEWED, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.spread.cells import Cells
    from topospread.spread.plans import Plan, Term
    from topospread.spread.topology import Topology

SLICE: Final = 256
"""Slots that are compared at once: over more than some 500 NumPy releases the interpreter's lock,
and waits for other threads each time."""

_NO_LIMIT: Final = 1 << 62

_Part = tuple[float, float]
"""A constraint's part of a raw score: a constant, and a factor per pod on the node itself."""


@dataclass(slots=True, eq=False)
class ClassJudgement:
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


def judge(plan: Plan, topology: Topology, top_k: int, clock: Callable[[], float]) -> ClassJudgement:
    """Judge all nodes by class."""
    cells = cells_of(plan, topology)
    criteria = [criterion(term, topology, cells) for term in plan.hard]
    counted_at = clock()
    verdicts = [0] * len(VERDICTS)
    fits = passing(criteria, cells, verdicts)
    filtered_at = clock()
    if not fits:
        return ClassJudgement(verdicts, (), counted_at, filtered_at, filtered_at)
    scale = weigh(plan, topology, fits)
    weighed_at = clock()
    top = _names(plan, cells, fits, scale, top_k)
    return ClassJudgement(verdicts, top, counted_at, filtered_at, weighed_at)


def cells_of(plan: Plan, topology: Topology) -> Cells:
    """The nodes by class and by how many matching pods they hold."""
    if plan.group is None:
        return plan.cells
    return topology.cells(plan.group, plan.partition)


class _Domains(NamedTuple):
    """Counts of a constraint: matching pods by domain, and the fewest in an eligible domain."""

    pods: Sequence[int]
    fewest: int


def _domains(term: Term, topology: Topology) -> _Domains:
    group, key = term.constraint.group, term.constraint.topology_key
    if term.counts_nothing:
        return _Domains([0] * len(topology.domains(key).values), 0)
    memo = topology.memo(group)
    known = memo.get(term)
    if isinstance(known, _Domains):
        return known
    pods = topology.domain_counts(group, term.constraint.eligibility, key).tolist()
    counted = _Domains(pods, min([pods[domain] for domain in term.present], default=0))
    memo.put(term, counted, term.constraint.eligibility.nbytes)
    return counted


# ------------------------------ filtering


Criterion = tuple["Term", "Sequence[int]", int]
"""A hard constraint, its matching pods by domain (empty when per node), and how many of them a
domain may hold already.
"""


def criterion(term: Term, topology: Topology, cells: Cells) -> Criterion:
    """The criterion of a hard constraint; see :mod:`~topospread.spread.filtering`."""
    constraint, minimum = term.constraint, 0
    pods: Sequence[int] = ()
    enough = term.size and term.size >= constraint.min_domains
    if term.per_node:
        if enough and not term.counts_nothing:
            both = zip(cells.held, term.eligible, strict=True)
            minimum = min([held[0] for held, counted in both if counted])
    else:
        pods, fewest = _domains(term, topology)
        if enough:
            minimum = fewest
    return term, pods, constraint.max_skew + minimum - constraint.self_match


class ClassFit:
    """The nodes of one class that pass.

    Attributes:
        held: the numbers of matching pods that nodes of the class hold, ascending.
        count: how many of these pass, from the front.
        nodes: that pass.
        matching: matching pods over the hard constraints' domains, without a node's own.
        own: how often a node's own pods are added to that.
        parts: what the raw score is added up from; empty when scoring passes the class over.
        raw: score of its emptiest nodes; 0 when nothing is scored.
    """

    __slots__ = ("count", "held", "matching", "nodes", "number", "own", "parts", "raw")

    def __init__(
        self, number: int, held: Sequence[int], count: int, nodes: int, matching: int, own: int
    ) -> None:
        self.number = number
        self.held = held
        self.count = count
        self.nodes = nodes
        self.matching = matching
        self.own = own
        self.parts: list[_Part] = []
        self.raw = 0


def class_verdict(criteria: Sequence[Criterion], number: int) -> tuple[int, int, int, int]:
    """The verdict of the hard constraints on one class.

    Returns:
        The verdict on its nodes, FITS if they pass. The limit: nodes with more pods of their own
        are too skewed whatever that is. Matching pods over the constraints' domains, without a
        node's own. How often a node's own pods are added to that.
    """
    limit, failure, matching, own = _NO_LIMIT, FITS, 0, 0
    for term, pods, allowed in criteria:
        if not term.labelled[number]:
            failure = LABEL_MISSING
        elif not term.per_node:
            here = pods[term.domain[number]]
            matching += here
            failure = TOO_SKEWED if here > allowed else FITS
        elif term.eligible[number] and not term.counts_nothing:
            own += 1
            limit = min(limit, allowed)
        else:
            # A domain without eligible nodes has no pods (upstream fact 10).
            failure = TOO_SKEWED if allowed < 0 else FITS
        if failure:
            break
    # A node above the limit failed before the class did (upstream fact 12).
    return failure, limit, matching, own


_UNCONSTRAINED: Final = (FITS, _NO_LIMIT, 0, 0)
"""A class's verdict without hard constraints."""


def passing(criteria: Sequence[Criterion], cells: Cells, verdicts: list[int]) -> list[ClassFit]:
    """The classes with nodes that pass; all nodes are added to the verdicts."""
    fits: list[ClassFit] = []
    for number, held in enumerate(cells.held):
        seen = class_verdict(criteria, number) if criteria else _UNCONSTRAINED
        failure, limit, matching, own = seen
        nodes, count = cells.nodes[number], len(held)
        if limit < held[-1]:
            count = bisect_right(held, limit)
            within = cells.within[number][count - 1] if count else 0
            verdicts[TOO_SKEWED] += nodes - within
            nodes = within
        verdicts[failure] += nodes
        if nodes and not failure:
            fits.append(ClassFit(number, held, count, nodes, matching, own))
    return fits


# ------------------------------ scoring


class Scale(NamedTuple):
    """The range of the raw scores, which normalization rests on."""

    lowest: int
    highest: int


def weigh(plan: Plan, topology: Topology, fits: Sequence[ClassFit]) -> Scale | None:
    """Give each class the parts of its raw score; None when nothing is scored."""
    if not plan.soft:
        return None
    counted = [fit for fit in fits if not plan.ignored[fit.number]]
    if not counted:
        return None
    for term in plan.soft:
        _add_part(term, topology, counted)
    for fit in counted:
        fit.raw = raw_score(fit, fit.held[0])
    lowest = min([fit.raw for fit in counted])
    fullest = [raw_score(fit, fit.held[fit.count - 1]) for fit in counted if fit.count > 1]
    return Scale(lowest, max([fit.raw for fit in counted] + fullest))


def _add_part(term: Term, topology: Topology, counted: Sequence[ClassFit]) -> None:
    """Add a constraint's part for each class; nothing where the label is missing."""
    least, labelled = float(term.constraint.max_skew - 1), term.labelled
    if term.per_node:
        each = 0.0
        if not term.counts_nothing:
            each = math.log(sum([fit.nodes for fit in counted]) + 2)
        for fit in counted:
            if labelled[fit.number]:
                fit.parts.append((least, each))
        return
    pods, domain = _domains(term, topology).pods, term.domain
    # Without the label counts as one domain, too (upstream fact 26).
    weight = math.log(len({domain[fit.number] for fit in counted}) + 2)
    for fit in counted:
        if labelled[fit.number]:
            fit.parts.append((pods[domain[fit.number]] * weight + least, 0.0))


def raw_score(fit: ClassFit, own: int) -> int:
    """The raw score with so many own pods; added up in the constraints' order, as floats demand."""
    total = 0.0
    for constant, each in fit.parts:
        total += own * each + constant if each else constant
    # Go's math.Round, for what is not negative: halves go up.
    whole = int(total)
    return whole + 1 if total - whole >= 0.5 else whole


def normalized_score(scale: Scale, raw: int) -> int:
    """The score from 0 to 100; see :func:`topospread.spread.scoring.normalize`."""
    if scale.highest == 0:
        return MAX_NODE_SCORE
    return MAX_NODE_SCORE * (scale.highest + scale.lowest - raw) // scale.highest


# ------------------------------ names

_Cell = tuple[int, int, int, int, int, ClassFit]
"""Sort key, smaller is better: score, matching pods; class and place in `held` make it unique."""


def _cell(plan: Plan, scale: Scale | None, fit: ClassFit, place: int) -> _Cell:
    raw, score, own = 0, 0, fit.held[place]
    if scale is not None and not plan.ignored[fit.number]:
        raw = raw_score(fit, own) if place else fit.raw
        score = normalized_score(scale, raw)
    return -score, fit.matching + fit.own * own, fit.number, place, raw, fit


def _names(
    plan: Plan,
    cells: Cells,
    fits: Sequence[ClassFit],
    scale: Scale | None,
    top_k: int,
) -> list[tuple[int, int, int]]:
    """The best nodes: by score, then fewest matching pods in the hard domains, then by name."""
    named: list[tuple[int, int, int]] = []
    queue = [_cell(plan, scale, fit, 0) for fit in fits]
    heapq.heapify(queue)
    while queue and len(named) < top_k:
        minus_score, pods = queue[0][:2]
        tied: list[tuple[int, int, int]] = []  # rank by name, slot, raw score
        while queue and queue[0][0] == minus_score and queue[0][1] == pods:
            _, _, number, place, raw, fit = heapq.heappop(queue)
            for rank, slot in first_members(cells, number, fit.held[place], top_k):
                tied.append((rank, slot, raw))
            if place + 1 < fit.count:
                heapq.heappush(queue, _cell(plan, scale, fit, place + 1))
        tied.sort()
        named += [(slot, raw, -minus_score) for _, slot, raw in tied[: top_k - len(named)]]
    return named


def first_members(cells: Cells, number: int, own: int, count: int) -> list[tuple[int, int]]:
    """The first nodes of a cell by name: their positions in the order of names, and slots."""
    if count > KEPT:
        return _looked_up(cells, number, own, count)
    known = cells.members.get((number, own))
    if known is None:
        known = cells.members[number, own] = _looked_up(cells, number, own, KEPT)
    return known[:count]


def _looked_up(cells: Cells, number: int, own: int, count: int) -> list[tuple[int, int]]:
    slots, counts = cells.partition.members[number], cells.counts
    found: list[int] = []
    if counts is None:
        found = slots[:count].tolist()
    else:
        # The first few are nearly always in the first slice.
        for begin in range(0, slots.size, SLICE):
            part = slots[begin : begin + SLICE]
            found += part[counts[part] == own].tolist()
            if len(found) >= count:
                break
        del found[count:]
    return list(zip(cells.partition.rank[found].tolist(), found, strict=True))
