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
from typing import TYPE_CHECKING, Final

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
from topospread.service.rollouts.states import WAITING, NextStates, State, Steps
from topospread.spread.rollouts import RolloutEnd, RolloutOutcome, RolloutWait
from topospread.spread.verdicts import FITS, Code, error_message

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence

    from numpy.typing import NDArray

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

_NEW: Final = -1
"""The kind of a new pod: the last."""

_MOST_KEPT: Final = 2_000_000
"""Next states of all that are kept, of 4 bytes each."""

_MOST_READ: Final = 4_000_000
"""Entries of the states that are looked at, added up: a microsecond each."""

MOST_PODS: Final = 500
"""Pods of a rollout whose courses are followed."""


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

    Attributes:
        wanted: how many states it would judge.
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
    ) -> None:
        self._view, self._judged, self._fit = view, pod, fit
        self._rollout, self._replicas = rollout, replicas
        snapshot = view.snapshot
        self._effective = pod.pod.shape.effective_constraints(pod.rules, snapshot)
        first = self._cycle(snapshot, 0)
        self._groups = tuple(first.needed)
        self._new = _row(first)
        self._kinds: list[PodRow] = []
        self._first = State(self._by_kind(old, snapshot), (), waiting)
        self._is_roomy = is_roomy(first, replicas)
        self._has_gaps = bool(gaps_of(first.asked, fit))
        self.wanted = 0 if self._is_roomy else _wanted(snapshot, max(replicas, len(old)))
        self._left, self._kept, self._read = self.wanted, _MOST_KEPT, _MOST_READ
        self._alike: NDArray[np.intp] = np.zeros(0, dtype=np.intp)
        self._known: dict[bytes, Steps] = {}
        self._reached = self._first, snapshot

    def outcome(self, most: int | None = None) -> RolloutOutcome:
        """Follow the courses.

        Args:
            most: states that may be judged; None for as many as are wanted.
        """
        update = self._rollout, self._replicas
        if self._is_roomy:
            return RolloutOutcome(RolloutEnd.COMPLETES, *update, proven=not self._has_gaps)
        self._left = self.wanted if most is None else min(self.wanted, most)
        self._alike = alike(self._cycle(self._view.snapshot, 0), (self._new, *self._kinds))
        drawn = self._all_drawn()
        completed, wait, uncertain = False, None, False
        ends = chain(drawn, self._ends())
        while not (completed and wait) and (steps := next(ends, None)) is not None:
            completed = completed or steps.has_completed
            uncertain = uncertain or steps.may_preempt
            wait = wait or steps.wait
        proven = self._left > 0 or bool(completed and wait)
        if wait is None:
            end = RolloutEnd.COMPLETES if completed else RolloutEnd.UNKNOWN
            return RolloutOutcome(end, *update, proven=proven and not self._has_gaps)
        is_chance = completed or uncertain or not proven
        end = RolloutEnd.MAY_WAIT if is_chance else RolloutEnd.WAITS
        waiting = sum(steps.wait is not None for steps in drawn)
        return RolloutOutcome(end, *update, wait, proven, len(drawn), waiting)

    # ------------------------------ courses

    def _all_drawn(self) -> Sequence[Steps]:
        """The ends of the courses that were followed to one."""
        found = []
        for number in range(_COURSES):
            steps, has_choice = self._drawn(random.Random(number))
            if not has_choice and steps.states is None:
                return [steps] * _COURSES  # all are the same
            if steps.states is None:
                found.append(steps)
        return found

    def _drawn(self, chosen: random.Random) -> tuple[Steps, bool]:
        """The last steps of one course, and whether there was another."""
        steps, has_choice = self._steps(self._first), False
        while steps.states is not None and self._left > 0:
            has_choice = has_choice or len(steps.states) > 1
            steps = self._steps(chosen.choice(steps.states))
        return steps, has_choice

    def _ends(self) -> Iterator[Steps]:
        """The ends of all courses, while there are few."""
        seen = {self._key(self._first)}
        rest = [iter([self._first])]
        while rest and self._left > 0:
            state = next(rest[-1], None)
            if state is None:
                rest.pop()
                continue
            steps = self._steps(state)
            if steps.states is None:
                yield steps
            else:
                rest.append(self._unseen(steps.states, seen))

    def _unseen(self, states: NextStates, seen: set[bytes]) -> Iterator[State]:
        """Those that were not seen yet."""
        for number in reversed(range(len(states))):
            if self._left <= 0:
                return
            state = states[number]
            key = self._key(state)
            if key not in seen:
                seen.add(key)
                yield state

    def _steps(self, state: State) -> Steps:
        key = self._key(state)
        known = self._known.get(key)
        if known is not None:
            return known
        checkpoint()
        steps = self._next(state)
        size = 1 if steps.states is None else len(steps.states) + state.size
        self._kept -= size
        if self._kept >= 0:
            self._known[key] = steps
        return steps

    def _key(self, state: State) -> bytes:
        self._read -= state.size
        if self._read < 0:
            self._left = 0
        return state.key(self._alike)

    def _next(self, state: State) -> Steps:
        rollout, replicas = self._rollout, self._replicas
        old = sum(pods for _, _, pods in state.old)
        new = sum(pods for _, pods in state.new)
        if new >= replicas - rollout.partition:
            return Steps(has_completed=True)
        total = old + state.waiting + new
        above = total - (replicas - rollout.unavailable(replicas))
        gone = [] if above <= 0 or rollout.doubles else [*self._that_go(state, above)]
        if total >= replicas + rollout.surge(replicas):
            return Steps(NextStates(state, gone))
        more = self._with_one(state, old, new)
        if not gone:
            return more
        come = NextStates(state) if more.states is None else more.states
        return Steps(replace(come, gone=gone))

    def _that_go(self, state: State, above: int) -> Iterator[int]:
        """Positions of old pods of which one goes next; those that wait go first."""
        if state.waiting:
            yield WAITING
            return
        on: Counter[int] = Counter(dict(state.new))
        for slot, _, pods in state.old:
            on[slot] += pods
        here, seen = state.entries(), set()
        # Several that go at once are chosen at once: a node may have fewer pods by its turn.
        least = max((on[slot] for slot, _, _ in state.old), default=0) - above + 1
        last = max((kind for _, kind, _ in state.old), default=-1)
        for at, (slot, kind, _) in enumerate(state.old):
            if self._rollout.ordered:
                may_go = kind == last and kind >= self._rollout.partition
            else:
                may_go = on[slot] >= least
            equal = self._alike[slot], kind, here[slot]
            if may_go and equal not in seen:
                seen.add(equal)
                yield at

    def _with_one(self, state: State, old: int, new: int) -> Steps:
        """A new pod more, on each node that takes it; or why none does."""
        self._left -= 1
        number = self._replicas - 1 - new if self._rollout.ordered else new
        cycle = self._cycle(self._at(state), number)
        if cycle.pre_filter_status.code is Code.ERROR:
            text = error_message(cycle.pre_filter_status.reasons[0])
            return Steps(wait=RolloutWait(old, new, text))
        suits = suited(cycle.asked, self._fit)
        fits = suits.nodes & (cycle.verdicts == FITS) & cycle.view.snapshot.alive
        if not fits.any():
            return _waiting(cycle, suits, old, new)
        here = state.entries()
        chosen: dict[Hashable, int] = {}
        for slot in sorted(here):
            if slot >= 0 and fits[slot]:
                chosen.setdefault((self._alike[slot], here[slot]), slot)
        fits[[slot for slot in here if slot >= 0]] = False
        others = np.flatnonzero(fits)
        _, firsts = np.unique(self._alike[others], return_index=True)
        come = np.array([*chosen.values(), *others[firsts].tolist()], dtype=np.int32)
        return Steps(NextStates(state, come=come))

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

    def _at(self, state: State) -> Snapshot:
        """The snapshot with the pods of a state: those that differ from the state before."""
        before, snapshot = self._reached
        names = snapshot.nodes.names
        moved: Counter[tuple[int, int]] = Counter()
        for delta, of, other in ((-1, before, state), (1, state, before)):
            for slot, kind, pods in {*of.old} - {*other.old}:
                moved[slot, kind] += delta * pods
            for slot, pods in {*of.new} - {*other.new}:
                moved[slot, _NEW] += delta * pods
        kinds = [*self._kinds, self._new]
        rows = [
            (replace(kinds[kind], node_name=names[slot]), pods)
            for (slot, kind), pods in moved.items()
            if pods and slot >= 0
        ]
        namespace = self._judged.pod.shape.pod.namespace
        self._reached = state, snapshot.adjusted(namespace, rows, self._groups)
        return self._reached[1]

    def _cycle(self, snapshot: Snapshot, number: int) -> Cycle:
        pod, rules, demand = self._judged
        view = replace(self._view, snapshot=snapshot)
        name = f"{pod.name}-{number}" if pod.name else ""
        return Cycle("", pod.shape.pod, rules, self._effective, view, name, demand=demand)


