"""Notes on an order: what it leaves out, and what it leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.checkpoints import checkpoint
from topospread.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topospread.service.ranking.choosing import RankedPods
    from topospread.service.ranking.request import RankQuestion
    from topospread.spread.constraints import Constraint
    from topospread.spread.deletion import DeletionConstraint, Ranking


def counted_beside(wanted: Iterable[Constraint], found: RankedPods) -> Iterator[str]:
    """How many pods of others a constraint counts, which the skews of an order leave out."""
    for constraint in wanted:
        others = 0
        for labels, pods in found.beside.items():
            checkpoint()
            others += pods if constraint.group.selector.matches(dict(labels)) else 0
        if others:
            counts = f"the constraint on {constraint.topology_key} counts"
            yield f"{counts} {counted(others, 'pod')} of others, too: skews are of the ranked alone"


def without_domains(spreads: Sequence[DeletionConstraint]) -> Iterator[str]:
    """Constraints of whose key no ranked pod has a domain."""
    for spread in spreads:
        if not any(domain is not None for domain in spread.domains):
            yield f"no pod is in a domain of {spread.topology_key}"


def left_above(spreads: Sequence[DeletionConstraint], ranking: Ranking) -> Iterator[str]:
    """What an order that cannot be changed leaves above maxSkew."""
    last = ranking.skews[-1].tolist() if len(ranking.skews) else [0 for _ in spreads]
    for spread, skew in zip(spreads, last, strict=True):
        if skew > spread.max_skew:
            one = len(ranking.skews) == 1
            deletions = f"{counted(len(ranking.skews), 'deletion')} in this order"
            yield (
                f"{deletions} {'leaves' if one else 'leave'} a skew of {skew} over"
                f" {spread.topology_key}, above maxSkew {spread.max_skew}"
            )


def nothing_matches(question: RankQuestion, found: RankedPods) -> str:
    """That there is no pod to rank, and where there are pods of such a workload."""
    if question.message.HasField("workload"):
        workload = question.message.workload
        text = f"no pod of {workload.kind} {question.namespace}/{workload.name} is there"
        if found.left_out:
            text += f" (ended or being deleted: {found.left_out})"
        if found.elsewhere:
            are = "is" if len(found.elsewhere) == 1 else "are"
            text += f"; {' and '.join(found.elsewhere)} {are} in the state: name the namespace (-n)"
        return text
    if not question.message.pods:
        return f"no pod of namespace {question.namespace!r} matches the selector"
    return "none of the pods given is running and matches the selector"
