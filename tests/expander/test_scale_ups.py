"""Scale-ups one after the other: where a workload ends, on how many nodes, and what waits."""

from __future__ import annotations

import random
from itertools import product
from statistics import mean

import pytest

from tests.expander.autoscaler import (
    Group,
    State,
    Workload,
    all_ends,
    empty,
    even,
    least_waste,
    run,
    skew,
)
from tests.expander.engine import OnServer
from tests.expander.requests import node, written
from tests.servers import Peer, served
from topospread_client import Client

STEPS = (3, 3, 3)
SIZES = {"unequal": (4, 8, 4), "equal": (4, 4, 4)}
WORKLOADS = [
    *(Workload(skew, hard) for skew, hard in product((1, 2), (True, False))),
    *(Workload(skew, min_domains=3) for skew in (1, 2)),
]
FULL = {"none": None, "closed": 0, "at its maximum": 1}
"""Nodes that the group of one zone has, and may have."""


def runs(**settings):
    """Makes runs on one server, whose cluster has a node that none of them may use."""
    with (
        served(**settings) as server,
        Peer(server.address) as peer,
        Client(server.address, cluster="default") as client,
    ):
        peer.apply(written(node("other")))
        yield lambda: OnServer(peer, client)


@pytest.fixture(scope="module")
def spread_first():
    yield from runs()


@pytest.fixture(scope="module")
def nodes_first():
    yield from runs(expander_prefer="nodes")


def begin(workload, sizes, full=None, zone="c"):
    """Groups of zones a, b, c without nodes; that of one zone with so many, full, and no more."""
    limits = {zone: 20 if full is None else full}
    groups = [Group(z, cpu, limits.get(z, 20)) for z, cpu in zip("abc", sizes, strict=True)]
    nodes = tuple((g, (g.capacity,) * (full or 0) if g.zone == zone else ()) for g in groups)
    return State(workload, nodes)


def ends(start, choose, seeds):
    return [run(start, STEPS, choose, random.Random(seed)).last for seed in range(seeds)]


@pytest.mark.parametrize("full", FULL)
@pytest.mark.parametrize("workload", WORKLOADS, ids=str)
@pytest.mark.parametrize("sizes", SIZES)
def test_workload_ends_as_even_as_any_choice_could_on_no_more_nodes_than_least_waste(
    sizes, workload, full, spread_first
):
    for zone in "abc" if FULL[full] is not None else "c":
        start = begin(workload, SIZES[sizes], FULL[full], zone)
        server = spread_first()
        found = run(start, STEPS, server.choose, random.Random(1), server.settle)
        reachable = all_ends(start, STEPS)
        waiting = min(end.waiting for end in reachable)
        assert found.last.waiting == waiting, server.debug
        widest = min(skew(end) for end in reachable if end.waiting == waiting)
        assert skew(found.last) <= max(workload.max_skew, widest), server.debug
        wasteful = [end for end in ends(start, least_waste, 20) if end.waiting == waiting]
        assert found.last.size <= max(end.size for end in wasteful), server.debug


def test_all_scale_ups_together_take_fewer_nodes_than_least_waste(spread_first):
    ours, theirs = 0, 0.0
    for sizes, workload in product(SIZES.values(), WORKLOADS):
        start = begin(workload, sizes)
        ours += run(start, STEPS, spread_first().choose, random.Random(1)).last.size
        theirs += mean(end.size for end in ends(start, least_waste, 20))
    assert ours <= theirs


def test_three_zones_that_begin_without_nodes_end_even(spread_first):
    server = spread_first()
    start = begin(Workload(), SIZES["unequal"])
    found = run(start, STEPS, server.choose, random.Random(1), server.settle)
    assert found.text.endswith("333")
    assert found.last.size == 8


def test_fewest_nodes_may_be_preferred(nodes_first):
    server = nodes_first()
    start = begin(Workload(), SIZES["unequal"])
    found = run(start, STEPS, server.choose, random.Random(1), server.settle)
    assert (found.text, found.last.size) == ("030 060 090", 5)
    assert server.debug[0].startswith("chosen of 3 options by nodes: ng-b ")


def test_small_group_is_opened_where_the_rest_may_follow(spread_first):
    groups = [Group("a", 4), Group("b", 8, 1), Group("c", 4)]
    soft, hard = (empty(Workload(1, hard=hard), groups) for hard in (False, True))
    server = spread_first()
    found = run(soft, STEPS, server.choose, random.Random(1), server.settle)
    assert sorted(found.last.zones) == [2, 3, 4]
    assert "the next scale-up 1 more with 1 node" in "".join(server.debug)
    # A hard constraint would hold the other zones to it.
    server = spread_first()
    found = run(hard, [1, 9], server.choose, random.Random(1), server.settle)
    assert "next scale-up" not in "".join(server.debug)


def scenario(chance):
    """A workload, groups of any sizes, steps."""
    zones = "abcd"[: chance.randint(2, 4)]
    groups = [Group(z, chance.choice([2, 4, 8, 12, 16]), chance.choice([0, 2, 20])) for z in zones]
    min_domains = chance.choice([None, None, len(zones)])
    workload = Workload(chance.randint(1, 3), min_domains is not None or chance.random() < 0.5,
                        min_domains)  # fmt: skip
    return empty(workload, groups), [chance.randint(1, 6) for _ in range(3)]


@pytest.mark.parametrize("prefer", ["spread", "nodes"])
@pytest.mark.parametrize("seed", range(12))
def test_expander_chooses_as_the_rules_say(seed, prefer, spread_first, nodes_first):
    chance = random.Random(seed)
    start, steps = scenario(chance)
    server = (spread_first if prefer == "spread" else nodes_first)()

    def checked(state, options):
        chosen = server.choose(state, options)
        expected = even(state, options, prefer)
        assert chosen == expected, (state, options, server.debug[-1])
        if start.workload.hard:  # no pod waits that another of these choices would place
            most = max(option.pods for option in options)
            assert all(option.pods == most for option in options if option.group in chosen)
        return chosen

    run(start, steps, checked, chance)


@pytest.mark.parametrize("seed", range(60))
def test_no_pod_waits_that_other_choices_would_place(seed):
    chance = random.Random(seed)
    start, steps = scenario(chance)
    groups = [Group(g.zone, max(4, g.cpu)) for g, _ in start.nodes]
    start = empty(start.workload, groups)
    found = run(start, steps, even, chance)
    assert found.last.waiting == min(end.waiting for end in all_ends(start, tuple(steps)))
