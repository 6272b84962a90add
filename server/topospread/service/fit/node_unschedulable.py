"""NodeUnschedulable: cordoned nodes take only pods that tolerate the taint that goes with it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.kube.affinity import NO_SCHEDULE
from topospread.kube.objects import Taint
from topospread.kube.tolerations import Tolerations
from topospread.service.fit.question import Refusals, Rule, refusing
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from topospread.service.fit.question import FitQuestion

NAME: Final = "NodeUnschedulable"
REASON: Final = "node(s) were unschedulable"

CORDONED_TAINT: Final = Taint("node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)


def refusals(asked: FitQuestion) -> Refusals | None:
    """The cordoned nodes."""
    cordoned = asked.snapshot.nodes.cordoned
    if not cordoned.any() or Tolerations(asked.pod.tolerations).tolerate([CORDONED_TAINT]):
        return None
    return refusing(Rule(NAME, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, [(REASON, cordoned)]))
