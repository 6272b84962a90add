"""Rollouts where domains have little room, compared with every way that one can go."""

from __future__ import annotations

from itertools import product

import pytest

from tests.spread.linting.test_rollouts import deployment, ends_of
from topospread.spread.linting.capacities import DomainCapacity, ReplicaCapacity
from topospread.spread.linting.engine import Knowledge, lint
from topospread.spread.linting.workloads import DomainNumbers

HASH = "pod-template-hash"


def may_come(old, new, capacity, max_skew, is_scoped):
    """Domains that take a new pod."""
    counted = new if is_scoped else [a + b for a, b in zip(old, new, strict=True)]
    return [
        d
        for d in range(len(old))
        if old[d] + new[d] < capacity[d] and counted[d] + 1 - min(counted) <= max_skew
    ]


def gets_stuck(start, surge, unavailable, capacity, max_skew, is_scoped):
    """Whether one order in which old pods go ends with new ones that wait."""

    def comes(old, new):
        return may_come(old, new, capacity, max_skew, is_scoped)

    return None in ends_of(start, sum(start), surge, unavailable, comes)


STARTS = [
    start
    for domains in (2, 3)
    for start in product(range(4), repeat=domains)
    if 2 <= sum(start) <= 6 and list(start) == sorted(start)
]

CASES = [
    (start, free, surge, unavailable, max_skew, is_scoped)
    for start in STARTS
    for free in product((0, 1, 3), repeat=len(start))
    for surge, unavailable in ((1, 0), (1, 1), (2, 1), (0, 1))
    for max_skew in (1, 2)
    for is_scoped in (False, True)
    if max(start) - min(start) <= max_skew
]


def is_said(case):
    start, free, surge, unavailable, max_skew, is_scoped = case
    capacity = ReplicaCapacity(
        tuple(DomainCapacity(1, old, more) for old, more in zip(start, free, strict=True))
    )
    keys = (HASH,) if is_scoped else ()
    workload = deployment(sum(start), max_skew, surge, unavailable, keys=keys)
    lowest = 0 if is_scoped else min(start)
    known = Knowledge({0: DomainNumbers(len(start), len(start), lowest, capacity)})
    return "RolloutDeadlock" in {each.code for each in lint(workload, known)}


@pytest.mark.parametrize("is_scoped", [False, True], ids=["all", "each revision"])
def test_a_rollout_is_said_to_wait_where_one_can(is_scoped):
    cases = [case for case in CASES if case[-1] is is_scoped]
    wrong, seen = [], set()
    for case in cases:
        start, free, surge, unavailable, max_skew, _ = case
        capacity = [old + more for old, more in zip(start, free, strict=True)]
        can = gets_stuck(start, surge, unavailable, capacity, max_skew, is_scoped)
        seen.add(can)
        if can != is_said(case):
            wrong.append((case, can))
    assert seen == {True, False}
    assert not wrong, f"{len(wrong)} of {len(cases)}: {wrong[:10]}"
