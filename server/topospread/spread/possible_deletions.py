"""Which pods go where the one who deletes them finds some equal, and what skews that may leave.

A ReplicaSet sorts pods that it finds in any order, and by a comparison that calls some equal: those
that became ready, and were made, in one second. Ages are compared by their logarithm, so that the
order changes with time. What is said here holds at whatever moment of a minute it sorts.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.spread.deletion import (
    SECOND,
    DeletionCandidate,
    age_bucket,
    job_key,
)
from topospread.spread.possible_skews import DeletionCut, SkewRange

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from topospread.spread.deletion import DeletionConstraint, DeletionOrder

MINUTE: Final = 60 * SECOND
"""Nanoseconds from the moment that is asked about, within which the controller may sort."""

AT_ONCE: Final = 500
"""Pods that a ReplicaSet deletes before it looks again at who shares a node with whom."""

MOST_SORTED: Final = 50_000
"""Pods times moments that are told apart; beyond, all that the rank leaves equal are."""


@dataclass(frozen=True, slots=True, eq=False)
class DeletionCuts:
    """Who goes in each order of deletion that there may be: the cuts of one set of pods.

    Attributes:
        cuts: at least one, to be read once: each is made when it is asked for.
        certain: positions of pods that go in each, beside the cut's own.
        equal: positions of pods that are among the equal ones of each, beside the cut's own.
    """

    cuts: Iterable[DeletionCut]
    certain: Sequence[int] = ()
    equal: Sequence[int] = ()


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
    cuts: DeletionCuts, spreads: Sequence[DeletionConstraint]
) -> PossibleDeletions:
    """What the cuts of one set of pods leave open.

    Of all cuts no more is kept than of one, and each costs what it differs in from the others.
    """
    ranges = [SkewRange(spread, cuts.certain, cuts.equal) for spread in spreads]
    certain: set[int] | None = None
    possible: set[int] = set()
    last = None
    for cut in cuts.cuts:
        checkpoint()
        if cut == last:
            continue
        last = cut
        certain = {*cut.certain} if certain is None else certain.intersection(cut.certain)
        possible.update(cut.certain, cut.equal)
        for each in ranges:
            each.add(cut)
    return PossibleDeletions(
        frozenset(certain or ()).union(cuts.certain),
        frozenset(possible).union(cuts.certain, cuts.equal),
        [(each.low, each.high) for each in ranges],
    )


# ------------------------------ who goes


def ordered_cut(order: Sequence[int], deletions: int) -> DeletionCuts:
    """The cut of an order in which nothing is open."""
    return DeletionCuts([DeletionCut(order[:deletions])])


def any_cut(pods: int, deletions: int) -> DeletionCuts:
    """The cut of pods of which any may go."""
    return DeletionCuts([_cut([range(pods)], deletions)])


def replica_set_cuts(
    order: DeletionOrder, ranks: Sequence[float], now: int, deletions: int
) -> DeletionCuts:
    """The cuts of a ReplicaSet that deletes so many pods within a minute.

    Args:
        order: of the pods.
        ranks: [pods] how many of the pod's family run on its node.
        now: nanoseconds since 1970.
        deletions: at most all pods.
    """
    pods = order.pods
    # Beyond, ranks are counted anew for those behind: any of them may go.
    at_once = min(deletions, AT_ONCE) if deletions < len(pods) else deletions
    before: list[int] = []
    cells = iter(order.equal(ranks))
    for cell in cells:
        if len(before) + len(cell) <= at_once:
            before += cell
            continue
        cuts = _cuts_of_cell(pods, cell, now, at_once - len(before))
        if at_once == deletions:
            return DeletionCuts(cuts, before)
        behind = [position for later in cells for position in later]
        more = deletions - len(before)
        return DeletionCuts((_then_any(cut, cell, more) for cut in cuts), before, behind)
    return ordered_cut(before, deletions)


def _then_any(cut: DeletionCut, cell: Sequence[int], deletions: int) -> DeletionCut:
    gone = {*cut.certain}
    rest = tuple(position for position in cell if position not in gone)
    return DeletionCut(cut.certain, rest, deletions - len(gone))


def job_cuts(
    pods: Sequence[DeletionCandidate], order: Sequence[int], ranks: Sequence[float], deletions: int
) -> DeletionCuts:
    """The cut of a Job, by its order (see deletion.job_order)."""
    return DeletionCuts([_cut(job_groups(pods, order, ranks), deletions)])


def job_groups(
    pods: Sequence[DeletionCandidate], order: Sequence[int], ranks: Sequence[float]
) -> Sequence[Sequence[int]]:
    """Positions in the order in which a Job deletes them, together where that is open."""
    keys = [(-rank, *job_key(pod)) for rank, pod in zip(ranks, pods, strict=True)]
    by_index: dict[tuple[int | None, object], int] = {}
    for pod, key in zip(pods, keys, strict=True):
        if pod.completion_index is not None:
            same = pod.completion_index, key[1:]
            by_index[same] = by_index.get(same, 0) + 1
    if any(pods_there > 1 for pods_there in by_index.values()):
        # Which of equal pods of an index stays is open, and with it who has the rank.
        return [order]
    return [list(equal) for _, equal in groupby(order, key=keys.__getitem__)]


def _cuts_of_cell(
    pods: Sequence[DeletionCandidate], cell: Sequence[int], now: int, deletions: int
) -> Iterable[DeletionCut]:
    """The cuts where so many go of pods that only their ages and restarts tell apart."""
    if not deletions:
        return [DeletionCut(())]
    moments = moments_of(pods, cell, now)
    if len(moments) * len(cell) > MOST_SORTED:
        return [DeletionCut((), cell, deletions)]
    return (_cut(equal_pods(pods, cell, moment), deletions) for moment in moments)


def _cut(groups: Iterable[Sequence[int]], deletions: int) -> DeletionCut:
    """The cut of an order of groups in each of which the order is open."""
    certain: list[int] = []
    for equal in groups:
        if len(certain) + len(equal) > deletions:
            if len(certain) == deletions:
                break
            return DeletionCut(certain, equal, deletions - len(certain))
        certain += equal
    return DeletionCut(certain)


def moments_of(pods: Sequence[DeletionCandidate], cell: Sequence[int], now: int) -> list[int]:
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
                together += alike
                last, same = max(last, end), False
        yield same, together