def _wanted(snapshot: Snapshot, pods: int) -> int:
    """How many states of a rollout of so many pods are judged."""
    if pods > MOST_PODS:
        return 0
    few = min(MOST_STATES, _JUDGED_NODES // (snapshot.node_count + pods))
    # One course has a state for each pod that comes or goes.
    return max(_FEWEST_STATES, 2 * pods + 2, few)


def _row(cycle: Cycle) -> PodRow:
    pod, demand = cycle.pod, cycle.demand
    labels = tuple(sorted(pod.labels.items()))
    holds = holds_of(demand, pod.namespace, cycle.name)
    return PodRow(labels, "", counted=True, requests=demand.requests, holds=holds)


def _waiting(cycle: Cycle, suits: Suited, old: int, new: int) -> Steps:
    spreading = spread_rules(cycle.verdicts)
    order = cycle.view.snapshot.nodes.order
    reasons, _ = suits.reasons(order, spreading)
    wait = RolloutWait(old, new, suits.message(order.size, reasons), _lacks_capacity(cycle, suits))
    gaps = preemption_gaps(cycle.asked, suits, spreading)
    return Steps(wait=wait, may_preempt=bool(gaps))


def _lacks_capacity(cycle: Cycle, suits: Suited) -> bool:
    """Whether some node would take the pod if it had more resources left."""
    left = cycle.view.snapshot.alive & (cycle.verdicts == FITS)
    for rule in suits.rules():
        refused = rule.refused & left
        if rule.plugin == node_resources_fit.NAME and refused.any():
            return True
        left = left & ~refused
    return False
