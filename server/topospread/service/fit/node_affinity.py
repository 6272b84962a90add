"""NodeAffinity: node selector and required node affinity.

Terms that all name nodes (``matchFields`` on ``metadata.name``, as those of a DaemonSet's pods)
narrow the nodes before any is looked at: the others are refused whatever else they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.kube.affinity import NAME_FIELD
from topospread.kube.selectors import IN
from topospread.service.fit.question import PreFiltered, Refusals, Rule, refusing
from topospread.spread.topology import Eligibility
from topospread.spread.verdicts import Code, Status

if TYPE_CHECKING:
    from topospread.kube.objects import NodeTerm
    from topospread.service.fit.question import FitQuestion

NAME: Final = "NodeAffinity"
REASON: Final = "node(s) didn't match Pod's node affinity/selector"
REASON_CONFLICT: Final = "pod affinity terms conflict"


def pre_filter(asked: FitQuestion) -> PreFiltered | None:
    """Narrow the nodes to those that the terms name, if all of them do."""
    terms = asked.pod.requirements.terms
    if not terms:
        return None
    names: set[str] = set()
    for term in terms:
        named = _names(term)
        if named is None:
            return None
        names |= named
    if not names:
        code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
        return PreFiltered(Status(code, (REASON_CONFLICT,)))
    return PreFiltered(names=names)


def _names(term: NodeTerm) -> set[str] | None:
    """The names that all conditions on it leave; None without a condition."""
    found: set[str] | None = None
    for each in term.match_fields:
        if each.key == NAME_FIELD and each.operator == IN:
            found = set(each.values) if found is None else found & set(each.values)
    return found


def refusals(asked: FitQuestion) -> Refusals | None:
    """Nodes that the pod does not select."""
    if asked.requirements.matches_all:
        return None
    others = ~asked.snapshot.mask(Eligibility(requirements=asked.requirements))
    return refusing(Rule(NAME, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, [(REASON, others)]))
