"""NodeDeclaredFeatures: nodes must declare the features that a pod needs (KEP-5328)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.service.fit.question import Refusals, Rule, refusing
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from topospread.service.fit.question import FitQuestion

NAME: Final = "NodeDeclaredFeatures"
REASON: Final = "node(s) didn't match Pod's required features"


def refusals(asked: FitQuestion) -> Refusals | None:
    """Nodes that lack one of the features."""
    nodes = asked.snapshot.nodes
    lacking = None
    for feature in asked.demand.needed_features:
        here = ~nodes.declaring(feature)
        lacking = here if lacking is None else lacking | here
    if lacking is None:
        return None
    return refusing(Rule(NAME, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, [(REASON, lacking)]))
