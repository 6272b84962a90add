"""PreFilter: counts per domain behind a pod's hard constraints, frozen under a cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topospread.service.engine import Engine, Resolved
from topospread.spread.verdicts import SUCCESS, Code, Status

if TYPE_CHECKING:
    from topospread.service.asks import Ask
    from topospread.spread.filtering import DomainState
    from topospread.spread.topology import Topology


@dataclass(frozen=True, slots=True)
class ConstraintCounts:
    """One hard constraint.

    Attributes:
        state: what the algebra knows of it.
        domains: (value, matching pods) of the eligible domains, by value as bytes; only when asked
            for.
    """

    state: DomainState
    domains: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PreFilterAnswer:
    """Status, the cycle's name, and what is known of each hard constraint.

    Attributes:
        extensions: one status for each what-if, additions first; none when PreFilter is not a
            Success.
    """

    resolved: Resolved
    status: Status
    constraints: tuple[ConstraintCounts, ...]
    extensions: tuple[Status, ...]


def pre_filter(engine: Engine, ask: Ask, *, with_counts: bool = False) -> PreFilterAnswer:
    """Judge what can be judged before any node is looked at.

    Raises:
        As Engine.begin.
    """
    begun = engine.begin(ask)
    cycle = begun.cycle
    resolved = Resolved(cycle, begun.replica, engine.cycles.put(cycle))
    status = cycle.pre_filter_status
    if status.code is not Code.SUCCESS:
        return PreFilterAnswer(resolved, status, (), ())
    snapshot = cycle.view.snapshot
    started = engine.clock()
    constraints = tuple(
        ConstraintCounts(state, domain_counts(state, snapshot) if with_counts else ())
        for state in cycle.states
    )
    ask.stages.pre_filter = engine.clock() - started
    return PreFilterAnswer(resolved, status, constraints, (SUCCESS,) * len(cycle.moves))


def domain_counts(state: DomainState, topology: Topology) -> tuple[tuple[str, int], ...]:
    """(value, matching pods) of the domains that take part in the minimum, by value as bytes."""
    key = state.constraint.topology_key
    values = topology.domains(key).values
    present = topology.membership(state.constraint.eligibility, key).present
    found = [(values[d], int(state.counts[d])) for d in np.flatnonzero(present).tolist()]
    return tuple(sorted(found, key=lambda item: item[0].encode()))
