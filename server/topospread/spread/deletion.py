"""The order in which pods are deleted when a workload shrinks, so that the others stay spread.

Two orders regardless of domains: OpenKruise's ``ActivePodsWithRanks``, and Kubernetes' with
KEP-2255 (deletion cost) and KEP-2185 (logarithmic buckets). *Smaller* means: goes first. Both end
in a tie-breaker of ours, the UID, so that the order is total. Three strategies that rank pods:
OpenKruise's ``SpreadConstraintsRanker`` as it is shipped (*even*), the text and example of its
proposal of 2021-06-24 (*proportional*), Kubernetes' ReplicaSet controller (*replicaset*).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass
from enum import Enum
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.kube.objects import HOSTNAME_LABEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from topospread.spread.topology import Ints


DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"

_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}
_COST: Final = re.compile(r"0|-[0-9]+|[1-9][0-9]*", re.ASCII)
_ORDINAL: Final = re.compile(r"-(\d{1,9})$", re.ASCII)
_LONGEST: Final = 10
"""Digits of the largest int32."""

SECOND: Final = 1_000_000_000
"""In nanoseconds."""


class DeletionCandidate(NamedTuple):
    """A pod that may go. Times are seconds since 1970; None is the zero time.

    Attributes:
        node: that it is bound to; empty while it waits.
        ready: whether its Ready condition is True; `ready_since` is when it became so.
        deletion_cost: of its annotation, see :func:`deletion_cost`.
        restarts: the most restarts of any of its containers.
        sidecar_restarts: the most restarts of any of its restartable init containers.
        owner_key: equal for pods that Kubernetes ranks together on a node: those of all ReplicaSets
            of one Deployment.
        completion_index: of an indexed Job; None where the pod has none.
    """

    namespace: str
    name: str
    uid: str = ""
    node: str = ""
    phase: str = ""
    ready: bool = False
    ready_since: int | None = None
    deletion_cost: int = 0
    restarts: int = 0
    sidecar_restarts: int = 0
    created: int | None = None
    owner_key: str = ""
    completion_index: int | None = None


def deletion_cost(annotations: Mapping[str, str]) -> int:
    """A pod's deletion cost, lower goes first; 0 when the annotation is absent or no int32.

    As Kubernetes reads it: ``+10`` and ``008`` are no costs, ``-08`` is one.
    """
    text = annotations.get(DELETION_COST, "")
    if not _COST.fullmatch(text):
        return 0
    digits = text.lstrip("-").lstrip("0") or "0"
    if len(digits) > _LONGEST:
        return 0
    cost = -int(digits) if text.startswith("-") else int(digits)
    return cost if -(1 << 31) <= cost < 1 << 31 else 0


class DeletionOrder:
    """Pods in the order of deletion, the first to go first.

    Unassigned before assigned; Pending, Unknown, Running; not ready before ready; lower deletion
    cost; **higher rank**; ready for a shorter time; more restarts; newer; and the UID.

    Attributes:
        pods: to order.
        unranked: their positions in order where all ranks are equal.
        same_node: see :func:`_same_node_ranks`.
        stacked: their positions in order where these are the ranks.
    """

    def __init__(self, pods: Sequence[DeletionCandidate]) -> None:
        self.pods = pods
        self._before = [_before(pod) for pod in pods]
        after = [_after(pod) for pod in pods]
        keys = list(zip(self._before, after, strict=True))
        self.unranked: Sequence[int] = sorted(range(len(pods)), key=keys.__getitem__)
        self.same_node: Sequence[int] = _same_node_ranks(self)
        self.stacked: Sequence[int] = self.ranked(self.same_node)

    def ranked(self, ranks: Sequence[float]) -> list[int]:
        """Positions in the order of deletion.

        Args:
            ranks: [pods] the higher, the sooner.
        """
        # Sorting is stable: pods of one rank stay in order.
        return sorted(self.unranked, key=lambda i: (self._before[i], -ranks[i]))

    def equal(self, ranks: Sequence[float]) -> Iterator[list[int]]:
        """The positions in order, together where nothing up to the rank tells them apart."""
        keys = [(before, -rank) for before, rank in zip(self._before, ranks, strict=True)]
        chosen = sorted(range(len(self.pods)), key=keys.__getitem__)
        for _, equal in groupby(chosen, key=keys.__getitem__):
            yield list(equal)


def _before(pod: DeletionCandidate) -> tuple[bool, int, bool, int]:
    """The sort key before the rank."""
    return bool(pod.node), _PHASES.get(pod.phase, 0), pod.ready, pod.deletion_cost


def _after(pod: DeletionCandidate) -> tuple[int, int, int, int, int, str, str, str]:
    """The sort key among pods of one rank."""
    since = _newest_first(pod.ready_since) if pod.ready else (0, 0)
    return *since, -pod.restarts, *_newest_first(pod.created), *_identity(pod)


def _newest_first(time: int | None) -> tuple[int, int]:
    return (0, 0) if time is None else (1, -time)


def _identity(pod: DeletionCandidate) -> tuple[str, str, str]:
    return pod.uid, pod.namespace, pod.name


def _same_node_ranks(order: DeletionOrder) -> list[int]:
    """[pods] ranks by which pods that stack on a node go before those that are alone on theirs.

    Of the n pods of a node, in the order of deletion, the first gets n − 1 and the last 0.
    """
    ranks = [0] * len(order.pods)
    here: dict[str, list[int]] = {}
    for position in order.unranked:
        if node := order.pods[position].node:
            here.setdefault(node, []).append(position)
    for stacked in here.values():
        for rank, position in enumerate(reversed(stacked)):
            ranks[position] = rank
    return ranks


# ------------------------------ Kubernetes' own


def replica_set_order(order: DeletionOrder, ranks: Sequence[float], now: int) -> list[int]:
    """Positions of pods in the order in which a ReplicaSet would delete them.

    As :class:`DeletionOrder`, but ages are compared by the integer part of their binary logarithm,
    and pods of one such bucket go by their UIDs; and sidecars' restarts come after other restarts.

    Upstream compares two pods of exactly one age by their restarts instead, which makes circles
    possible: a before b by restarts, b before c and c before a by UIDs. Here pods of one age stay
    together, at the place of the smallest UID among them, which is upstream's answer for any two
    pods and a total order for more.

    Args:
        order: of the pods.
        ranks: [pods] the higher, the sooner.
        now: nanoseconds since 1970.
    """
    return [i for equal in order.equal(ranks) for i in _by_age(order.pods, equal, now)]


def _by_age(pods: Sequence[DeletionCandidate], equal: Sequence[int], now: int) -> Iterator[int]:
    """Order pods that differ only in their time of readiness and what comes after it."""
    for same_age in _aged(pods, equal, lambda p: p.ready_since if p.ready else None, now):
        for same_restarts in _grouped(
            same_age, lambda i: (-pods[i].restarts, -pods[i].sidecar_restarts)
        ):
            for twins in _aged(pods, same_restarts, lambda p: p.created, now):
                yield from sorted(twins, key=lambda i: _identity(pods[i]))


def _aged(
    pods: Sequence[DeletionCandidate],
    positions: Sequence[int],
    time_of: Callable[[DeletionCandidate], int | None],
    now: int,
) -> Iterator[list[int]]:
    """Pods of one age together; the zero time first, then by bucket, then by UID."""
    by_time: dict[int | None, list[int]] = {}
    for position in positions:
        by_time.setdefault(time_of(pods[position]), []).append(position)

    def place(item: tuple[int | None, list[int]]) -> tuple[int, int, tuple[str, str, str]]:
        time, alike = item
        bucket = (0, 0) if time is None else (1, age_bucket(now - time * SECOND))
        return *bucket, min(_identity(pods[i]) for i in alike)

    for _, alike in sorted(by_time.items(), key=place):
        yield alike


def age_bucket(age: int) -> int:
    """KEP-2185's: the integer part of the logarithm of nanoseconds."""
    return -1 if age <= 0 else int(math.log2(age))


