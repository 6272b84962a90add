"""Orders of deletion are total, stable, and what a naive reading of their rules says."""

from __future__ import annotations

import math
from functools import cmp_to_key

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topospread.spread.deletion import (
    DeletionCandidate,
    DeletionConstraint,
    DeletionOrder,
    Strategy,
    best,
    rank,
    replica_set_order,
)

NOW = 10_000 * 1_000_000_000
ZONES = ("x", "y", "z")


@st.composite
def workloads(draw: st.DrawFn) -> tuple[list[DeletionCandidate], list[DeletionConstraint]]:
    """Pods that often tie, and up to two constraints."""
    size = draw(st.integers(1, 12))
    pods = []
    for number in range(size):
        ready = draw(st.booleans())
        pods.append(
            DeletionCandidate(
                namespace="default",
                name=f"p{number}",
                uid=draw(st.sampled_from(["", "a", "b"])),
                node=draw(st.sampled_from(["", "n1", "n2", "n3"])),
                phase=draw(st.sampled_from(["Pending", "Unknown", "Running", ""])),
                ready=ready,
                ready_since=draw(st.sampled_from([None, 9000, 9001, 9999, 1])) if ready else None,
                deletion_cost=draw(st.integers(-1, 1)),
                restarts=draw(st.integers(0, 1)),
                sidecar_restarts=draw(st.integers(0, 1)),
                created=draw(st.sampled_from([None, 9000, 9001, 9999, 1])),
                owner_key=draw(st.sampled_from(["f", "g"])),
            )
        )
    spreads = []
    for key in draw(
        st.lists(st.sampled_from(["zone", "rack", "kubernetes.io/hostname"]), max_size=2)
    ):
        domains = [draw(st.sampled_from([None, *ZONES])) for _ in pods]
        counted = [domain is not None and draw(st.booleans()) for domain in domains]
        eligible = frozenset(draw(st.sets(st.sampled_from(ZONES))))
        minimum = draw(st.integers(1, 4))
        spreads.append(
            DeletionConstraint(key, draw(st.integers(1, 3)), domains, counted, eligible, minimum)
        )
    return pods, spreads


def ranked(
    strategy: Strategy,
    pods: list[DeletionCandidate],
    spreads: list[DeletionConstraint],
    deletions: int,
):
    related: dict[tuple[str, str], int] = {}
    for pod in pods:
        related[pod.owner_key, pod.node] = related.get((pod.owner_key, pod.node), 0) + 1
    return rank(strategy, DeletionOrder(pods), spreads, related, NOW, deletions)


@given(workloads(), st.sampled_from(Strategy), st.randoms(use_true_random=False))
def test_an_order_is_total_and_does_not_depend_on_how_pods_are_listed(workload, strategy, random):
    pods, spreads = workload
    ranking = ranked(strategy, pods, spreads, len(pods))
    assert sorted(ranking.order) == list(range(len(pods)))

    shuffled = random.sample(range(len(pods)), len(pods))
    moved = [
        DeletionConstraint(
            each.topology_key,
            each.max_skew,
            [each.domains[i] for i in shuffled],
            [each.counted[i] for i in shuffled],
            each.eligible,
            each.min_domains,
        )
        for each in spreads
    ]
    again = ranked(strategy, [pods[i] for i in shuffled], moved, len(pods))
    names = [pods[position].name for position in ranking.order]
    assert [pods[shuffled[position]].name for position in again.order] == names
    assert (again.skews == ranking.skews).all()


@given(workloads(), st.sampled_from(Strategy))
def test_skews_equal_a_recount(workload, strategy):
    pods, spreads = workload
    ranking = ranked(strategy, pods, spreads, len(pods))
    for done, skews in enumerate(ranking.skews.tolist(), start=1):
        left = [i for i in range(len(pods)) if i not in ranking.order[:done]]
        assert skews == [naive_skew(spread, left) for spread in spreads]
    within = [
        all(s <= c.max_skew for s, c in zip(step, spreads, strict=True)) for step in ranking.skews
    ]
    assert ranking.within == sum(within)
    assert ranking.kept == ([*within, False]).index(False)


def naive_skew(spread: DeletionConstraint, left: list[int]) -> int:
    held = [spread.domains[i] for i in left if spread.counted[i] and spread.domains[i] is not None]
    largest = max((held.count(domain) for domain in held), default=0)
    if len(spread.eligible) < spread.min_domains:
        return largest
    return largest - min((held.count(domain) for domain in spread.eligible), default=0)


