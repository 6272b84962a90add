"""How many more pods of a kind nodes have room for, by what they ask of a node alone."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.index.snapshot import PODS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from topospread.index.snapshot import Snapshot
    from topospread.kube.demands import Demand

PLENTY: Final = 1_000_000
"""More than a node takes."""

_NOTHING: Final[Mapping[str, int]] = MappingProxyType({})


def headroom_of(
    snapshot: Snapshot, demand: Demand, taken: Mapping[str, int] = _NOTHING
) -> NDArray[np.int64]:
    """[slots] how many more such pods there is room for; of those with host ports, one a node.

    Args:
        snapshot: the state.
        demand: of each.
        taken: amounts that other pods take of each node beside.
    """
    nodes, usage = snapshot.nodes, snapshot.usage
    headroom = np.full(nodes.capacity, 1 if demand.ports else PLENTY, dtype=np.int64)
    headroom[nodes.marks(snapshot.holdings.slots_in_conflict(demand.ports))] = 0
    for name, amount in ((PODS, 1), *demand.requests):
        if amount:
            left = nodes.allocatable(name) - usage.taken(name, nodes.capacity) - taken.get(name, 0)
            headroom = np.minimum(headroom, np.maximum(left, 0) // amount)
    return headroom
