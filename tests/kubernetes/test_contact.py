"""When a kind is listed anew; on a clock of the test's own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from topospread.kubernetes.contact import LISTED_PER_SECOND, WATCH_SECONDS, Contact

if TYPE_CHECKING:
    from collections.abc import Callable


class Clock:
    """What time it is, by the test's word."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def contact(clock: Clock) -> Contact:
    return Contact(clock)


def listed(contact: Contact, clock: Clock, took: float) -> None:
    """Take a list of as many objects as are listed in so many seconds."""
    clock.now += took
    contact.listed(round(took * LISTED_PER_SECOND))


def watch_until(contact: Contact, clock: Clock, reached: Callable[[], bool]) -> float:
    """Watch again and again; returns the seconds that it took."""
    began = clock.now
    while not reached():
        clock.now += contact.next_watch()
        contact.watched()
    return clock.now - began


def test_a_list_is_due_at_first(contact: Contact, clock: Clock) -> None:
    due = [contact.list_is_due]
    listed(contact, clock, 0.01)
    assert [*due, contact.list_is_due] == [True, False]


def test_a_kind_whose_list_is_quick_is_listed_after_each_watch(
    contact: Contact, clock: Clock
) -> None:
    for _ in range(20):
        listed(contact, clock, 1.0)
        seconds = contact.next_watch()
        assert WATCH_SECONDS <= seconds <= 2 * WATCH_SECONDS + 1
        clock.now += seconds
        assert contact.list_is_due


@pytest.mark.parametrize("took", [0.01, 3.0, 12.0, 60.0])
def test_lists_take_a_hundredth_of_the_time_at_most_and_come_in_any_case(
    contact: Contact, clock: Clock, took: float
) -> None:
    listed(contact, clock, took)
    seconds = watch_until(contact, clock, lambda: contact.list_is_due)
    assert took / (seconds + took) <= 0.01
    assert seconds <= max(100 * took, 2 * WATCH_SECONDS) + 2 * WATCH_SECONDS


def test_a_list_that_came_slowly_holds_up_no_other(contact: Contact, clock: Clock) -> None:
    """As from an API server that was starting."""
    clock.now += 60.0
    contact.listed(100)
    contact.lose()
    clock.now += 1.0
    assert contact.list_is_due


def test_lost_contact_is_followed_by_a_list_at_once(contact: Contact, clock: Clock) -> None:
    listed(contact, clock, 12.0)
    clock.now += 10 * 12.0
    due = [contact.list_is_due]
    contact.lose()
    assert [*due, contact.list_is_due] == [False, True]


def test_lists_take_a_tenth_of_the_time_where_connections_break_all_the_time(
    contact: Contact, clock: Clock
) -> None:
    listed(contact, clock, 12.0)
    contact.lose()
    clock.now += 5.0
    due = [contact.list_is_due]
    assert contact.lag(watching=True) == 5.0, "though it is watched again: it may be another one"
    assert clock.now + contact.next_watch() == 1012.0 + 10 * 12.0
    clock.now += contact.next_watch()
    assert [*due, contact.list_is_due] == [False, True]
    listed(contact, clock, 12.0)
    assert contact.lag(watching=True) == 0.0


def test_lag_counts_from_the_first_loss(contact: Contact, clock: Clock) -> None:
    listed(contact, clock, 1.0)
    clock.now += 100.0
    assert contact.lag(watching=True) == 0.0
    for _ in range(3):
        contact.lose()
        clock.now += 10.0
    assert contact.lag(watching=False) == 30.0


def test_without_a_watch_lag_counts_from_the_last_contact(contact: Contact, clock: Clock) -> None:
    listed(contact, clock, 1.0)
    clock.now += 2.0
    assert contact.lag(watching=False) == 2.0