@given(workloads())
def test_the_best_strategy_is_at_least_as_good_as_the_others(workload):
    pods, spreads = workload
    rankings = {each: ranked(each, pods, spreads, len(pods)) for each in Strategy}
    chosen = rankings[best(rankings)]
    for other in rankings.values():
        assert (chosen.kept, chosen.within) >= (other.kept, other.within)


@given(workloads())
def test_two_pods_are_ordered_as_upstream_orders_them(workload):
    pods, _ = workload
    for left in pods:
        for right in pods:
            if left is right or left.uid == right.uid:
                continue
            pair, ranks = [left, right], [0.0, 0.0]
            order = DeletionOrder(pair)
            assert order.unranked == by_comparison(pair, kruise_less)
            assert replica_set_order(order, ranks, NOW) == by_comparison(pair, kube_less)


@given(workloads())
def test_ranks_on_a_node_number_its_pods(workload):
    pods, _ = workload
    ranks = DeletionOrder(pods).same_node
    for node in {pod.node for pod in pods}:
        here = sorted(rank for rank, pod in zip(ranks, pods, strict=True) if pod.node == node)
        assert here == (list(range(len(here))) if node else [0] * len(here))


def by_comparison(pair, less) -> list[int]:
    """The order that a comparison gives, and the UID where it gives none."""

    def compare(i: int, j: int) -> int:
        if less(pair[i], pair[j]):
            return -1
        if less(pair[j], pair[i]):
            return 1
        return -1 if pair[i].uid < pair[j].uid else 1

    return sorted(range(2), key=cmp_to_key(compare))


def common_less(a: DeletionCandidate, b: DeletionCandidate) -> bool | None:
    """Upstream's first keys, one after the other; None when they tell nothing."""
    if bool(a.node) != bool(b.node):
        return not a.node
    phases = {"Pending": 0, "Unknown": 1, "Running": 2}
    if phases.get(a.phase, 0) != phases.get(b.phase, 0):
        return phases.get(a.phase, 0) < phases.get(b.phase, 0)
    if a.ready != b.ready:
        return not a.ready
    if a.deletion_cost != b.deletion_cost:
        return a.deletion_cost < b.deletion_cost
    return None


def kruise_less(a: DeletionCandidate, b: DeletionCandidate) -> bool:
    first = common_less(a, b)
    if first is not None:
        return first
    if a.ready and b.ready and a.ready_since != b.ready_since:
        return a.ready_since is None or (
            b.ready_since is not None and a.ready_since > b.ready_since
        )
    if a.restarts != b.restarts:
        return a.restarts > b.restarts
    if a.created != b.created:
        return a.created is None or (b.created is not None and a.created > b.created)
    return False


def kube_less(a: DeletionCandidate, b: DeletionCandidate) -> bool:
    first = common_less(a, b)
    if first is not None:
        return first
    if a.ready and b.ready and a.ready_since != b.ready_since:
        return younger(a, b, a.ready_since, b.ready_since)
    if a.restarts != b.restarts:
        return a.restarts > b.restarts
    if a.sidecar_restarts != b.sidecar_restarts:
        return a.sidecar_restarts > b.sidecar_restarts
    if a.created != b.created:
        return younger(a, b, a.created, b.created)
    return False


def younger(
    a: DeletionCandidate, b: DeletionCandidate, first: int | None, second: int | None
) -> bool:
    if first is None or second is None:
        return first is None
    buckets = []
    for moment in (first, second):
        age = NOW - moment * 1_000_000_000
        buckets.append(-1 if age <= 0 else int(math.log2(age)))
    return buckets[0] < buckets[1] if buckets[0] != buckets[1] else a.uid < b.uid


@pytest.mark.parametrize("domains", [1, 2, 5])
@pytest.mark.parametrize("pods", [7, 20])
def test_even_keeps_an_even_workload_even_to_its_end(domains, pods):
    candidates = [
        DeletionCandidate("default", f"p{i}", node=f"n{i}", created=i) for i in range(pods)
    ]
    where = [str(i % domains) for i in range(pods)]
    spread = DeletionConstraint("zone", 1, where, [True] * pods, frozenset(where))
    assert rank(Strategy.EVEN, DeletionOrder(candidates), [spread], {}, NOW, pods).kept == pods
