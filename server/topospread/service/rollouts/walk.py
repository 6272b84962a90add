"""Whether a rolling update completes: its steps, carried out on copies of a state.

Numbers say what a controller may do next, the filters that decisions ask say where a new pod may
go. Chance are the node that the scheduler takes among these, which of equal old pods goes, and
which of both comes first. All courses are followed while they lead to few states, where nodes that
are alike are taken for one; else some are.

A ReplicaSet takes old pods from the nodes with the most pods of its workload. All are taken as
ready, and their deletion costs as equal: nothing but that rank decides then, and chance.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.changes import PodRow
from topospread.kube.demands import holds_of
from topospread.service.decisions.cycle import Cycle
from topospread.service.fit import node_resources_fit
from topospread.service.fit.preemption import preemption_gaps
from topospread.service.fit.profile import gaps_of, suited
from topospread.service.fit.question import Fit, spread_rules
from topospread.service.rollouts.nodes import alike, is_roomy
from topospread.spread.rollouts import RolloutEnd, RolloutOutcome, RolloutWait
from topospread.spread.verdicts import FITS, Code, error_message

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.rollouts import Rollout
    from topospread.replica.view import View
    from topospread.service.decisions.pods import JudgedPod
    from topospread.service.fit.profile import Suited

_FEWEST_STATES: Final = 60
MOST_STATES: Final = 600
_JUDGED_NODES: Final = 300_000
"""States that are looked at; on large clusters as many as have so many nodes together."""

_COURSES: Final = 20
"""Courses that are drawn by chance before all of them are followed."""

MOST_PODS: Final = 500
"""Pods of a rollout whose courses are followed."""


class _State(NamedTuple):
    """Pods that run, by slot; a slot of −1 is that of a node that is not known.

    Attributes:
        old: (slot, kind, pods).
        new: (slot, pods).
        waiting: old ones that have no node.
    """

    old: tuple[tuple[int, int, int], ...]
    new: tuple[tuple[int, int], ...]
    waiting: int

    def entries(self) -> dict[int, Hashable]:
        """What is on each slot that has any."""
        found: dict[int, list[tuple[int, int]]] = {}
        for slot, kind, pods in self.old:
            found.setdefault(slot, []).append((kind, pods))
        for slot, pods in self.new:
            found.setdefault(slot, []).append((-1, pods))
        return {slot: tuple(each) for slot, each in found.items()}


class _Steps(NamedTuple):
    """What may come after a state."""

    states: Sequence[_State] = ()
    has_completed: bool = False
    wait: RolloutWait | None = None
    may_preempt: bool = False


class RolloutWalk:
    """The courses of a rolling update.

    Args:
        view: the state with the old pods; it counts what the new ones need.
        pod: a new one.
        rollout: how pods are replaced.
        replicas: how many there are to be.
        old: those that run; in the order of their numbers where the rollout goes by it.
        waiting: how many have no node.
        fit: what is asked beside spreading.
        most: states that may be judged.

    Attributes:
        judged: states that were.
    """

    def __init__(
        self,
        view: View,
        pod: JudgedPod,
        rollout: Rollout,
        replicas: int,
        old: Sequence[PodRow],
        waiting: int = 0,
        fit: Fit = Fit.ALL,
        most: int = MOST_STATES,
    ) -> None:
        self._view, self._judged, self._fit = view, pod, fit
        self._rollout, self._replicas = rollout, replicas
        snapshot = view.snapshot
        self._effective = pod.pod.shape.effective_constraints(pod.rules, snapshot)
        first = self._cycle(snapshot, 0)
        self._groups = tuple(first.needed)
        self._new = _row(first)
        self._kinds: list[PodRow] = []
        self._first = _State(self._by_kind(old, snapshot), (), waiting)
        self._alike = alike(first, (self._new, *self._kinds))
        self._is_roomy = is_roomy(first, replicas)
        self._has_gaps = bool(gaps_of(first.asked, fit))
        pods = max(replicas, len(old))
        few = min(MOST_STATES, _JUDGED_NODES // (snapshot.node_count + pods))
        few = max(_FEWEST_STATES, 2 * pods, few)
        self._left = min(few, most) if pods <= MOST_PODS else 0
        self.judged = 0
        self._known: dict[Hashable, _Steps] = {}

    def outcome(self) -> RolloutOutcome:
        """Follow the courses."""
        update = self._rollout, self._replicas
        if self._is_roomy:
            return RolloutOutcome(RolloutEnd.COMPLETES, *update, proven=not self._has_gaps)
        drawn = [self._drawn(random.Random(number)) for number in range(_COURSES)]
        ends = chain(drawn, self._ends())
        completed, wait, uncertain = False, None, False
        while not (completed and wait) and (steps := next(ends, None)) is not None:
            completed = completed or steps.has_completed
            uncertain = uncertain or steps.may_preempt
            wait = wait or steps.wait
        proven = self._left > 0 or bool(completed and wait)
        if wait is None:
            proven = proven and not self._has_gaps
            return RolloutOutcome(RolloutEnd.COMPLETES, *update, proven=proven)
        is_chance = completed or uncertain or not proven
        end = RolloutEnd.MAY_WAIT if is_chance else RolloutEnd.WAITS
        waiting = sum(steps.wait is not None for steps in drawn)
        return RolloutOutcome(end, *update, wait, proven, len(drawn), waiting)

    # ------------------------------ courses

    def _drawn(self, chosen: random.Random) -> _Steps:
        """The end of one course."""
        steps = self._steps(self._first)
        while steps.states and self._left > 0:
            steps = self._steps(chosen.choice(steps.states))
        return steps

    def _ends(self) -> Iterator[_Steps]:
        """The steps of all states that have no next one, while there are few."""
        seen, rest = {self._key(self._first)}, [self._first]
        while rest and self._left > 0:
            steps = self._steps(rest.pop())
            if not steps.states:
                yield steps
            for state in steps.states:
                key = self._key(state)
                if key not in seen:
                    seen.add(key)
                    rest.append(state)

    def _steps(self, state: _State) -> _Steps:
        key = self._key(state)
        known = self._known.get(key)
        if known is None:
            checkpoint()
            known = self._known[key] = self._next(state)
        return known

    def _key(self, state: _State) -> Hashable:
        """Equal for states in which nodes that are alike have changed places."""
        here = Counter((self._alike[slot], each) for slot, each in state.entries().items())
        return frozenset(here.items()), state.waiting

    def _next(self, state: _State) -> _Steps:
        rollout, replicas = self._rollout, self._replicas
        old = sum(pods for _, _, pods in state.old)
        new = sum(pods for _, pods in state.new)
        if new >= replicas - rollout.partition:
            return _Steps(has_completed=True)
        total = old + state.waiting + new
        above = total - (replicas - rollout.unavailable(replicas))
        states = [] if above <= 0 or rollout.doubles else [*self._without_one(state, above)]
        if total >= replicas + rollout.surge(replicas):
            return _Steps(states)
        more = self._with_one(state, old, new)
        return _Steps([*states, *more.states]) if states else more

    def _without_one(self, state: _State, above: int) -> Iterator[_State]:
        """One old pod less; those that wait go first."""
        if state.waiting:
            yield state._replace(waiting=state.waiting - 1)
            return
        on: Counter[int] = Counter(dict(state.new))
        for slot, _, pods in state.old:
            on[slot] += pods
        here, seen = state.entries(), set()
        # Several that go at once are chosen at once: a node may have fewer pods by its turn.
        least = max((on[slot] for slot, _, _ in state.old), default=0) - above + 1
        last = max((kind for _, kind, _ in state.old), default=-1)
        for at, (slot, kind, pods) in enumerate(state.old):
            if self._rollout.ordered:
                may_go = kind == last and kind >= self._rollout.partition
            else:
                may_go = on[slot] >= least
            equal = self._alike[slot], kind, here[slot]
            if may_go and equal not in seen:
                seen.add(equal)
                left = ((slot, kind, pods - 1),) if pods > 1 else ()
                yield state._replace(old=(*state.old[:at], *left, *state.old[at + 1 :]))

    def _with_one(self, state: _State, old: int, new: int) -> _Steps:
        """A new pod more, on each node that takes it; or why none does."""
        self._left -= 1
        self.judged += 1
        number = self._replicas - 1 - new if self._rollout.ordered else new
        cycle = self._cycle(self._at(state), number)
        if cycle.pre_filter_status.code is Code.ERROR:
            text = error_message(cycle.pre_filter_status.reasons[0])
            return _Steps(wait=RolloutWait(old, new, text))
        suits = suited(cycle.asked, self._fit)
        fits = suits.nodes & (cycle.verdicts == FITS) & cycle.view.snapshot.alive
        if not fits.any():
            return _waiting(cycle, suits, old, new)
        here, there = state.entries(), dict(state.new)
        chosen: dict[Hashable, int] = {}
        for slot in np.flatnonzero(fits).tolist() if here else ():
            if slot in here:
                chosen.setdefault((self._alike[slot], here[slot]), slot)
        fits[[slot for slot in here if slot >= 0]] = False
        others = np.flatnonzero(fits)
        _, firsts = np.unique(self._alike[others], return_index=True)
        return _Steps(
            [
                state._replace(new=tuple(sorted({**there, slot: there.get(slot, 0) + 1}.items())))
                for slot in (*chosen.values(), *others[firsts].tolist())
            ]
        )

    # ------------------------------ states

    def _by_kind(
        self, old: Sequence[PodRow], snapshot: Snapshot
    ) -> tuple[tuple[int, int, int], ...]:
        """The old pods by slot and kind; each is a kind of its own where its number counts."""
        known: dict[Hashable, int] = {}
        found: Counter[tuple[int, int]] = Counter()
        for number, row in enumerate(old):
            kind = replace(row, node_name="")
            at = known.setdefault((number, kind) if self._rollout.ordered else kind, len(known))
            if at == len(self._kinds):
                self._kinds.append(kind)
            found[snapshot.slot(row.node_name), at] += 1
        return tuple(sorted((*where, pods) for where, pods in found.items()))

    def _at(self, state: _State) -> Snapshot:
        """The snapshot with the pods of a state."""
        base = self._view.snapshot
        names = base.nodes.names
        moved: Counter[tuple[int, int]] = Counter()
        for delta, of in ((-1, self._first), (1, state)):
            for slot, kind, pods in of.old:
                moved[slot, kind] += delta * pods
        rows = [
            (replace(self._kinds[kind], node_name=names[slot]), pods)
            for (slot, kind), pods in moved.items()
            if pods and slot >= 0
        ]
        rows += [(replace(self._new, node_name=names[slot]), pods) for slot, pods in state.new]
        return base.adjusted(self._judged.pod.shape.pod.namespace, rows, self._groups)

    def _cycle(self, snapshot: Snapshot, number: int) -> Cycle:
        pod, rules, demand = self._judged
        view = replace(self._view, snapshot=snapshot)
        name = f"{pod.name}-{number}" if pod.name else ""
        return Cycle("", pod.shape.pod, rules, self._effective, view, name, demand=demand)


def _row(cycle: Cycle) -> PodRow:
    pod, demand = cycle.pod, cycle.demand
    labels = tuple(sorted(pod.labels.items()))
    holds = holds_of(demand, pod.namespace, cycle.name)
    return PodRow(labels, "", counted=True, requests=demand.requests, holds=holds)


def _waiting(cycle: Cycle, suits: Suited, old: int, new: int) -> _Steps:
    spreading = spread_rules(cycle.verdicts)
    order = cycle.view.snapshot.nodes.order
    reasons, _ = suits.reasons(order, spreading)
    wait = RolloutWait(old, new, suits.message(order.size, reasons), _lacks_capacity(cycle, suits))
    gaps = preemption_gaps(cycle.asked, suits, spreading)
    return _Steps(wait=wait, may_preempt=bool(gaps))


def _lacks_capacity(cycle: Cycle, suits: Suited) -> bool:
    """Whether some node would take the pod if it had more resources left."""
    left = cycle.view.snapshot.alive & (cycle.verdicts == FITS)
    for rule in suits.rules():
        refused = rule.refused & left
        if rule.plugin == node_resources_fit.NAME and refused.any():
            return True
        left = left & ~refused
    return False
