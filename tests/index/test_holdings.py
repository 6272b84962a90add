"""What is held by many: looked up, with parts of the slots copied by a change."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.index.changes import DISKS, PORTS
from tests.index.comparing import share_disk, share_port
from topospread.index import holdings
from topospread.index.holdings import NO_HOLDINGS
from topospread.kube.demands import Holds

if TYPE_CHECKING:
    from collections.abc import Sequence

SLOTS = st.integers(min_value=0, max_value=9)
THINGS = st.tuples(
    st.lists(st.sampled_from(PORTS), unique=True).map(tuple),
    st.lists(st.sampled_from(DISKS), unique=True).map(tuple),
)
PODS = st.lists(st.tuples(SLOTS, THINGS), min_size=1, max_size=30)
Pods = list[tuple[int, Holds]]


@pytest.mark.parametrize("many", [0, 3, 512])
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(drawn=PODS, data=st.data())
def test_slots_are_those_of_what_conflicts(many, drawn, data, monkeypatch):
    monkeypatch.setattr(holdings, "MANY", many)
    pods: Pods = [(slot, Holds(ports, disks)) for slot, (ports, disks) in drawn]
    state = NO_HOLDINGS
    for slot, held in pods:
        state = state.changed([(slot, held, 1)])
    check(state, pods)
    gone = data.draw(st.lists(st.sampled_from(range(len(pods))), unique=True))
    for position in gone:
        slot, held = pods[position]
        state = state.changed([(slot, held, -1)])
    check(state, [each for position, each in enumerate(pods) if position not in gone])


def check(state: holdings.Holdings, pods: Sequence[tuple[int, Holds]]) -> None:
    for port in PORTS:
        counts = Counter(slot for slot, held in pods for p in held.ports if share_port(p, port))
        assert dict(state.slots_of_port(port)) == counts
        assert state.slots_in_conflict([port]) == counts.keys()
    for disk in DISKS:
        slots = {slot for slot, held in pods for d in held.disks if share_disk(d, disk)}
        assert state.slots_in_conflict([disk]) == slots
