"""Long computations go on one at a time, beside short ones; what waits in line is not begun."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.waiting import until
from topospread.checkpoints import (
    LONG,
    TakesLong,
    checkpoint,
    will_write,
)
from topospread.errors import CallerGone, DeadlineExceeded, LimitExceeded
from topospread.threads.pool import lend_place
from topospread.threads.turns import LARGE_REQUEST, LONG_DECISIONS, Turns, decided

PATIENCE = 30


def _take_long() -> None:
    """Compute for longer than what counts as long."""
    until = time.thread_time() + 4 * LONG
    while time.thread_time() < until:
        checkpoint()


def _ever() -> float:
    return math.inf


def _decided(decide, *, active=lambda: True, left=lambda: float(PATIENCE)):
    return decided(decide, left, time.monotonic() + left(), active)


@pytest.fixture
def taken():
    """The turn of long decisions is another's, until it is given."""
    assert LONG_DECISIONS.try_take()
    given = threading.Event()

    def give() -> None:
        if not given.is_set():
            given.set()
            LONG_DECISIONS.give()

    yield give
    give()


def test_a_long_decision_is_begun_anew_when_it_is_its_turn(taken):
    steps, answers = list[str](), list[str]()

    def decide() -> str:
        steps.append("begun")
        _take_long()
        steps.append("done")
        return "answer"

    thread = threading.Thread(target=lambda: answers.append(_decided(decide)))
    thread.start()
    until(lambda: LONG_DECISIONS.waiting, "it waits for its turn")
    assert steps == ["begun"]
    taken()
    thread.join(PATIENCE)
    assert steps == ["begun", "begun", "done"]
    assert answers == ["answer"]
    assert LONG_DECISIONS.try_take(), "the turn was given back"
    LONG_DECISIONS.give()


def test_a_long_decision_goes_on_where_no_other_does():
    begun = list[None]()

    def decide() -> bool:
        begun.append(None)
        _take_long()
        return LONG_DECISIONS.try_take()

    assert not _decided(decide), "it has the turn"
    assert len(begun) == 1


def test_a_large_request_waits_before_it_is_read(taken):
    begun = list[None]()

    def decide() -> bool:
        begun.append(None)
        return _others_may_go_on()

    with ThreadPoolExecutor(1) as other:
        deadline = time.monotonic() + PATIENCE
        answer = other.submit(
            decided, decide, lambda: PATIENCE, deadline, lambda: True, LARGE_REQUEST + 1
        )
        until(lambda: LONG_DECISIONS.waiting, "it waits for its turn")
        assert not begun
        taken()
        assert not answer.result(PATIENCE)
    assert len(begun) == 1
    assert _others_may_go_on()


def test_a_large_request_that_waits_for_a_revision_holds_up_no_other():
    def decide() -> bool:
        leave = lend_place()
        others = _others_may_go_on()
        leave()
        return others

    deadline = time.monotonic() + PATIENCE
    assert decided(decide, lambda: PATIENCE, deadline, lambda: True, LARGE_REQUEST + 1)


def test_a_short_decision_waits_for_no_other(taken):
    def decide() -> str:
        checkpoint()
        checkpoint()
        return "answer"

    assert _decided(decide) == "answer"


@pytest.mark.parametrize(
    ("left", "active", "error"),
    [
        (lambda: 0.0, lambda: True, DeadlineExceeded),
        (lambda: 60.0, lambda: False, CallerGone),
    ],
)
def test_an_abandoned_waiter_leaves_the_line(taken, left, active, error):
    with pytest.raises(error):
        LONG_DECISIONS.take(left, active)
    assert not LONG_DECISIONS.waiting
    taken()
    assert LONG_DECISIONS.try_take(), "nobody else was held up"
    LONG_DECISIONS.give()


def test_a_turn_that_comes_as_its_caller_leaves_is_the_next_ones():
    turns = Turns(1, 2, "calls")
    assert turns.try_take()

    def leaves() -> bool:
        turns.give()  # while it is on its way out
        raise CallerGone("gone")

    with pytest.raises(CallerGone):
        turns.take(_ever, leaves)
    assert turns.try_take()


def test_turns_come_in_the_order_of_the_line_which_is_bounded():
    turns, order = Turns(1, 3, "calls"), list[int]()
    assert turns.try_take()

    def call(number: int) -> None:
        with turns.turn(lambda: PATIENCE, lambda: True):
            order.append(number)

    threads = []
    for number in range(3):
        threads.append(threading.Thread(target=call, args=(number,)))
        threads[-1].start()
        until(lambda: turns.waiting == len(threads), "it waits for its turn")
    with pytest.raises(LimitExceeded, match="too many calls at once"):
        turns.take(_ever, lambda: True)
    turns.give()
    for thread in threads:
        thread.join(PATIENCE)
    assert order == [0, 1, 2]


def _others_may_go_on() -> bool:
    taken = LONG_DECISIONS.try_take()
    if taken:
        LONG_DECISIONS.give()
    return taken


def test_while_a_long_decision_waits_for_a_revision_others_go_on():
    def decide() -> bool:
        _take_long()
        leave = lend_place()
        others = _others_may_go_on()
        leave()
        return others

    assert _decided(decide)


def test_one_begun_anew_holds_up_no_other_while_it_waits_for_a_revision(taken):
    """It is begun anew before the wait where it took long to read; then others would wait, too."""
    begun, revision = list[None](), threading.Event()

    def decide() -> str:
        _take_long()
        begun.append(None)
        leave = lend_place()
        assert revision.wait(PATIENCE)
        leave()
        _take_long()
        return "answer"

    with ThreadPoolExecutor(1) as other:
        answer = other.submit(_decided, decide)
        until(lambda: LONG_DECISIONS.waiting, "it waits for its turn")
        taken()
        until(lambda: begun, "it goes on")
        until(LONG_DECISIONS.try_take, "another has its turn")
        revision.set()
        until(lambda: LONG_DECISIONS.waiting, "it waits for its turn")
        assert len(begun) == 1, "it goes on where it was"
        LONG_DECISIONS.give()
        assert answer.result(PATIENCE) == "answer"
    assert len(begun) == 1
    assert _others_may_go_on()


def test_a_decision_that_has_written_is_not_begun_anew(taken):
    written = list[None]()

    def decide() -> str:
        will_write()
        written.append(None)
        _take_long()
        return "answer"

    assert _decided(decide) == "answer"
    assert len(written) == 1


def test_takes_long_is_no_exception_that_a_handler_takes_for_a_failure():
    assert not issubclass(TakesLong, Exception)
