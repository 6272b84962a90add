"""What a plan may leave at most: the walk of the states takes little beside the plan itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.counting import memory
from tests.service.rebalancing.test_free_choice import planned
from tests.service.world import HOSTNAME, ZONE, constraint, node, running, world
from topospread.service.rebalancing import free_choice

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]

MOST = 24 << 20
"""Bytes; 64 MiB is what a plan may take beside."""


def pods(kinds: int, nodes: int) -> Iterator[Json]:
    """Five pods of each kind of one group, three of them in one zone of four."""
    keys = [constraint(ZONE, maxSkew=2), constraint(HOSTNAME, maxSkew=5)]
    for number in range(5 * kinds):
        zone = 0 if number % 5 < 3 else 1 + number % 3
        name = f"p{number}"
        pod = running(name, f"n{zone + 4 * (number % (nodes // 4))}", uid=name)
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "w", "uid": "w"}
        pod["metadata"]["ownerReferences"] = [{**owner, "controller": True}]
        pod["spec"]["topologySpreadConstraints"] = keys
        requests = {"cpu": f"{100 + number % kinds}m"}
        pod["spec"]["containers"] = [{"name": "c", "resources": {"requests": requests}}]
        yield pod


@pytest.mark.parametrize(("kinds", "nodes"), [(12, 400), (40, 200)])
def test_walk_takes_little_memory(kinds: int, nodes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with world() as made:
        made.apply(*[node(f"n{number}", f"z{number % 4}") for number in range(nodes)])
        made.apply(*pods(kinds, nodes))
        assert planned(made).evictions  # what is kept from then on
        walked = memory(lambda: planned(made)).peak
        monkeypatch.setattr(free_choice, "MOST_STEPS", 0)
        without = memory(lambda: planned(made)).peak
    assert walked - without < MOST
