"""DecisionService.ExplainPod: decode and call the use case."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.api.decode import fit_of
from topospread.api.encode import written_evaluation
from topospread.api.envelope import pod_of, raise_all_violations, shared_request
from topospread.calls.call import Call, Method, Unary
from topospread.codec.pods import selector_of
from topospread.codec.rollouts import rollout_from_proto
from topospread.errors import InvalidRequest
from topospread.generated.internal.v1 import frames_pb2
from topospread.service.explaining.counted_pods import Owner
from topospread.service.explaining.explain import ExplainResult, explain
from topospread.service.fit.question import Fit

if TYPE_CHECKING:
    from topospread.api.decision import DecisionMetrics
    from topospread.kube.selectors import Selector
    from topospread.service.decisions.engine import Engine
    from topospread_proto.v1 import decision_service_pb2


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
        explained.response.evaluation.MergeFromString(
            written_evaluation(explained.evaluation, request.top_k)
        )
        return explained.response

    def _explained(self, request: frames_pb2.ExplainPodFrame, call: Call) -> ExplainResult:
        fit = fit_of(request.fit) or Fit.ALL
        decision = shared_request(request, call)
        pod = self._engine.with_requests(decision, pod_of(request))
        return explain(
            self._engine,
            decision,
            pod,
            fit=fit,
            limit=request.domain_limit,
            top_k=request.top_k,
            advise=not request.skip_suggestions,
            replicas=self._replicas(request),
            workload=Owner(request.workload.kind, request.workload.name),
            rollout=rollout_from_proto(request.rolling_update, "rollingUpdate")
            if request.HasField("rolling_update")
            else None,
            wanted=request.replicas if request.HasField("replicas") else None,
        )

    def _replicas(self, request: frames_pb2.ExplainPodFrame) -> Selector | None:
        if not request.HasField("replica_selector"):
            return None
        given = request.replica_selector
        terms = len(given.match_labels) + sum(1 + len(e.values) for e in given.match_expressions)
        most = self._engine.limits.terms
        if terms > most:
            text = f"{terms} expressions and values, at most {most} are looked at"
            raise InvalidRequest.at("replicaSelector", text, "Too many")
        return selector_of(given, "replicaSelector")
