"""SpreadEngine.Explain: decode, call the use case, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.service.asks import DEFAULT_CLUSTER, NO_SETTINGS, Ask
from topospread.service.explain import explain
from topospread.service.explaining.findings import Caution, ChangeKind, Exclusion, Minimum
from topospread.service.fit import Fit
from topospread.transports.grpc.calls import Call, Method, Unary
from topospread.transports.grpc.decode import consistency_of, fit_of, pod_of, settings_of
from topospread.transports.grpc.encode import stale_for, status_message
from topospread_proto.v1 import explain_pb2 as pb
from topospread_proto.v1 import frames_pb2, spread_engine_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread.service.engine import Engine
    from topospread.service.explaining.findings import (
        Change,
        ConstraintFinding,
        DomainFinding,
        Explanation,
        Reasons,
    )
    from topospread.transports.grpc.observe import Observer

_MINIMA: Final = {
    Minimum.LOWEST: pb.MINIMUM_REASON_LOWEST,
    Minimum.FEW_DOMAINS: pb.MINIMUM_REASON_FEW_DOMAINS,
    Minimum.NO_DOMAINS: pb.MINIMUM_REASON_NO_DOMAINS,
}
_CHANGES: Final = {kind: pb.ChangeKind.Value(f"CHANGE_KIND_{kind.name}") for kind in ChangeKind}
_WARNINGS: Final = {kind: pb.WarningKind.Value(f"WARNING_KIND_{kind.name}") for kind in Caution}
_EXCLUDED: Final = {
    Exclusion.KEY_MISSING: "missing_key",
    Exclusion.AFFINITY: "affinity",
    Exclusion.CORDONED: "cordoned",
    Exclusion.TAINTED: "tainted",
}


class ExplainServicer:
    """Takes a request and a call, and raises what the use case raises."""

    def __init__(self, engine: Engine, observer: Observer) -> None:
        self._engine = engine
        self._observer = observer

    def methods(self) -> dict[str, tuple[Method, str]]:
        """The method by name, with its pool: to explain takes many times what to decide takes."""
        return {"Explain": (Unary(frames_pb2.ExplainFrame, self.explain), "planner")}

    def explain(
        self, request: frames_pb2.ExplainFrame, call: Call
    ) -> spread_engine_pb2.ExplainResponse:
        """SpreadEngine.Explain."""
        fit = fit_of(request.fit) or Fit.NODE_AND_RESOURCES
        ask = Ask(
            deadline=call.deadline,
            cluster=request.cluster or DEFAULT_CLUSTER,
            settings=settings_of(request.settings) if request.HasField("settings") else NO_SETTINGS,
            consistency=consistency_of(request.consistency),
            validate=request.validate,
        )
        pod = self._engine.demanding(ask.cluster, pod_of(request))
        answer = explain(self._engine, ask, pod, fit=fit, limit=request.domain_limit)
        self._observer.explained(answer, ask, call)
        return spread_engine_pb2.ExplainResponse(
            revision=answer.resolved.cycle.view.token,
            stale_for=stale_for(answer.resolved.replica),
            explanation=explanation_message(answer.explanation),
        )


def explanation_message(found: Explanation) -> pb.Explanation:
    """An explanation on the wire."""
    return pb.Explanation(
        status=status_message(found.status),
        nodes=found.nodes,
        passing=found.passing,
        fitting=found.fitting,
        message=found.message,
        refused=_reasons(found.refused),
        defaulted=found.defaulted,
        constraints=map(_constraint, found.constraints),
        suggestions=[
            pb.Suggestion(changes=map(_change, each.changes), text=each.text, fitting=each.fitting)
            for each in found.suggestions
        ],
        warnings=[
            pb.ConstraintWarning(
                kind=_WARNINGS[each.caution], constraint=_index(each.constraint), text=each.text
            )
            for each in found.warnings
        ],
        not_modelled=found.not_modelled,
    )


def _constraint(found: ConstraintFinding) -> pb.ConstraintExplanation:
    return pb.ConstraintExplanation(
        index=found.index,
        topology_key=found.topology_key,
        hard=found.hard,
        max_skew=found.max_skew,
        min_domains=found.min_domains,
        selector=found.selector,
        self_match=found.self_match,
        honors_affinity=found.honors_affinity,
        honors_taints=found.honors_taints,
        nodes_without_key=found.nodes_without_key,
        eligible_nodes=found.eligible,
        excluded=_excluded(found.excluded),
        domains=found.domains,
        eligible_domains=found.eligible_domains,
        minimum=pb.MinimumExplanation(
            value=found.minimum,
            reason=_MINIMA[found.minimum_because],
            lowest=found.lowest,
            holders=found.lowest_domains,
            note=found.note,
        ),
        rejected_domains=found.rejected_domains,
        rejected_nodes=found.rejected_nodes,
        rejected_alone=found.rejected_alone,
        weight=found.weight,
        listed=map(_domain, found.listed),
        listed_first=found.shown_first,
        unlisted=found.unlisted,
    )


def _domain(found: DomainFinding) -> pb.DomainExplanation:
    scores = found.scores
    return pb.DomainExplanation(
        value=found.value,
        pods=found.pods,
        reserved=found.reserved,
        not_counted=found.not_counted,
        nodes=found.nodes,
        eligible_nodes=found.eligible,
        excluded=_excluded(found.excluded),
        refused=_reasons(found.refused),
        usable_nodes=found.usable,
        fitting_nodes=found.fitting,
        skew=found.skew,
        holds_minimum=found.holds_minimum,
        allowed=found.allowed,
        scores=None if scores is None else pb.ScoreRange(lowest=scores[0], highest=scores[1]),
    )


def _change(change: Change) -> pb.SuggestedChange:
    return pb.SuggestedChange(
        kind=_CHANGES[change.kind],
        constraint=_index(change.constraint),
        topology_key=change.topology_key,
        domain=change.domain,
        number=change.number,
        value=change.value,
    )


def _excluded(found: Iterable[tuple[Exclusion, int]]) -> pb.ExcludedNodes:
    return pb.ExcludedNodes(**{_EXCLUDED[reason]: nodes for reason, nodes in found})


def _reasons(reasons: Reasons) -> Iterable[pb.NodeReason]:
    return [pb.NodeReason(reason=reason, nodes=nodes) for reason, nodes in reasons]


def _index(index: int) -> int | None:
    return None if index < 0 else index
