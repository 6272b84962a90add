"""ExplainPod: why a pod fits where it does, and what would let it in where it does not.

To explain a pod of one's own state, live or imagined::

    case = EvaluationContext(snapshot, pod, rules, constraints, demand, name=name, uid=uid)
    explanation = explain_at(case, limit=20)

The snapshot must count all groups of the constraints (`Engine.new_cycle` sees to that).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.objects import DO_NOT_SCHEDULE, HOSTNAME_LABEL, ZONE_LABEL
from topospread.kube.selectors import IN
from topospread.kube.violations import invalid
from topospread.service.decisions.evaluate import (
    DEFAULT_TOP_K,
    SCHEDULER_ERROR,
    UNSCHEDULABLE,
    Evaluation,
    check_top_k,
    rank,
)
from topospread.service.decisions.node_fit import NOT_ASKED, Fit
from topospread.service.explaining.constraint_reports import constraint_findings
from topospread.service.explaining.context import EvaluationContext
from topospread.service.explaining.findings import Explanation, WarningFinding, WarningKind
from topospread.service.explaining.suggestions import suggestions
from topospread.spread.constraints import needs_default_selector
from topospread.spread.verdicts import (
    SKIP,
    SUCCESS,
    Code,
    error,
    error_message,
    fit_message,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.kube.affinity import CompiledRequirements, CompiledTerm
    from topospread.kube.objects import SpreadConstraint
    from topospread.service.decisions.engine import Engine, PodWithRequests, ResolvedCycle
    from topospread.service.decisions.request import DecisionRequest
    from topospread.spread.constraints import Constraint
    from topospread.spread.verdicts import Status


DEFAULT_LIMIT: Final = 20
MAX_LIMIT: Final = 1000
"""Domains that are listed of each constraint."""

MAX_LISTED: Final = 150_000
"""Domains of one answer times the reasons that each may have."""


def explain_at(
    context: EvaluationContext, limit: int = DEFAULT_LIMIT, *, advise: bool = True
) -> Explanation:
    """Explain a pod at a snapshot.

    Args:
        context: the pod at its state.
        limit: domains to list of each constraint, those with the fewest pods and with the most.
        advise: try out what would let it in; costs some judgements when it fits nowhere.
    """
    return Explanation(
        status=_status(context),
        nodes=context.snapshot.node_count,
        passing=int(np.count_nonzero(context.passing)),
        fitting=context.fits,
        message="" if context.fits else _message(context),
        refused=tuple(context.refused_by(context.snapshot.alive).most_common()),
        defaulted=context.constraints.defaulted,
        constraints=constraint_findings(context, limit),
        suggestions=suggestions(context) if advise else (),
        warnings=constraint_warnings(context),
        not_modelled=(*NOT_ASKED[context.fit], *context.demand.not_modelled),
    )


def _status(context: EvaluationContext) -> Status:
    if context.constraints.hard.error:
        return error(context.constraints.hard.error)
    return SUCCESS if context.hard else SKIP


def _message(context: EvaluationContext) -> str:
    """kube-scheduler's message: each node with the reasons of the first filter that refuses it."""
    if context.constraints.hard.error and context.snapshot.node_count:
        return error_message(context.constraints.hard.error)
    counts = {status.reasons[0]: nodes for status, nodes in context.refused}
    return fit_message(context.snapshot.node_count, counts)


@dataclass(frozen=True, slots=True, eq=False)
class ExplainResult:
    """An explanation.

    Attributes:
        resolved: the cycle that it is about.
        limit: how many domains it lists of a constraint.
        evaluation: by Filter and the other filters together.
        top_k: how many nodes that names at most.
    """

    resolved: ResolvedCycle
    explanation: Explanation
    limit: int
    evaluation: Evaluation
    top_k: int


