"""PlanRebalance: find what does not hold, and the fewest evictions that mend it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import CooperativeYield
from topospread.errors import Conflict
from topospread.service.rebalancing.evictions import EvictionSequence, EvictionSequencer
from topospread.service.rebalancing.integer_program import (
    NoTimeLeft,
    ProgramSolution,
    solve,
)
from topospread.service.rebalancing.inventory import (
    ConstraintComponent,
    ConstraintSkew,
    Eviction,
    GroupOutcome,
    GroupResult,
    NamespaceInventory,
    Optimality,
    RebalancePlan,
    RebalanceRequest,
    connected_components,
    groups_of,
    skew,
    take_inventory,
)
from topospread.service.rebalancing.model import RebalanceModel, build_model
from topospread.service.rebalancing.reading import read_pods
from topospread.service.state.log import newest_view

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.decisions.engine import Engine
    from topospread.service.rebalancing.inventory import ConstraintComponent
    from topospread.service.rebalancing.model import RebalanceModel
    from topospread.spread.topology import GroupKey
    from topospread.store.api import Store


MAX_TRIES: Final = 5
"""How often the state may have moved on while what must be counted was being counted."""

NO_PLAN: Final = (
    "no evictions that are allowed bring its constraints within maxSkew together:"
    " explain one of its pods (topospread explain)"
)
NO_CAPACITY: Final = (
    "the nodes that its pods may go to have no room for them:"
    " explain one of its pods (topospread explain)"
)


@dataclass(slots=True, eq=False)
class _RebalanceRun:
    """The state of one planning run.

    Attributes:
        used: evictions by slot, and by namespace.
        search_until: on the monotonic clock.
    """

    request: RebalanceRequest
    view: View
    state: Snapshot
    groups: Sequence[GroupKey]
    search_until: float
    turn: CooperativeYield
    evictions: list[Eviction] = field(default_factory=list)
    found: list[GroupResult] = field(default_factory=list)
    stuck: Counter[str] = field(default_factory=Counter)
    used: Counter[int] = field(default_factory=Counter)
    spent: Counter[str] = field(default_factory=Counter)
    not_modelled: set[str] = field(default_factory=set)

    def left(self, model: RebalanceModel) -> Mapping[int, int] | None:
        """Evictions that are left by slot; None: any number."""
        most = self.request.limits.max_evictions_per_node
        if most is None:
            return None
        return {m.slot: max(0, most - self.used[m.slot]) for m in model.movable_pods}

    def allowed(self, namespace: str) -> tuple[float, str]:
        """Evictions that are left of those allowed, and where."""
        limits = self.request.limits
        left = [(float("inf"), "")]
        if limits.max_evictions is not None:
            left.append((limits.max_evictions - sum(self.spent.values()), "in all"))
        if limits.max_evictions_per_namespace is not None:
            left.append(
                (limits.max_evictions_per_namespace - self.spent[namespace], "in a namespace")
            )
        return min(left)


class RebalancePlanner:
    """Makes rebalance plans for the clusters of a store."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine

    def plan(self, request: RebalanceRequest) -> RebalancePlan:
        """Find the fewest evictions.

        Raises:
            InvalidRequest: unknown settings.
            NotFound: no such cluster.
            Unavailable, DeadlineExceeded, RevisionUnavailable: see newest_view and read_pods.
        """
        replica, view, inventories = self._inventories(request)
        snapshot = view.snapshot
        groups = tuple(groups_of(inventories))
        until = min(time.monotonic() + request.search, request.deadline)
        turn = CooperativeYield(request.deadline, "all evictions were tried")
        run = _RebalanceRun(request, view, snapshot, groups, until, turn)
        components = _cheapest_first(inventories, snapshot)
        read_pods(self._store, replica, view, inventories, components, turn)
        for component in components:
            _solve(run, component)
        wanted = [
            limit
            for inventory in inventories.values()
            for limit, meant in inventory.limits.items()
            if meant
        ]
        return RebalancePlan(
            view=view,
            replica=replica,
            evictions=run.evictions,
            groups=run.found,
            constraints=len(wanted),
            violated=sum(skew(limit, snapshot) > limit.max_skew for limit in wanted),
            left=sum(skew(limit, run.state) > limit.max_skew for limit in wanted),
            stuck=dict(sorted(run.stuck.items())),
            not_modelled=sorted(run.not_modelled),
            notes=() if wanted else (_nothing_to_mend(request),),
        )

    def _inventories(
        self, request: RebalanceRequest
    ) -> tuple[Replica, View, Mapping[str, NamespaceInventory]]:
        """The constraints and a view of one revision that counts all that they count."""
        engine = self._engine
        replica, view = newest_view(
            self._store, engine.replicas, request.cluster, request.consistency, request.deadline
        )
        for _ in range(MAX_TRIES):
            inventories = take_inventory(engine, request, view.snapshot)
            groups = groups_of(inventories)
            if not view.snapshot.missing(groups):
                return replica, view, inventories
            counting = replica.ensure_counted(groups)
            same_index = counting.snapshot.origin is view.snapshot.origin
            if same_index and counting.revision == view.revision:
                return replica, replace(view, snapshot=counting.snapshot), inventories
            view = counting
        raise Conflict("the cluster changes faster than its constraints are counted: try again")


