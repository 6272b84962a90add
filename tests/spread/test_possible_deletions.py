"""Pods that are equal to their controller, beside all orders that its sort can give.

The model is upstream's: its comparison as it is written there, and the insertion sort that Go has
for so few pods, over every order in which they may be listed.
"""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Sequence
from itertools import combinations, permutations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topospread.spread import possible_deletions as possible
from topospread.spread.deletion import (
    DeletionCandidate,
    DeletionConstraint,
    DeletionOrder,
    job_order,
    replica_set_order,
)
from topospread.spread.possible_deletions import (
    any_cut,
    job_cuts,
    possible_deletions,
    replica_set_cuts,
)
from topospread.spread.possible_skews import DeletionCut, SkewRange

SECOND = 1_000_000_000
NOW = 10_000 * SECOND
ZONES = ("x", "y", "z")
MOMENTS = [NOW + part * 60 * SECOND // 40 for part in range(41)]


@st.composite
def workloads(draw: st.DrawFn) -> tuple[list[DeletionCandidate], list[float], DeletionConstraint]:
    """At most five pods that often tie, the ranks of their nodes, and a constraint."""
    size = draw(st.integers(1, 5))
    uids = draw(st.permutations([f"u{n}" for n in range(size)]))
    pods = [
        DeletionCandidate(
            "default",
            f"p{n}",
            uid=draw(st.sampled_from([uids[n], uids[n], ""])),
            node=draw(st.sampled_from(["n", "n", "n", ""])),
            phase="Running",
            ready=draw(st.sampled_from([True, True, True, False])),
            ready_since=draw(st.sampled_from([None, 9_970, 9_980, 9_990, 1_000])),
            restarts=draw(st.sampled_from([0, 0, 1])),
            created=draw(st.sampled_from([9_960, 9_960, 9_970, 2_000])),
        )
        for n in range(size)
    ]
    ranks = [float(draw(st.sampled_from([1, 1, 1, 2]))) for _ in pods]
    domains = [draw(st.sampled_from([*ZONES, None])) for _ in pods]
    counted = [draw(st.sampled_from([True, True, False])) for _ in pods]
    eligible = frozenset(draw(st.lists(st.sampled_from(ZONES), max_size=3)))
    least = draw(st.integers(1, 3))
    return pods, ranks, DeletionConstraint("zone", 1, domains, counted, eligible, least)


def less(pods: list[DeletionCandidate], ranks: list[float], i: int, j: int, now: int) -> bool:
    """ActivePodsWithRanks.Less of Kubernetes 1.37; here phases and costs are equal."""
    a, b = pods[i], pods[j]
    if bool(a.node) != bool(b.node):
        return not a.node
    if a.ready != b.ready:
        return not a.ready
    if ranks[i] != ranks[j]:
        return ranks[i] > ranks[j]
    if a.ready and a.ready_since != b.ready_since:
        return younger(a.ready_since, b.ready_since, a.uid, b.uid, now)
    if a.restarts != b.restarts:
        return a.restarts > b.restarts
    if a.created != b.created:
        return younger(a.created, b.created, a.uid, b.uid, now)
    return False


def younger(a: int | None, b: int | None, first: str, second: str, now: int) -> bool:
    if a is None or b is None:
        return a is None
    difference = logarithm(now - a * SECOND) - logarithm(now - b * SECOND)
    return first < second if difference == 0 else difference < 0


def logarithm(age: int) -> int:
    return int(math.log2(age)) if age > 0 else -1


def sorted_as_go(pods: list[DeletionCandidate], ranks: list[float], listed, now: int) -> list[int]:
    """Insertion sort, as sort.Sort does with at most twelve."""
    data = list(listed)
    for end in range(1, len(data)):
        at = end
        while at > 0 and less(pods, ranks, data[at], data[at - 1], now):
            data[at], data[at - 1] = data[at - 1], data[at]
            at -= 1
    return data


def left(spread: DeletionConstraint, gone: frozenset[int]) -> int:
    """The skew when some pods are gone."""
    counts = dict.fromkeys(spread.eligible, 0)
    for i, (domain, counted) in enumerate(zip(spread.domains, spread.counted, strict=True)):
        if domain is not None and counted:
            counts[domain] = counts.get(domain, 0) + (i not in gone)
    few = not spread.eligible or len(spread.eligible) < spread.min_domains
    return max(counts.values(), default=0) - (
        0 if few else min(counts[each] for each in spread.eligible)
    )


@settings(max_examples=150)
@given(workloads(), st.integers(0, 5), st.integers(1, 5))
def test_every_order_of_a_replica_set_is_within_what_is_said(workload, deletions, at_once) -> None:
    pods, ranks, spread = workload
    deletions = min(deletions, len(pods))
    order = DeletionOrder(pods)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(possible, "AT_ONCE", at_once)
        said = possible_deletions(replica_set_cuts(order, ranks, NOW, deletions), [spread])
    ((low, high),) = said.skews
    first = {
        tuple(sorted_as_go(pods, ranks, listed, now)[: min(deletions, at_once)])
        for now in MOMENTS
        for listed in permutations(range(len(pods)))
    }
    everything = frozenset(range(len(pods)))
    # Behind those that go at once any may go.
    for gone in {
        frozenset((*some, *others))
        for some in map(frozenset, first)
        for others in combinations(everything - some, deletions - len(some))
    }:
        assert said.certain <= gone <= said.possible
        assert low <= left(spread, gone) <= high
    assert frozenset(replica_set_order(order, ranks, NOW)[:deletions]) <= said.possible


@settings(max_examples=150)
@given(workloads(), st.integers(0, 5))
def test_pods_of_one_moment_have_exact_bounds(workload, deletions) -> None:
    """Of pods that were made and ready in one second, all orders are there."""
    pods, _, spread = workload
    deletions = min(deletions, len(pods))
    pods = [
        pod._replace(uid=f"u{n}", ready_since=1_000, created=1_000, restarts=0)
        for n, pod in enumerate(pods)
    ]
    ranks = [1.0] * len(pods)
    said = possible_deletions(
        replica_set_cuts(DeletionOrder(pods), ranks, NOW, deletions), [spread]
    )
    gone = {
        frozenset(sorted_as_go(pods, ranks, listed, NOW)[:deletions])
        for listed in permutations(range(len(pods)))
    }
    assert said.certain == frozenset.intersection(*gone)
    assert said.possible == frozenset().union(*gone)
    skews = [left(spread, each) for each in gone]
    assert said.skews == [(min(skews), max(skews))]


@given(workloads(), st.integers(0, 5), st.integers(0, 5))
def test_skews_of_a_choice_are_those_of_all_choices(workload, chosen, first) -> None:
    pods, _, spread = workload
    certain = tuple(range(min(first, len(pods))))
    equal = tuple(range(len(certain), len(pods)))
    chosen = min(chosen, len(equal))
    skews = [left(spread, frozenset((*certain, *some))) for some in combinations(equal, chosen)]
    # Whatever of the pods is told of all cuts.
    for shared in (0, 1):
        known = SkewRange(spread, certain[:shared], equal[:shared])
        known.add(DeletionCut(certain[shared:], equal[shared:], chosen))
        assert (known.low, known.high) == (min(skews), max(skews))


@given(workloads(), st.integers(0, 5), st.booleans(), st.data())
def test_every_order_of_a_job_is_within_what_is_said(workload, deletions, indexed, data) -> None:
    pods, _, spread = workload
    deletions = min(deletions, len(pods))
    if indexed:
        index = st.sampled_from([None, 0, 1, 2])
        pods = [pod._replace(completion_index=data.draw(index)) for pod in pods]
    order, ranks = job_order(pods, 2)
    said = possible_deletions(job_cuts(pods, order, ranks, deletions), [spread])
    ((low, high),) = said.skews
    # Whatever order pods that are equal are listed in: UIDs and names tell them apart here.
    for names in permutations(range(len(pods))):
        again = [pod._replace(uid="", name=f"p{n}") for pod, n in zip(pods, names, strict=True)]
        gone = frozenset(job_order(again, 2)[0][:deletions])
        assert said.certain <= gone <= said.possible
        assert low <= left(spread, gone) <= high


def test_more_deletions_than_are_made_at_once_leave_the_rest_open() -> None:
    pods = [
        DeletionCandidate("default", f"p{n}", f"u{n}", "n", "Running", created=n)
        for n in range(700)
    ]
    ranks = [2.0] * 400 + [1.0] * 300
    spread = DeletionConstraint("zone", 1, ["x", "y"] * 350, [True] * 700, frozenset("xy"))
    order = DeletionOrder(pods)
    few = possible_deletions(replica_set_cuts(order, ranks, NOW, 400), [spread])
    assert few.certain == few.possible == frozenset(range(400))
    many = possible_deletions(replica_set_cuts(order, ranks, NOW, 600), [spread])
    assert few.certain < many.certain
    assert len(many.certain) <= 500
    assert many.possible == frozenset(range(700))
    everything = possible_deletions(replica_set_cuts(order, ranks, NOW, 700), [spread])
    assert everything.certain == frozenset(range(700))
    assert everything.skews == [(0, 0)]
    assert possible_deletions(any_cut(700, 700), [spread]).certain == frozenset(range(700))


class Read(Sequence[str | None]):
    """Domains of pods, and how many of them were read."""

    def __init__(self, domains: Sequence[str | None]) -> None:
        self._domains = domains
        self.times = 0

    def __len__(self) -> int:
        return len(self._domains)

    def __getitem__(self, position: Any) -> Any:
        self.times += 1
        return self._domains[position]


def young_amid_many(pods: int) -> list[DeletionCandidate]:
    """Pods of which the first 400 go first, and then 220 whose ages pass powers of two soon."""
    ages = [5000] * 400 + [number % 140 for number in range(220)] + [9000] * (pods - 620)
    costs = [-1] * 400 + [0] * 220 + [1] * (pods - 620)
    made = NOW // SECOND
    return [
        DeletionCandidate(
            *("default", f"p{number}", f"u{number}", f"n{number}", "Running"),
            ready=True,
            ready_since=made - age,
            created=made - age,
            deletion_cost=cost,
        )
        for number, (age, cost) in enumerate(zip(ages, costs, strict=True))
    ]


@pytest.mark.parametrize("deletions", [450, 550])
def test_many_moments_cost_what_their_cell_has(deletions: int) -> None:
    """Whether or not so many go that ranks are counted anew."""
    number = 20_000
    pods, domains = young_amid_many(number), Read([*ZONES, *ZONES] * (number // 6) + ["x", "y"])
    spread = DeletionConstraint("zone", 1, domains, [True] * number, frozenset(ZONES))
    order = DeletionOrder(pods)
    _ = order.unranked
    judged = list(replica_set_cuts(order, [1.0] * number, NOW, deletions).cuts)
    assert len(judged) > 200
    assert sum(len(cut.certain) + len(cut.equal) for cut in judged) <= len(judged) * 220
    tracemalloc.start()
    try:
        said = possible_deletions(replica_set_cuts(order, [1.0] * number, NOW, deletions), [spread])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 500 * number
    assert domains.times <= 3 * number
    ((low, high),) = said.skews
    assert frozenset(range(400)) <= said.certain < said.possible
    if deletions == 450:
        assert said.possible <= frozenset(range(620))
    else:
        assert said.possible == frozenset(range(number))
    assert low < high


def test_pods_that_may_go_need_not_go_in_any_choice() -> None:
    """Two of one moment or two of another, as an age passes a power of two: never one of each."""

    def made(name: str, uid: str, age: int) -> DeletionCandidate:
        since = 2_000_000_000 - age
        return DeletionCandidate(
            "default", name, uid, name, "Running", ready=True, ready_since=since, created=since
        )

    pods = [made("a1", "c", 33), made("a2", "d", 33), made("b1", "a", 40), made("b2", "b", 40)]
    pods += [made("x", "y", 9000), made("y", "z", 9000)]
    spread = DeletionConstraint("zone", 1, [*"xxyyxy"], [True] * 6, frozenset("xy"))
    now = 2_000_000_000 * SECOND
    said = possible_deletions(replica_set_cuts(DeletionOrder(pods), [1.0] * 6, now, 2), [spread])
    assert said.certain == frozenset()
    assert said.possible == frozenset(range(4))
    assert said.skews == [(2, 2)]
