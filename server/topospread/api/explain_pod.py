"""DecisionService.ExplainPod: decode, call the use case, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.api.decode import consistency_of, fit_of, settings_of, strict
from topospread.api.envelope import pod_of, raise_all_violations
from topospread.calls.call import Call, Method, Unary
from topospread.errors import InvalidRequest
from topospread.generated.internal.v1 import frames_pb2
from topospread.service.decisions.node_fit import Fit
from topospread.service.decisions.request import DEFAULT_CLUSTER, NO_OVERRIDE, DecisionRequest
from topospread.service.explaining.explain import ExplainResult, explain
from topospread.service.explaining.reports import (
    ChangeKind,
    ExclusionReason,
    MinimumRule,
)
from topospread.service.messages import constraint_message, meta_of, verdict_message
from topospread.spread.findings import FindingCode
from topospread_proto.v1 import decision_service_pb2
from topospread_proto.v1 import explanation_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread.api.decision import DecisionMetrics
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.evaluate import Evaluation
    from topospread.service.explaining.reports import (
        Change,
        ConstraintReport,
        DomainReport,
        Explanation,
        Reasons,
    )
    from topospread.spread.findings import Finding

MINIMA: Final = {
    MinimumRule.LOWEST: pb.MINIMUM_REASON_LOWEST,
    MinimumRule.FEW_DOMAINS: pb.MINIMUM_REASON_FEW_DOMAINS,
    MinimumRule.NO_DOMAINS: pb.MINIMUM_REASON_NO_DOMAINS,
}
_FINDINGS: Final = {code: pb.FindingCode.Value(f"FINDING_CODE_{code.name}") for code in FindingCode}
_EXCLUDED: Final = {
    ExclusionReason.KEY_MISSING: "missing_key_count",
    ExclusionReason.AFFINITY: "affinity_count",
    ExclusionReason.CORDONED: "cordoned_count",
    ExclusionReason.TAINTED: "tainted_count",
}


class ExplainPodServicer:
    """The method ExplainPod; raises what the use case raises."""

    def __init__(self, engine: Engine, metrics: DecisionMetrics) -> None:
        self._engine = engine
        self._metrics = metrics

    def methods(self) -> dict[str, Method]:
        """The method by its name."""
        return {"ExplainPod": Unary(frames_pb2.ExplainPodFrame, self.explain_pod)}

    def explain_pod(
        self, request: frames_pb2.ExplainPodFrame, call: Call
    ) -> decision_service_pb2.ExplainPodResponse:
        """DecisionService.ExplainPod."""
        try:
            explained = self._explained(request, call)
        except InvalidRequest as wrong:
            raise_all_violations(wrong, request, self._engine)
            raise
        self._metrics.explained(explained, call)
        return decision_service_pb2.ExplainPodResponse(
            meta=meta_of(explained.resolved.cycle.view, explained.resolved.replica),
            explanation=explanation_message(explained.explanation),
            domain_limit=explained.limit,
            evaluation=evaluation_message(explained.evaluation, explained.top_k),
        )

    def _explained(self, request: frames_pb2.ExplainPodFrame, call: Call) -> ExplainResult:
        fit = fit_of(request.fit) or Fit.NODE_AND_RESOURCES
        decision = DecisionRequest(
            deadline=call.deadline,
            cluster=request.cluster or DEFAULT_CLUSTER,
            settings=settings_of(request.settings) if request.HasField("settings") else NO_OVERRIDE,
            consistency=consistency_of(request.consistency),
            validate=strict(request.validation),
        )
        pod = self._engine.with_requests(decision.cluster, pod_of(request))
        return explain(
            self._engine,
            decision,
            pod,
            fit=fit,
            limit=request.domain_limit,
            top_k=request.top_k,
            advise=not request.skip_suggestions,
        )


def evaluation_message(found: Evaluation, top_k: int) -> decision_service_pb2.EvaluatePodResponse:
    """Encode an evaluation that is part of another answer, which has the metadata."""
    return decision_service_pb2.EvaluatePodResponse(
        pre_filter_verdict=verdict_message(found.pre_filter),
        pre_score_verdict=verdict_message(found.pre_score),
        node_count=found.nodes,
        feasible_node_count=found.feasible,
        verdict_counts=[
            decision_service_pb2.VerdictCount(verdict=verdict_message(status), node_count=nodes)
            for status, nodes in found.verdicts
        ],
        top_nodes=[
            decision_service_pb2.NodeScore(node=each.name, raw=each.raw, normalized=each.normalized)
            for each in found.top
        ],
        message=found.message,
        reason=found.reason,
        top_k=top_k,
    )


def explanation_message(found: Explanation) -> pb.Explanation:
    """Encode an explanation."""
    return pb.Explanation(
        verdict=verdict_message(found.status),
        node_count=found.nodes,
        feasible_node_count=found.passing,
        fitting_node_count=found.fitting,
        message=found.message,
        node_reasons=_reasons(found.refused),
        defaulted=found.defaulted,
        constraints=map(_constraint, found.constraints),
        suggestions=[
            pb.Suggestion(
                changes=map(_change, each.changes),
                text=each.text,
                fitting_node_count=each.fitting,
            )
            for each in found.suggestions
        ],
        findings=map(finding_message, found.findings),
        not_modelled=found.not_modelled,
    )


def _constraint(found: ConstraintReport) -> pb.ConstraintExplanation:
    return pb.ConstraintExplanation(
        index=found.index,
        constraint=constraint_message(found.constraint),
        self_match=found.self_match,
        keyless_node_count=found.nodes_without_key,
        eligible_node_count=found.eligible,
        excluded=_excluded(found.excluded),
        domain_count=found.domains,
        eligible_domain_count=found.eligible_domains,
        minimum=pb.MinimumExplanation(
            value=found.minimum,
            reason=MINIMA[found.minimum_because],
            lowest_pod_count=found.lowest,
            lowest_domain_count=found.lowest_domains,
            note=found.note,
        ),
        rejected_domain_count=found.rejected_domains,
        rejected_node_count=found.rejected_nodes,
        rejected_alone_node_count=found.rejected_alone,
        weight=found.weight,
        domains=map(domain_message, found.listed),
        leading_domain_count=found.shown_first,
        unlisted_domain_count=found.unlisted,
        usable_domain_count=found.usable_domains,
    )


def finding_message(found: Finding) -> pb.Finding:
    """Encode a finding."""
    return pb.Finding(
        code=_FINDINGS[found.code], constraint_index=_index(found.constraint), text=found.text
    )


def domain_message(found: DomainReport) -> pb.DomainExplanation:
    """Encode the report about one domain."""
    scores = found.scores
    return pb.DomainExplanation(
        value=found.value,
        pod_count=found.pods,
        reserved_pod_count=found.reserved,
        uncounted_pod_count=found.not_counted,
        node_count=found.nodes,
        eligible_node_count=found.eligible,
        excluded=_excluded(found.excluded),
        node_reasons=_reasons(found.refused),
        usable_node_count=found.usable,
        fitting_node_count=found.fitting,
        skew=found.skew,
        holds_minimum=found.holds_minimum,
        allowed=found.allowed,
        scores=None if scores is None else pb.ScoreRange(lowest=scores[0], highest=scores[1]),
    )


def _change(change: Change) -> pb.SuggestedChange:
    message = pb.SuggestedChange(
        constraint_index=_index(change.constraint), topology_key=change.topology_key
    )
    match change.kind:
        case ChangeKind.MAX_SKEW:
            message.set_max_skew.max_skew = change.number
        case ChangeKind.MIN_DOMAINS:
            message.set_min_domains.min_domains = change.number
        case ChangeKind.MORE_DOMAINS:
            message.add_domains.domain_count = change.number
        case ChangeKind.FEWER_PODS:
            message.remove_pods.domain = change.domain
            message.remove_pods.pod_count = change.number
        case ChangeKind.TAINTS_POLICY:
            message.set_node_taints_policy.node_taints_policy = change.value
        case ChangeKind.AFFINITY_POLICY:
            message.set_node_affinity_policy.node_affinity_policy = change.value
        case ChangeKind.LABEL_NODES:
            message.label_nodes.node_count = change.number
            message.label_nodes.domain = change.domain
        case ChangeKind.SCHEDULE_ANYWAY:
            message.set_when_unsatisfiable.when_unsatisfiable = change.value
        case ChangeKind.UNCORDON:
            message.uncordon_nodes.node_count = change.number
        case ChangeKind.TOLERATE:
            message.add_toleration.taint = change.value
    return message


def _excluded(found: Iterable[tuple[ExclusionReason, int]]) -> pb.ExcludedNodes:
    return pb.ExcludedNodes(**{_EXCLUDED[reason]: nodes for reason, nodes in found})


def _reasons(reasons: Reasons) -> Iterable[pb.NodeReason]:
    return [pb.NodeReason(reason=reason, node_count=nodes) for reason, nodes in reasons]


def _index(index: int) -> int | None:
    return None if index < 0 else index
