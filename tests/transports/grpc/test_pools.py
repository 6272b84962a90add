"""The thread pools by themselves: computing, waiting, refusing, making room."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.servers import threads_end
from tests.waiting import PATIENCE, until
from topospread.errors import LimitExceeded
from topospread.threads.executor import MAX_AWAY, BoundedExecutor, StreamExecutor
from topospread.threads.pool import Worker, away, lend_place, overloaded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from topospread.errors import TopospreadError

    Pool = BoundedExecutor | StreamExecutor


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """Ends what a test leaves behind; every thread of its pools must be gone then."""
    with threads_end(), ExitStack() as stack:
        yield stack


@pytest.fixture
def make(closing: ExitStack) -> Callable[..., BoundedExecutor]:
    def make(workers: int = 2, queue: int = 100, waiting: int = 64) -> BoundedExecutor:
        pool = BoundedExecutor("test", workers, queue, waiting)
        closing.callback(pool.shutdown)
        return pool

    return make


class Held:
    """Calls that go on until they are let go."""

    def __init__(self, closing: ExitStack) -> None:
        self._let_go = threading.Event()
        self.begun = threading.Semaphore(0)
        closing.callback(self._let_go.set)

    def begin(self, pool: Pool, count: int = 1) -> list[Future[bool]]:
        """Have so many carried out, and wait until they are under way."""
        futures = [pool.submit(self) for _ in range(count)]
        for _ in futures:
            assert self.begun.acquire(timeout=PATIENCE)
        return futures

    def __call__(self) -> bool:
        self.begun.release()
        return self._let_go.wait(PATIENCE)

    def let_go(self) -> None:
        self._let_go.set()


class Waiting(Held):
    """The same for calls that have lent their places."""

    def __call__(self) -> bool:
        leave = lend_place()
        try:
            return super().__call__()
        finally:
            leave()


class Event:
    """What grpcio submits with a call, as far as pools look at it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.call = self

    def peer(self) -> str:
        """The connection of its caller."""
        return self.name


class Silent(Held):
    """The same for calls that wait for their message, until they are cancelled."""

    def __init__(self, closing: ExitStack) -> None:
        super().__init__(closing)
        self.cancelled: list[str] = []

    def __call__(self, event: Event | None = None) -> bool:
        over = threading.Event()
        name = event.name if event else threading.current_thread().name

        def end(error: TopospreadError) -> None:
            self.cancelled.append(name)
            over.set()

        with away(end):
            self.begun.release()
            while not over.wait(0.01) and not self._let_go.is_set():
                pass
        return over.is_set()


def answer(pool: Pool) -> bool:
    """Whether a call is carried out, and not refused."""
    return not pool.submit(overloaded).result(PATIENCE)


def test_calls_are_carried_out_with_their_arguments_and_errors(make):
    pool = make()
    assert pool.submit(divmod, 7, 3).result(PATIENCE) == (2, 1)
    assert pool.submit(int, "11", base=2).result(PATIENCE) == 3
    assert isinstance(pool.submit(int, "eleven").exception(PATIENCE), ValueError)
    assert answer(pool)


def test_calls_at_once_are_bounded_by_the_threads(make, closing):
    pool, held = make(workers=2), Held(closing)
    held.begin(pool, 2)
    third = pool.submit(overloaded)
    assert (pool.busy, pool.depth) == (2, 1)
    held.let_go()
    assert third.result(PATIENCE) is False
    until(lambda: pool.busy == 0, "the workers are idle")


def test_call_beyond_the_queue_is_refused_at_once_on_the_callers_thread(make, closing):
    pool, held = make(workers=1, queue=2), Held(closing)
    held.begin(pool)
    in_line = [pool.submit(overloaded) for _ in range(2)]
    refused = pool.submit(lambda: (overloaded(), threading.current_thread()))
    assert refused.done()
    assert refused.result() == (True, threading.current_thread())
    assert not any(future.done() for future in in_line)
    held.let_go()
    assert [future.result(PATIENCE) for future in in_line] == [False, False]


def test_waiting_calls_release_their_threads(make, closing):
    pool, waiting = make(workers=1, waiting=64), Waiting(closing)
    waiting.begin(pool, 64)
    assert (pool.waiting, pool.busy) == (64, 0)
    assert answer(pool)


def test_wait_past_the_bound_is_refused_and_the_others_continue(make, closing):
    pool, waiting = make(workers=1, waiting=3), Waiting(closing)
    waiting.begin(pool, 3)
    fourth = pool.submit(waiting)
    assert isinstance(fourth.exception(PATIENCE), LimitExceeded)
    assert answer(pool)
    assert pool.waiting == 3


def test_as_many_calls_compute_after_the_waits_as_before(make, closing):
    pool, waiting, held = make(workers=2), Waiting(closing), Held(closing)
    calls = waiting.begin(pool, 20)
    waiting.let_go()
    assert all(call.result(PATIENCE) for call in calls)
    until(lambda: pool.waiting == 0 and pool.busy == 0, "the waits are over")
    held.begin(pool, 2)
    third = pool.submit(overloaded)
    with pytest.raises(TimeoutError):
        third.result(0.2)
    held.let_go()
    assert third.result(PATIENCE) is False


