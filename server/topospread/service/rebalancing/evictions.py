"""Evictions in order, from numbers of moves; each is tried on the state that the ones before left.

A step takes a pod away, asks the engine's own Filter and PlacePod's own fit where its replacement
may go then, and counts it on one of the nodes that the program wants filled.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace
from typing import TYPE_CHECKING

import numpy as np

from topospread.index.changes import ReservationRow
from topospread.kube.demands import holds_of
from topospread.service.decisions.cycle import Cycle
from topospread.service.decisions.evaluate import matching
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit
from topospread.spread.verdicts import FITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from topospread.checkpoints import CooperativeYield
    from topospread.index.snapshot import Snapshot
    from topospread.replica.view import View
    from topospread.service.rebalancing.integer_program import ProgramSolution
    from topospread.service.rebalancing.model import MovablePod, RebalanceModel
    from topospread.spread.topology import GroupKey


_Entry = tuple[int, int, int, int, str, int]


@dataclass(frozen=True, slots=True)
class EvictionStep:
    """A pod that is evicted, and where its replacement is counted from then on.

    Attributes:
        fitting: nodes that it may go to at that moment.
    """

    movable: MovablePod
    target: int
    fitting: int


@dataclass(slots=True, eq=False)
class EvictionSequence:
    """Steps from one state to another.

    Attributes:
        at_once: all pods must be evicted before the first replacement is placed.
    """

    steps: list[EvictionStep]
    state: Snapshot
    at_once: bool = False


class EvictionSequencer:
    """Finds steps; one for each program.

    Args:
        view: for cycles.
        groups: all that the pods' constraints and the program count.
        left: evictions that are left by slot; None: any number.
        turn: called for each move.
    """

    def __init__(
        self,
        view: View,
        groups: Sequence[GroupKey],
        left: Mapping[int, int] | None,
        turn: CooperativeYield,
    ) -> None:
        self._view = view
        self._groups = groups
        self._left = left
        self._turn = turn
        # Of equal nodes, the first by name: the same on every process.
        nodes = view.snapshot.nodes
        self._rank = np.zeros(nodes.capacity, dtype=np.int64)
        self._rank[nodes.order] = np.arange(nodes.order.size)

    def sequence(
        self, model: RebalanceModel, moves: ProgramSolution, state: Snapshot
    ) -> EvictionSequence | None:
        """Steps that make the moves: one pod after the other, or else all evictions first.

        None when the engine refuses both ways.

        Raises:
            DeadlineExceeded: the call's deadline passed.
        """
        return self._one_by_one(model, moves, state) or self._at_once(model, moves, state)

    def _one_by_one(
        self, model: RebalanceModel, moves: ProgramSolution, state: Snapshot
    ) -> EvictionSequence | None:
        leaving, coming = moves.leaving.copy(), moves.coming.copy()
        pool = _PodPool(model, self._left)
        steps: list[EvictionStep] = []
        while leaving.any():
            step = None
            for movable in pool.candidates(leaving):
                without = self._moved(state, movable, movable.slot, -1)
                step = self._step(model, coming[movable.type], without, movable)
                if step is not None:
                    state = self._moved(without, movable, step.target, +1)
                    break
            if step is None:
                return None
            steps.append(step)
            pool.take(step.movable)
            leaving[step.movable.type, step.movable.tier, model.classes[step.movable.slot]] -= 1
            coming[step.movable.type, model.classes[step.target]] -= 1
        return EvictionSequence(steps, state)

    def _at_once(
        self, model: RebalanceModel, moves: ProgramSolution, state: Snapshot
    ) -> EvictionSequence | None:
        leaving, coming = moves.leaving.copy(), moves.coming.copy()
        pool = _PodPool(model, self._left)
        waiting: list[MovablePod] = []
        while leaving.any():
            movable = next(pool.candidates(leaving), None)
            if movable is None:
                return None
            state = self._moved(state, movable, movable.slot, -1)
            pool.take(movable)
            leaving[movable.type, movable.tier, model.classes[movable.slot]] -= 1
            waiting.append(movable)
        placed: dict[int, EvictionStep] = {}
        while len(placed) < len(waiting):
            before = len(placed)
            for number, movable in enumerate(waiting):
                if number in placed:
                    continue
                step = self._step(model, coming[movable.type], state, movable)
                if step is not None:
                    placed[number] = step
                    state = self._moved(state, movable, step.target, +1)
                    coming[movable.type, model.classes[step.target]] -= 1
            if len(placed) == before:
                return None
        return EvictionSequence(list(placed.values()), state, at_once=True)

    def _moved(self, state: Snapshot, movable: MovablePod, slot: int, delta: int) -> Snapshot:
        self._turn()
        pod, facts = movable.pod_class.shape.pod, movable.facts
        row = ReservationRow(
            movable.member.uid,
            tuple(sorted(pod.labels.items())),
            state.nodes.names[slot],
            requests=facts.takes if delta < 0 else facts.demand.requests,
            holds=holds_of(facts.demand, pod.namespace, movable.member.name),
        )
        return state.adjusted(pod.namespace, [(row, delta)], self._groups)

    def _step(
        self, model: RebalanceModel, coming: NDArray[np.int64], state: Snapshot, movable: MovablePod
    ) -> EvictionStep | None:
        """The emptiest of the nodes that fit and are to be filled; None when there is none."""
        pod_class = movable.pod_class
        view = replace(self._view, snapshot=state)
        cycle = Cycle(
            "",
            pod_class.shape.pod,
            pod_class.rules,
            pod_class.effective,
            view,
            movable.member.name,
            demand=movable.facts.demand,
        )
        suits = suited(cycle.asked, Fit.ALL)
        fits = suits.nodes & state.alive & (cycle.verdicts == FITS)
        wanted = np.zeros(model.size + 1, dtype=np.bool_)
        wanted[:-1] = coming > 0
        slots = np.flatnonzero(fits & wanted[model.classes])
        if not slots.size:
            return None
        slots = _lowest(slots, matching(cycle, slots))
        here = np.zeros(slots.size, dtype=np.int64)
        for group in pod_class.effective.groups:
            here += state.node_counts(group)[slots]
        slots = _lowest(slots, here)
        target = int(slots[np.argmin(self._rank[slots])])
        return EvictionStep(movable, target, int(np.count_nonzero(fits)))


def _lowest(slots: NDArray[np.intp], values: NDArray[np.int64]) -> NDArray[np.intp]:
    lowest: NDArray[np.intp] = slots[values == values.min()]
    return lowest


class _PodPool:
    """The pods that may be evicted, by what the program knows of them.

    Of a cell, one of the least missed on the fullest node goes first, the newest of these.
    """

    def __init__(self, model: RebalanceModel, left: Mapping[int, int] | None) -> None:
        self._movers = model.movable_pods
        self._classes = model.classes
        self._left = None if left is None else dict(left)
        self._on_node = Counter(movable.slot for movable in model.movable_pods)
        self._cells: dict[tuple[int, int, int], list[_Entry]] = {}
        for number, movable in enumerate(model.movable_pods):
            if not movable.stays:
                self._cells.setdefault(self._cell(movable), []).append(self._entry(number))
        for cell in self._cells.values():
            heapify(cell)

    def candidates(self, leaving: NDArray[np.int64]) -> Iterator[MovablePod]:
        """One pod for each cell that something must leave, the fullest cell first."""
        cells = [(int(t), int(tier), int(c)) for t, tier, c in np.argwhere(leaving)]
        for cell in sorted(cells, key=lambda cell: (-int(leaving[cell]), cell)):
            entry = self._first(self._cells.get(cell, []))
            if entry is not None:
                yield self._movers[entry[-1]]

    def take(self, movable: MovablePod) -> None:
        """The pod is evicted; it is the one that its cell offered last."""
        heappop(self._cells[self._cell(movable)])
        self._on_node[movable.slot] -= 1
        if self._left is not None:
            self._left[movable.slot] -= 1

    def _first(self, cell: list[_Entry]) -> _Entry | None:
        """The entry that is due; nodes may have become emptier since it was made."""
        while cell:
            entry = cell[0]
            number = entry[-1]
            slot = self._movers[number].slot
            if self._left is not None and self._left.get(slot, 0) <= 0:
                heappop(cell)
                continue
            current = self._entry(number)
            if current == entry:
                return entry
            heapreplace(cell, current)
        return None

    def _entry(self, number: int) -> _Entry:
        movable = self._movers[number]
        facts = movable.facts
        fullness = -self._on_node[movable.slot]
        name = movable.member.name
        return (facts.priority, facts.deletion_cost, fullness, -facts.created, name, number)

    def _cell(self, movable: MovablePod) -> tuple[int, int, int]:
        return movable.type, movable.tier, int(self._classes[movable.slot])
