"""The judgement of classes written out for each node, for answers that list them all.

All nodes of a cell have the same verdict and score, so these are worked out once a cell and picked
by each node's cell.
"""

from __future__ import annotations

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
from topospread.spread.scoring import Scores
from topospread.spread.verdicts import TOO_SKEWED, VERDICTS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topospread.spread.filtering import Verdicts
    from topospread.spread.plans import Plan
    from topospread.spread.topology import Topology

MAX_CELLS: Final = 512
"""Past it, arrays over all nodes are quicker."""


def verdicts_of_each(plan: Plan, topology: Topology) -> Verdicts:
    """[nodes] verdicts, in the order of the node names."""
    cells = cells_of(plan, topology)
    criteria = [criterion(term, topology, cells) for term in plan.hard]
    table = np.zeros((len(cells.rows), cells.width), dtype=np.uint8)
    for number in range(len(cells.rows)):
        seen = class_verdict(criteria, number)
        table[number] = seen.failure
        if seen.limit < cells.width:
            table[number, max(0, seen.limit + 1) :] = TOO_SKEWED
    return table.ravel()[cells.of_nodes]


def scores_of_each(plan: Plan, topology: Topology) -> tuple[NDArray[np.intp], Scores | None] | None:
    """The nodes that pass, and their scores.

    Returns:
        [passing] positions in the order of the node names, and their scores (None without soft
        constraints or passing nodes); None in all when there are too many cells to be quick.
    """
    cells = cells_of(plan, topology)
    if len(cells.rows) * cells.width > MAX_CELLS:
        return None
    criteria = [criterion(term, topology, cells) for term in plan.hard]
    fits = list(passing(criteria, cells, [0] * len(VERDICTS)))
    scale = weigh(plan, topology, fits)
    shape = (len(cells.rows), cells.width)
    passes = np.zeros(shape, dtype=np.bool_)
    raw, normalized = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    for fit in fits:
        passes[fit.number, : fit.last + 1] = True
        if scale is None or plan.ignored[fit.number]:
            continue
        for own in range(fit.first, fit.last + 1):
            score = raw_score(fit, own)
            raw[fit.number, own] = score
            normalized[fit.number, own] = normalized_score(scale, score)
    positions = np.flatnonzero(passes.ravel()[cells.of_nodes])
    if not plan.soft or not positions.size:
        return positions, None
    chosen = cells.of_nodes[positions]
    return positions, Scores(raw.ravel()[chosen], normalized.ravel()[chosen])
