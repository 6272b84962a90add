"""Capacity that is there for certain, wherever the scheduler puts other pods."""

from __future__ import annotations

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service.world import world
from topospread.kube.demands import Demand, HostPort
from topospread.service.rebalancing.places import SureCapacity

if TYPE_CHECKING:
    from topospread.index.snapshot import Snapshot

PORT = (HostPort(8080),)

demands = st.builds(
    lambda cpu, port: Demand((("cpu", cpu * 1000),) if cpu else (), ports=PORT if port else ()),
    st.integers(0, 3),
    st.integers(0, 4).map(lambda drawn: drawn == 0),
)


def snapshot(sizes: list[tuple[int, int]]) -> Snapshot:
    """Nodes that have so much cpu and take so many pods."""
    with world() as made:
        for number, (cpu, pods) in enumerate(sizes):
            metadata = {"name": f"n{number}", "labels": {"kubernetes.io/hostname": f"n{number}"}}
            allocatable = {"cpu": str(cpu), "pods": str(pods)}
            status = {"allocatable": allocatable}
            made.apply({"kind": "Node", "metadata": metadata, "status": status})
        asked = made.ask()
        _, view = made.engine.replicas.resolve(asked.cluster, asked.consistency, asked.deadline)
        return view.snapshot


def left(size: tuple[int, int], there: list[Demand], demand: Demand) -> int | None:
    """Pods that a node has room for beside others; None where these do not fit themselves."""
    cpu, pods = size
    cpu -= sum(dict(each.requests).get("cpu", 0) for each in there) // 1000
    pods -= len(there)
    ports = sum(bool(each.ports) for each in there)
    if cpu < 0 or pods < 0 or ports > 1:
        return None
    own = dict(demand.requests).get("cpu", 0) // 1000
    most = min(pods, cpu // own) if own else pods
    return min(most, 1 - ports) if demand.ports else most


@given(
    st.lists(st.tuples(st.integers(0, 8), st.integers(0, 6)), min_size=1, max_size=4),
    st.lists(demands, max_size=3),
    demands,
    st.data(),
)
@settings(max_examples=100, deadline=None)
def test_no_choice_for_the_others_leaves_less(sizes, others, demand, data) -> None:
    place = data.draw(st.lists(st.integers(0, 1), min_size=len(sizes), max_size=len(sizes)))
    state = snapshot(sizes)
    slots = np.array([state.slot(f"n{number}") for number in range(len(sizes))])
    capacity = SureCapacity(state, demand, np.ones(state.alive.size, dtype=np.bool_), slots)
    sure = capacity.sure(Counter(others), np.array(place), 2).tolist()
    # Each of the others on one of the nodes, or on none that matters.
    for chosen in product(range(len(sizes) + 1), repeat=len(others)):
        found = [0, 0]
        for number, size in enumerate(sizes):
            there = [each for each, on in zip(others, chosen, strict=True) if on == number]
            free = left(size, there, demand)
            if free is None:
                break
            found[place[number]] += free
        else:
            assert all(s <= f for s, f in zip(sure, found, strict=True))


def test_one_node_has_capacity_beside_others() -> None:
    state = snapshot([(8, 10)])
    slots = np.array([state.slot("n0")])
    one = Demand((("cpu", 1000),))
    capacity = SureCapacity(state, one, np.ones(state.alive.size, dtype=np.bool_), slots)
    assert capacity.sure(Counter([one, one]), np.array([0]), 1).tolist() == [6]
    assert capacity.sure(Counter([one] * 9), np.array([0]), 1).tolist() == [0]
