"""TaintToleration: the pod has to tolerate all taints that keep pods away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.service.fit.question import Refusals, Rule, refusing
from topospread.spread.topology import Eligibility
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from topospread.service.fit.question import FitQuestion

NAME: Final = "TaintToleration"
REASON: Final = "node(s) had untolerated taint(s)"


def refusals(asked: FitQuestion) -> Refusals | None:
    """Nodes with a taint that is not tolerated."""
    tainted = ~asked.snapshot.mask(
        Eligibility(
            tolerations=asked.pod.tolerations,
            comparison_operators=asked.rules.gates.taint_comparison_operators,
        )
    )
    return refusing(Rule(NAME, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, [(REASON, tainted)]))
