"""A queue of calls: bounded, each caller's in order, the callers in turn."""

from __future__ import annotations

from collections import Counter, deque

from hypothesis import given
from hypothesis import strategies as st

from topospread.calls.call_queue import CallQueue


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


def test_no_call_enters_a_queue_without_places():
    queue: CallQueue[str] = CallQueue(0)
    assert not queue.may_enter("a")
    assert queue.put("a", "a1") == "a1"
    assert queue.pop() is None


def test_removed_calls_are_not_carried_out():
    queue: CallQueue[str] = CallQueue(3)
    for call in ("a1", "a2", "b1"):
        queue.put(call[0], call)
    assert queue.remove("a", "a1")
    assert queue.remove("b", "b1")
    assert not queue.remove("b", "b1")
    assert not queue.remove("c", "c1")
    assert drained(queue) == ["a2"]


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