def _grouped(
    positions: Iterable[int], key: Callable[[int], tuple[int, int]]
) -> Iterator[list[int]]:
    for _, alike in groupby(sorted(positions, key=key), key=key):
        yield list(alike)


def stateful_set_order(pods: Sequence[DeletionCandidate]) -> tuple[list[int], list[float]]:
    """Positions in the order in which a StatefulSet deletes pods, and their ordinals.

    The highest ordinal first; pods whose names end in none, which it does not know, last.
    """
    found = [_ORDINAL.search(pod.name) for pod in pods]
    ordinals = [float(match[1]) if match else -1.0 for match in found]
    return sorted(range(len(pods)), key=lambda i: (-ordinals[i], pods[i].name)), ordinals


def job_order(
    pods: Sequence[DeletionCandidate], completions: int | None
) -> tuple[list[int], list[float]]:
    """Positions in the order in which a Job deletes active pods; 1 for those that go in any case.

    Kubernetes' ``activePodsForRemoval`` over ``ActivePods``: as :class:`DeletionOrder`, without
    costs and ranks, and sidecars' restarts come after other restarts. Of an indexed Job go first:
    pods without an index, pods whose index is not below the completions, and of equal indexes all
    but the last.

    Args:
        pods: active ones.
        completions: of the Job; None where that is not known.
    """
    order = sorted(range(len(pods)), key=lambda i: (job_key(pods[i]), _identity(pods[i])))
    if all(pod.completion_index is None for pod in pods):
        return order, [0.0] * len(pods)
    last = {pods[i].completion_index: i for i in order}
    ranks = []
    for position, pod in enumerate(pods):
        index = pod.completion_index
        beyond = index is not None and completions is not None and index >= completions
        ranks.append(float(index is None or beyond or last[index] != position))
    return sorted(order, key=lambda i: -ranks[i]), ranks


