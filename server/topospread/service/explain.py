"""ExplainPod: why a pod fits where it does, and what would let it in where it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.violations import invalid
from topospread.service.explaining.case import Case
from topospread.service.explaining.explain import DEFAULT_LIMIT, MAX_LIMIT, explained
from topospread.service.fit import Fit

if TYPE_CHECKING:
    from topospread.service.asks import Ask
    from topospread.service.engine import Demanding, Engine, Resolved
    from topospread.service.explaining.findings import Explanation


@dataclass(frozen=True, slots=True, eq=False)
class Explained:
    """An explanation, the cycle that it is about, and how many domains it lists of a constraint."""

    resolved: Resolved
    explanation: Explanation
    limit: int


MAX_LISTED: Final = 150_000
"""Domains of one answer times the reasons that each may have."""


def explain(
    engine: Engine,
    ask: Ask,
    pod: Demanding,
    *,
    fit: Fit = Fit.NODE_AND_RESOURCES,
    limit: int = 0,
) -> Explained:
    """Explain a pod at a fresh enough state.

    Args:
        engine: makes the cycle.
        ask: all but its subject.
        pod: with what it takes.
        fit: what is asked beside spreading.
        limit: domains to list of each constraint; 0 is the default of 20.

    Raises:
        As Engine.begin; InvalidRequest for the limit.
    """
    check_limit(limit)
    limit = limit or DEFAULT_LIMIT
    ask.subject = pod.pod
    resolved = engine.begin(ask)
    cycle = resolved.cycle
    case = Case(
        cycle.view.snapshot,
        cycle.pod,
        cycle.rules,
        cycle.constraints,
        pod.demand,
        fit,
        cycle.name,
        cycle.uid,
        pod.node,
    )
    listed = _listed(case, limit)
    if listed > MAX_LISTED:
        raise InvalidRequest.of(
            [
                FieldViolation(
                    "domainLimit",
                    f"the domains of all constraints with their reasons are {listed}, at most "
                    f"{MAX_LISTED}: ask for fewer domains",
                    "Too many",
                )
            ]
        )
    return Explained(resolved, explained(case, limit), limit)


def check_limit(limit: int) -> None:
    """Refuse another number of domains than may be listed of a constraint."""
    if not 0 <= limit <= MAX_LIMIT:
        raise InvalidRequest.of([invalid("domainLimit", limit, f"must be 0 to {MAX_LIMIT}")])


def _listed(case: Case, limit: int) -> int:
    """Domains that are listed, each with as many reasons as there may be."""
    domains = sum(
        min(limit, len(case.snapshot.domains(constraint.topology_key).values))
        for constraint in (*case.hard, *case.soft)
    )
    return domains * (4 + len(case.demand.requests))
