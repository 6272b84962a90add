"""ExplainPod: why a pod fits where it does, and what would let it in where it does not.

To explain a pod at one's own state, live or imagined: `explain_at(EvaluationContext(...))`. Its
snapshot must count all groups of the constraints (`Engine.new_cycle` sees to that).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.codec.stored_pods import unscheduled_condition
from topospread.errors import FieldViolation, InvalidRequest
from topospread.service.decisions.evaluate import (
    DEFAULT_TOP_K,
    check_top_k,
    rank,
    summed_up,
)
from topospread.service.decisions.pods import JudgedPod
from topospread.service.explaining.capacities import capacities_at
from topospread.service.explaining.cause import cause_text
from topospread.service.explaining.condition import differing_condition
from topospread.service.explaining.constraint_reports import (
    explain_constraint,
    explained_constraints,
)
from topospread.service.explaining.context import EvaluationContext, check_limit
from topospread.service.explaining.counted_pods import (
    NO_OWNER,
    Owner,
    Sharings,
    owner_of,
    owner_of_class,
)
from topospread.service.explaining.findings import findings_of
from topospread.service.explaining.suggestions import suggestions
from topospread.service.fit.question import Fit
from topospread.service.messages import meta_of, rollout_outcome_message, verdict_message
from topospread.service.rollouts.judged import rollout_at
from topospread.spread.verdicts import (
    SKIP,
    SUCCESS,
    Code,
    error,
)
from topospread_proto.v1 import explanation_pb2 as pb
from topospread_proto.v1.decision_service_pb2 import ExplainPodResponse

if TYPE_CHECKING:
    from topospread.kube.rollouts import Rollout
    from topospread.kube.selectors import Selector
    from topospread.service.decisions.engine import Engine, PodWithRequests, ResolvedCycle
    from topospread.service.decisions.evaluate import Evaluation
    from topospread.service.decisions.request import DecisionRequest
    from topospread.spread.verdicts import Status


DEFAULT_LIMIT: Final = 20
"""Domains that are listed of each constraint."""

MAX_LISTED: Final = 150_000
"""Domains of one answer times the reasons that each may have."""


def explain_at(
    context: EvaluationContext, limit: int = DEFAULT_LIMIT, *, advise: bool = True
) -> pb.Explanation:
    """Explain a pod at a snapshot.

    Args:
        context: the pod at its state.
        limit: domains to list of each constraint, those with the fewest pods and with the most.
        advise: try out what would let it in; costs some judgements when it fits nowhere.
    """
    constraints = [
        explain_constraint(context, each, limit) for each in explained_constraints(context)
    ]
    return pb.Explanation(
        verdict=verdict_message(_status(context)),
        node_count=context.snapshot.node_count,
        feasible_node_count=int(np.count_nonzero(context.passing)),
        fitting_node_count=context.fits,
        message="" if context.fits else context.message,
        node_reasons=[
            pb.NodeReason(reason=reason, node_count=nodes)
            for reason, nodes in context.refused_by(context.snapshot.alive).most_common()
        ],
        defaulted=context.constraints.defaulted,
        constraints=constraints,
        suggestions=suggestions(context) if advise else (),
        findings=findings_of(context),
        not_modelled=context.not_looked_at,
        cause=cause_text(context, constraints),
    )


def _status(context: EvaluationContext) -> Status:
    if context.constraints.hard.error:
        return error(context.constraints.hard.error)
    return SUCCESS if context.hard else SKIP


class ExplainResult(NamedTuple):
    """An answer without its evaluation, that, and the cycle that both are about."""

    resolved: ResolvedCycle
    response: ExplainPodResponse
    evaluation: Evaluation


def explain(
    engine: Engine,
    request: DecisionRequest,
    pod: PodWithRequests,
    *,
    fit: Fit = Fit.ALL,
    limit: int = 0,
    top_k: int = 0,
    advise: bool = True,
    replicas: Selector | None = None,
    workload: Owner = NO_OWNER,
    rollout: Rollout | None = None,
    wanted: int | None = None,
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
        replicas: selects the pods of its workload; asks for their capacities.
        workload: what would control a pod that has no controller.
        rollout: how its workload replaces the pods that `replicas` selects; asks what becomes of
            it.
        wanted: how many replicas that is to have; None for as many as there are.

    Raises:
        As Engine.new_cycle; InvalidRequest for the limit and for top_k.
    """
    check_limit(limit)
    check_top_k(engine, top_k)
    limit = limit or DEFAULT_LIMIT
    resolved = engine.new_cycle(request._replace(pod=pod.pod, demand=pod.demand))
    cycle = resolved.cycle
    context = EvaluationContext.of(cycle, fit, pod.node)
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
    _add_counted(resolved, context, explanation, workload)
    condition = differing_condition(
        unscheduled_condition(pod.encoded), explanation.message, gated=pod.demand.gated
    )
    if condition is not None:
        explanation.scheduled_condition.CopyFrom(condition)
    response = ExplainPodResponse(
        meta=meta_of(cycle.view, resolved.replica, cycle.rules.version),
        explanation=explanation,
        domain_limit=limit,
    )
    if replicas is not None:
        response.capacities.extend(capacities_at(resolved, context, replicas))
        if rollout is not None:
            judged = JudgedPod(pod.pod._replace(uid=""), cycle.rules, pod.demand)
            outcome = rollout_at(
                engine, resolved.replica, judged, pod.encoded, replicas, rollout, wanted
            )
            if outcome is not None:
                response.rollout.CopyFrom(rollout_outcome_message(outcome))
    evaluation = _evaluation(resolved, context, explanation.message, top_k)
    return ExplainResult(resolved, response, evaluation)


def _add_counted(
    resolved: ResolvedCycle,
    context: EvaluationContext,
    explanation: pb.Explanation,
    workload: Owner,
) -> None:
    """Say of each constraint whose pods it counts."""
    pod, known = context.pod, context.snapshot.controllers_in(context.pod.namespace)
    sharings = Sharings(
        context.snapshot,
        resolved.replica.members,
        lambda each: owner_of_class(each, known),
        checkpoint,
    )
    owner = workload if pod.owner is None else owner_of(pod.owner, pod.labels, known)
    for each, found in zip(explained_constraints(context), explanation.constraints, strict=True):
        sharing = sharings.of(each.constraint, owner)
        if sharing is not None:
            found.counted.CopyFrom(sharing.message)


def _evaluation(
    resolved: ResolvedCycle, context: EvaluationContext, message: str, top_k: int
) -> Evaluation:
    """What EvaluatePod would answer if it asked the other filters, too."""
    cycle, nodes = resolved.cycle, context.snapshot.nodes
    verdicts: list[tuple[Status, int]] = []
    if cycle.pre_filter_status.code is not Code.ERROR:
        verdicts = [each for each in ((SUCCESS, context.fits), *context.refused) if each[1]]
    fitting = nodes.order[context.fitting[nodes.order]]
    top = rank(cycle, fitting, top_k or DEFAULT_TOP_K) if fitting.size else ()
    return summed_up(resolved, context.snapshot.node_count, context.fits, verdicts, top, message)


def _listed(context: EvaluationContext, limit: int) -> int:
    """Domains that are listed, each with as many reasons as there may be."""
    domains = sum(
        min(limit, len(context.snapshot.domains(constraint.topology_key).values))
        for constraint in (*context.hard, *context.soft)
    )
    return domains * (4 + len(context.demand.requests))
