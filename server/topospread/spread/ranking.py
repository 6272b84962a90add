"""Ranks pods for deletion so that the remaining ones stay spread, by several strategies.

Sources: OpenKruise's ``SpreadConstraintsRanker`` as it is shipped (*even*), the text and example of
its proposal of 2021-06-24 (*proportional*), Kubernetes' ReplicaSet controller (*replicaset*).
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from topospread.checkpoints import checkpoint
from topospread.kube.objects import HOSTNAME_LABEL
from topospread.spread.deletion import (
    DeletionCandidate,
    in_order,
    replica_set_order,
    same_node_ranks,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class Strategy(Enum):
    """Ways to rank pods, in the order of preference among equally good ones."""

    EVEN = "even"
    PROPORTIONAL = "proportional"
    REPLICA_SET = "replicaset"


@dataclass(frozen=True, slots=True, eq=False)
class DeletionConstraint:
    """A constraint with the fields that deletions depend on.

    Attributes:
        domains: [pods] the domain of each pod's node; None where it has none, or one that is not
            among those that the constraint is limited to.
        counted: [pods] whether the skew counts it: not on a node outside the node policies.
        eligible: the domains that take part in the global minimum.
        min_domains: fewer eligible domains than this make the global minimum 0.
    """

    topology_key: str
    max_skew: int
    domains: Sequence[str | None]
    counted: Sequence[bool]
    eligible: frozenset[str]
    min_domains: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """An order of deletion and what it leaves.

    Attributes:
        order: positions of the pods, the first to go first.
        ranks: [pods] the higher, the sooner, among pods that are equal by the criteria before.
        skews: [deletions, constraints] the skew after each deletion.
        kept: deletions until the first one that leaves a skew above its maxSkew.
        within: deletions that leave all skews within their maxSkew.
    """

    order: Sequence[int]
    ranks: Sequence[float]
    skews: Sequence[tuple[int, ...]]
    kept: int
    within: int


def rank(
    strategy: Strategy,
    pods: Sequence[DeletionCandidate],
    spreads: Sequence[DeletionConstraint],
    related: Mapping[tuple[str, str], int],
    now: int,
    deletions: int,
) -> Ranking:
    """Order pods for deletion.

    Args:
        strategy: how.
        pods: those that may go, each once.
        spreads: the constraints; none: pods that stack on a node go first, and no more.
        related: (family, node) to how many pods of the family run there, for REPLICA_SET.
        now: nanoseconds since 1970, for REPLICA_SET.
        deletions: how many of them are looked at for what they leave.
    """
    ranks: Sequence[float]
    if strategy is Strategy.REPLICA_SET:
        ranks = [float(related.get((pod.owner_key, pod.node), 0)) for pod in pods]
        order = replica_set_order(pods, ranks, now)
    else:
        if not spreads:
            ranks = [float(rank) for rank in same_node_ranks(pods)]
        elif strategy is Strategy.EVEN:
            ranks = even_ranks(pods, spreads)
        else:
            ranks = proportional_ranks(pods, spreads)
        order = in_order(pods, ranks)
    skews = _skews(order[:deletions], spreads)
    inside = [
        all(skew <= spread.max_skew for skew, spread in zip(step, spreads, strict=True))
        for step in skews
    ]
    kept = inside.index(False) if False in inside else len(inside)
    return Ranking(order, ranks, skews, kept, sum(inside))


def best(rankings: Mapping[Strategy, Ranking]) -> Strategy:
    """The strategy that keeps the constraints longest; of equal ones the first in order."""

    def merit(strategy: Strategy) -> tuple[int, int, int]:
        ranking = rankings[strategy]
        return ranking.kept, ranking.within, -sum(map(sum, ranking.skews))

    return max((s for s in Strategy if s in rankings), key=merit)


def even_ranks(
    pods: Sequence[DeletionCandidate], spreads: Sequence[DeletionConstraint]
) -> list[float]:
    """OpenKruise as shipped: domains are levelled from the top.

    The i-th of the n pods of a domain, in the order of deletion, gets (n − i) · ln(D + 2), where D
    is how many domains hold pods; that is added up over the constraints.
    """
    ranks = [0.0] * len(pods)
    for spread in spreads:
        by_domain = _by_domain(pods, spread, stacking=spread.topology_key != HOSTNAME_LABEL)
        weight = math.log(len(by_domain) + 2)
        for positions in by_domain:
            for index, position in enumerate(positions):
                ranks[position] += (len(positions) - index) * weight
    return ranks


def proportional_ranks(
    pods: Sequence[DeletionCandidate], spreads: Sequence[DeletionConstraint]
) -> list[float]:
    """The proposal: each domain is drained in proportion to its size.

    The i-th of the n pods of a domain stands at position ⌊i · N / n⌋, N being the size of the
    largest domain; positions are added up over the constraints, and the lowest goes first. A pod
    that is in no domain of a constraint stands at N there, behind all that are in one.
    """
    ranks = [0.0] * len(pods)
    for spread in spreads:
        by_domain = _by_domain(pods, spread, stacking=True)
        largest = max(map(len, by_domain), default=0)
        own = [largest] * len(pods)
        for positions in by_domain:
            for index, position in enumerate(positions):
                own[position] = index * largest // len(positions)
        ranks = [rank - position for rank, position in zip(ranks, own, strict=True)]
    return ranks


def _by_domain(
    pods: Sequence[DeletionCandidate], spread: DeletionConstraint, *, stacking: bool
) -> Sequence[Sequence[int]]:
    """The positions of the pods of each domain, in the order of deletion within it."""
    inner = same_node_ranks(pods) if stacking else [0] * len(pods)
    found: dict[str, list[int]] = {}
    for position in in_order(pods, inner):
        checkpoint()
        domain = spread.domains[position]
        if domain is not None:
            found.setdefault(domain, []).append(position)
    return list(found.values())


# ------------------------------ what is left


def domain_counts(spread: DeletionConstraint) -> Counter[str]:
    """Pods that count, by domain; every eligible domain is there."""
    counts = Counter(dict.fromkeys(sorted(spread.eligible), 0))
    for domain, counted in zip(spread.domains, spread.counted, strict=True):
        if counted and domain is not None:
            counts[domain] += 1
    return counts


def skew_of(spread: DeletionConstraint, counts: Mapping[str, int]) -> int:
    """The skew: pods of the fullest domain above the global minimum."""
    return max(counts.values(), default=0) - _minimum(spread, counts)


def _minimum(spread: DeletionConstraint, counts: Mapping[str, int]) -> int:
    if not spread.eligible or len(spread.eligible) < spread.min_domains:
        return 0
    return min(counts[domain] for domain in spread.eligible)


def _skews(order: Sequence[int], spreads: Sequence[DeletionConstraint]) -> list[tuple[int, ...]]:
    columns = [list(_column(order, spread)) for spread in spreads]
    return list(zip(*columns, strict=True)) if columns else [()] * len(order)


def _column(order: Sequence[int], spread: DeletionConstraint) -> Iterator[int]:
    """A constraint's skew after each deletion, from a histogram of the domains' counts."""
    counts = domain_counts(spread)
    levels = Counter(counts.values())
    highest = max(levels, default=0)
    minimum = _minimum(spread, counts)
    for position in order:
        checkpoint()
        domain = spread.domains[position]
        if domain is not None and spread.counted[position]:
            before = counts[domain]
            counts[domain] = before - 1
            levels[before] -= 1
            levels[before - 1] += 1
            if domain in spread.eligible and minimum:
                minimum = min(minimum, before - 1)
            while highest and not levels[highest]:
                highest -= 1
        yield highest - minimum