def explain(
    engine: Engine,
    request: DecisionRequest,
    pod: PodWithRequests,
    *,
    fit: Fit = Fit.NODE_AND_RESOURCES,
    limit: int = 0,
    top_k: int = 0,
    advise: bool = True,
) -> ExplainResult:
    """Explain a pod at a fresh enough state.

    Args:
        engine: makes the cycle.
        request: without its pod.
        pod: with what it takes.
        fit: what is asked beside spreading.
        limit: domains to list of each constraint; 0 is the default of 20.
        top_k: how many of the best nodes to name; 0 is the default of 5.
        advise: try out what would let it in.

    Raises:
        As Engine.new_cycle; InvalidRequest for the limit and for top_k.
    """
    check_limit(limit)
    check_top_k(engine, top_k)
    limit, top_k = limit or DEFAULT_LIMIT, top_k or DEFAULT_TOP_K
    resolved = engine.new_cycle(request._replace(pod=pod.pod))
    cycle = resolved.cycle
    context = EvaluationContext(
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
    listed = _listed(context, limit)
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
    explanation = explain_at(context, limit, advise=advise)
    evaluation = _evaluation(resolved, context, explanation.message, top_k)
    return ExplainResult(resolved, explanation, limit, evaluation, top_k)


def _evaluation(
    resolved: ResolvedCycle, context: EvaluationContext, message: str, top_k: int
) -> Evaluation:
    """What EvaluatePod would answer if it asked the other filters, too."""
    cycle, snapshot = resolved.cycle, context.snapshot
    failed = cycle.pre_filter_status.code is Code.ERROR
    counts = [] if failed else [(SUCCESS, context.fits), *context.refused]
    verdicts = sorted([each for each in counts if each[1]], key=lambda counted: -counted[1])
    order = snapshot.nodes.order
    fitting = order[context.fitting[order]]
    reason = ""
    if not context.fits:
        reason = SCHEDULER_ERROR if failed and snapshot.node_count else UNSCHEDULABLE
    return Evaluation(
        resolved,
        cycle.pre_filter_status,
        SKIP if failed else cycle.pre_score_status,
        snapshot.node_count,
        context.fits,
        tuple(verdicts),
        rank(cycle, fitting, top_k) if fitting.size else (),
        message,
        reason,
    )


def check_limit(limit: int) -> None:
    """Refuse another number of domains than may be listed of a constraint."""
    if not 0 <= limit <= MAX_LIMIT:
        raise InvalidRequest.of([invalid("domainLimit", limit, f"must be 0 to {MAX_LIMIT}")])


def _listed(context: EvaluationContext, limit: int) -> int:
    """Domains that are listed, each with as many reasons as there may be."""
    domains = sum(
        min(limit, len(context.snapshot.domains(constraint.topology_key).values))
        for constraint in (*context.hard, *context.soft)
    )
    return domains * (4 + len(context.demand.requests))


def constraint_warnings(context: EvaluationContext) -> tuple[WarningFinding, ...]:
    """All warnings: those on the pod first, then those on constraints by index."""
    found = [*_of_pod(context)]
    for hard, constraints in ((True, context.hard), (False, context.soft)):
        for constraint, (index, spec) in zip(constraints, context.specs(hard=hard), strict=False):
            for caution, text in _of_constraint(context, constraint, spec):
                found.append(WarningFinding(caution, index, text))
    return tuple(sorted(found, key=lambda each: each.constraint))


def _of_pod(context: EvaluationContext) -> Iterator[WarningFinding]:
    for unparsed in (context.constraints.hard.error, context.constraints.soft.error):
        if unparsed:
            yield WarningFinding(WarningKind.NOT_PARSED, -1, unparsed)
    if context.bound_to:
        yield WarningFinding(
            WarningKind.ALREADY_BOUND,
            -1,
            f"the pod runs on {context.bound_to} already and is counted there: this says where "
            "another pod like it fits",
        )
    if not context.constraints.defaulted:
        return
    if needs_default_selector(context.pod, context.rules) and not (context.hard or context.soft):
        yield WarningFinding(
            WarningKind.DEFAULTS_WITHOUT_SELECTOR,
            -1,
            "the pod has no constraints, and the profile's defaults do not apply: no Service, "
            "ReplicationController, ReplicaSet or StatefulSet in the state selects it",
        )
    elif context.soft and context.rules.profile.system_defaulted:
        zone = context.snapshot.domains(ZONE_LABEL)
        lacking = int(np.count_nonzero(context.snapshot.alive & (zone.ids < 0)))
        if lacking and context.snapshot.node_count:
            yield WarningFinding(
                WarningKind.DEFAULTS_WITHOUT_ZONE,
                -1,
                f"{lacking} of {context.snapshot.node_count} nodes lack {ZONE_LABEL}: there the "
                f"System defaults spread over {HOSTNAME_LABEL} alone",
            )


def _of_constraint(
    context: EvaluationContext, constraint: Constraint, spec: SpreadConstraint
) -> Iterator[tuple[WarningKind, str]]:
    selector, hard = constraint.group.selector, spec.when_unsatisfiable == DO_NOT_SCHEDULE
    key = constraint.topology_key
    if selector.nothing:
        yield (
            WarningKind.NIL_SELECTOR,
            "no labelSelector: it matches no pod, not even this one, so nothing is spread",
        )
    elif selector.empty:
        yield (
            WarningKind.EMPTY_SELECTOR,
            "an empty labelSelector: kube-scheduler counts no pods for it, so nothing is spread",
        )
    elif not constraint.self_match:
        yield (
            WarningKind.SELF_MISMATCH,
            (
                "the pod does not match its own labelSelector: it follows other pods, and its own "
                "replicas are not spread"
            ),
        )
    for missing in spec.match_label_keys:
        if missing not in context.pod.labels and context.rules.gates.match_label_keys:
            yield (
                WarningKind.LABEL_KEY_MISSING,
                f"matchLabelKeys: the pod has no label {missing}, so that key does nothing",
            )
    if context.snapshot.node_count:
        yield from _of_key(context, key, hard=hard)
    yield from _of_min_domains(context, constraint, spec, hard=hard)


def _of_key(
    context: EvaluationContext, key: str, *, hard: bool
) -> Iterator[tuple[WarningKind, str]]:
    nodes = context.snapshot.node_count
    lacking = int(
        np.count_nonzero(context.snapshot.alive & (context.snapshot.domains(key).ids < 0))
    )
    if lacking == nodes:
        effect = "no node can take the pod" if hard else "no node gets a score"
        yield WarningKind.KEY_ON_NO_NODE, f"no node has the label {key}: {effect}"
    elif lacking and not context.constraints.defaulted:
        effect = "can never take the pod" if hard else "get no score"
        yield (
            WarningKind.KEY_ON_SOME_NODES,
            f"{lacking} of {nodes} nodes lack the label {key} and {effect}",
        )


def _of_min_domains(
    context: EvaluationContext, constraint: Constraint, spec: SpreadConstraint, *, hard: bool
) -> Iterator[tuple[WarningKind, str]]:
    wanted = spec.min_domains
    if wanted is None or wanted <= 1:
        return
    if not hard:
        yield WarningKind.MIN_DOMAINS_IGNORED, "minDomains does nothing with ScheduleAnyway"
        return
    if not context.rules.gates.min_domains:
        yield WarningKind.MIN_DOMAINS_IGNORED, "minDomains does nothing: its feature gate is off"
        return
    key = constraint.topology_key
    requirements = constraint.eligibility.requirements
    named = None if requirements is None else named_values(requirements, key)
    if named is not None and named < wanted:
        yield (
            WarningKind.MIN_DOMAINS_OUT_OF_REACH,
            (
                f"minDomains {wanted} can never be met: the pod's node affinity admits {named} "
                f"value{'s' * (named != 1)} of {key}"
            ),
        )
        return
    column = context.snapshot.domains(key)
    there = np.unique(column.ids[context.snapshot.alive & (column.ids >= 0)]).size
    if there < wanted:
        yield (
            WarningKind.MIN_DOMAINS_OUT_OF_REACH,
            (
                f"minDomains {wanted} is more than the {there} domain{'s' * (there != 1)} of {key} "
                f"that the cluster has"
            ),
        )


def named_values(requirements: CompiledRequirements, key: str) -> int | None:
    """The number of values of a key in a pod's node affinity; None when it names none."""
    if any(pair[0] == key for pair in requirements.node_selector):
        return 1
    if requirements.terms is None:
        return None
    values: set[str] = set()
    for term in requirements.terms:
        here = _values_of(term, key)
        if here is None:
            return None
        values |= here
    return len(values)


def _values_of(term: CompiledTerm, key: str) -> set[str] | None:
    named: list[Sequence[str]] = [
        label.values for label in term.labels if label.key == key and label.operator == IN
    ]
    return set.intersection(*map(set, named)) if named else None
