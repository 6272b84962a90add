"""NodePorts: the host ports of a pod must be free on its node."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.service.fit.question import Refusals, Rule
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from topospread.service.fit.question import FitQuestion

NAME: Final = "NodePorts"
REASON: Final = "node(s) didn't have free ports for the requested pod ports"


def refusals(asked: FitQuestion) -> Refusals | None:
    """Nodes where another pod has one of the ports."""
    taken = np.zeros_like(asked.snapshot.alive)
    for port in asked.demand.ports:
        # Pods may have ports on nodes that are not known.
        held = asked.snapshot.holdings.slots_of_port(port)
        taken[[slot for slot in held if slot < taken.size]] = True
    if not taken.any():
        return None
    return Refusals(taken, lambda: [Rule(NAME, Code.UNSCHEDULABLE, [(REASON, taken)])])
