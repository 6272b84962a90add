"""Explain: why a pod fits where it does, and what would let it in where it does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread.errors import InvalidRequest
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
    """An explanation and the cycle that it is about."""

    resolved: Resolved
    explanation: Explanation


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
    if limit > MAX_LIMIT:
        raise InvalidRequest.of([invalid("domainLimit", limit, f"must be at most {MAX_LIMIT}")])
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
    return Explained(resolved, explained(case, limit or DEFAULT_LIMIT))
