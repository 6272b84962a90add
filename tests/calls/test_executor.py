"""Queues and executors: bounded, callers in turn, refusals on the caller's thread."""

from __future__ import annotations

import threading
from collections import Counter, deque
from contextlib import ExitStack
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.servers import threads_end
from tests.waiting import PATIENCE, until
from topospread.calls.call import Call
from topospread.calls.executor import CallQueue, Executor, current_work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future


# ------------------------------ queues


def drained(queue: CallQueue[str]) -> list[str]:
    """All calls, in the order in which they are carried out."""
    return list(iter(queue.pop, None))


def test_callers_take_turns_and_keep_their_own_order():
    queue: CallQueue[str] = CallQueue(10)
    for call in ("a1", "a2", "a3", "b1", "c1", "b2"):
        assert queue.put(call[0], call) is None
    assert len(queue) == 6
    assert drained(queue) == ["a1", "b1", "c1", "a2", "b2", "a3"]
    assert len(queue) == 0


def test_callers_with_most_calls_lose_their_newest_to_others():
    queue: CallQueue[str] = CallQueue(3)
    for call in ("a1", "a2", "a3"):
        queue.put("a", call)
    assert not queue.may_enter("a")
    assert queue.put("a", "a4") == "a4"
    assert queue.may_enter("b")
    assert queue.put("b", "b1") == "a3"
    # Two callers share three places: one each, and who came first has the other one.
    assert queue.put("b", "b2") == "b2"
    assert drained(queue) == ["a1", "b1", "a2"]


_STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "pop", "remove"]), st.sampled_from("abc")), max_size=60
)


@given(st.integers(0, 6), _STEPS)
def test_nothing_is_lost_and_the_bound_holds(bound, steps):
    queue: CallQueue[int] = CallQueue(bound)
    inside: dict[str, deque[int]] = {caller: deque() for caller in "abc"}
    for number, (step, caller) in enumerate(steps):
        if step == "put":
            inside[caller].append(number)
            refused = queue.put(caller, number)
            if refused is not None:
                # The newest of a caller's, and no caller with fewer has to go for one with more.
                loser = next(each for each in "abc" if refused in inside[each])
                assert inside[loser].pop() == refused
                assert len(inside[loser]) >= len(inside[caller]) - 1
        elif step == "pop":
            call = queue.pop()
            owners = [each for each in "abc" if inside[each]]
            assert (call is None) == (not owners)
            if call is not None:
                (owner,) = (each for each in owners if inside[each][0] == call)
                inside[owner].popleft()
        else:
            oldest = inside[caller].popleft() if inside[caller] else -1
            assert queue.remove(caller, oldest) == (oldest != -1)
        assert len(queue) == sum(map(len, inside.values())) <= bound
    left = Counter(iter(queue.pop, None))
    assert left == Counter(call for calls in inside.values() for call in calls)


# ------------------------------ executors


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    """Ends what a test leaves behind; every thread of its executors must be gone then."""
    with threads_end(), ExitStack() as stack:
        yield stack


@pytest.fixture
def make(closing: ExitStack) -> Callable[..., Executor]:
    def make(threads: int = 2, queue: int = 100, share: int = 0) -> Executor:
        executor = Executor("test", threads, queue, share=share)
        closing.callback(executor.shutdown)
        return executor

    return make


class Held:
    """Calls that go on until they are let go."""

    def __init__(self, closing: ExitStack) -> None:
        self._let_go = threading.Event()
        self.begun = threading.Semaphore(0)
        closing.callback(self._let_go.set)

    def begin(self, executor: Executor, count: int = 1) -> list[Future[bool]]:
        """Have so many carried out, and wait until they are under way."""
        futures = [executor.submit(self) for _ in range(count)]
        for _ in futures:
            assert self.begun.acquire(timeout=PATIENCE)
        return futures

    def __call__(self) -> bool:
        self.begun.release()
        return self._let_go.wait(PATIENCE)

    def let_go(self) -> None:
        self._let_go.set()


class Event:
    """What grpcio submits with a call, as far as executors look at it."""

    def __init__(self, name: str, token: str = "") -> None:
        self.name = name
        self.call = self
        self.invocation_metadata = [("authorization", f"Bearer {token}")] * bool(token)

    def peer(self) -> str:
        """The connection of its caller."""
        return self.name


def refused() -> bool:
    """Whether a call is there only to be refused; asked by the call itself."""
    work = current_work()
    return work is None or work.refused


def test_calls_are_carried_out_with_their_arguments_and_errors(make):
    executor = make()
    assert executor.submit(divmod, 7, 3).result(PATIENCE) == (2, 1)
    assert executor.submit(int, "11", base=2).result(PATIENCE) == 3
    assert isinstance(executor.submit(int, "eleven").exception(PATIENCE), ValueError)
    assert executor.submit(refused).result(PATIENCE) is False
    assert executor.arrived == 4


