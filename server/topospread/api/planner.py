"""topospread.v1.PlannerService: decode what requests share, call the use cases."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.api.decode import consistency_of, fit_of, settings_of, strict
from topospread.calls.call import Call, Method, Unary
from topospread.kube.violations import Problems
from topospread.replica.view import DEFAULT_CONSISTENCY
from topospread.service.decisions.request import DEFAULT_CLUSTER, DecisionRequest
from topospread.service.simulation.simulate import simulate
from topospread_proto.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from topospread.service.ranking.rank import DeletionRanker
    from topospread.service.rebalancing.plan import RebalancePlanner
    from topospread.service.simulation.scenario import ScenarioBuilder


class PlannerServicer:
    """The methods of PlannerService; raise what the use cases raise."""

    def __init__(
        self, scenarios: ScenarioBuilder, ranker: DeletionRanker, planner: RebalancePlanner
    ) -> None:
        self._scenarios = scenarios
        self._ranker = ranker
        self._planner = planner

    def methods(self) -> dict[str, Method]:
        """The methods by their names."""
        return {
            "Simulate": Unary(pb.SimulateRequest, self.simulate),
            "RankDeletions": Unary(pb.RankDeletionsRequest, self.rank_deletions),
            "PlanRebalance": Unary(pb.PlanRebalanceRequest, self.plan_rebalance),
        }

    def simulate(self, request: pb.SimulateRequest, call: Call) -> pb.SimulateResponse:
        """PlannerService.Simulate."""
        wrong, scenario, fit = Problems(), request.scenario, None
        decision = _decision(request, call, wrong)
        with wrong.under("scenario"):
            fit = fit_of(scenario.fit)
        with wrong.under("scenario"):
            decision = decision._replace(settings=settings_of(scenario.settings))
        with wrong.under("scenario"):
            decision = decision._replace(validate=strict(scenario.validation))
        response = simulate(self._scenarios, request, decision, fit, wrong)
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.placed": response.placed_pod_count,
                    "topospread.pending": response.pending_pod_count,
                }
            )
        return response

    def rank_deletions(
        self, request: pb.RankDeletionsRequest, call: Call
    ) -> pb.RankDeletionsResponse:
        """PlannerService.RankDeletions."""
        wrong = Problems()
        decision = _decision(request, call, wrong)
        response = self._ranker.rank(request, decision, wrong)
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.cluster": decision.cluster,
                    "topospread.revision": response.meta.revision,
                    "topospread.pods": response.ranked_pod_count,
                }
            )
        return response

    def plan_rebalance(
        self, request: pb.PlanRebalanceRequest, call: Call
    ) -> pb.PlanRebalanceResponse:
        """PlannerService.PlanRebalance."""
        wrong = Problems()
        decision = _decision(request, call, wrong)
        with wrong.under():
            decision = decision._replace(settings=settings_of(request.settings))
        response = self._planner.plan(request, decision, wrong)
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.cluster": decision.cluster,
                    "topospread.revision": response.meta.revision,
                    "topospread.evictions": len(response.evictions),
                }
            )
        return response


def _decision(
    request: pb.SimulateRequest | pb.RankDeletionsRequest | pb.PlanRebalanceRequest,
    call: Call,
    wrong: Problems,
) -> DecisionRequest:
    """The cluster, the freshness and the deadline of a request."""
    consistency = DEFAULT_CONSISTENCY
    with wrong.under():
        consistency = consistency_of(request.consistency)
    return DecisionRequest(
        deadline=call.deadline,
        cluster=request.cluster or DEFAULT_CLUSTER,
        consistency=consistency,
    )
