"""Fewest moves as an integer program, solved by HiGHS.

Pods of one *type* are equal to the constraints, and so are nodes of one *class*. Unknown are how
many pods of each type leave each class and come to it, and the lowest count L of each constraint::

    L ≤ (pods there − leaving + coming) / nodes ≤ L + maxSkew     for each domain

with `nodes` = 1, except where every node is a domain of its own: there equal nodes stand in one row
for all of them, which any plan fulfils, so that the least number found is a bound for every plan.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from topospread.checkpoints import checkpoint
from topospread.errors import TopospreadError

if TYPE_CHECKING:
    from collections.abc import Sequence

Counts = NDArray[np.int64]

_WHOLE: Final = 1e-6


@dataclass(frozen=True, slots=True, eq=False)
class DomainVariables:
    """One domain, or equal ones that are one node each.

    Attributes:
        classes: of its nodes.
        domains: how many it stands for.
        pods: that count there now, in all of them.
    """

    classes: Sequence[int]
    domains: int
    pods: int


@dataclass(frozen=True, slots=True, eq=False)
class ConstraintRow:
    """One constraint as a row of the program.

    Attributes:
        max_skew: that must hold.
        floats: whether the global minimum follows the counts; else it is 0.
        matches: [types] whether a pod of the type counts.
        counted: [classes] whether pods on its nodes count.
        domains: those with eligible nodes.
    """

    max_skew: int
    floats: bool
    matches: Sequence[bool]
    counted: Sequence[bool]
    domains: Sequence[DomainVariables]


@dataclass(frozen=True, slots=True, eq=False)
class IntegerProgram:
    """The variables and rows of the program: what may move, and what must hold.

    Attributes:
        movable: [types, tiers, classes] pods that may leave; lower tiers rather than higher ones.
        headroom: [types, classes] pods that may come.
        leaving: [classes] pods that may leave in all; None: no limit.
    """

    movable: Counts
    headroom: Counts
    rows: Sequence[ConstraintRow]
    leaving: Counts | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ProgramSolution:
    """A solution of the program.

    Attributes:
        leaving: [types, tiers, classes].
        coming: [types, classes].
        least: no solution has fewer moves.
        proved: this one has as few.
    """

    leaving: Counts
    coming: Counts
    least: int
    proved: bool

    @property
    def count(self) -> int:
        """The number of pods that move."""
        return int(self.leaving.sum())


class NoTimeLeft(Exception):  # noqa: N818 - an outcome
    """The time ended before a solution was found or excluded."""


def solve(program: IntegerProgram, seconds: float) -> ProgramSolution | None:
    """The fewest moves; of these, moves of low tiers. None when nothing fulfils the program.

    Raises:
        NoTimeLeft: nothing was found by then.
    """
    ends = time.monotonic() + seconds
    columns = _Columns(program)
    first = columns.run(columns.ones(), None, seconds)
    if first is None:
        return None
    solution, bound, proved = first
    count = round(float(solution[: columns.size_out].sum()))
    tiers = program.movable.shape[1]
    if tiers > 1 and count:
        # Which of the cheapest plans evicts what is least missed is asked second, not mixed in.
        try:
            second = columns.run(columns.tiers(), count, ends - time.monotonic())
        except NoTimeLeft:
            second = None
        if second is not None:
            solution = second[0]
    least = int(np.ceil(bound - _WHOLE))
    return ProgramSolution(*columns.split(solution), min(least, count), proved)


class _Columns:
    """The program as HiGHS takes it: columns for what leaves, what comes, and each L."""

    def __init__(self, program: IntegerProgram) -> None:
        self._program = program
        types, tiers, classes = program.movable.shape
        self._out = np.flatnonzero(program.movable.reshape(-1))
        self._in = np.flatnonzero(program.headroom.reshape(-1))
        self.size_out = self._out.size
        self._levels = self.size_out + self._in.size
        self._size = self._levels + len(program.rows)
        self._shape = (types, tiers, classes)
        self._starts = [0]
        self._index: list[int] = []
        self._value: list[float] = []
        self._low: list[float] = []
        self._high: list[float] = []
        # [classes] which columns count what leaves and comes there, with their types.
        self._leaving: list[list[tuple[int, int]]] = [[] for _ in range(classes)]
        self._coming: list[list[tuple[int, int]]] = [[] for _ in range(classes)]
        for column, at in enumerate(self._out.tolist()):
            self._leaving[at % classes].append((at // (tiers * classes), column))
        for column, at in enumerate(self._in.tolist(), start=self.size_out):
            self._coming[at % classes].append((at // classes, column))
        self._fill()

    def _fill(self) -> None:
        program = self._program
        for number, row in enumerate(program.rows):
            level = self._levels + number
            for domain in row.domains:
                checkpoint()
                entries = [(level, -float(domain.domains))] if row.floats else []
                for each in domain.classes:
                    if row.counted[each]:
                        entries += [(c, -1.0) for t, c in self._leaving[each] if row.matches[t]]
                        entries += [(c, 1.0) for t, c in self._coming[each] if row.matches[t]]
                top = row.max_skew * domain.domains - domain.pods
                self._row(entries, -float(domain.pods) if row.floats else -np.inf, float(top))
        for pod_class in range(self._shape[0]):
            entries = [(c, -1.0) for each in self._leaving for t, c in each if t == pod_class]
            entries += [(c, 1.0) for each in self._coming for t, c in each if t == pod_class]
            self._row(entries, 0.0, 0.0)
        if program.leaving is not None:
            for each, limit in enumerate(program.leaving.tolist()):
                if self._leaving[each]:
                    self._row([(c, 1.0) for _, c in self._leaving[each]], 0.0, float(limit))

    def _row(self, entries: Sequence[tuple[int, float]], low: float, high: float) -> None:
        self._index += [column for column, _ in entries]
        self._value += [value for _, value in entries]
        self._starts.append(len(self._index))
        self._low.append(low)
        self._high.append(high)

    def ones(self) -> NDArray[np.float64]:
        costs = np.zeros(self._size)
        costs[: self.size_out] = 1.0
        return costs

    def tiers(self) -> NDArray[np.float64]:
        costs = np.zeros(self._size)
        _, tiers, classes = self._shape
        costs[: self.size_out] = self._out // classes % tiers
        return costs

    def run(
        self, costs: NDArray[np.float64], moves: int | None, seconds: float
    ) -> tuple[NDArray[np.float64], float, bool] | None:
        """The cheapest solution, a bound that none goes below, and whether it reaches that.

        Args:
            costs: [columns].
            moves: exactly so many; None: any number.
            seconds: for the search.

        Raises:
            NoTimeLeft: nothing was found by then.
            DeadlineExceeded, CallerGone: the call has ended.
        """
        # Not before a plan is asked for: it is a library of some megabytes.
        import highspy

        lp = highspy.HighsLp()
        lp.num_col_, lp.num_row_ = self._size, len(self._low)
        lp.col_cost_ = costs
        lp.col_lower_ = np.zeros(self._size)
        lp.col_upper_ = self._upper()
        lp.row_lower_ = np.array(self._low)
        lp.row_upper_ = np.array(self._high)
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.array(self._starts, dtype=np.int32)
        lp.a_matrix_.index_ = np.array(self._index, dtype=np.int32)
        lp.a_matrix_.value_ = np.array(self._value)
        lp.integrality_ = [highspy.HighsVarType.kInteger] * self._size
        solver: Any = highspy.Highs()  # type: ignore[no-untyped-call]
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("time_limit", max(seconds, 0.01))
        solver.setOptionValue("mip_rel_gap", 0.0)
        solver.passModel(lp)
        if moves is not None:
            chosen = np.arange(self.size_out, dtype=np.int32)
            solver.addRow(moves, moves, chosen.size, chosen, np.ones(chosen.size))
        ended: list[TopospreadError] = []

        def look(event: Any) -> None:
            try:
                checkpoint()
            except TopospreadError as error:
                ended.append(error)
                event.interrupt()

        solver.cbMipInterrupt += look
        solver.run()
        if ended:
            raise ended[0]
        status, info = solver.getModelStatus(), solver.getInfo()
        if status == highspy.HighsModelStatus.kOptimal:
            solution = np.round(np.array(solver.getSolution().col_value))
            return solution, float(info.objective_function_value), True
        found = info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        if status == highspy.HighsModelStatus.kTimeLimit and found:
            solution = np.round(np.array(solver.getSolution().col_value))
            return solution, max(0.0, float(info.mip_dual_bound)), False
        if status == highspy.HighsModelStatus.kTimeLimit:
            raise NoTimeLeft
        return None

    def _upper(self) -> NDArray[np.float64]:
        most = float(sum(d.pods for row in self._program.rows for d in row.domains)) + 1
        upper = np.full(self._size, most + float(self._program.movable.sum()))
        upper[: self.size_out] = self._program.movable.reshape(-1)[self._out]
        upper[self.size_out : self._levels] = self._program.headroom.reshape(-1)[self._in]
        for number, row in enumerate(self._program.rows):
            if not row.floats:
                upper[self._levels + number] = 0.0
        return upper

    def split(self, solution: NDArray[np.float64]) -> tuple[Counts, Counts]:
        """The pods that leave and those that come, counted by type and class of nodes."""
        types, _, classes = self._shape
        leaving = np.zeros(self._program.movable.size, dtype=np.int64)
        leaving[self._out] = solution[: self.size_out]
        coming = np.zeros(types * classes, dtype=np.int64)
        coming[self._in] = solution[self.size_out : self._levels]
        return leaving.reshape(self._shape), coming.reshape(types, classes)