def _nothing_to_mend(request: RebalanceRequest) -> str:
    which = "constraint" if request.soft else "hard constraint"
    return f"no pod that was looked at has a {which}: there is nothing to mend"


def _cheapest_first(
    inventories: Mapping[str, NamespaceInventory], snapshot: Snapshot
) -> Sequence[ConstraintComponent]:
    """The components that do not hold, smallest first: so the allowed evictions mend most."""
    found = [
        k
        for name, inventory in sorted(inventories.items())
        for k in connected_components(name, inventory, snapshot)
    ]
    excess = {
        id(component): sum(
            max(0, skew(limit, snapshot) - limit.max_skew)
            for limit, meant in component.limits.items()
            if meant
        )
        for component in found
    }
    return sorted(found, key=lambda component: excess[id(component)])


def _solve(run: _RebalanceRun, component: ConstraintComponent) -> None:
    """Plan for one component of dependent constraints, and add what was found to the run."""
    made = build_model(component, run.state, run.request.filters, run.stuck, run.turn)
    left = run.left(made)
    try:
        moves = solve(made.program(left=left), _seconds(run))
        if moves is None:
            _refused(run, component, GroupOutcome.IMPOSSIBLE, NO_PLAN)
            return
        if _over_limit(run, component, moves):
            return
        sequencer = EvictionSequencer(run.view, run.groups, left, run.turn)
        sequence = sequencer.sequence(made, moves, run.state)
        least, proved = moves.least, moves.proved
        if sequence is None:
            # Refused for lack of capacity, which the bound above does not model.
            moves = solve(made.program(left=left, snapshot=run.state), _seconds(run))
            if moves is None:
                _refused(run, component, GroupOutcome.IMPOSSIBLE, NO_CAPACITY)
                return
            if _over_limit(run, component, moves):
                return
            sequence = sequencer.sequence(made, moves, run.state)
    except NoTimeLeft:
        reason = (
            f"no plan was found within {run.request.search:g} s: allow more time for the search"
        )
        _refused(run, component, GroupOutcome.NOT_FOUND, reason)
        return
    if sequence is None or not _holds(component, run.state, sequence.state):
        reason = "no order of evictions was found in which each replacement finds a node"
        _refused(run, component, GroupOutcome.NOT_FOUND, reason)
        return
    proved = proved and len(sequence.steps) <= least
    _planned(run, component, sequence, Optimality.PROVED if proved else Optimality.BEST_FOUND)


def _seconds(run: _RebalanceRun) -> float:
    return max(0.05, run.search_until - time.monotonic())


def _holds(component: ConstraintComponent, before: Snapshot, after: Snapshot) -> bool:
    return all(
        skew(limit, after)
        <= (limit.max_skew if meant else max(limit.max_skew, skew(limit, before)))
        for limit, meant in component.limits.items()
    )


def _over_limit(run: _RebalanceRun, component: ConstraintComponent, moves: ProgramSolution) -> bool:
    allowed, which = run.allowed(component.namespace)
    if moves.count <= allowed:
        return False
    reason = (
        f"it needs {moves.count} evictions, and {int(allowed)} are left of those allowed {which}"
    )
    run.found.append(
        GroupResult(
            _judged(component, run.state, run.state),
            GroupOutcome.OVER_LIMIT,
            Optimality.PROVED if moves.proved else Optimality.BEST_FOUND,
            moves.count,
            component.pending,
            reason,
        )
    )
    return True


def _refused(
    run: _RebalanceRun, component: ConstraintComponent, outcome: GroupOutcome, reason: str
) -> None:
    proved = outcome is GroupOutcome.IMPOSSIBLE
    optimality = Optimality.PROVED if proved else Optimality.BEST_FOUND
    run.found.append(
        GroupResult(
            _judged(component, run.state, run.state),
            outcome,
            optimality,
            -1,
            component.pending,
            reason,
        )
    )


def _planned(
    run: _RebalanceRun,
    component: ConstraintComponent,
    sequence: EvictionSequence,
    optimality: Optimality,
) -> None:
    names = sequence.state.nodes.names
    for step in sequence.steps:
        member, facts = step.movable.member, step.movable.facts
        run.evictions.append(
            Eviction(
                group=len(run.found),
                namespace=component.namespace,
                name=member.name,
                uid=member.uid,
                node=member.node,
                target=names[step.target],
                fitting=step.fitting,
                priority=facts.priority,
                deletion_cost=facts.deletion_cost,
            )
        )
        run.used[step.movable.slot] += 1
        run.not_modelled.update(facts.demand.not_modelled)
    run.spent[component.namespace] += len(sequence.steps)
    judged = _judged(component, run.state, sequence.state)
    count = len(sequence.steps)
    run.found.append(
        GroupResult(
            judged,
            GroupOutcome.PLANNED,
            optimality,
            count,
            component.pending,
            at_once=sequence.at_once,
        )
    )
    run.state = sequence.state


def _judged(
    component: ConstraintComponent, before: Snapshot, after: Snapshot
) -> Sequence[ConstraintSkew]:
    return [
        ConstraintSkew(
            constraint=limit.constraint,
            wanted=meant,
            skew_before=skew(limit, before),
            skew_after=skew(limit, after),
        )
        for limit, meant in component.limits.items()
    ]
