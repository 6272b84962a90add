"""Where the skews on the way are called certain, no order that a sort can give leaves others."""

from __future__ import annotations

from itertools import permutations

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spread.test_possible_deletions import (
    MOMENTS,
    NOW,
    SECOND,
    left,
    sorted_as_go,
    workloads,
)
from topospread.spread.certain_orders import is_certain, replica_set_is_certain
from topospread.spread.deletion import (
    DeletionCandidate,
    DeletionConstraint,
    DeletionOrder,
    job_order,
)
from topospread.spread.possible_deletions import job_groups


def skews(spread: DeletionConstraint, order: list[int], deletions: int) -> tuple[int, ...]:
    """After each deletion."""
    return tuple(left(spread, frozenset(order[: done + 1])) for done in range(deletions))


@settings(max_examples=150)
@given(workloads(), st.integers(0, 5))
def test_certain_skews_of_a_replica_set_are_those_of_every_order(workload, deletions) -> None:
    pods, ranks, spread = workload
    deletions = min(deletions, len(pods))
    if replica_set_is_certain(DeletionOrder(pods), ranks, NOW, deletions, [spread]):
        found = {
            skews(spread, sorted_as_go(pods, ranks, listed, now), deletions)
            for now in MOMENTS
            for listed in permutations(range(len(pods)))
        }
        assert len(found) == 1


@settings(max_examples=150)
@given(workloads(), st.integers(0, 5))
def test_pods_of_one_moment_are_certain_where_their_domains_are(workload, deletions) -> None:
    pods, _, spread = workload
    deletions = min(deletions, len(pods))
    pods = [
        pod._replace(uid=f"u{n}", ready_since=1_000, created=1_000, restarts=0)
        for n, pod in enumerate(pods)
    ]
    ranks = [1.0] * len(pods)
    found = {
        tuple(spread.counted_domain(i) for i in sorted_as_go(pods, ranks, listed, NOW)[:deletions])
        for listed in permutations(range(len(pods)))
    }
    certain = replica_set_is_certain(DeletionOrder(pods), ranks, NOW, deletions, [spread])
    domains = spread.eligible.union(filter(None, map(spread.counted_domain, range(len(pods)))))
    may_skew = len(domains) > 1 or len(spread.eligible) < max(1, spread.min_domains)
    assert certain == (len(found) == 1 or not may_skew)


@given(workloads(), st.integers(0, 5), st.booleans(), st.data())
def test_certain_skews_of_a_job_are_those_of_every_order(
    workload, deletions, indexed, data
) -> None:
    pods, _, spread = workload
    deletions = min(deletions, len(pods))
    if indexed:
        index = st.sampled_from([None, 0, 1, 2])
        pods = [pod._replace(completion_index=data.draw(index)) for pod in pods]
    order, ranks = job_order(pods, 2)
    found = set()
    for names in permutations(range(len(pods))):
        again = [pod._replace(uid="", name=f"p{n}") for pod, n in zip(pods, names, strict=True)]
        found.add(skews(spread, job_order(again, 2)[0], deletions))
    if is_certain(job_groups(pods, order, ranks), deletions, [spread]):
        assert len(found) == 1


def test_an_age_that_passes_a_power_of_two_leaves_it_to_the_moment() -> None:
    made = NOW // SECOND
    pods = [
        DeletionCandidate(
            *("default", f"p{n}", f"u{n}", f"n{n}", "Running"), True, made - age, created=made - age
        )
        for n, age in ((2, 33), (1, 40))
    ]
    spread = DeletionConstraint("zone", 1, ["x", "y"], [True] * 2, frozenset("xy"))
    order = DeletionOrder(pods)
    assert not replica_set_is_certain(order, [1.0] * 2, NOW, 1, [spread])
    assert replica_set_is_certain(order, [1.0] * 2, NOW + 120 * SECOND, 1, [spread])
    assert replica_set_is_certain(order, [1.0] * 2, NOW, 0, [spread])
    one = DeletionConstraint("zone", 1, ["x", "x"], [True] * 2, frozenset("xy"))
    assert replica_set_is_certain(order, [1.0] * 2, NOW, 1, [one])
    alone = DeletionConstraint("zone", 1, ["x", None], [True] * 2, frozenset("x"))
    assert replica_set_is_certain(order, [1.0] * 2, NOW, 1, [alone])
    # Beyond 500 the nodes are looked at anew.
    many = [pods[0]._replace(name=f"q{n}", uid=f"q{n}") for n in range(600)]
    wide = DeletionConstraint("zone", 1, ["x", "y"] * 300, [True] * 600, frozenset("xy"))
    assert not replica_set_is_certain(DeletionOrder(many), [1.0] * 600, NOW, 550, [wide])
