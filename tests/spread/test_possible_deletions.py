"""Pods that are equal to their controller, beside all orders that its sort can give.

The model is upstream's: its comparison as it is written there, and the insertion sort that Go has
for so few pods, over every order in which they may be listed.
"""

from __future__ import annotations

import math
from itertools import combinations, permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from topospread.spread.deletion import (
    DeletionCandidate,
    DeletionConstraint,
    DeletionOrder,
    job_order,
    replica_set_order,
)
from topospread.spread.possible_deletions import (
    DeletionCut,
    any_cut,
    job_cuts,
    possible_deletions,
    replica_set_cuts,
    skew_range,
)

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
@given(workloads(), st.integers(0, 5))
def test_every_order_of_a_replica_set_is_within_what_is_said(workload, deletions) -> None:
    pods, ranks, spread = workload
    deletions = min(deletions, len(pods))
    order = DeletionOrder(pods)
    said = possible_deletions(replica_set_cuts(order, ranks, NOW, deletions), [spread])
    ((low, high),) = said.skews
    for now in MOMENTS:
        for listed in permutations(range(len(pods))):
            gone = frozenset(sorted_as_go(pods, ranks, listed, now)[:deletions])
            if deletions < len(pods):
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
    assert skew_range(spread, DeletionCut(certain, equal, chosen)) == (min(skews), max(skews))


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
    assert any_cut(700, 700).certain == range(700)