def job_key(pod: DeletionCandidate) -> tuple[Any, ...]:
    """What a Job compares pods by; equal ones go in any order."""
    assigned, phase, ready, _ = _before(pod)
    since = _newest_first(pod.ready_since) if pod.ready else (0, 0)
    restarts = -pod.restarts, -pod.sidecar_restarts
    return assigned, phase, ready, since, restarts, _newest_first(pod.created)


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

    def counted_domain(self, position: int) -> str | None:
        """The domain that a pod counts in; None where it counts in none."""
        return self.domains[position] if self.counted[position] else None


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
    skews: Ints
    kept: int
    within: int


def rank(
    strategy: Strategy,
    order: DeletionOrder,
    spreads: Sequence[DeletionConstraint],
    related: Mapping[tuple[str, str], int],
    now: int,
    deletions: int,
) -> Ranking:
    """Order pods for deletion.

    Args:
        strategy: how.
        order: of the pods that may go, each once.
        spreads: the constraints; none: pods that stack on a node go first, and no more.
        related: (family, node) to how many pods of the family run there, for REPLICA_SET.
        now: nanoseconds since 1970, for REPLICA_SET.
        deletions: how many of them are looked at for what they leave.
    """
    ranks: Sequence[float]
    if strategy is Strategy.REPLICA_SET:
        ranks = [float(related.get((pod.owner_key, pod.node), 0)) for pod in order.pods]
        chosen = replica_set_order(order, ranks, now)
    else:
        if not spreads:
            ranks = [float(rank) for rank in order.same_node]
        elif strategy is Strategy.EVEN:
            ranks = even_ranks(order, spreads)
        else:
            ranks = proportional_ranks(order, spreads)
        chosen = order.ranked(ranks)
    return ranking_of(chosen, ranks, spreads, deletions)


def ranking_of(
    chosen: Sequence[int],
    ranks: Sequence[float],
    spreads: Sequence[DeletionConstraint],
    deletions: int,
) -> Ranking:
    """An order with what it leaves; see :func:`rank`."""
    skews = _skews(chosen[:deletions], spreads)
    inside = (skews <= [spread.max_skew for spread in spreads]).all(axis=1)
    kept = inside.size if inside.all() else int(inside.argmin())
    return Ranking(chosen, ranks, skews, kept, int(np.count_nonzero(inside)))


def best(rankings: Mapping[Strategy, Ranking]) -> Strategy:
    """The strategy that keeps the constraints longest; of equal ones the first in order."""

    def merit(strategy: Strategy) -> tuple[int, int, int]:
        ranking = rankings[strategy]
        return ranking.kept, ranking.within, -int(ranking.skews.sum())

    return max((s for s in Strategy if s in rankings), key=merit)


def even_ranks(order: DeletionOrder, spreads: Sequence[DeletionConstraint]) -> list[float]:
    """OpenKruise as shipped: domains are levelled from the top.

    The i-th of the n pods of a domain, in the order of deletion, gets (n − i) · ln(D + 2), where D
    is how many domains hold pods; that is added up over the constraints.
    """
    ranks = [0.0] * len(order.pods)
    for spread in spreads:
        stacks = spread.topology_key != HOSTNAME_LABEL
        by_domain = _by_domain(order.stacked if stacks else order.unranked, spread)
        weight = math.log(len(by_domain) + 2)
        for positions in by_domain:
            for index, position in enumerate(positions):
                ranks[position] += (len(positions) - index) * weight
    return ranks


