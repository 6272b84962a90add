"""Long computations go on one at a time, beside short ones."""

from __future__ import annotations

import math
import threading
import time

import pytest

from topospread.checkpoints import LONG, Beneficiary, Turn, checkpoint, computing_for
from topospread.errors import DeadlineExceeded

PATIENCE = 30


def _long(steps: list[str], name: str) -> None:
    """Compute for longer than what counts as long."""
    until = time.thread_time() + 4 * LONG
    while time.thread_time() < until:
        checkpoint()
    steps.append(name)


def test_a_long_computation_waits_for_the_one_before():
    turn, steps = Turn(), list[str]()
    entered, leave = threading.Event(), threading.Event()

    def first() -> None:
        with computing_for(Beneficiary(math.inf, lambda: True, turn)):
            _long(steps, "first is long")
            entered.set()
            leave.wait(PATIENCE)
            steps.append("first ends")

    def second() -> None:
        with computing_for(Beneficiary(math.inf, lambda: True, turn)):
            _long(steps, "second ends")

    threads = [threading.Thread(target=first), threading.Thread(target=second)]
    threads[0].start()
    assert entered.wait(PATIENCE)
    threads[1].start()
    while not turn.waiting:
        time.sleep(0.001)
    leave.set()
    for thread in threads:
        thread.join(PATIENCE)
    assert steps == ["first is long", "first ends", "second ends"]


def test_a_short_computation_waits_for_nobody():
    turn = Turn()
    turn.take(checkpoint)
    with computing_for(Beneficiary(math.inf, lambda: True, turn)):
        checkpoint()
        checkpoint()


def test_whoever_waits_for_a_turn_ends_with_the_deadline_and_holds_nobody_up():
    turn, made_way = Turn(), list[str]()
    turn.take(checkpoint)
    with (
        computing_for(Beneficiary(time.monotonic() + 0.1, lambda: True, turn)),
        pytest.raises(DeadlineExceeded),
    ):
        _long(made_way, "it went on")
    assert not made_way
    assert not turn.waiting
    turn.give()
    with computing_for(Beneficiary(math.inf, lambda: True, turn)):
        _long(made_way, "it went on")
    assert made_way
