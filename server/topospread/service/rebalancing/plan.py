"""PlanRebalance: find what does not hold, and the fewest evictions that mend it."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from topospread.errors import Conflict
from topospread.service.listing import list_at
from topospread.service.rebalancing.asking import (
    Eviction,
    Group,
    Judged,
    Optimality,
    Outcome,
    Plan,
    RebalanceAsk,
)
from topospread.service.rebalancing.census import Knot, Space, groups_of, knots, skew, taken
from topospread.service.rebalancing.modelling import Model, model
from topospread.service.rebalancing.program import Moves, NoTimeLeft, solve
from topospread.service.rebalancing.steps import Walk, Walker
from topospread.service.rebalancing.wording import why_never
from topospread.service.turns import Turns
from topospread.store.api import Key, Kind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.engine import Engine
    from topospread.spread.topology import GroupKey
    from topospread.store.api import Store

MAX_TRIES: Final = 5
"""How often the state may have moved on while what must be counted was being counted."""


@dataclass(slots=True, eq=False)
class _Run:
    """A plan while it grows.

    Attributes:
        used: evictions by slot, and by namespace.
        search_until: on the monotonic clock.
    """

    ask: RebalanceAsk
    view: View
    state: Snapshot
    groups: Sequence[GroupKey]
    search_until: float
    turn: Turns
    evictions: list[Eviction] = field(default_factory=list)
    found: list[Group] = field(default_factory=list)
    stuck: Counter[str] = field(default_factory=Counter)
    used: Counter[int] = field(default_factory=Counter)
    spent: Counter[str] = field(default_factory=Counter)
    not_modelled: set[str] = field(default_factory=set)

    def left(self, model: Model) -> Mapping[int, int] | None:
        """Evictions that are left by slot; None: any number."""
        most = self.ask.limits.max_evictions_per_node
        if most is None:
            return None
        return {m.slot: max(0, most - self.used[m.slot]) for m in model.movers}

    def allowed(self, namespace: str) -> tuple[float, str]:
        """Evictions that are left of those allowed, and where."""
        limits = self.ask.limits
        left = [(float("inf"), "")]
        if limits.max_evictions is not None:
            left.append((limits.max_evictions - sum(self.spent.values()), "in all"))
        if limits.max_evictions_per_namespace is not None:
            left.append(
                (limits.max_evictions_per_namespace - self.spent[namespace], "in a namespace")
            )
        return min(left)


class Rebalances:
    """Plans for clusters of a store."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine

    def plan(self, ask: RebalanceAsk) -> Plan:
        """The fewest evictions.

        Raises:
            InvalidRequest: unknown settings.
            NotFound: no such cluster.
            Unavailable, DeadlineExceeded, RevisionUnavailable: see list_at.
        """
        replica, view, spaces = self._census(ask)
        snapshot = view.snapshot
        groups = tuple(groups_of(spaces))
        until = min(time.monotonic() + ask.search, ask.deadline)
        turn = Turns(ask.deadline, "all evictions were tried")
        run = _Run(ask, view, snapshot, groups, until, turn)
        for knot in _cheapest_first(spaces, snapshot):
            _untie(run, knot)
        wanted = [
            limit for space in spaces.values() for limit, meant in space.limits.items() if meant
        ]
        return Plan(
            view=view,
            replica=replica,
            evictions=run.evictions,
            groups=run.found,
            constraints=len(wanted),
            violated=sum(skew(limit, snapshot) > limit.max_skew for limit in wanted),
            left=sum(skew(limit, run.state) > limit.max_skew for limit in wanted),
            stuck=dict(sorted(run.stuck.items())),
            not_modelled=sorted(run.not_modelled),
            notes=() if wanted else (_nothing_to_mend(ask),),
        )

    def _census(self, ask: RebalanceAsk) -> tuple[Replica, View, Mapping[str, Space]]:
        """The pods and a view of one revision that counts all that their constraints count."""

        def wanted(key: Key) -> bool:
            if key.kind is not Kind.POD or key.namespace in ask.excluded:
                return False
            return not ask.namespace or key.namespace == ask.namespace

        engine = self._engine
        listed = list_at(
            self._store, engine.replicas, ask.cluster, ask.consistency, ask.deadline, wanted
        )
        for _ in range(MAX_TRIES):
            spaces = taken(engine, ask, listed.readable(), listed.view.snapshot)
            groups = groups_of(spaces)
            if not listed.view.snapshot.missing(groups):
                return listed.replica, listed.view, spaces
            view = listed.replica.keep(groups)
            if view.revision == listed.view.revision:
                counting = replace(listed.view, snapshot=view.snapshot)
                return listed.replica, counting, spaces
            listed.advance(view)
        raise Conflict("the cluster changes faster than its constraints are counted: try again")


