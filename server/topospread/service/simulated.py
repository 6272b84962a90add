"""Simulate: what would happen, with what is worth saying about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from topospread.service.node_groups import joined
from topospread.service.scenario import between_pods
from topospread.service.simulate import Options, simulate
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topospread.service.cycle import Cycle
    from topospread.service.scenario import Question, Scenario, Scenarios
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


def answer(scenarios: Scenarios, question: Question) -> Simulated:
    """Answer a question.

    Raises:
        As Scenarios.make; DeadlineExceeded.
    """
    scenario = scenarios.make(question)
    return with_nodes(scenario, [group.count for group in question.groups])


def with_nodes(
    scenario: Scenario, counts: Sequence[int], *, all_or_nothing: bool = False
) -> Simulated:
    """What would happen with so many nodes of each group."""
    question, view = scenario.question, scenario.view
    nodes = joined(question.groups, counts, lambda name: view.snapshot.slot(name) >= 0)
    changes = replace(scenario.changes, joined=[node for group in nodes for node in group])
    options = Options(question.fit, question.seed, all_or_nothing, between_pods(question))
    simulation = simulate(view, changes, scenario.batches, options)
    return Simulated(scenario, simulation, [[node.name for node in group] for group in nodes])


def hints(cycle: Cycle) -> Iterator[str]:
    """What would help a pod that fits nowhere, as far as its constraints tell."""
    if cycle.pre_filter_status.code is not Code.SUCCESS:
        return
    for state in cycle.states:
        constraint = state.constraint
        lacking = constraint.min_domains - state.eligible_domains
        if lacking <= 0:
            continue
        key = constraint.topology_key
        more = f"{lacking} more domain{'s' if lacking > 1 else ''} of {key}"
        if constraint.is_hostname:
            more = f"{lacking} more node{'s' if lacking > 1 else ''}"
            more += f" with a {key} of {'their' if lacking > 1 else 'its'} own"
        eligible = state.eligible_domains
        yield f"{more}: minDomains is {constraint.min_domains}, eligible are {eligible}"
