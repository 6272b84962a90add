"""topospread.v1.PlannerService/Simulate: decode, call the use case, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.service.what_if import answer
from topospread.transports.grpc.calls import Call, Method, Unary
from topospread.transports.grpc.simulating import answer_of, question_of
from topospread_proto.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from topospread.service.scenario import Scenarios


class SimulateServicer:
    """Each method takes a request and a call, and raises what the use case raises."""

    def __init__(self, scenarios: Scenarios) -> None:
        self._scenarios = scenarios

    def methods(self) -> dict[str, tuple[Method, str]]:
        """The methods by name, with the pool that each runs on."""
        return {"Simulate": (Unary(pb.SimulateRequest, self.simulate), "planner")}

    def simulate(self, request: pb.SimulateRequest, call: Call) -> pb.SimulateResponse:
        """PlannerService.Simulate."""
        answered = answer(self._scenarios, question_of(request, call))
        simulation = answered.found.simulation
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.placed": len(simulation.placements),
                    "topospread.pending": simulation.waiting,
                }
            )
        return answer_of(answered)
