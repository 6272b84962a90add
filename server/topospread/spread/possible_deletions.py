"""Which pods go where the one who deletes them finds some equal, and what skews that may leave.

A ReplicaSet sorts pods that it finds in any order, and by a comparison that calls some equal: those
that became ready, and were made, in one second. Ages are compared by their logarithm, so that the
order changes with time. What is said here holds at whatever moment of a minute it sorts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.spread.deletion import (
    SECOND,
    DeletionCandidate,
    age_bucket,
    domain_counts,
    job_key,
    minimum_is_zero,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.spread.deletion import DeletionConstraint, DeletionOrder
    from topospread.spread.topology import Ints

MINUTE: Final = 60 * SECOND
"""Nanoseconds from the moment that is asked about, within which the controller may sort."""

AT_ONCE: Final = 500
"""Pods that a ReplicaSet deletes before it looks again at who shares a node with whom."""

MOST_SORTED: Final = 50_000
"""Pods times moments that are told apart; beyond, all that the rank leaves equal are."""


@dataclass(frozen=True, slots=True)
class DeletionCut:
    """Who goes in one order of deletion whose order among equal pods is open.

    Attributes:
        certain: positions of the pods that go.
        equal: positions of pods of which some go.
        chosen: how many of these go.
    """

    certain: Sequence[int]
    equal: Sequence[int] = ()
    chosen: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class PossibleDeletions:
    """Who goes in any case, who may, and between which skews it ends.

    Attributes:
        certain: positions of pods that go in any case.
        possible: positions of all that may go.
        skews: for each constraint the lowest and the highest that may be left.
    """

    certain: frozenset[int]
    possible: frozenset[int]
    skews: Sequence[tuple[int, int]]


def possible_deletions(
    cuts: Sequence[DeletionCut], spreads: Sequence[DeletionConstraint]
) -> PossibleDeletions:
    """What the cuts of one set of pods leave open; at least one cut."""
    certain = frozenset.intersection(*(frozenset(cut.certain) for cut in cuts))
    possible = frozenset[int]().union(*(frozenset((*cut.certain, *cut.equal)) for cut in cuts))
    skews = []
    for spread in spreads:
        ranges = []
        for cut in cuts:
            checkpoint()
            ranges.append(skew_range(spread, cut))
        skews.append((min(low for low, _ in ranges), max(high for _, high in ranges)))
    return PossibleDeletions(certain, possible, skews)


# ------------------------------ who goes


def ordered_cut(order: Sequence[int], deletions: int) -> DeletionCut:
    """The cut of an order in which nothing is open."""
    return DeletionCut(order[:deletions])


def any_cut(pods: int, deletions: int) -> DeletionCut:
    """The cut of pods of which any may go."""
    everything = range(pods)
    return DeletionCut(everything) if deletions == pods else DeletionCut((), everything, deletions)


def replica_set_cuts(
    order: DeletionOrder, ranks: Sequence[float], now: int, deletions: int
) -> Sequence[DeletionCut]:
    """The cuts of a ReplicaSet that deletes so many pods within a minute.

    Args:
        order: of the pods.
        ranks: [pods] how many of the pod's family run on its node.
        now: nanoseconds since 1970.
        deletions: at most all pods.
    """
    pods = order.pods
    if AT_ONCE < deletions < len(pods):
        # Ranks are counted anew for those behind.
        first = replica_set_cuts(order, ranks, now, AT_ONCE)
        return [_then_any(cut, len(pods), deletions) for cut in first]
    before: list[int] = []
    for cell in order.equal(ranks):
        if len(before) + len(cell) > deletions:
            return _cuts_of_cell(pods, before, cell, now, deletions - len(before))
        before += cell
    return [DeletionCut(before)]


def _then_any(cut: DeletionCut, pods: int, deletions: int) -> DeletionCut:
    rest = sorted({*range(pods)}.difference(cut.certain))
    return DeletionCut(cut.certain, rest, deletions - len(cut.certain))


def job_cuts(
    pods: Sequence[DeletionCandidate], order: Sequence[int], ranks: Sequence[float], deletions: int
) -> Sequence[DeletionCut]:
    """The cut of a Job, by its order (see deletion.job_order)."""
    keys = [(-rank, *job_key(pod)) for rank, pod in zip(ranks, pods, strict=True)]
    by_index: dict[tuple[int | None, object], int] = {}
    for pod, key in zip(pods, keys, strict=True):
        if pod.completion_index is not None:
            same = pod.completion_index, key[1:]
            by_index[same] = by_index.get(same, 0) + 1
    if any(pods_there > 1 for pods_there in by_index.values()):
        # Which of equal pods of an index stays is open, and with it who has the rank.
        return [any_cut(len(pods), deletions)]
    if not 0 < deletions < len(pods):
        return [ordered_cut(order, deletions)]
    first, last = keys[order[deletions]], keys[order[deletions - 1]]
    if first != last:
        return [ordered_cut(order, deletions)]
    equal = [position for position in order if keys[position] == last]
    certain = [position for position in order[:deletions] if keys[position] != last]
    return [DeletionCut(certain, equal, deletions - len(certain))]


def _cuts_of_cell(
    pods: Sequence[DeletionCandidate],
    before: Sequence[int],
    cell: Sequence[int],
    now: int,
    deletions: int,
) -> Sequence[DeletionCut]:
    """The cuts where so many go of pods that only their ages and restarts tell apart."""
    if not deletions:
        return [DeletionCut(before)]
    moments = _moments(pods, cell, now)
    if len(moments) * len(cell) > MOST_SORTED:
        return [DeletionCut(before, cell, deletions)]
    return [_cut_of_cell(pods, before, cell, moment, deletions) for moment in moments]


def _cut_of_cell(
    pods: Sequence[DeletionCandidate],
    before: Sequence[int],
    cell: Sequence[int],
    now: int,
    deletions: int,
) -> DeletionCut:
    checkpoint()
    certain: list[int] = []
    for equal in equal_pods(pods, cell, now):
        if len(certain) + len(equal) > deletions:
            if len(certain) == deletions:
                break
            return DeletionCut((*before, *certain), equal, deletions - len(certain))
        certain += equal
    return DeletionCut((*before, *certain))


def _moments(pods: Sequence[DeletionCandidate], cell: Sequence[int], now: int) -> list[int]:
    """The first moment, and those of the minute from which on ages compare otherwise."""
    found = {now}
    times = {pods[i].ready_since for i in cell if pods[i].ready} | {pods[i].created for i in cell}
    for time in times:
        if time is None:
            continue
        made = time * SECOND
        # A bucket ends where the age is a power of two.
        power = 1 << max(0, now - made).bit_length()
        while power <= now + MINUTE - made:
            found.add(made + power)
            power <<= 1
    return sorted(found)


def equal_pods(
    pods: Sequence[DeletionCandidate], cell: Sequence[int], now: int
) -> Iterator[Sequence[int]]:
    """Positions in the order in which a ReplicaSet deletes them, together where that is open.

    Pods of exactly one age are compared by their restarts, those of one logarithm of it by UID. So
    three may be in a circle: then their order is that of the sorting, and open, too.

    Args:
        pods: all.
        cell: positions of some that nothing up to the rank tells apart.
        now: nanoseconds since 1970.
    """
    for same, ready in _by_age(pods, cell, lambda pod: pod.ready_since if pod.ready else None, now):
        if not same:
            yield ready
            continue
        by_restarts: dict[tuple[int, int], list[int]] = {}
        for i in ready:
            restarts = -pods[i].restarts, -pods[i].sidecar_restarts
            by_restarts.setdefault(restarts, []).append(i)
        for _, restarted in sorted(by_restarts.items()):
            for _, made in _by_age(pods, restarted, lambda pod: pod.created, now):
                yield made


def _by_age(
    pods: Sequence[DeletionCandidate],
    positions: Sequence[int],
    time_of: Callable[[DeletionCandidate], int | None],
    now: int,
) -> Iterator[tuple[bool, Sequence[int]]]:
    """Pods by age, in order, with whether they are of exactly one.

    Those of one logarithm go by UID. Pods of exactly one age may be on both sides of another one's
    UID; then all between them belong together.
    """
    buckets: dict[int, dict[int | None, list[int]]] = {}
    for i in positions:
        time = time_of(pods[i])
        bucket = -2 if time is None else age_bucket(now - time * SECOND)
        buckets.setdefault(bucket, {}).setdefault(time, []).append(i)
    for _, by_time in sorted(buckets.items()):
        spans = sorted(
            (min(pods[i].uid for i in alike), max(pods[i].uid for i in alike), alike)
            for alike in by_time.values()
        )
        _, last, together = spans[0]
        same = True
        for first, end, alike in spans[1:]:
            if first > last:
                yield same, together
                together, last, same = alike, end, True
            else:
                together, last, same = [*together, *alike], max(last, end), False
        yield same, together


# ------------------------------ what skews are left


def skew_range(spread: DeletionConstraint, cut: DeletionCut) -> tuple[int, int]:
    """The lowest and the highest skew that a cut may leave, each of which it can.

    Any of the equal pods may go: what counts is how many of them each domain has.
    """
    counts = domain_counts(spread)
    equal = dict.fromkeys(counts, 0)
    for position in cut.certain:
        if (domain := spread.counted_domain(position)) is not None:
            counts[domain] -= 1
    for position in cut.equal:
        if (domain := spread.counted_domain(position)) is not None:
            equal[domain] += 1
    there = np.array(
        [(pods, equal[domain], domain in spread.eligible) for domain, pods in counts.items()],
        dtype=np.int64,
    ).reshape(-1, 3)
    uncounted = len(cut.equal) - int(there[:, 1].sum())
    zero = minimum_is_zero(spread)
    if not there.size:
        return 0, 0
    low = _lowest(there, uncounted, cut.chosen, zero=zero)
    return low, _highest(there, uncounted, cut.chosen, zero=zero)


def _lowest(there: Ints, uncounted: int, chosen: int, *, zero: bool) -> int:
    """Level from the top: the lowest maximum and the highest minimum can be had together."""
    pods, equal, eligible = there[:, 0], there[:, 1], there[:, 2] > 0
    bottom, top = int((pods - equal).max()), int(pods.max())
    while bottom < top:
        middle = (bottom + top) // 2
        if int(np.maximum(pods - middle, 0).sum()) <= chosen:
            top = middle
        else:
            bottom = middle + 1
    if zero:
        return top
    low, high = 0, int(pods[eligible].min())
    elsewhere = uncounted + int(equal[~eligible].sum())
    while low < high:
        middle = (low + high + 1) // 2
        most = int(np.minimum(equal, pods - middle)[eligible].sum())
        if most + elsewhere >= chosen:
            low = middle
        else:
            high = middle - 1
    return max(0, top - low)


def _highest(there: Ints, uncounted: int, chosen: int, *, zero: bool) -> int:
    """Take all from one domain, and as few as possible from another."""
    alike, number = np.unique(there, axis=0, return_counts=True)
    pods, equal, eligible = alike[:, 0], alike[:, 1], alike[:, 2] > 0
    every = int(there[:, 1].sum()) + uncounted
    if zero:
        return int((pods - np.maximum(0, chosen - (every - equal))).max())
    taken = np.minimum(equal, chosen)
    # Rows are the fullest domain, columns the emptiest.
    others = every - equal[:, None] - equal[None, :]
    kept = pods[:, None] - np.maximum(0, chosen - taken[None, :] - others)
    skews = kept - (pods - taken)[None, :]
    two = ~np.eye(len(alike), dtype=np.bool_) | (number > 1)[:, None]
    allowed = two & eligible[None, :]
    return max(0, int(skews[allowed].max(initial=0)))
