"""Judging node classes instead of nodes: the same answers from arrays of a few dozen entries.

Nodes that a pod's constraints cannot tell apart are one *class*. Where a constraint spreads over
hostnames, a node's own number of matching pods matters, too; nodes of one class with one such
number are one *cell*. Verdict, score and order are worked out once a cell, and only the best cells
are looked into for names. Small arrays are quick by themselves, and NumPy keeps the interpreter's
lock over them, so that decisions do not wait for other threads.

Not every pod can be judged so: :func:`plan` says None when two groups would have to be counted per
node at once, when nodes without a label share the domain of others, or when there would be too many
classes. The algebra per node (:mod:`~topospread.spread.filtering`,
:mod:`~topospread.spread.scoring`) answers then, and both must agree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.spread.filtering import DomainState, Verdicts, pre_filter
from topospread.spread.scoring import normalize, round_half_away
from topospread.spread.topology import Bools, GroupKey, Ints, Partition, Slots, Traits
from topospread.spread.verdicts import FITS, LABEL_MISSING, TOO_SKEWED, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from topospread.spread.constraints import Constraint, PodConstraints
    from topospread.spread.topology import Topology

MAX_CLASSES: Final = 512
"""Past it, judging classes gains nothing over judging nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class Term:
    """How one constraint sees the classes.

    Attributes:
        constraint: the constraint.
        per_node: whether it looks at a node's own pods (hostnames) instead of a domain's.
        domain: [classes] the domain; −1 without the label. Empty when per node.
        labelled: [classes] whether the nodes have the label.
        eligible: [classes] whether the nodes are counted; only for hard constraints per node.
    """

    constraint: Constraint
    per_node: bool
    domain: Slots
    labelled: Bools
    eligible: Bools


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
    ignored: Bools


@dataclass(frozen=True, slots=True, eq=False)
class Judged:
    """The judgement of all nodes.

    Attributes:
        verdicts: nodes by verdict.
        top: slots, raw and normalized scores of the best nodes, best first.
        filtered_at: when the verdicts were there, on the caller's clock.
    """

    verdicts: Sequence[int]
    top: Sequence[tuple[int, int, int]]
    filtered_at: float


def plan(constraints: PodConstraints, topology: Topology) -> Plan | None:
    """Prepare to judge classes; None when nodes must be judged one by one."""
    hard, soft = constraints.hard.constraints, constraints.soft.constraints
    own_hard = [c for c in hard if topology.domains(c.topology_key).unique]
    own_soft = [c for c in soft if c.is_hostname]
    groups = {c.group for c in (*own_hard, *own_soft) if not c.group.counts_nothing}
    soft_shared = [c for c in soft if not c.is_hostname]
    blank = any("" in topology.domains(c.topology_key).number for c in soft_shared)
    if len(groups) > 1 or (blank and not constraints.require_all_keys):
        return None
    shared = [c for c in hard if c not in own_hard] + soft_shared
    traits = Traits(
        keys=tuple(dict.fromkeys(c.topology_key for c in shared)),
        labels=tuple(dict.fromkeys(c.topology_key for c in (*own_hard, *own_soft))),
        eligibilities=tuple(dict.fromkeys(c.eligibility for c in own_hard)),
    )
    partition = topology.partition(traits)
    if partition.size > MAX_CLASSES:
        return None
    seen = _Seen(partition, traits)
    soft_terms = tuple(seen.term(c, per_node=c.is_hostname) for c in soft)
    ignored = np.zeros(partition.size, dtype=np.bool_)
    if constraints.require_all_keys:
        for term in soft_terms:
            ignored |= ~term.labelled
    return Plan(
        partition,
        tuple(seen.term(c, per_node=c in own_hard) for c in hard),
        soft_terms,
        next(iter(groups), None),
        ignored,
    )


