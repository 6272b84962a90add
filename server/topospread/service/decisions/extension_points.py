"""PreFilter, Filter and Score, and the selection of nodes that their answers are about."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.errors import FieldViolation, InvalidRequest, NodeTableChanged
from topospread.kube.violations import invalid
from topospread.service.decisions.engine import Engine, ResolvedCycle
from topospread.spread.filtering import pre_filter as domain_states
from topospread.spread.verdicts import SUCCESS, UNKNOWN_NODE, Code, Status

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from topospread.index.nodes import NodeTable
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.request import DecisionRequest, NodeSelection
    from topospread.spread.constraints import Constraint, PodConstraints
    from topospread.spread.filtering import DomainState, Verdicts
    from topospread.spread.per_node import CellScores
    from topospread.spread.scoring import Scores
    from topospread.spread.topology import Topology


_NAMED_IN_ERRORS = 10

MAX_COUNTS: Final = 50_000
"""Domains of one answer with counts: those of a hostname constraint at ten times 5,000 nodes."""


@dataclass(frozen=True, slots=True, eq=False)
class SelectedNodes:
    """The selected nodes, as slots.

    Attributes:
        slots: [selection] −1 for names that are not in the state.
        choice: the caller's own order, which answers keep; None: the node table's.
    """

    slots: NDArray[np.intp]
    choice: NodeSelection | None


def select(nodes: NodeTable, choice: NodeSelection | None) -> SelectedNodes:
    """The nodes a caller chose; all, in the table's order, when it did not.

    Raises:
        NodeTableChanged: positions in a table that is not the current one.
        InvalidRequest: a position outside the table.
    """
    if choice is None:
        return SelectedNodes(nodes.order, None)
    if not choice.indices:
        return SelectedNodes(nodes.slots(choice.names), choice)
    if choice.node_table != nodes.id:
        raise NodeTableChanged(
            "indices refer to another node table: fetch the current one with GetNodeTable", nodes.id
        )
    positions = np.array(choice.indices, dtype=np.int64)
    outside = np.flatnonzero((positions < 0) | (positions >= nodes.count)).tolist()
    if outside:
        text = f"the table has {nodes.count} nodes"
        raise InvalidRequest.of(
            [
                invalid(f"candidates.indices.indices[{at}]", choice.indices[at], text)
                for at in outside[:_NAMED_IN_ERRORS]
            ]
        )
    return SelectedNodes(nodes.order[positions], choice)


def select_distinct(nodes: NodeTable, choice: NodeSelection | None) -> SelectedNodes:
    """A choice in which no node of the state is named twice; some names may not be in the state."""
    selected = select(nodes, choice)
    if choice is not None:
        there = selected.slots[selected.slots >= 0]
        if int(np.count_nonzero(_marks(nodes, there))) != there.size:
            raise InvalidRequest.at("candidates", "each node may be given once", "Duplicate value")
    return selected


def select_known(nodes: NodeTable, choice: NodeSelection) -> SelectedNodes:
    """A choice in which every node is known and named once.

    Raises:
        InvalidRequest: naming the first few that are not. And what :func:`select` raises.
    """
    selected = select_distinct(nodes, choice)
    if (selected.slots < 0).any():
        unknown_names = [name for name in choice.names if nodes.slot(name) < 0]
        text = f"not in the cluster's state: {_some(unknown_names)}"
        raise InvalidRequest.at("candidates.names.names", text, "Not found")
    return selected


def in_name_order(nodes: NodeTable, slots: NDArray[np.intp]) -> NDArray[np.intp]:
    """Slots in the order of the node names as bytes, each once."""
    return nodes.order[_marks(nodes, slots)[nodes.order]]


def _marks(nodes: NodeTable, slots: NDArray[np.intp]) -> NDArray[np.bool_]:
    marks = np.zeros(nodes.capacity, dtype=np.bool_)
    marks[slots] = True
    return marks


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(name[:253] for name in names[:_NAMED_IN_ERRORS])
    more = len(names) - _NAMED_IN_ERRORS
    return f"{shown} … and {more} more" if more > 0 else shown


@dataclass(frozen=True, slots=True)
class ConstraintCounts:
    """The counts of one hard constraint.

    Attributes:
        domains: (value, matching pods) of the eligible domains, by value as bytes; only when asked
            for.
    """

    state: DomainState
    domains: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PreFilterResult:
    """Status, the cycle's name, and what is known of each hard constraint.

    Attributes:
        extensions: one status for each what-if, additions first; none when PreFilter is not a
            Success.
    """

    resolved: ResolvedCycle
    status: Status
    constraints: tuple[ConstraintCounts, ...]
    extensions: tuple[Status, ...]


def pre_filter(
    engine: Engine, request: DecisionRequest, *, with_counts: bool = False
) -> PreFilterResult:
    """PreFilter: count the pods in each domain, and keep the cycle for Filter and Score.

    Raises:
        As Engine.new_cycle; InvalidRequest for more counts than one answer may have.
    """
    begun = engine.new_cycle(request)
    cycle = begun.cycle
    status = cycle.pre_filter_status
    success = status.code is Code.SUCCESS
    listed = sum(state.eligible_domains for state in cycle.states) if success and with_counts else 0
    if listed > MAX_COUNTS:
        raise InvalidRequest.of(
            [FieldViolation("withCounts", f"{listed} domains, at most {MAX_COUNTS}", "Too many")]
        )
    snapshot = cycle.view.snapshot
    started = engine.clock()
    constraints = tuple(
        ConstraintCounts(state, domain_counts(state, snapshot) if with_counts else ())
        for state in (cycle.states if success else ())
    )
    begun.timings.pre_filter = engine.clock() - started
    # Last: what takes long is begun anew, and would be kept twice.
    identifier = engine.cycles.put(cycle.alone())
    resolved = ResolvedCycle(cycle, begun.replica, begun.timings, identifier)
    allowed = (SUCCESS,) * len(cycle.moves) if success else ()
    return PreFilterResult(resolved, status, constraints, allowed)


def domain_counts(state: DomainState, topology: Topology) -> tuple[tuple[str, int], ...]:
    """(value, matching pods) of the domains that take part in the minimum, by value as bytes."""
    key = state.constraint.topology_key
    values = topology.domains(key).values
    present = topology.membership(state.constraint.eligibility, key).present
    found = [(values[d], int(state.counts[d])) for d in np.flatnonzero(present).tolist()]
    return tuple(sorted(found, key=lambda item: item[0].encode()))


@dataclass(frozen=True, slots=True)
class Spread:
    """Matching pods of one constraint at one state.

    Attributes:
        counts: by value of the topology key, for each domain with an eligible node.
        skew: pods of the fullest domain above the global minimum, which is 0 when there are fewer
            domains than minDomains.
    """

    counts: Mapping[str, int]
    skew: int


def spread(constraint: Constraint, topology: Topology) -> Spread:
    """The counts and the skew of a constraint at a state that counts its group."""
    (state,) = domain_states((constraint,), topology)
    present = topology.membership(constraint.eligibility, constraint.topology_key).present
    fullest = int(state.counts[present].max()) if np.any(present) else 0
    counts = dict(domain_counts(state, topology))
    return Spread(counts, fullest - state.global_minimum)


def all_constraints(constraints: PodConstraints) -> Sequence[Constraint]:
    """The hard constraints of a pod and the soft ones."""
    return (*constraints.hard.constraints, *constraints.soft.constraints)


@dataclass(frozen=True, slots=True, eq=False)
class FilterResult:
    """Verdicts, aligned with the selection.

    Attributes:
        status: PreFilter's; after an Error there are no verdicts.
        verdicts: [selection] positions in :data:`~topospread.spread.verdicts.VERDICTS`.
    """

    resolved: ResolvedCycle
    status: Status
    selected: SelectedNodes
    verdicts: Verdicts


def filter_(engine: Engine, request: DecisionRequest) -> FilterResult:
    """Filter: one verdict for each selected node.

    Raises:
        As Engine.resume_cycle; NodeTableChanged and InvalidRequest for the selection.
    """
    resolved = engine.resume_cycle(request)
    cycle = resolved.cycle
    selected = select(cycle.view.snapshot.nodes, request.nodes)
    started = engine.clock()
    verdicts = verdicts_on(cycle, selected)
    resolved.timings.filter = engine.clock() - started
    return FilterResult(resolved, cycle.pre_filter_status, selected, verdicts)


def verdicts_on(cycle: Cycle, selected: SelectedNodes) -> Verdicts:
    """[selection] the verdicts of a cycle; names that are not in the state get UNKNOWN_NODE."""
    if cycle.pre_filter_status.code is Code.ERROR:
        return np.zeros(0, dtype=np.uint8)
    if selected.choice is None:
        return cycle.verdicts_in_order
    # An extra last entry answers for slot −1.
    return np.append(cycle.verdicts, np.uint8(UNKNOWN_NODE))[selected.slots]


@dataclass(frozen=True, slots=True, eq=False)
class ScoreResult:
    """Scores, aligned with the selection, or else with the feasible nodes in the table's order.

    Attributes:
        status: PreScore's, or PreFilter's when that was an Error; scores come only with Success.
        positions: [selection] positions in the node table; None when the caller made the selection.
    """

    resolved: ResolvedCycle
    status: Status
    positions: NDArray[np.intp] | None
    scores: Scores | CellScores | None


def score(engine: Engine, request: DecisionRequest) -> ScoreResult:
    """Score: raw and normalized scores of nodes that pass Filter.

    Raises:
        As Engine.resume_cycle; InvalidRequest when a chosen node is not in the state, or is given
            twice.
    """
    resolved = engine.resume_cycle(request)
    cycle = resolved.cycle
    status = cycle.pre_score_status
    if cycle.pre_filter_status.code is Code.ERROR:
        status = cycle.pre_filter_status
    started = engine.clock()
    positions: NDArray[np.intp] | None = None
    scores: Scores | CellScores | None = None
    if request.nodes is None:
        positions, scores = cycle.feasible_and_scores()
    else:
        slots = select_known(cycle.view.snapshot.nodes, request.nodes).slots
        if status.code is Code.SUCCESS and slots.size:
            scores = cycle.scores(slots)
    if scores is not None:
        resolved.timings.score = engine.clock() - started
    return ScoreResult(resolved, status, positions, scores)
