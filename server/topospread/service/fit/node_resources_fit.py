"""NodeResourcesFit: what the pod requests must be left of what is allocatable.

Only what the pod requests is compared. A node where it requests more of something than the whole
node has is refused for good: to end other pods would not help. What stands for devices of a class
is left to DynamicResources on nodes that offer none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.index.snapshot import PODS
from topospread.service.fit.question import Refusals, Rule
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.service.fit.question import FitQuestion
    from topospread.spread.topology import Bools

NAME: Final = "NodeResourcesFit"
REASON_PODS: Final = "Too many pods"


def refusals(asked: FitQuestion) -> Refusals | None:
    """Nodes without the room."""
    nodes = asked.snapshot.nodes
    lacking = [(name, wanted, _lacking(asked, name, wanted)) for name, wanted in _wanted(asked)]
    refused = lacking[0][2]
    for _, _, here in lacking[1:]:
        refused = refused | here

    def rules() -> Iterator[Rule]:
        never = np.zeros_like(refused)
        for name, wanted, here in lacking:
            # Where a node takes no pods at all, upstream has preemption try all the same.
            if name != PODS:
                never = never | (here & (nodes.allocatable(name) < wanted))
        reasons = [
            (REASON_PODS if name == PODS else f"Insufficient {name}", here)
            for name, _, here in lacking
        ]
        yield Rule(NAME, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons).within(never)
        yield Rule(NAME, Code.UNSCHEDULABLE, reasons).within(~never)

    return Refusals(refused, rules)


def _wanted(asked: FitQuestion) -> Iterator[tuple[str, int]]:
    yield PODS, 1
    nodes, objects = asked.snapshot.nodes, asked.snapshot.objects
    for name, wanted in asked.demand.requests:
        if wanted and (nodes.offers(name) or not objects.is_of_class(name)):
            yield name, wanted


def _lacking(asked: FitQuestion, name: str, wanted: int) -> Bools:
    nodes, usage = asked.snapshot.nodes, asked.snapshot.usage
    if wanted > 0 and not nodes.offers(name):
        # Callers name any: all share one array, without a sum over pods.
        return asked.snapshot.alive
    offered = nodes.allocatable(name)
    lacking: Bools = offered - usage.taken(name, nodes.capacity) < wanted
    if asked.snapshot.objects.is_of_class(name):
        lacking &= offered > 0
    return lacking