def test_call_that_waits_twice_releases_its_thread_once(make, closing):
    pool, held = make(workers=1), Held(closing)

    def twice() -> int:
        for _ in range(2):
            lend_place()()
        workers = [thread for thread in threading.enumerate() if isinstance(thread, Worker)]
        return sum(worker.pool is pool for worker in workers)

    assert pool.submit(twice).result(PATIENCE) == 2
    held.begin(pool)
    assert pool.depth == 0


def test_idle_calls_block_no_other(make, closing):
    pool, silent = make(workers=2), Silent(closing)
    silent.begin(pool, 2)
    assert answer(pool)
    assert silent.cancelled == []


def test_longest_idle_calls_are_cancelled_when_too_many_are_idle(make, closing):
    pool, silent = make(workers=2, queue=1000), Silent(closing)
    calls = [pool.submit(silent) for _ in range(3 * MAX_AWAY)]
    assert answer(pool)
    assert silent.cancelled
    assert not calls[-1].done() or not calls[-1].result()


def test_pause_delays_calls_that_were_not_begun(make, closing):
    pool, held = make(workers=2), Held(closing)
    begun = held.begin(pool)
    with pool.paused():
        later = pool.submit(overloaded)
        held.let_go()
        assert begun[0].result(PATIENCE)
        with pytest.raises(TimeoutError):
            later.result(0.1)
    assert later.result(PATIENCE) is False


def test_shutdown_carries_out_queued_calls(make, closing):
    pool, held = make(workers=1), Held(closing)
    held.begin(pool)
    in_line = [pool.submit(overloaded) for _ in range(5)]
    pool.shutdown(wait=False)
    held.let_go()
    assert [future.result(PATIENCE) for future in in_line] == [False] * 5
    with pytest.raises(RuntimeError):
        pool.submit(overloaded)


def test_shutdown_while_calls_wait_leaves_no_thread(make, closing):
    pool, waiting = make(workers=2), Waiting(closing)
    waiting.begin(pool, 10)
    pool.shutdown(wait=False)
    waiting.let_go()
    until(lambda: not pool._workers, "all workers end")


def test_streams_get_a_thread_each_and_the_next_is_refused(closing):
    pool = StreamExecutor("stream", 3)
    closing.callback(pool.shutdown)
    held = Held(closing)
    streams = held.begin(pool, 3)
    refused = pool.submit(overloaded)
    assert refused.done()
    assert refused.result() is True
    held.let_go()
    assert all(stream.result(PATIENCE) for stream in streams)
    until(lambda: not pool._workers, "the streams' threads end")
    assert answer(pool)


def test_idle_streams_are_cancelled_for_a_retried_stream(closing, monkeypatch):
    monkeypatch.setattr("topospread.threads.executor.SILENT_STREAM", 0.0)
    pool = StreamExecutor("stream", 2)
    closing.callback(pool.shutdown)
    silent = Silent(closing)
    streams = silent.begin(pool, 2)
    assert not answer(pool)
    until(lambda: streams[0].done() or streams[1].done(), "a silent stream is cancelled")
    until(lambda: len(pool._workers) < 2, "its thread ends")
    assert answer(pool)
    assert len(silent.cancelled) == 1


def test_stream_of_the_caller_with_most_silent_ones_is_cancelled(closing, monkeypatch):
    monkeypatch.setattr("topospread.threads.executor.SILENT_STREAM", 0.0)
    pool = StreamExecutor("stream", 4)
    closing.callback(pool.shutdown)
    silent = Silent(closing)
    for name in ("few", "many", "many", "many"):
        pool.submit(silent, Event(name))
        assert silent.begun.acquire(timeout=PATIENCE)
    for _ in range(2):
        assert not answer(pool)
        until(lambda: len(pool._workers) == 3, "a thread ends")
        Held(closing).begin(pool)
    assert silent.cancelled == ["many", "many"]


def _no_more_threads(monkeypatch) -> threading.Event:
    """From now on the system starts no more threads of a pool; set when it was asked to."""
    asked = threading.Event()

    def start(worker: Worker) -> None:
        asked.set()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Worker, "start", start)
    return asked


def test_call_that_would_wait_is_refused_when_no_thread_can_replace_it(make, closing, monkeypatch):
    pool = make(workers=1)
    with monkeypatch.context() as full:
        _no_more_threads(full)
        with pytest.raises(LimitExceeded, match="no more threads"):
            pool.submit(lend_place).result(PATIENCE)
        assert (pool.waiting, answer(pool)) == (0, True), "the place is kept"
    assert answer(pool)
    Waiting(closing).begin(pool, 3)


def test_helpers_start_again_when_threads_can_be_started_again(make, closing, monkeypatch):
    pool, silent = make(workers=2), Silent(closing)
    silent.begin(pool, 2)
    with monkeypatch.context() as full:
        asked = _no_more_threads(full)
        in_line = pool.submit(overloaded)
        assert asked.wait(PATIENCE)
    assert in_line.result(PATIENCE) is False


def test_stream_is_refused_when_no_thread_can_be_started(closing, monkeypatch):
    pool = StreamExecutor("stream", 3)
    closing.callback(pool.shutdown)
    with monkeypatch.context() as full:
        _no_more_threads(full)
        assert not answer(pool)
    assert answer(pool)


def test_threads_outside_a_pool_release_nothing():
    lend_place()()
    with away():
        assert overloaded()
