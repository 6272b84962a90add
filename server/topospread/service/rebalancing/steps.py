"""From numbers of moves to evictions in order, each tried on the state that the ones before left.

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
from topospread.service.cycle import Cycle
from topospread.service.evaluate import matching
from topospread.service.fit import Fit, suited
from topospread.spread.verdicts import FITS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from topospread.index.snapshot import Snapshot
    from topospread.replica.view import View
    from topospread.service.rebalancing.modelling import Model, Mover
    from topospread.service.rebalancing.program import Moves
    from topospread.service.turns import Turns
    from topospread.spread.topology import GroupKey


@dataclass(frozen=True, slots=True)
class Step:
    """A pod that is evicted, and where its replacement is counted from then on.

    Attributes:
        fitting: nodes that it may go to at that moment.
    """

    mover: Mover
    target: int
    fitting: int


@dataclass(slots=True, eq=False)
class Walk:
    """Steps from one state to another.

    Attributes:
        at_once: all pods must be evicted before the first replacement is placed.
    """

    steps: list[Step]
    state: Snapshot
    at_once: bool = False


class Walker:
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
        turn: Turns,
    ) -> None:
        self._view = view
        self._groups = groups
        self._left = left
        self._turn = turn
        # Of equal nodes, the first by name: the same on every process.
        nodes = view.snapshot.nodes
        self._rank = np.zeros(nodes.capacity, dtype=np.int64)
        self._rank[nodes.order] = np.arange(nodes.order.size)

    def walk(self, model: Model, moves: Moves, state: Snapshot) -> Walk | None:
        """Steps that make the moves: one pod after the other, or else all evictions first.

        None when the engine refuses both ways.

        Raises:
            DeadlineExceeded: the call's deadline passed.
        """
        return self._one_by_one(model, moves, state) or self._at_once(model, moves, state)

    def _one_by_one(self, model: Model, moves: Moves, state: Snapshot) -> Walk | None:
        leaving, coming = moves.leaving.copy(), moves.coming.copy()
        pool = _Pool(model, self._left)
        steps: list[Step] = []
        while leaving.any():
            step = None
            for mover in pool.candidates(leaving):
                without = self._moved(state, mover, mover.slot, -1)
                step = self._step(model, coming[mover.type], without, mover)
                if step is not None:
                    state = self._moved(without, mover, step.target, +1)
                    break
            if step is None:
                return None
            steps.append(step)
            pool.take(step.mover)
            leaving[step.mover.type, step.mover.tier, model.classes[step.mover.slot]] -= 1
            coming[step.mover.type, model.classes[step.target]] -= 1
        return Walk(steps, state)

    def _at_once(self, model: Model, moves: Moves, state: Snapshot) -> Walk | None:
        leaving, coming = moves.leaving.copy(), moves.coming.copy()
        pool = _Pool(model, self._left)
        waiting: list[Mover] = []
        while leaving.any():
            mover = next(pool.candidates(leaving), None)
            if mover is None:
                return None
            state = self._moved(state, mover, mover.slot, -1)
            pool.take(mover)
            leaving[mover.type, mover.tier, model.classes[mover.slot]] -= 1
            waiting.append(mover)
        placed: dict[int, Step] = {}
        while len(placed) < len(waiting):
            before = len(placed)
            for number, mover in enumerate(waiting):
                if number in placed:
                    continue
                step = self._step(model, coming[mover.type], state, mover)
                if step is not None:
                    placed[number] = step
                    state = self._moved(state, mover, step.target, +1)
                    coming[mover.type, model.classes[step.target]] -= 1
            if len(placed) == before:
                return None
        return Walk(list(placed.values()), state, at_once=True)

    def _moved(self, state: Snapshot, mover: Mover, slot: int, delta: int) -> Snapshot:
        self._turn()
        pod = mover.kind.shape.pod
        row = ReservationRow(
            mover.member.uid,
            tuple(sorted(pod.labels.items())),
            state.nodes.names[slot],
            requests=mover.facts.demand.requests,
        )
        return state.adjusted(pod.namespace, [(row, delta)], self._groups)

    def _step(
        self, model: Model, coming: NDArray[np.int64], state: Snapshot, mover: Mover
    ) -> Step | None:
        """The emptiest of the nodes that fit and are to be filled; None when there is none."""
        kind, member = mover.kind, mover.member
        suits = suited(
            state,
            kind.shape.pod,
            kind.judgeable.constraints.requirements,
            mover.facts.demand,
            Fit.NODE_AND_RESOURCES,
            comparison_operators=kind.rules.gates.taint_comparison_operators,
        ).nodes
        view = replace(self._view, snapshot=state)
        cycle = Cycle("", kind.shape.pod, kind.rules, kind.judgeable, view, member.name, member.uid)
        fits = suits & state.alive & (cycle.verdicts == FITS)
        wanted = np.zeros(model.size + 1, dtype=np.bool_)
        wanted[:-1] = coming > 0
        slots = np.flatnonzero(fits & wanted[model.classes])
        if not slots.size:
            return None
        slots = _lowest(slots, matching(cycle, slots))
        here = np.zeros(slots.size, dtype=np.int64)
        for group in kind.judgeable.groups:
            here += state.node_counts(group)[slots]
        slots = _lowest(slots, here)
        target = int(slots[np.argmin(self._rank[slots])])
        return Step(mover, target, int(np.count_nonzero(fits)))


def _lowest(slots: NDArray[np.intp], values: NDArray[np.int64]) -> NDArray[np.intp]:
    lowest: NDArray[np.intp] = slots[values == values.min()]
    return lowest


class _Pool:
    """The pods that may be evicted, by what the program knows of them.

    Of a cell, one of the least missed on the fullest node goes first, the newest of these.
    """

    def __init__(self, model: Model, left: Mapping[int, int] | None) -> None:
        self._movers = model.movers
        self._classes = model.classes
        self._left = None if left is None else dict(left)
        self._on_node = Counter(mover.slot for mover in model.movers)
        self._cells: dict[tuple[int, int, int], list[_Entry]] = {}
        for number, mover in enumerate(model.movers):
            if not mover.stays:
                self._cells.setdefault(self._cell(mover), []).append(self._entry(number))
        for cell in self._cells.values():
            heapify(cell)

    def candidates(self, leaving: NDArray[np.int64]) -> Iterator[Mover]:
        """One pod for each cell that something must leave, the fullest cell first."""
        cells = [(int(t), int(tier), int(c)) for t, tier, c in np.argwhere(leaving)]
        for cell in sorted(cells, key=lambda cell: (-int(leaving[cell]), cell)):
            entry = self._first(self._cells.get(cell, []))
            if entry is not None:
                yield self._movers[entry[-1]]

    def take(self, mover: Mover) -> None:
        """The pod is evicted; it is the one that its cell offered last."""
        heappop(self._cells[self._cell(mover)])
        self._on_node[mover.slot] -= 1
        if self._left is not None:
            self._left[mover.slot] -= 1

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
        mover = self._movers[number]
        facts = mover.facts
        fullness = -self._on_node[mover.slot]
        name = mover.member.name
        return (facts.priority, facts.deletion_cost, fullness, -facts.created, name, number)

    def _cell(self, mover: Mover) -> tuple[int, int, int]:
        return mover.type, mover.tier, int(self._classes[mover.slot])


_Entry = tuple[int, int, int, int, str, int]
