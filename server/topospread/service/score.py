"""Score: raw and normalized scores of the nodes that passed Filter."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from topospread.service.selection import known
from topospread.spread.verdicts import Code, Status

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from topospread.service.asks import Ask
    from topospread.service.engine import Engine, Resolved
    from topospread.spread.each import CellScores
    from topospread.spread.scoring import Scores


@dataclass(frozen=True, slots=True, eq=False)
class ScoreAnswer:
    """Scores, aligned with the selection, or else with the feasible nodes in the table's order.

    Attributes:
        status: PreScore's, or PreFilter's when that was an Error; scores come only with Success.
        positions: [selection] positions in the node table; None when the caller made the selection.
    """

    resolved: Resolved
    status: Status
    positions: NDArray[np.intp] | None
    scores: Scores | CellScores | None


def score(engine: Engine, ask: Ask) -> ScoreAnswer:
    """Score nodes.

    Raises:
        As Engine.resume; InvalidRequest when a chosen node is not in the state or given twice.
    """
    resolved = engine.resume(ask)
    cycle = resolved.cycle
    status = cycle.pre_score_status
    if cycle.pre_filter_status.code is Code.ERROR:
        status = cycle.pre_filter_status
    started = engine.clock()
    positions: NDArray[np.intp] | None = None
    scores: Scores | CellScores | None = None
    if ask.nodes is None:
        positions, scores = cycle.feasible_and_scores()
    else:
        slots = known(cycle.view.snapshot.nodes, ask.nodes).slots
        if status.code is Code.SUCCESS and slots.size:
            scores = cycle.scores(slots)
    if scores is not None:
        ask.stages.score = engine.clock() - started
    return ScoreAnswer(resolved, status, positions, scores)