def proportional_ranks(order: DeletionOrder, spreads: Sequence[DeletionConstraint]) -> list[float]:
    """The proposal: each domain is drained in proportion to its size.

    The i-th of the n pods of a domain stands at position ⌊i · N / n⌋, N being the size of the
    largest domain; positions are added up over the constraints, and the lowest goes first. A pod
    that is in no domain of a constraint stands at N there, behind all that are in one.
    """
    ranks = [0.0] * len(order.pods)
    for spread in spreads:
        by_domain = _by_domain(order.stacked, spread)
        largest = max(map(len, by_domain), default=0)
        own = [largest] * len(order.pods)
        for positions in by_domain:
            for index, position in enumerate(positions):
                own[position] = index * largest // len(positions)
        ranks = [rank - position for rank, position in zip(ranks, own, strict=True)]
    return ranks


def _by_domain(order: Sequence[int], spread: DeletionConstraint) -> Sequence[Sequence[int]]:
    """The positions of the pods of each domain, in order within it."""
    found: dict[str, list[int]] = {}
    for position in order:
        checkpoint()
        domain = spread.domains[position]
        if domain is not None:
            found.setdefault(domain, []).append(position)
    return list(found.values())


# ------------------------------ what is left


def domain_counts(spread: DeletionConstraint) -> Counter[str]:
    """Pods that count, by domain; every eligible domain is there."""
    checkpoint()
    counts = Counter(dict.fromkeys(sorted(spread.eligible), 0))
    for position in range(len(spread.domains)):
        if (domain := spread.counted_domain(position)) is not None:
            counts[domain] += 1
    return counts


def domain_numbers(spread: DeletionConstraint, counts: Iterable[str]) -> Ints:
    """[pods] which of the counted domains each pod counts in; −1 where in none."""
    number = {domain: number for number, domain in enumerate(counts)}
    return np.array(
        [
            number[domain] if counted and domain is not None else -1
            for domain, counted in zip(spread.domains, spread.counted, strict=True)
        ],
        dtype=np.int64,
    )


def skew_of(spread: DeletionConstraint, counts: Mapping[str, int]) -> int:
    """The skew: pods of the fullest domain above the global minimum."""
    return max(counts.values(), default=0) - _minimum(spread, counts)


def minimum_is_zero(spread: DeletionConstraint) -> bool:
    """Whether the global minimum is 0, whatever the domains have."""
    return not spread.eligible or len(spread.eligible) < spread.min_domains


def _minimum(spread: DeletionConstraint, counts: Mapping[str, int]) -> int:
    if minimum_is_zero(spread):
        return 0
    return min(counts[domain] for domain in spread.eligible)


def _skews(order: Sequence[int], spreads: Sequence[DeletionConstraint]) -> Ints:
    """[deletions, constraints] the skew after each deletion."""
    found = np.zeros((len(order), len(spreads)), dtype=np.int64)
    for column, spread in enumerate(spreads):
        checkpoint()
        found[:, column] = _skews_of(np.array(order, dtype=np.int64), spread)
    return found


def _skews_of(order: Ints, spread: DeletionConstraint) -> Ints:
    counts = domain_counts(spread)
    domains = domain_numbers(spread, counts)[order]
    there = domains >= 0
    left = _left(np.fromiter(counts.values(), np.int64, len(counts)), domains[there])
    eligible = np.array([domain in spread.eligible for domain in counts], dtype=np.bool_)
    minimum = _minimum(spread, counts)
    falls = np.where(eligible[domains[there]], np.minimum(left, minimum), minimum)
    lowest = np.minimum.accumulate(np.append(minimum, falls))
    skews: Ints = (_highest(counts.values(), left) - lowest)[np.cumsum(there)]
    return skews


def _left(counts: Ints, domains: Ints) -> Ints:
    """[deletions] pods that each leaves in its domain."""
    by_domain = np.argsort(domains, kind="stable")
    sizes = np.bincount(domains, minlength=counts.size)
    first = np.cumsum(sizes) - sizes
    before = np.empty_like(domains)
    before[by_domain] = np.arange(domains.size) - np.repeat(first, sizes)
    return counts[domains] - before - 1


def _highest(counts: Iterable[int], left: Ints) -> Ints:
    """[deletions + 1] pods of the fullest domain, before the first deletion and after each."""
    full = np.bincount(np.fromiter(counts, np.int64))
    # [levels] domains that had more pods, and of how many deletions the last came down to it.
    above = np.cumsum(full[::-1])[::-1][1:]
    reached = np.bincount(left, minlength=above.size)
    last = np.zeros_like(above)
    np.maximum.at(last, left, np.arange(1, left.size + 1))
    # A level is the highest, or above it, once all that had more came down to it.
    at = np.sort(last[reached == above])
    highest: Ints = above.size - np.searchsorted(at, np.arange(left.size + 1), side="right")
    return highest
