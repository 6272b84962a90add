"""NodeName: a pod that names its node goes nowhere else.

Since 1.37 it narrows the nodes before any is looked at; 1.36 refuses the others one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.service.fit.question import PreFiltered, Refusals, Rule, refusing
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from topospread.service.fit.question import FitQuestion

NAME: Final = "NodeName"
REASON: Final = "node(s) didn't match the requested node name"


def pre_filter(asked: FitQuestion) -> PreFiltered | None:
    """Narrow the nodes to the one that is named."""
    name = asked.demand.node_name
    return PreFiltered(names=frozenset((name,))) if name else None


def refusals(asked: FitQuestion) -> Refusals | None:
    """All nodes but the one that is named."""
    if not asked.demand.node_name:
        return None
    others = asked.snapshot.alive.copy()
    slot = asked.snapshot.slot(asked.demand.node_name)
    if slot >= 0:
        others[slot] = False
    return refusing(Rule(NAME, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, [(REASON, others)]))
