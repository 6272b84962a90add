"""Whether chance decides what skews are left on the way, where some pods are equal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.checkpoints import checkpoint
from topospread.spread.deletion import domain_counts, minimum_is_zero
from topospread.spread.possible_deletions import AT_ONCE, MOST_SORTED, equal_pods, moments_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.spread.deletion import DeletionConstraint, DeletionOrder

_PodDomains = tuple[str | None, ...]
"""Those of a pod, one for each constraint; None where it counts in none."""


def is_certain(
    groups: Iterable[Sequence[int]], deletions: int, spreads: Sequence[DeletionConstraint]
) -> bool:
    """Whether all orders of groups in each of which the order is open leave the same skews.

    So it is where the pods of a group that go are in the same domains.
    """
    return _domains_in_order(groups, deletions, _that_skew(spreads)) is not None


def replica_set_is_certain(
    order: DeletionOrder,
    ranks: Sequence[float],
    now: int,
    deletions: int,
    spreads: Sequence[DeletionConstraint],
) -> bool:
    """Whether whenever a ReplicaSet sorts within a minute the same skews are left.

    Not where that is more than is worked out. See possible_deletions.replica_set_cuts.
    """
    if deletions > AT_ONCE:
        return False
    spreads, left = _that_skew(spreads), MOST_SORTED
    for cell in order.equal(ranks):
        if deletions <= 0:
            break
        checkpoint()
        if len({_domains(spreads, position) for position in cell}) > 1:
            moments = moments_of(order.pods, cell, now)
            left -= len(moments) * len(cell)
            if left < 0:
                return False
            orders = (equal_pods(order.pods, cell, moment) for moment in moments)
            found = (_domains_in_order(each, deletions, spreads) for each in orders)
            first = next(found)
            if first is None or any(each != first for each in found):
                return False
        deletions -= len(cell)
    return True


def _domains_in_order(
    groups: Iterable[Sequence[int]], deletions: int, spreads: Sequence[DeletionConstraint]
) -> Sequence[_PodDomains] | None:
    """[deletions] the domains of those that go; None where that is open."""
    found: list[_PodDomains] = []
    for equal in groups:
        checkpoint()
        if len(found) >= deletions:
            break
        here = {_domains(spreads, position) for position in equal}
        if len(here) > 1:
            return None
        found += [*here] * len(equal)
    return found[:deletions]


def _that_skew(spreads: Sequence[DeletionConstraint]) -> Sequence[DeletionConstraint]:
    """Without those of one domain alone, whose skew is 0 whoever goes."""
    return [each for each in spreads if minimum_is_zero(each) or len(domain_counts(each)) > 1]


def _domains(spreads: Sequence[DeletionConstraint], position: int) -> _PodDomains:
    checkpoint()
    return tuple([spread.counted_domain(position) for spread in spreads])
