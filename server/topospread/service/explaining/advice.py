"""What would let a pod in that fits nowhere. Nothing is said that was not tried out.

Each candidate is a case that differs from the pod's own in what is suggested, and is judged by the
same code; candidates in which the pod still fits nowhere are dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.service.explaining.findings import Suggestion
from topospread.service.explaining.rule_advice import (
    all_skews,
    max_skew,
    min_domains,
    policies,
    soft,
)
from topospread.service.explaining.state_advice import (
    fewer_pods,
    label_nodes,
    more_domains,
    tolerate,
    uncordon,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from topospread.service.explaining.candidates import Candidate
    from topospread.service.explaining.case import Case

WAYS: Final = (more_domains, min_domains, policies, label_nodes, fewer_pods, max_skew, soft)
"""For each constraint, in the order in which they are told."""


MOST_ADVISED: Final = 8
"""Constraints that are advised on, of those that refuse a node; each costs some judgements."""


def advice(case: Case) -> tuple[Suggestion, ...]:
    """What would let the pod in; nothing when it fits somewhere or cannot be judged."""
    if case.fits or case.constraints.hard.error or not case.snapshot.node_count:
        return ()
    found: list[Suggestion] = []
    refusing = [
        position for position, allowed in enumerate(case.allowing) if (case.usable & ~allowed).any()
    ]
    for position in refusing[:MOST_ADVISED]:
        for way in WAYS:
            found.extend(_tried(way(case, position)))
    for of_all in (uncordon, tolerate):
        found.extend(_tried(of_all(case)))
    if not found and case.hard:
        found.extend(_tried(all_skews(case)))
    return tuple(found)


def _tried(candidates: Iterable[Candidate]) -> Iterator[Suggestion]:
    for candidate in candidates:
        checkpoint()
        if fits := candidate.case.fits:
            yield Suggestion(candidate.changes, candidate.text, fits)
