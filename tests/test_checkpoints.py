"""A computation ends with its caller and its deadline, whichever thread does it."""

from __future__ import annotations

import math
import threading
import time
from types import SimpleNamespace

import pytest

from topospread import checkpoints
from topospread.checkpoints import Beneficiary, beneficiary, checkpoint, computing_for
from topospread.errors import CallerGone, DeadlineExceeded, TopospreadError


def test_without_a_caller_everything_is_computed_to_its_end():
    checkpoint()


def test_a_computation_ends_with_its_deadline():
    with (
        computing_for(Beneficiary(time.monotonic() - 1, lambda: True)),
        pytest.raises(DeadlineExceeded),
    ):
        checkpoint()
    checkpoint()


def test_a_short_computation_does_not_ask_for_its_caller(monkeypatch):
    clock, asked = [100.0], []

    def active() -> bool:
        asked.append(clock[0])
        return True

    frozen = SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep)
    monkeypatch.setattr(checkpoints, "time", frozen)
    with computing_for(Beneficiary(math.inf, active)):
        for _ in range(3):
            checkpoint()
        assert not asked
        clock[0] += checkpoints.INTERVAL
        for _ in range(3):
            checkpoint()
    assert asked == [clock[0]]


def test_a_deadline_that_is_near_is_seen_in_time(monkeypatch):
    clock = [100.0]
    frozen = SimpleNamespace(monotonic=lambda: clock[0], sleep=time.sleep)
    monkeypatch.setattr(checkpoints, "time", frozen)
    near = clock[0] + checkpoints.INTERVAL / 4
    with computing_for(Beneficiary(near, lambda: True)):
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

    with computing_for(Beneficiary(math.inf, active)), pytest.raises(CallerGone):
        endless()
    assert len(asked) == 3


def test_work_of_another_thread_for_a_caller_ends_with_that_caller():
    ended: list[TopospreadError] = []

    def compute(whom: Beneficiary | None) -> None:
        checkpoint()  # this thread's own calls are nobody's
        with computing_for(whom):
            try:
                while True:
                    checkpoint()
            except CallerGone as gone:
                ended.append(gone)

    with computing_for(Beneficiary(math.inf, lambda: False)):
        other = threading.Thread(target=compute, args=(beneficiary(),))
        other.start()
        other.join()
    assert len(ended) == 1
