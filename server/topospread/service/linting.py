"""Lints a workload with what a cluster's state tells of the pod that it would make."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.service.decisions.node_fit import Fit
from topospread.service.explaining.explain import explain
from topospread.spread.linting.engine import Knowledge, lint
from topospread.spread.linting.workloads import DomainNumbers

if TYPE_CHECKING:
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.request import DecisionRequest
    from topospread.spread.linting.catalog import LintFinding
    from topospread.spread.linting.workloads import LintedWorkload


def lint_at(
    engine: Engine, request: DecisionRequest, workload: LintedWorkload, pod: bytes
) -> list[LintFinding]:
    """All findings on a workload, with what the newest state at hand tells.

    Args:
        engine: judges the pod.
        request: without its pod.
        workload: that is linted.
        pod: that it would make, as the bytes of a v1.Pod.

    Raises:
        As explain.
    """
    asked = engine.with_requests(request.cluster, pod)
    found = explain(engine, request, asked, fit=Fit.NODE, limit=1, advise=False)
    explanation = found.explanation
    numbers = {
        each.index: DomainNumbers(each.eligible_domains, each.usable_domains, each.lowest)
        for each in explanation.constraints
    }
    profile = found.resolved.cycle.rules.profile
    return lint(
        workload,
        Knowledge({} if explanation.defaulted else numbers, explanation.findings, profile.defaults),
    )
