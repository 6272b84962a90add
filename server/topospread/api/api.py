"""The API: every method by gRPC's name of it, from a request message and a Call to its answer.

Here the services are put together, whoever calls them: gRPC, or a command in its own process. What
a method needs is imported when it is first looked up: a server does that at its start for all, a
command for the few that it calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from topospread.calls.call import Method

if TYPE_CHECKING:
    from topospread.api.decision import DecisionCounters
    from topospread.api.server_info import ServerFacts
    from topospread.service.decisions.engine import Engine
    from topospread.service.inspecting.inspector import Inspector
    from topospread.service.placement.places import Places
    from topospread.service.state.write import StateWriter
    from topospread.store.api import Reader
    from topospread.telemetry.metrics import Metrics


_PACKAGE: Final = "topospread.v1"

Methods = Mapping[str, Method]


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """The use cases that write.

    Attributes:
        metrics: counts the places that are held.
    """

    placement: Places
    writes: StateWriter
    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class UseCases:
    """What the API offers.

    Attributes:
        store: where objects are read from.
        metrics: counts decisions.
        writing: None where nothing can be written.
    """

    engine: Engine
    store: Reader
    metrics: DecisionCounters
    inspector: Callable[[], Inspector]
    facts: Callable[[], ServerFacts]
    writing: Writing | None = None


class ApiMethods(Mapping[str, Method]):
    """The methods by full name, as "topospread.v1.DecisionService/EvaluatePod"."""

    def __init__(self, use_cases: UseCases) -> None:
        self._use_cases = use_cases
        self._makers = {
            f"{_PACKAGE}.{service}/{name}": (service, maker)
            for service, names, maker in (_READING + (_WRITING if use_cases.writing else ()))
            for name in names.split()
        }
        self._made: dict[str, Method] = {}

    @override
    def __getitem__(self, name: str) -> Method:
        method = self._made.get(name)
        if method is None:
            service, maker = self._makers[name]
            made = maker(self._use_cases)
            self._made |= {f"{_PACKAGE}.{service}/{each}": made[each] for each in made}
            method = self._made[name]
        return method

    @override
    def __iter__(self) -> Iterator[str]:
        return iter(self._makers)

    @override
    def __len__(self) -> int:
        return len(self._makers)


# ------------------------------ what each service is made of


def _decisions(cases: UseCases) -> Methods:
    from topospread.api.decision import DecisionMetrics, DecisionServicer

    return DecisionServicer(cases.engine, DecisionMetrics(cases.metrics)).methods()


def _explanations(cases: UseCases) -> Methods:
    from topospread.api.decision import DecisionMetrics
    from topospread.api.explain_pod import ExplainPodServicer

    return ExplainPodServicer(cases.engine, DecisionMetrics(cases.metrics)).methods()


def _state(cases: UseCases) -> Methods:
    from topospread.api.cluster_state_reads import ClusterStateReadServicer
    from topospread.service.state.read import StateReader

    return ClusterStateReadServicer(StateReader(cases.store, cases.engine.replicas)).methods()


def _state_writes(cases: UseCases) -> Methods:
    from topospread.api.cluster_state_writes import ClusterStateWriteServicer

    return ClusterStateWriteServicer(_writing(cases).writes).methods()


def _places(cases: UseCases) -> Methods:
    from topospread.api.placement import PlacementServicer

    writing = _writing(cases)
    return PlacementServicer(writing.placement, writing.metrics).methods()


def _reservations(cases: UseCases) -> Methods:
    from topospread.api.placement import ReservationServicer

    return ReservationServicer(cases.engine.replicas).methods()


def _plans(cases: UseCases) -> Methods:
    from topospread.api.planner import PlannerServicer
    from topospread.service.ranking.rank import DeletionRanker
    from topospread.service.rebalancing.plan import RebalancePlanner
    from topospread.service.simulation.scenario import ScenarioBuilder

    engine, store = cases.engine, cases.store
    return PlannerServicer(
        ScenarioBuilder(engine, store),
        DeletionRanker(store, engine.replicas, engine.rules),
        RebalancePlanner(store, engine),
    ).methods()


def _constraints(cases: UseCases) -> Methods:
    from topospread.api.inspector import InspectorServicer

    return InspectorServicer(cases.inspector()).methods()


def _server(cases: UseCases) -> Methods:
    from topospread.api.server_info import ServerInfoServicer

    return ServerInfoServicer(cases.facts()).methods()


def _writing(cases: UseCases) -> Writing:
    assert cases.writing is not None, "else these methods are not among its names"
    return cases.writing


_Maker = Callable[[UseCases], Methods]

_READING: Final[tuple[tuple[str, str, _Maker], ...]] = (
    ("DecisionService", "PreFilter Filter Score EvaluatePod BatchEvaluatePods", _decisions),
    ("DecisionService", "ExplainPod", _explanations),
    ("ClusterStateService", "GetObject ListObjects WatchObjects", _state),
    ("ClusterStateService", "GetNodeTable GetCluster ListClusters", _state),
    ("PlacementService", "GetReservation ListReservations", _reservations),
    ("PlannerService", "Simulate RankDeletions PlanRebalance", _plans),
    ("InspectorService", "ListConstraints GetConstraint WatchConstraints", _constraints),
    ("ServerService", "GetServerInfo", _server),
)
"""Services, their methods, and what makes these."""

_WRITING: Final[tuple[tuple[str, str, _Maker], ...]] = (
    ("ClusterStateService", "ApplyObjects DeleteObjects ReplaceObjects", _state_writes),
    ("ClusterStateService", "DeleteCluster", _state_writes),
    ("PlacementService", "PlacePod ReserveNode ReleaseReservation", _places),
)
