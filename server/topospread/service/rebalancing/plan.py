"""PlanRebalance: find what does not hold, and the fewest evictions that mend it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import CooperativeYield
from topospread.errors import Conflict
from topospread.service.messages import constraint_message, meta_of
from topospread.service.rebalancing.evictions import EvictionSequence, EvictionSequencer
from topospread.service.rebalancing.free_choice import WorstEnd, worst_end
from topospread.service.rebalancing.integer_program import (
    NoTimeLeft,
    ProgramSolution,
    solve,
)
from topospread.service.rebalancing.inventory import (
    ConstraintComponent,
    NamespaceInventory,
    RebalanceQuestion,
    checked,
    connected_components,
    groups_of,
    read_pods,
    skew,
    take_inventory,
)
from topospread.service.rebalancing.model import CLAIMS_UNKNOWN, RebalanceModel, build_model
from topospread.service.rebalancing.reasons import MOST_EXPLAINED, no_plan_reason
from topospread.service.state.consistent_read import ConsistentRead
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import planner_service_pb2 as pb
from topospread_proto.v1 import rebalance_pb2 as detail

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.demands import Demand
    from topospread.kube.violations import Problems
    from topospread.replica.view import View
    from topospread.service.decisions.engine import Engine
    from topospread.service.decisions.request import DecisionRequest
    from topospread.spread.topology import GroupKey
    from topospread.store.api import Reader


MAX_TRIES: Final = 5
"""How often the state may have moved on while what must be counted was being counted."""


@dataclass(slots=True, eq=False)
class _RebalanceRun:
    """The state of one planning run.

    Attributes:
        used: evictions by slot, and by namespace.
        replaced: what the replacements of those demand.
        search_until: on the monotonic clock.
        response: has the evictions and groups so far.
    """

    question: RebalanceQuestion
    view: View
    state: Snapshot
    groups: Sequence[GroupKey]
    search_until: float
    turn: CooperativeYield
    response: pb.PlanRebalanceResponse
    stuck: Counter[str] = field(default_factory=Counter)
    used: Counter[int] = field(default_factory=Counter)
    spent: Counter[str] = field(default_factory=Counter)
    replaced: list[Demand] = field(default_factory=list)
    not_modelled: set[str] = field(default_factory=set)

    def left(self, model: RebalanceModel) -> Mapping[int, int] | None:
        """Evictions that are left by slot; None: any number."""
        limits = self.question.message.eviction_limits
        if not limits.HasField("max_evictions_per_node"):
            return None
        most = limits.max_evictions_per_node
        return {m.slot: max(0, most - self.used[m.slot]) for m in model.movable_pods}

    def allowed(self, namespace: str) -> tuple[float, str]:
        """Evictions that are left of those allowed, and where."""
        limits = self.question.message.eviction_limits
        left = [(float("inf"), "")]
        if limits.HasField("max_evictions"):
            left.append((limits.max_evictions - sum(self.spent.values()), "in all"))
        if limits.HasField("max_evictions_per_namespace"):
            left.append(
                (limits.max_evictions_per_namespace - self.spent[namespace], "in a namespace")
            )
        return min(left)


class RebalancePlanner:
    """Makes rebalance plans for the clusters of a store."""

    def __init__(self, store: Reader, engine: Engine) -> None:
        self._store = store
        self._engine = engine

    def plan(
        self,
        request: pb.PlanRebalanceRequest,
        decision: DecisionRequest,
        wrong: Problems,
    ) -> pb.PlanRebalanceResponse:
        """Find the fewest evictions.

        Raises:
            InvalidRequest: everything that is wrong; unknown settings.
            NotFound: no such cluster.
            Unavailable, DeadlineExceeded, RevisionUnavailable: see ConsistentRead.
        """
        question = checked(request, decision, wrong)
        replicas = self._engine.replicas
        read = ConsistentRead.newest(
            self._store, replicas, decision.cluster, decision.consistency, decision.deadline
        )
        while True:
            view, inventories = self._inventories(question, read)
            snapshot = view.snapshot
            components = _cheapest_first(inventories, snapshot)
            if read_pods(read, components):
                break
        groups = tuple(groups_of(inventories))
        until = min(time.monotonic() + question.search, decision.deadline)
        turn = CooperativeYield(decision.deadline, "all evictions were tried")
        response = pb.PlanRebalanceResponse()
        run = _RebalanceRun(question, view, snapshot, groups, until, turn, response)
        for component in components:
            _solve(run, component)
        wanted = [
            limit
            for inventory in inventories.values()
            for limit, meant in inventory.limits.items()
            if meant
        ]
        proved = all(each.optimality == common_pb2.OPTIMALITY_PROVEN for each in response.groups)
        response.optimality = _optimality(proved)
        response.constraint_count = len(wanted)
        response.violated_constraint_count = sum(
            skew(limit, snapshot) > limit.max_skew for limit in wanted
        )
        response.remaining_constraint_count = sum(
            skew(limit, run.state) > limit.max_skew for limit in wanted
        )
        for reason, pods in sorted(run.stuck.items()):
            response.stuck.add(reason=reason, pod_count=pods)
        response.not_modelled.extend(sorted(run.not_modelled))
        if not wanted:
            waiting = sum(each.constrained for each in inventories.values())
            response.notes.append(_nothing_to_mend(request, waiting))
        if held := run.stuck[CLAIMS_UNKNOWN]:
            response.notes.append(_held_by_claims(held))
        response.meta.CopyFrom(meta_of(view, read.replica, decision.settings.version))
        return response

    def _inventories(
        self, question: RebalanceQuestion, read: ConsistentRead
    ) -> tuple[View, Mapping[str, NamespaceInventory]]:
        for _ in range(MAX_TRIES):
            view = read.view
            inventories = take_inventory(self._engine, question, view.snapshot)
            groups = groups_of(inventories)
            if not view.snapshot.missing(groups):
                return view, inventories
            counting = read.replica.ensure_counted(groups)
            same_index = counting.snapshot.origin is view.snapshot.origin
            if same_index and counting.revision == view.revision:
                return replace(view, snapshot=counting.snapshot), inventories
            read.refresh()
        raise Conflict("the cluster changes faster than its constraints are counted: try again")


def _nothing_to_mend(request: pb.PlanRebalanceRequest, waiting: int) -> str:
    if waiting:
        a = "" if request.include_soft else "hard "
        which = (
            f"the only pod with a {a}constraint waits"
            if waiting == 1
            else (f"all {waiting} pods with a {a}constraint wait")
        )
        return f"{which} for a node: there is nothing to mend (topospread explain --pending)"
    if request.include_soft:
        return "no pod that was looked at has a constraint: there is nothing to mend"
    return (
        "no pod that was looked at has a hard constraint: there is nothing to mend"
        " (--include-soft, include_soft, looks at soft ones, too)"
    )


def _held_by_claims(pods: int) -> str:
    have, them = ("pod has", "it") if pods == 1 else ("pods have", "them")
    return (
        f"{pods} {have} claims whose volumes are not in the state: these may hold {them} in a zone"
        f" or on a node, so no eviction of {them} is planned (give PersistentVolumeClaims and"
        " PersistentVolumes; --evict-pods-with-unknown-volumes plans all the same)"
    )


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
    made = build_model(component, run.state, run.question, run.stuck, run.not_modelled, run.turn)
    left = run.left(made)
    explains = len(run.response.groups) < MOST_EXPLAINED
    try:
        moves = solve(made.program(left=left), _seconds(run))
        if moves is None:
            reason = no_plan_reason(component, made, run.state, explains=explains)
            _refused(run, component, detail.REBALANCE_OUTCOME_IMPOSSIBLE, reason)
            return
        if _over_limit(run, component, moves):
            return
        sequencer = EvictionSequencer(run.view, run.groups, left, run.turn)
        sequence = sequencer.sequence(made, moves, run.state)
        least = moves.least
        if sequence is None:
            # Refused for lack of capacity, which the bound above does not model.
            moves = solve(made.program(left=left, snapshot=run.state), _seconds(run))
            if moves is None:
                reason = no_plan_reason(
                    component, made, run.state, explains=explains, lacks_capacity=True
                )
                _refused(run, component, detail.REBALANCE_OUTCOME_IMPOSSIBLE, reason)
                return
            if _over_limit(run, component, moves):
                return
            sequence = sequencer.sequence(made, moves, run.state)
    except NoTimeLeft:
        reason = (
            f"no plan was found within {run.question.search:g} s: allow more time for the search"
        )
        _refused(run, component, detail.REBALANCE_OUTCOME_NOT_FOUND, reason)
        return
    if sequence is None or not _holds(component, run.state, sequence.state):
        reason = "no order of evictions was found in which each replacement finds a node"
        _refused(run, component, detail.REBALANCE_OUTCOME_NOT_FOUND, reason)
        return
    worst = worst_end(component, made, sequence, run.state, run.replaced, run.turn)
    _planned(run, component, sequence, worst, least)


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
    run.response.groups.append(
        detail.RebalanceGroup(
            constraints=_judged(component, run.state, run.state),
            outcome=detail.REBALANCE_OUTCOME_OVER_LIMIT,
            optimality=_optimality(moves.proved),
            eviction_count=moves.count,
            fewest_eviction_count=moves.least,
            pending_pod_count=component.pending,
            reason=reason,
        )
    )
    return True


def _refused(
    run: _RebalanceRun,
    component: ConstraintComponent,
    outcome: detail.RebalanceOutcome.ValueType,
    reason: str,
) -> None:
    run.response.groups.append(
        detail.RebalanceGroup(
            constraints=_judged(component, run.state, run.state),
            outcome=outcome,
            optimality=_optimality(outcome == detail.REBALANCE_OUTCOME_IMPOSSIBLE),
            pending_pod_count=component.pending,
            reason=reason,
        )
    )


def _planned(
    run: _RebalanceRun,
    component: ConstraintComponent,
    sequence: EvictionSequence,
    worst: WorstEnd,
    fewest: int,
) -> None:
    """Add a plan to the run.

    Args:
        run: the run.
        component: whose plan it is.
        sequence: the plan.
        worst: what it may leave at most.
        fewest: evictions that any plan has at least.
    """
    constraints = _judged(component, run.state, sequence.state, worst.skews)
    holds = not worst.may_wait and all(
        each.highest_skew_after
        <= max(each.constraint.max_skew, 0 if each.wanted else each.skew_before)
        for each in constraints
    )
    names = sequence.state.nodes.names
    for step in sequence.steps:
        member, facts = step.movable.member, step.movable.facts
        run.response.evictions.add(
            pod=common_pb2.PodReference(
                namespace=component.namespace, name=member.name, uid=member.uid
            ),
            node=member.node,
            target_node=names[step.target],
            fitting_node_count=step.fitting,
            priority=facts.priority,
            deletion_cost=facts.deletion_cost,
            group_index=len(run.response.groups),
        )
        run.used[step.movable.slot] += 1
        run.replaced.append(facts.demand)
    run.spent[component.namespace] += len(sequence.steps)
    run.response.groups.append(
        detail.RebalanceGroup(
            constraints=constraints,
            outcome=detail.REBALANCE_OUTCOME_PLANNED,
            optimality=_optimality(len(sequence.steps) <= fewest and holds),
            fewest_eviction_count=fewest,
            replacement_may_wait=worst.may_wait,
            eviction_count=len(sequence.steps),
            pending_pod_count=component.pending,
            at_once=sequence.at_once,
        )
    )
    run.state = sequence.state


def _judged(
    component: ConstraintComponent,
    before: Snapshot,
    after: Snapshot,
    highest: Sequence[int] = (),
) -> Sequence[detail.RebalanceConstraint]:
    """As answers have them; without a plan skews stay."""
    found = []
    for number, (limit, meant) in enumerate(component.limits.items()):
        now = skew(limit, before)
        found.append(
            detail.RebalanceConstraint(
                constraint=constraint_message(limit.constraint),
                wanted=meant,
                skew_before=now,
                skew_after=skew(limit, after),
                highest_skew_after=highest[number] if highest else now,
            )
        )
    return found


def _optimality(proved: bool) -> common_pb2.Optimality.ValueType:
    return common_pb2.OPTIMALITY_PROVEN if proved else common_pb2.OPTIMALITY_BEST_FOUND