def _nothing_to_mend(ask: RebalanceAsk) -> str:
    which = "constraint" if ask.soft else "hard constraint"
    return f"no pod that was looked at has a {which}: there is nothing to mend"


def _cheapest_first(spaces: Mapping[str, Space], snapshot: Snapshot) -> Sequence[Knot]:
    """What does not hold, the smallest sets first: so the evictions that are allowed mend most."""
    found = [k for name, space in sorted(spaces.items()) for k in knots(name, space, snapshot)]
    excess = {
        id(knot): sum(
            max(0, skew(limit, snapshot) - limit.max_skew)
            for limit, meant in knot.limits.items()
            if meant
        )
        for knot in found
    }
    return sorted(found, key=lambda knot: excess[id(knot)])


def _untie(run: _Run, knot: Knot) -> None:
    """Plan for one set of dependent constraints, and add what was found to the run."""
    made = model(knot, run.state, run.ask.filters, run.stuck, run.turn)
    left = run.left(made)
    try:
        moves = solve(made.program(left=left), _seconds(run))
        if moves is None:
            _refused(
                run, knot, Outcome.IMPOSSIBLE, why_never(knot, made, run.state, left, _seconds(run))
            )
            return
        if _over_limit(run, knot, moves):
            return
        walker = Walker(run.view, run.groups, left, run.turn)
        walk = walker.walk(made, moves, run.state)
        least, proved = moves.least, moves.proved
        if walk is None:
            # Refused for want of room, which the bound above knows nothing of.
            moves = solve(made.program(left=left, snapshot=run.state), _seconds(run))
            if moves is None:
                reason = "the nodes that its pods may go to have no room for them"
                _refused(run, knot, Outcome.IMPOSSIBLE, reason)
                return
            if _over_limit(run, knot, moves):
                return
            walk = walker.walk(made, moves, run.state)
    except NoTimeLeft:
        reason = f"no plan was found within {run.ask.search:g} s: allow more time for the search"
        _refused(run, knot, Outcome.NOT_FOUND, reason)
        return
    if walk is None or not _holds(knot, run.state, walk.state):
        reason = "no order of evictions was found in which each replacement finds a node"
        _refused(run, knot, Outcome.NOT_FOUND, reason)
        return
    proved = proved and len(walk.steps) <= least
    _planned(run, knot, walk, Optimality.PROVED if proved else Optimality.BEST_FOUND)


def _seconds(run: _Run) -> float:
    return max(0.05, run.search_until - time.monotonic())


def _holds(knot: Knot, before: Snapshot, after: Snapshot) -> bool:
    """Whether a state is what was asked for, by the engine's own counts."""
    return all(
        skew(limit, after)
        <= (limit.max_skew if meant else max(limit.max_skew, skew(limit, before)))
        for limit, meant in knot.limits.items()
    )


def _over_limit(run: _Run, knot: Knot, moves: Moves) -> bool:
    allowed, which = run.allowed(knot.namespace)
    if moves.count <= allowed:
        return False
    reason = (
        f"it needs {moves.count} evictions, and {int(allowed)} are left of those allowed {which}"
    )
    run.found.append(
        Group(
            _judged(knot, run.state, run.state),
            Outcome.OVER_LIMIT,
            Optimality.PROVED if moves.proved else Optimality.BEST_FOUND,
            moves.count,
            reason,
        )
    )
    return True


def _refused(run: _Run, knot: Knot, outcome: Outcome, reason: str) -> None:
    proved = outcome is Outcome.IMPOSSIBLE
    optimality = Optimality.PROVED if proved else Optimality.BEST_FOUND
    run.found.append(Group(_judged(knot, run.state, run.state), outcome, optimality, -1, reason))


def _planned(run: _Run, knot: Knot, walk: Walk, optimality: Optimality) -> None:
    names = walk.state.nodes.names
    for step in walk.steps:
        member, facts = step.mover.member, step.mover.facts
        run.evictions.append(
            Eviction(
                group=len(run.found),
                namespace=knot.namespace,
                name=member.name,
                uid=member.uid,
                node=member.node,
                target=names[step.target],
                fitting=step.fitting,
                priority=facts.priority,
                deletion_cost=facts.deletion_cost,
            )
        )
        run.used[step.mover.slot] += 1
        run.not_modelled.update(facts.demand.not_modelled)
    run.spent[knot.namespace] += len(walk.steps)
    judged = _judged(knot, run.state, walk.state)
    count = len(walk.steps)
    run.found.append(Group(judged, Outcome.PLANNED, optimality, count, at_once=walk.at_once))
    run.state = walk.state


def _judged(knot: Knot, before: Snapshot, after: Snapshot) -> Sequence[Judged]:
    return [
        Judged(
            constraint=limit.constraint,
            wanted=meant,
            skew_before=skew(limit, before),
            skew_after=skew(limit, after),
        )
        for limit, meant in knot.limits.items()
    ]
