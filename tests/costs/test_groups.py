"""What groups say that they hold is what they hold, whatever is counted, and is bounded by it."""

from __future__ import annotations

import tracemalloc
from typing import TYPE_CHECKING

import pytest

from topospread.cache import Budget
from topospread.index.builder import Builder
from topospread.index.changes import NodeChange, PodChange, PodRow
from topospread.index.selector_keys import MOST_KEYS
from topospread.kube.namespaces import ALL_NAMESPACES, NamespaceSet
from topospread.kube.objects import Node
from topospread.kube.selectors import IN, NOT_IN, Requirement, Selector
from topospread.spread.topology import Eligibility, GroupKey

if TYPE_CHECKING:
    from collections.abc import Callable

LABEL_SETS = 500
MOST = 2 << 20
ZONE = "zone"


def selecting(operator: str, number: int, values: int) -> Selector:
    found = tuple(f"v{number}-{each}" for each in range(values))
    return Selector((Requirement("app", operator, found),))


def wide(number: int) -> GroupKey:
    """Of many namespaces and many values."""
    names = frozenset(f"team-{number}-{each}" for each in range(300))
    return GroupKey("", selecting(IN, number, 300), NamespaceSet(names), terminating=True)


def keyed(number: int) -> GroupKey:
    """With as many keys as there may be."""
    return GroupKey("default", selecting(IN, number, MOST_KEYS))


def of_all(number: int) -> GroupKey:
    """Of all label sets that there are."""
    return GroupKey("", selecting(NOT_IN, number, 1), ALL_NAMESPACES, terminating=True)


def small(number: int) -> GroupKey:
    return GroupKey("default", selecting(IN, number, 1))


def builder() -> Builder:
    made = Builder(budget=Budget(MOST))
    made.fold([NodeChange("n", Node("n", {ZONE: "z"}))])
    made.fold(
        PodChange("default", f"p{i}", PodRow((("app", "web"), ("pod", f"p{i}")), "n", True))
        for i in range(LABEL_SETS)
    )
    return made


def held_and_said(make: Callable[[int], GroupKey], count: int, made: Builder) -> tuple[int, int]:
    """Bytes that so many groups hold, and that they say."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(count):
            group = make(number)
            snapshot = made.ensure_counted([group])
            assert snapshot.domain_counts(group, Eligibility(), ZONE).sum() >= 0
            del snapshot, group
        made.ensure_counted([])
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return after - before, made.size


KINDS: dict[Callable[[int], GroupKey], int] = {wide: 10, keyed: 70, of_all: 150, small: 400}


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_groups_say_what_they_hold(make: Callable[[int], GroupKey]) -> None:
    made = builder()
    held, said = held_and_said(make, KINDS[make], made)
    assert len(made.snapshot.groups) == KINDS[make]
    assert held / 1.5 < said < held * 1.5


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_groups_hold_no_more_than_they_may(make: Callable[[int], GroupKey]) -> None:
    made = builder()
    held, said = held_and_said(make, 4 * KINDS[make], made)
    assert len(made.snapshot.groups) < 4 * KINDS[make]
    assert said <= 1.1 * MOST
    assert held < 1.5 * MOST


def test_pods_that_come_later_are_said_too() -> None:
    made = Builder()
    made.ensure_counted([of_all(number) for number in range(50)])
    made.ensure_counted([])
    before = made.size
    changes = [
        PodChange("default", f"p{i}", PodRow((("pod", f"p{i}"),), "n", True)) for i in range(1000)
    ]
    made.fold(changes)
    assert made.size - before > 8 * 50 * 1000
    made.fold([PodChange("default", f"p{i}", None) for i in range(1000)])
    assert made.size == before
    assert not made.drop_idle(made.snapshot.sequence + 1).groups
    assert made.size == 0