def test_calls_at_once_are_bounded_by_the_threads(make, closing):
    executor, held = make(threads=2), Held(closing)
    held.begin(executor, 2)
    third = executor.submit(refused)
    assert (executor.busy, executor.depth) == (2, 1)
    held.let_go()
    assert third.result(PATIENCE) is False
    until(lambda: executor.busy == 0, "the threads are idle")


def test_call_beyond_the_queue_is_refused_at_once_on_the_callers_thread(make, closing):
    executor, held = make(threads=1, queue=2), Held(closing)
    held.begin(executor)
    in_line = [executor.submit(refused) for _ in range(2)]
    more = executor.submit(lambda: (refused(), threading.current_thread()))
    assert more.done()
    assert more.result() == (True, threading.current_thread())
    assert not any(future.done() for future in in_line)
    held.let_go()
    assert [future.result(PATIENCE) for future in in_line] == [False, False]


def test_a_caller_with_much_in_a_full_queue_gives_way_to_another(make, closing):
    executor, held = make(threads=1, queue=3), Held(closing)
    held.begin(executor)
    order: list[str] = []

    def note(event: Event) -> bool:
        order.append(event.name)
        return refused()

    many = [executor.submit(note, Event("many")) for _ in range(3)]
    few = executor.submit(note, Event("few"))
    assert many[-1].done()
    assert many[-1].result() is True
    held.let_go()
    assert few.result(PATIENCE) is False
    assert [future.result(PATIENCE) for future in many[:-1]] == [False, False]
    assert order == ["many", "many", "few", "many"], "the refused one, then callers in turn"


@pytest.mark.parametrize("tokens", [("", "", ""), ("one", "two", "three")])
def test_connection_has_no_more_than_its_share_of_threads(make, closing, tokens):
    # Whatever tokens it sends: they are not checked yet.
    executor, held = make(threads=4, share=2), Held(closing)
    events = [Event("a", token) for token in tokens]
    many = [executor.submit(lambda _: held(), event) for event in events]
    until(lambda: executor.busy == 2, "two are under way")
    assert executor.submit(lambda _: refused(), Event("other")).result(PATIENCE) is False
    until(lambda: executor.busy == 2, "the other is over")
    assert executor.depth == 1
    executor.shutdown(wait=False)
    held.let_go()
    assert all(future.result(PATIENCE) for future in many), "also when the executor ends"


def test_callers_of_http_take_turns(make, closing):
    executor, held = make(threads=1), Held(closing)
    held.begin(executor)
    order: list[str] = []

    def call(peer: str) -> Call:
        context: Any = SimpleNamespace(peer=lambda: peer)
        method: Any = SimpleNamespace(turn=None)
        return Call(method, context, 0.0)

    calls = [
        executor.submit(lambda call: order.append(call.owner), call(peer))
        for peer in ("many", "many", "many", "few")
    ]
    held.let_go()
    for each in calls:
        each.result(PATIENCE)
    assert order == ["many", "few", "many", "many"]


def test_without_a_queue_each_call_has_a_thread_or_is_refused(make, closing):
    executor, held = make(threads=3, queue=0), Held(closing)
    begun = held.begin(executor, 3)
    more = executor.submit(refused)
    assert more.done()
    assert more.result() is True
    held.let_go()
    assert all(future.result(PATIENCE) for future in begun)
    until(lambda: executor.busy == 0, "the threads are idle")
    assert executor.submit(refused).result(PATIENCE) is False


def test_a_pause_delays_calls_that_were_not_begun(make, closing):
    executor, held = make(threads=2), Held(closing)
    begun = held.begin(executor)
    with executor.paused():
        later = executor.submit(refused)
        held.let_go()
        assert begun[0].result(PATIENCE)
        with pytest.raises(TimeoutError):
            later.result(0.1)
    assert later.result(PATIENCE) is False


def test_shutdown_carries_out_queued_calls(make, closing):
    executor, held = make(threads=1), Held(closing)
    held.begin(executor)
    in_line = [executor.submit(refused) for _ in range(5)]
    executor.shutdown(wait=False)
    held.let_go()
    assert [future.result(PATIENCE) for future in in_line] == [False] * 5
    with pytest.raises(RuntimeError):
        executor.submit(refused)


def test_calls_are_refused_while_no_thread_can_be_started(make, monkeypatch):
    executor = make(threads=2, queue=5)

    def start(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", start)
        assert executor.submit(refused).result(PATIENCE) is True
        assert (executor.depth, executor.busy) == (0, 0)
    assert executor.submit(refused).result(PATIENCE) is False
    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", start)
        assert executor.submit(refused).result(PATIENCE) is False, "the one that there is"


def test_outside_an_executor_there_is_no_work():
    assert current_work() is None
