"""PreFilter: counts per domain behind a pod's hard constraints, frozen under a cycle."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.errors import FieldViolation, InvalidRequest
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


MAX_COUNTS: Final = 50_000
"""Domains of one answer with counts: those of a hostname constraint at ten times 5,000 nodes."""


def pre_filter(engine: Engine, ask: Ask, *, with_counts: bool = False) -> PreFilterAnswer:
    """Judge what can be judged before any node is looked at.

    Raises:
        As Engine.begin; InvalidRequest for more counts than one answer may have.
    """
    begun = engine.begin(ask)
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
    ask.stages.pre_filter = engine.clock() - started
    # Last: what takes long is begun anew, and would be kept twice.
    resolved = Resolved(cycle, begun.replica, engine.cycles.put(cycle.alone()))
    allowed = (SUCCESS,) * len(cycle.moves) if success else ()
    return PreFilterAnswer(resolved, status, constraints, allowed)


def domain_counts(state: DomainState, topology: Topology) -> tuple[tuple[str, int], ...]:
    """(value, matching pods) of the domains that take part in the minimum, by value as bytes."""
    key = state.constraint.topology_key
    values = topology.domains(key).values
    present = topology.membership(state.constraint.eligibility, key).present
    found = [(values[d], int(state.counts[d])) for d in np.flatnonzero(present).tolist()]
    return tuple(sorted(found, key=lambda item: item[0].encode()))
