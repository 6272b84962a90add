"""NodePorts: the host ports of a pod must be free on its node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.service.fit.question import Refusals, Rule, refusing
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from topospread.service.fit.question import FitQuestion

NAME: Final = "NodePorts"
REASON: Final = "node(s) didn't have free ports for the requested pod ports"


def refusals(asked: FitQuestion) -> Refusals | None:
    """Nodes where another pod has one of the ports."""
    slots = asked.snapshot.holdings.slots_in_conflict(asked.demand.ports)
    if not slots:
        return None
    taken = asked.snapshot.nodes.marks(slots)
    return refusing(Rule(NAME, Code.UNSCHEDULABLE, [(REASON, taken)]))
