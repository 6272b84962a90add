"""Suggestions that would let in a pod that fits nowhere; each was tried out.

Each candidate is a case that differs from the pod's own in what is suggested, and is judged by the
same code, by all filters that were asked; candidates in which the pod still fits nowhere are
dropped. They are ordered by what they mend, see `Rank`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.service.explaining.cause import refusing_constraints
from topospread.service.explaining.constraint_changes import (
    all_skews,
    honor_everywhere,
    max_skew,
    min_domains,
    policies,
    soft,
    topology_key,
)
from topospread.service.explaining.new_domains import add_domains, add_domains_for_terms
from topospread.service.explaining.new_nodes import add_nodes
from topospread.service.explaining.node_changes import label_nodes, tolerate, uncordon
from topospread.service.explaining.proposals import Rank, name_constraint
from topospread.spread.settings import OTHER_FIT
from topospread_proto.v1 import explanation_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from topospread.service.explaining.context import EvaluationContext
    from topospread.service.explaining.proposals import ProposedChange

MOST_ADVISED: Final = 8
"""Constraints that are advised on, of those that refuse a node; each costs some judgements."""

OF_ONE: Final = (topology_key, min_domains, policies, label_nodes, max_skew, soft, add_domains)
"""Proposals for each constraint."""

OF_ALL: Final = (uncordon, add_nodes, tolerate, add_domains_for_terms)
"""Proposals that concern no single constraint."""


def suggestions(context: EvaluationContext) -> list[pb.Suggestion]:
    """Changes that would let the pod in; none when it fits somewhere or cannot be judged."""
    if context.fits or context.constraints.hard.error or not context.snapshot.node_count:
        return []
    found: list[ProposedChange] = []
    for position in refusing_constraints(context)[:MOST_ADVISED]:
        for of_one in OF_ONE:
            for each in _effective(of_one(context, position)):
                for change in each.changes:
                    if not change.topology_key:
                        name_constraint(change, context, position)
                found.append(each)
    for of_all in OF_ALL:
        found.extend(_effective(of_all(context)))
    if not any(each.rank is Rank.HONOR for each in found):
        found.extend(_effective(honor_everywhere(context)))
    if not found and context.hard:
        found.extend(_effective(all_skews(context)))
    found.sort(key=lambda each: each.rank)
    # Preemption, if anything, lets the pod in: it makes no advice less sure.
    gaps = [each for each in context.suits.gaps if each not in OTHER_FIT]
    return [
        pb.Suggestion(
            changes=each.changes,
            text=each.text,
            fitting_node_count=each.context.fits,
            not_modelled=gaps,
        )
        for each in found
    ]


def _effective(candidates: Iterable[ProposedChange]) -> Iterator[ProposedChange]:
    for candidate in candidates:
        checkpoint()
        if candidate.context.fits:
            yield candidate
