from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topospread.telemetry.meters import FOLD_AT, Counter, Histogram

BOUNDS = (0.0, 0.001, 0.01, 0.1)

values = st.one_of(
    st.sampled_from([0.0, 0.001, 0.0010000001, 0.01, 0.1, 0.11, 5.0]), st.floats(0, 1)
)


@given(st.lists(values, max_size=200), st.sets(st.integers(0, 199)))
def test_a_distribution_is_what_counting_one_by_one_gives(observed, read_after):
    series = Histogram(BOUNDS)
    for position, value in enumerate(observed):
        series.observe(value)
        if position in read_after:
            series.read()

    seen = series.read()
    assert seen.count == len(observed)
    assert seen.total == pytest.approx(sum(observed))
    assert seen.cumulated(BOUNDS) == [sum(v <= bound for v in observed) for bound in BOUNDS]
    assert seen.cumulated(BOUNDS[1::2]) == seen.cumulated(BOUNDS)[1::2]


@given(st.lists(values), st.lists(values))
def test_distributions_add_up(some, others):
    one, other, both = Histogram(BOUNDS), Histogram(BOUNDS), Histogram(BOUNDS)
    for series, observed in ((one, some), (other, others), (both, some + others)):
        for value in observed:
            series.observe(value)
    together = one.read().plus(other.read())
    assert together.counts == both.read().counts
    assert together.total == pytest.approx(both.read().total)


def test_unread_observations_do_not_pile_up():
    series = Histogram(BOUNDS)
    for _ in range(10 * FOLD_AT):
        series.observe(0.005)
    assert len(series._pending) < FOLD_AT
    assert series.read().count == 10 * FOLD_AT


def race(work, threads=8, times=20_000):
    begin = threading.Barrier(threads)

    def run():
        begin.wait()
        for _ in range(times):
            work()

    running = [threading.Thread(target=run) for _ in range(threads)]
    for thread in running:
        thread.start()
    return running, threads * times


def test_no_observation_is_lost_when_threads_race_each_other_and_a_reader():
    series = Histogram(BOUNDS)
    running, expected = race(lambda: series.observe(0.01))
    counts = []
    while any(thread.is_alive() for thread in running):
        counts.append(series.read().count)
    for thread in running:
        thread.join()
    assert counts == sorted(counts)
    seen = series.read()
    assert seen.count == expected
    assert seen.total == pytest.approx(0.01 * expected)


def test_no_count_is_lost_when_threads_race_each_other_and_a_reader():
    counter = Counter()
    running, expected = race(counter.add_one)
    counts = []
    while any(thread.is_alive() for thread in running):
        counts.append(counter.read())
    for thread in running:
        thread.join()
    assert counts == sorted(counts)
    assert counter.read() == expected
    assert counter.read() == expected
