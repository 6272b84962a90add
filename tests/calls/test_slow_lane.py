"""The slow lane: one computes at a time, callers in turn; who waits gives the turn away."""

from __future__ import annotations

import math
import threading
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import threads_end
from tests.waiting import PATIENCE, until
from topospread.calls.executor import Executor
from topospread.checkpoints import Computation, Turn, waiting
from topospread.errors import QueueFull

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with threads_end(), ExitStack() as stack:
        yield stack


@pytest.fixture
def turn() -> Turn:
    return Turn()


@pytest.fixture
def make(closing, turn) -> Callable[..., Executor]:
    def make(queue: int = 100, threads: int = 64) -> Executor:
        lane = Executor("test", threads, queue, turn)
        closing.callback(lane.shutdown, cancel_futures=True)
        return lane

    return make


class Work:
    """A call that does something, and notes how it ended."""

    def __init__(
        self, lane: Executor, do: Callable[[], Any] = lambda: None, owner: str = ""
    ) -> None:
        self.lane = lane
        self.owner = owner
        self.ended = threading.Event()
        self.outcome = ""
        self._do = do

    def carry_out(self) -> None:
        with Computation(math.inf, lambda: True, turn=self.lane.turn, waits=self.lane.waiting):
            self._do()
        self._end("carried out")

    def refuse(self) -> None:
        self._end("refused")

    def _end(self, outcome: str) -> None:
        self.outcome = outcome
        self.ended.set()

    def result(self) -> str:
        assert self.ended.wait(PATIENCE)
        return self.outcome


class Gate:
    """Something outside that calls wait for."""

    def __init__(self, closing: ExitStack) -> None:
        self.begun = threading.Semaphore(0)
        self._open = threading.Event()
        closing.callback(self._open.set)

    def hold(self) -> None:
        """Wait as a computation that gives nothing away."""
        self.begun.release()
        assert self._open.wait(PATIENCE)

    def wait(self) -> None:
        """Wait and give the turn away."""
        with waiting():
            self.hold()

    def open(self) -> None:
        self._open.set()


def test_one_computes_at_a_time_and_callers_take_turns(make, closing, turn):
    lane, gate, order = make(), Gate(closing), list[str]()
    first = Work(lane, gate.hold)
    lane.put(first)
    assert gate.begun.acquire(timeout=PATIENCE)
    calls = []
    for owner in ("many", "many", "many", "few"):
        calls.append(Work(lane, partial(order.append, owner), owner))
        lane.put(calls[-1])
    assert (lane.depth, lane.busy, lane.blocked) == (4, 1, 0)
    gate.open()
    assert {call.result() for call in calls} == {"carried out"}
    assert order == ["many", "few", "many", "many"]
    turn.acquire()  # it was given back
    turn.release()


def test_a_call_that_waits_gives_the_turn_to_the_next(make, closing):
    lane, gate = make(), Gate(closing)
    blocked = [Work(lane, gate.wait) for _ in range(5)]
    for call in blocked:
        lane.put(call)
        assert gate.begun.acquire(timeout=PATIENCE)
    assert lane.blocked == 5
    other = Work(lane)
    lane.put(other)
    assert other.result() == "carried out"
    assert not any(call.ended.is_set() for call in blocked)
    gate.open()
    assert {call.result() for call in blocked} == {"carried out"}
    assert lane.blocked == 0


def test_threads_that_waited_end_when_they_are_not_needed(make, closing):
    lane, gate = make(), Gate(closing)
    blocked = [Work(lane, gate.wait) for _ in range(5)]
    for call in blocked:
        lane.put(call)
        assert gate.begun.acquire(timeout=PATIENCE)
    gate.open()
    for call in blocked:
        call.result()
    until(lambda: len(lane._running) == 1, "one is left")


def test_one_more_that_would_wait_is_refused_and_others_go_on(make, closing):
    lane, gate, refused = make(threads=2), Gate(closing), list[str]()
    for _ in range(2):
        lane.put(Work(lane, gate.wait))
        assert gate.begun.acquire(timeout=PATIENCE)

    def wait() -> None:
        with pytest.raises(QueueFull, match="2 calls wait"):
            gate.wait()
        refused.append("third")

    for call in (Work(lane, wait), Work(lane)):
        lane.put(call)
        assert call.result() == "carried out"
    assert (refused, lane.blocked) == (["third"], 2)


def test_a_call_that_is_taken_out_is_not_carried_out(make, closing):
    lane, gate = make(), Gate(closing)
    lane.put(Work(lane, gate.hold))
    assert gate.begun.acquire(timeout=PATIENCE)
    gone, other = Work(lane), Work(lane)
    lane.put(gone)
    lane.put(other)
    assert lane.remove(gone)
    assert not lane.remove(gone)
    gate.open()
    assert other.result() == "carried out"
    assert not gone.outcome


def test_a_failure_ends_neither_thread_nor_turn(make, caplog):
    lane = make()

    def fail() -> None:
        raise RuntimeError("a bug")

    lane.put(Work(lane, fail))
    other = Work(lane)
    lane.put(other)
    assert other.result() == "carried out"
    assert "a call was dropped" in caplog.text


def test_calls_that_are_queued_at_the_end_are_refused(make, closing):
    lane, gate = make(), Gate(closing)
    begun, queued = Work(lane, gate.hold), Work(lane)
    lane.put(begun)
    assert gate.begun.acquire(timeout=PATIENCE)
    lane.put(queued)
    closing.callback(gate.open)
    ending = threading.Thread(target=partial(lane.shutdown, cancel_futures=True))
    ending.start()
    assert queued.result() == "refused"
    gate.open()
    ending.join(PATIENCE)
    assert begun.result() == "carried out"
    later = Work(lane)
    lane.put(later)
    assert later.result() == "refused"