class _Seen:
    """Looks traits up in a partition."""

    def __init__(self, partition: Partition, traits: Traits) -> None:
        self._partition = partition
        self._traits = traits

    def term(self, constraint: Constraint, *, per_node: bool) -> Term:
        key, traits, partition = constraint.topology_key, self._traits, self._partition
        nowhere = np.zeros(0, dtype=np.int32)
        if not per_node:
            domain = partition.domains[traits.keys.index(key)]
            return Term(constraint, False, domain, domain >= 0, domain >= 0)
        labelled = partition.labelled[traits.labels.index(key)]
        eligible = labelled
        if constraint.eligibility in traits.eligibilities:
            eligible = partition.eligible[traits.eligibilities.index(constraint.eligibility)]
        return Term(constraint, True, nowhere, labelled, eligible)


@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """The cells that hold nodes.

    Attributes:
        classes: [cells] the class of each.
        pods: [cells] matching pods on each node of the cell.
        nodes: [cells] how many nodes.
    """

    classes: NDArray[np.intp]
    pods: NDArray[np.intp]
    nodes: Ints

    def only(self, chosen: Bools) -> _Cells:
        return _Cells(self.classes[chosen], self.pods[chosen], self.nodes[chosen])


def judge(plan: Plan, topology: Topology, top_k: int, clock: Callable[[], float]) -> Judged:
    """Judge all nodes by class.

    Args:
        plan: for these constraints and this topology's nodes.
        topology: the state.
        top_k: how many of the best nodes to name.
        clock: seconds.
    """
    cells, spread = _cells(plan, topology)
    states = tuple(
        None if term.per_node else pre_filter((term.constraint,), topology)[0] for term in plan.hard
    )
    verdicts = np.zeros(cells.nodes.size, dtype=np.uint8)
    for term, state in zip(plan.hard, states, strict=True):
        judged = _of_node(term, cells, spread) if state is None else _of_domain(term, state, cells)
        np.copyto(verdicts, judged, where=verdicts == FITS)
    counts = np.bincount(verdicts, weights=cells.nodes, minlength=len(VERDICTS))
    nodes = [int(n) for n in counts.tolist()]
    filtered_at = clock()
    if not nodes[FITS]:
        return Judged(nodes, (), filtered_at)
    fits = cells if nodes[FITS] == sum(nodes) else cells.only(verdicts == FITS)
    return Judged(nodes, _best(plan, states, topology, fits, nodes[FITS], top_k), filtered_at)


def _cells(plan: Plan, topology: Topology) -> tuple[_Cells, Ints]:
    """The cells, and [classes, counts] nodes by class and count."""
    partition = plan.partition
    if plan.group is None:
        every = np.arange(partition.size)
        none = np.zeros(partition.size, dtype=np.intp)
        return _Cells(every, none, partition.nodes), partition.nodes[:, np.newaxis]
    spread = topology.count_of_counts(plan.group, partition)
    classes, pods = np.nonzero(spread)
    return _Cells(classes, pods, spread[classes, pods]), spread


def _of_domain(term: Term, state: DomainState, cells: _Cells) -> Verdicts:
    """[cells] the verdict of a constraint over domains; see filtering.filter_nodes."""
    table = np.empty(state.rejected.size + 1, dtype=np.uint8)
    table[:-1] = state.rejected
    table[-1] = LABEL_MISSING
    return table[term.domain[cells.classes]]


def _of_node(term: Term, cells: _Cells, spread: Ints) -> Verdicts:
    """[cells] the verdict of a constraint for which each node is a domain of its own."""
    constraint = term.constraint
    eligible_nodes = spread[term.eligible].sum(axis=0)
    domains = int(eligible_nodes.sum())
    minimum = 0
    if domains and domains >= constraint.min_domains and not constraint.group.counts_nothing:
        minimum = int(np.argmax(eligible_nodes > 0))
    allowed = constraint.max_skew + minimum - int(constraint.self_match)
    pods = cells.pods
    if constraint.group.counts_nothing:
        pods = np.zeros_like(pods)
    # A node that is not eligible is a domain without pods (upstream fact 10).
    pods = np.where(term.eligible[cells.classes], pods, 0)
    verdicts = np.where(pods > allowed, np.uint8(TOO_SKEWED), np.uint8(FITS))
    verdicts[~term.labelled[cells.classes]] = LABEL_MISSING
    return verdicts


