"""A computation ends with its caller and its deadline, takes turns, and is preempted if brief."""

from __future__ import annotations

import math
import threading
import time
from contextlib import nullcontext
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from tests.waiting import PATIENCE, until
from topospread import checkpoints
from topospread.checkpoints import (
    BRIEF,
    SLICE,
    Computation,
    Preempted,
    Turn,
    checkpoint,
    computing_for,
    current_computation,
    waiting,
    will_take_long,
)
from topospread.errors import CallerGone, DeadlineExceeded, TopospreadError

if TYPE_CHECKING:
    from collections.abc import Callable


def _yes() -> bool:
    return True


def _compute(seconds: float) -> None:
    """Compute for so much processor time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        checkpoint()


@pytest.fixture
def clock(monkeypatch) -> list[float]:
    """The time that checkpoints see."""
    now = [100.0]
    frozen = SimpleNamespace(
        monotonic=lambda: now[0], sleep=time.sleep, thread_time=time.thread_time
    )
    monkeypatch.setattr(checkpoints, "time", frozen)
    return now


def test_without_a_caller_everything_is_computed_to_its_end():
    checkpoint()
    will_take_long()
    with waiting():
        pass


def test_a_computation_ends_with_its_deadline():
    with Computation(time.monotonic() - 1, _yes), pytest.raises(DeadlineExceeded):
        checkpoint()
    checkpoint()


def test_a_short_computation_does_not_ask_for_its_caller(clock):
    asked = []

    def active() -> bool:
        asked.append(clock[0])
        return True

    with Computation(math.inf, active):
        for _ in range(3):
            checkpoint()
        assert not asked
        clock[0] += checkpoints.INTERVAL
        for _ in range(3):
            checkpoint()
    assert asked == [clock[0]]


def test_a_deadline_that_is_near_is_seen_in_time(clock):
    near = clock[0] + checkpoints.INTERVAL / 4
    with Computation(near, _yes):
        checkpoint()
        clock[0] += checkpoints.INTERVAL / 2
        with pytest.raises(DeadlineExceeded):
            checkpoint()


def test_a_computation_ends_when_its_caller_has_gone_in_the_midst_of_it():
    asked = []

    def active() -> bool:
        asked.append(True)
        return len(asked) < 3

    def endless() -> None:
        while True:
            checkpoint()

    with Computation(math.inf, active), pytest.raises(CallerGone):
        endless()
    assert len(asked) == 3


def test_work_of_another_thread_for_a_caller_ends_with_that_caller():
    ended: list[TopospreadError] = []

    def compute(whom: Computation | None) -> None:
        checkpoint()  # this thread's own calls are nobody's
        with computing_for(whom):
            try:
                while True:
                    checkpoint()
            except CallerGone as gone:
                ended.append(gone)

    with Computation(math.inf, lambda: False):
        other = threading.Thread(target=compute, args=(current_computation(),))
        other.start()
        other.join()
    assert len(ended) == 1


# ------------------------------ brief ones


def test_a_brief_computation_is_preempted_when_it_takes_long():
    with Computation(math.inf, _yes, brief=True), pytest.raises(Preempted):
        _compute(10 * BRIEF)


def test_a_brief_computation_that_waits_for_the_processor_goes_on(clock):
    with Computation(math.inf, _yes, brief=True):
        clock[0] += 10 * BRIEF
        checkpoint()


@pytest.mark.parametrize("what", [will_take_long, lambda: waiting().__enter__()])
def test_a_brief_computation_is_preempted_before_it_waits(what):
    with Computation(math.inf, _yes, brief=True), pytest.raises(Preempted):
        what()


def test_preempted_is_no_exception_that_a_handler_takes_for_a_failure():
    assert not issubclass(Preempted, Exception)


# ------------------------------ turns


def _is_free(turn: Turn) -> bool:
    """Whether nobody has the turn."""

    def check() -> None:
        raise CallerGone("it is taken")

    try:
        turn.acquire(check)
    except CallerGone:
        return False
    turn.release()
    return True


@pytest.fixture
def turn(monkeypatch) -> Turn:
    monkeypatch.setattr(checkpoints, "PATIENCE", 0.02)
    return Turn()


def test_a_computation_has_the_turn_until_its_end(turn):
    with Computation(math.inf, _yes, turn=turn):
        assert not _is_free(turn)
    assert _is_free(turn)
    with pytest.raises(ZeroDivisionError), Computation(math.inf, _yes, turn=turn):
        raise ZeroDivisionError
    assert _is_free(turn)


def test_a_wait_within_a_wait_gives_the_turn_back_once(turn):
    with Computation(math.inf, _yes, turn=turn):
        with waiting():
            turn.acquire()  # another's
            with waiting():
                assert not _is_free(turn)
            assert not _is_free(turn)
            turn.release()
        assert not _is_free(turn)
    assert _is_free(turn)


def test_a_turn_that_its_thread_holds_already_stays_its_own(turn):
    turn.acquire()
    with Computation(math.inf, _yes, turn=turn, waits=nullcontext):
        with waiting():
            assert _is_free(turn)
        assert not _is_free(turn)
    assert not _is_free(turn)
    turn.release()


@pytest.mark.parametrize(
    ("deadline", "active", "error"),
    [(0.0, True, DeadlineExceeded), (math.inf, False, CallerGone)],
)
def test_a_computation_that_waits_for_the_turn_leaves_with_its_caller(
    turn, deadline, active, error
):
    turn.acquire()
    with pytest.raises(error), Computation(deadline, lambda: active, turn=turn):
        pass
    assert not turn.waiting
    turn.release()
    assert _is_free(turn)


def test_a_turn_that_comes_as_its_caller_leaves_is_the_next_ones(turn):
    turn.acquire()

    def leaves() -> None:
        turn.release()  # while it is on its way out
        raise CallerGone("gone")

    with pytest.raises(CallerGone):
        turn.acquire(leaves)
    assert _is_free(turn)


def _in_line(turn: Turn, then: Callable[[], object]) -> threading.Thread:
    """A thread that waits for the turn, and then does something with it."""

    def wait() -> None:
        turn.acquire()
        then()
        turn.release()

    before = turn.waiting
    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: turn.waiting > before, "it waits")
    return thread


def test_turns_come_in_the_order_of_the_line(turn):
    turn.acquire()
    order = list[int]()
    threads = [_in_line(turn, partial(order.append, number)) for number in range(3)]
    turn.release()
    for thread in threads:
        thread.join(PATIENCE)
    assert order == [0, 1, 2]


def test_a_computation_that_shares_its_turn_lets_others_go_on_now_and_then(turn):
    went = threading.Event()
    with Computation(math.inf, _yes, turn=turn, share=True):
        other = _in_line(turn, went.set)
        end = time.monotonic() + PATIENCE
        while not went.is_set() and time.monotonic() < end:
            _compute(SLICE / 10)
        assert went.is_set()
        assert not _is_free(turn)
    other.join(PATIENCE)
    assert _is_free(turn)


def test_a_computation_that_does_not_share_goes_on_to_its_end(turn):
    went = threading.Event()
    with Computation(math.inf, _yes, turn=turn):
        other = _in_line(turn, went.set)
        _compute(2 * SLICE)
        assert not went.is_set()
    other.join(PATIENCE)
    assert went.is_set()
