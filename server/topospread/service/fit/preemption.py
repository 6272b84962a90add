"""What preemption could do for a pod that fits nowhere; it is not looked at, but named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from topospread.spread.settings import PREEMPTION
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.service.fit.profile import Suited
    from topospread.service.fit.question import FitQuestion, Rule


def preemption_gaps(
    asked: FitQuestion, suits: Suited, spreading: Sequence[Rule]
) -> tuple[str, ...]:
    """The pods of lower priority on nodes that are refused with a code that lets pods be evicted.

    Empty where the pod preempts none, or none is there.

    Args:
        asked: of a pod that fits nowhere.
        suits: what the filters beside spreading refuse.
        spreading: its rules.
    """
    lower = asked.snapshot.lower_priority(asked.demand.priority)
    if not asked.demand.preempts or not lower.any():
        return ()
    left = asked.snapshot.alive
    open_nodes = np.zeros_like(left)
    for rule in suits.rules(spreading):
        refused = rule.refused & left
        if rule.code is Code.UNSCHEDULABLE:
            open_nodes |= refused
        left = left & ~refused
    pods = int(lower[open_nodes].sum())
    if not pods:
        return ()
    said = "1 pod of lower priority stands" if pods == 1 else f"{pods} pods of lower priority stand"
    return (f"{PREEMPTION}: {said} on nodes that are open to it",)