def _best(
    plan: Plan,
    states: Sequence[DomainState | None],
    topology: Topology,
    fits: _Cells,
    feasible: int,
    top_k: int,
) -> list[tuple[int, int, int]]:
    raw = normalized = np.zeros(fits.nodes.size, dtype=np.int64)
    if plan.soft:
        raw, normalized = _scores(plan, topology, fits, feasible)
    order = ((100 - normalized) << 32) + _matching(plan, states, fits)
    return _names(plan, topology, fits, order, raw, normalized, top_k)


def _scores(plan: Plan, topology: Topology, fits: _Cells, feasible: int) -> tuple[Ints, Ints]:
    """[cells] raw and normalized scores; see scoring.score."""
    ignored = plan.ignored[fits.classes]
    counted = ~ignored
    total = np.zeros(fits.nodes.size, dtype=np.float64)
    for term in plan.soft:
        constraint = term.constraint
        nothing = constraint.group.counts_nothing
        least = float(constraint.max_skew - 1)
        labelled = term.labelled[fits.classes]
        if term.per_node:
            weight = math.log(feasible - int(fits.nodes[ignored].sum()) + 2)
            pods = 0.0 if nothing else fits.pods * weight
            total += np.where(labelled, pods + least, 0.0)
            continue
        domains = topology.domains(constraint.topology_key)
        here = term.domain[fits.classes]
        # Under the System defaults a missing label is one value more (upstream fact 26).
        weight = math.log(len(set(here[counted].tolist())) + 2)
        table = np.zeros(len(domains.values) + 1, dtype=np.float64)
        if not nothing:
            counts = topology.domain_counts(
                constraint.group, constraint.eligibility, constraint.topology_key
            )
            table[:-1] = counts * weight
        table[:-1] += least
        total += table[here]
    raw = round_half_away(total)
    raw[ignored] = 0
    return raw, normalize(raw, ignored)


def _matching(plan: Plan, states: Sequence[DomainState | None], fits: _Cells) -> Ints:
    """[cells] matching pods over the hard constraints' domains."""
    total = np.zeros(fits.nodes.size, dtype=np.int64)
    for term, state in zip(plan.hard, states, strict=True):
        if state is not None:
            total += state.counts[term.domain[fits.classes]]
        elif not term.constraint.group.counts_nothing:
            total += np.where(term.eligible[fits.classes], fits.pods, 0)
    return total


def _names(
    plan: Plan,
    topology: Topology,
    fits: _Cells,
    order: Ints,
    raw: Ints,
    normalized: Ints,
    top_k: int,
) -> list[tuple[int, int, int]]:
    """The first nodes by order, and by name within equal order."""
    named: list[tuple[int, int, int]] = []
    ranked = np.argsort(order, kind="stable").tolist()
    orders = order.tolist()
    own = None if plan.group is None else topology.node_counts(plan.group)
    rank = plan.partition.rank
    position = 0
    while position < len(ranked) and len(named) < top_k:
        tied = position
        found: list[tuple[int, int, int]] = []
        while position < len(ranked) and orders[ranked[position]] == orders[ranked[tied]]:
            cell = ranked[position]
            slots = plan.partition.members[fits.classes[cell]]
            if own is not None:
                slots = slots[np.flatnonzero(own[slots] == fits.pods[cell])[:top_k]]
            found += [(int(rank[s]), s, cell) for s in slots[:top_k].tolist()]
            position += 1
        if position - tied > 1:
            found.sort()
        named += [(s, int(raw[c]), int(normalized[c])) for _, s, c in found]
    return named[:top_k]
