"""Filter: one verdict a node."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from topospread.service.selection import Selected, select
from topospread.spread.verdicts import UNKNOWN_NODE, Code, Status

if TYPE_CHECKING:
    from topospread.service.asks import Ask
    from topospread.service.cycle import Cycle
    from topospread.service.engine import Engine, Resolved
    from topospread.spread.filtering import Verdicts


@dataclass(frozen=True, slots=True, eq=False)
class FilterAnswer:
    """Verdicts, aligned with the selection.

    Attributes:
        status: PreFilter's; after an Error there are no verdicts.
        verdicts: [selection] positions in :data:`~topospread.spread.verdicts.VERDICTS`.
    """

    resolved: Resolved
    status: Status
    selected: Selected
    verdicts: Verdicts


def filter_(engine: Engine, ask: Ask) -> FilterAnswer:
    """Judge each node.

    Raises:
        As Engine.resume; NodeTableChanged and InvalidRequest for the selection.
    """
    resolved = engine.resume(ask)
    cycle = resolved.cycle
    selected = select(cycle.view.snapshot.nodes, ask.nodes)
    started = engine.clock()
    verdicts = verdicts_on(cycle, selected)
    ask.stages.filter = engine.clock() - started
    return FilterAnswer(resolved, cycle.pre_filter_status, selected, verdicts)


def verdicts_on(cycle: Cycle, selected: Selected) -> Verdicts:
    """[selection] the verdicts of a cycle; names that are not in the state get UNKNOWN_NODE."""
    if cycle.pre_filter_status.code is Code.ERROR:
        return np.zeros(0, dtype=np.uint8)
    if selected.choice is None:
        return cycle.verdicts_in_order
    # An extra last entry answers for slot −1.
    return np.append(cycle.verdicts, np.uint8(UNKNOWN_NODE))[selected.slots]
