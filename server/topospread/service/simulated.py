"""A scenario with so many nodes of each of its groups, simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from topospread.service.node_groups import joined
from topospread.service.scenario import between_pods
from topospread.service.simulate import Options, simulate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.service.scenario import Scenario
    from topospread.service.simulate import Simulation


@dataclass(slots=True, eq=False)
class Simulated:
    """What would happen.

    Attributes:
        joined: for each node group, the names of its nodes.
    """

    scenario: Scenario
    simulation: Simulation
    joined: Sequence[Sequence[str]]

    @property
    def group_of(self) -> Mapping[str, str]:
        """By name of a node that joined, its group."""
        groups = self.scenario.question.groups
        return {
            name: group.name
            for group, names in zip(groups, self.joined, strict=True)
            for name in names
        }


def with_nodes(
    scenario: Scenario,
    counts: Sequence[int],
    *,
    all_or_nothing: bool = False,
    place: bool = True,
) -> Simulated:
    """What would happen with so many nodes of each group.

    Args:
        scenario: what is asked.
        counts: nodes of each group.
        all_or_nothing: stop at the first pod that fits nowhere.
        place: False changes the nodes only.
    """
    question, view = scenario.question, scenario.view
    batches = scenario.batches if place else ()
    nodes = joined(question.groups, counts, lambda name: view.snapshot.slot(name) >= 0)
    changes = replace(scenario.changes, joined=[node for group in nodes for node in group])
    options = Options(question.fit, question.seed, all_or_nothing, between_pods(question))
    simulation = simulate(view, changes, batches, options)
    return Simulated(scenario, simulation, [[node.name for node in group] for group in nodes])
