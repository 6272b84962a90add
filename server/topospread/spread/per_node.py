"""Writes the judgement of classes out per node, for answers that list all nodes.

All nodes of a cell have the same verdict and score, so these are worked out once per cell and
picked by each node's cell.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.spread.classes import (
    cells_of,
    class_verdict,
    criterion,
    normalized_score,
    passing,
    raw_score,
    weigh,
)
from topospread.spread.verdicts import TOO_SKEWED, VERDICTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from topospread.spread.cells import Cells
    from topospread.spread.classes import ClassFit
    from topospread.spread.filtering import Verdicts
    from topospread.spread.plans import Plan
    from topospread.spread.topology import Ints, Topology

MAX_CELLS: Final = 512
"""Past it, arrays over all nodes are quicker."""


def verdicts_of_each(plan: Plan, topology: Topology) -> Verdicts:
    """[nodes] verdicts, in the order of the node names."""
    cells = cells_of(plan, topology)
    criteria = [criterion(term, topology, cells) for term in plan.hard]
    table = bytearray()
    for number in range(len(cells.held)):
        failure, limit, _, _ = class_verdict(criteria, number)
        within = max(0, min(limit + 1, cells.width))
        table += bytes((failure,)) * within + bytes((TOO_SKEWED,)) * (cells.width - within)
    return np.frombuffer(table, dtype=np.uint8).take(cells.of_nodes)


@dataclass(frozen=True, slots=True, eq=False)
class CellScores:
    """Scores of candidates by cell.

    Attributes:
        raw_of, normalized_of: [cells] as in :class:`~topospread.spread.scoring.Scores`.
        cell: [candidates] each one's cell.
    """

    raw_of: Sequence[int]
    normalized_of: Sequence[int]
    cell: NDArray[np.intp]

    @property
    def raw(self) -> Ints:
        """[candidates] upstream's score."""
        return np.array(self.raw_of, dtype=np.int64)[self.cell]

    @property
    def normalized(self) -> Ints:
        """[candidates] 0 to 100."""
        return np.array(self.normalized_of, dtype=np.int64)[self.cell]


def scores_of_each(
    plan: Plan, topology: Topology
) -> tuple[NDArray[np.intp], CellScores | None] | None:
    """The nodes that pass, and their scores.

    Returns:
        [passing] positions in the order of the node names, and their scores (None without soft
        constraints or passing nodes); None in all when there are too many cells to be quick.
    """
    cells = cells_of(plan, topology)
    width = cells.width
    if len(cells.held) * width > MAX_CELLS:
        return None
    criteria = [criterion(term, topology, cells) for term in plan.hard]
    fits = passing(criteria, cells, [0] * len(VERDICTS))
    scale = weigh(plan, topology, fits)
    raw = [0] * (len(cells.held) * width)
    normalized = list(raw)
    for fit in fits:
        if scale is None or plan.ignored[fit.number]:
            continue
        for own in fit.held[: fit.count]:
            score = raw_score(fit, own)
            raw[fit.number * width + own] = score
            normalized[fit.number * width + own] = normalized_score(scale, score)
    positions, chosen = _passing_nodes(fits, cells)
    if not plan.soft or not positions.size:
        return positions, None
    return positions, CellScores(raw, normalized, chosen)


def _passing_nodes(
    fits: Sequence[ClassFit], cells: Cells
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """[passing] their positions in the order of the names, and their cells."""
    if sum([fit.nodes for fit in fits]) == cells.of_nodes.size:
        return cells.every, cells.of_nodes
    passes = np.zeros((len(cells.held), cells.width), dtype=np.bool_)
    for fit in fits:
        passes[fit.number, : fit.held[fit.count - 1] + 1] = True
    positions = np.flatnonzero(passes.ravel()[cells.of_nodes])
    return positions, cells.of_nodes[positions]
