"""Ask a world to simulate, by way of the client's requests and answers, without a network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.service.world import CLUSTER
from topospread.errors import InvalidRequest
from topospread.replica.replicas import seconds_from_now
from topospread.service.scenario import Scenarios
from topospread.service.what_if import answer
from topospread.transports.grpc.calls import Call
from topospread.transports.grpc.simulating import answer_of, question_of
from topospread_client import simulating
from topospread_client.operations import Reply, Session
from topospread_client.requests import Consistency

if TYPE_CHECKING:
    from tests.service.world import World
    from topospread.service.scenario import Scenario
    from topospread.service.simulated import Simulated
    from topospread_client.simulations import Simulation


def simulated(world: World, **arguments: Any) -> Simulated:
    """What the use case answers."""
    return answer(*_asked(world, **arguments)[1:]).found


def simulation(world: World, **arguments: Any) -> Simulation:
    """What a client gets to see."""
    operation, scenarios, question = _asked(world, **arguments)
    try:
        operation.send(Reply(answer_of(answer(scenarios, question)), None))
    except StopIteration as done:
        found: Simulation = done.value
        return found
    raise AssertionError("simulate makes one call")


def scenario_of(world: World, **arguments: Any) -> Scenario | None:
    """The checked question; None when no pod could go to one of its templates."""
    _, scenarios, question = _asked(world, **arguments)
    try:
        made: Scenario = scenarios.make(question)
    except InvalidRequest as refused:
        if "no pod could go to these nodes" not in str(refused):
            raise
        return None
    return made


def _asked(world: World, seconds: float = 30.0, **arguments: Any) -> Any:
    newest = Consistency(at_least_as_fresh=world.revision)
    operation = simulating.simulate(Session(CLUSTER), **{"consistency": newest, **arguments})
    request: Any = next(operation).request
    span: Any = None
    call = Call(span, seconds_from_now(seconds), lambda: True)
    return operation, Scenarios(world.engine, world.store), question_of(request, call)
