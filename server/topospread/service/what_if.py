"""Simulate: what would happen, why pods stay pending, and what would help them all."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from topospread.service.explaining.case import Case
from topospread.service.explaining.explain import explained
from topospread.service.fewest import Fewest, fewest
from topospread.service.fit import Fit, suited
from topospread.service.node_groups import NodeGroup
from topospread.service.simulated import Simulated, with_nodes
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from topospread.kube.demands import Demand
    from topospread.kube.objects import Node
    from topospread.service.cycle import Cycle
    from topospread.service.explaining.findings import Explanation
    from topospread.service.questions import Question
    from topospread.service.scenario import Scenario, Scenarios
    from topospread.service.simulate import Pending

HELPING: Final = 500
"""The effort for an advice that nobody asked for, and the pods that it may be about: some tenths of
a second on thousands of nodes."""

MOST_LIKE: Final = 500
"""Nodes that such an advice may speak of."""


@dataclass(slots=True, eq=False)
class Answer:
    """What would happen.

    Attributes:
        fewest: when it was asked for.
        explanations: of the first reasons for pending, in their order.
        advice: what would make all pods fit, each tried out.
    """

    found: Simulated
    fewest: Fewest | None
    explanations: list[Explanation]
    advice: list[str]


def answer(scenarios: Scenarios, question: Question) -> Answer:
    """Answer a question.

    Raises:
        As Scenarios.make; DeadlineExceeded.
    """
    scenario = scenarios.make(question)
    smallest = fewest(scenario) if question.fewest else None
    counts = [group.count or 0 for group in question.groups]
    if smallest is not None:
        counts = [*smallest.counts]
    found = with_nodes(scenario, counts)
    pending = found.simulation.pending
    explanations = [
        _explained(each.cycle, each.batch, scenario) for each in pending if each.cycle is not None
    ]
    advice: list[str] = []
    if pending and not question.groups:
        advice = [text for text in [_more_nodes(scenario, pending[0])] if text]
    return Answer(found, smallest, explanations, advice)


def _explained(cycle: Cycle, number: int, scenario: Scenario) -> Explanation:
    """Why a pod of a batch was refused, at the state it was refused at."""
    batch = scenario.batches[number]
    case = Case(
        cycle.view.snapshot,
        cycle.pod,
        cycle.rules,
        cycle.constraints,
        batch.demand,
        scenario.question.fit,
        cycle.name,
        cycle.uid,
    )
    return explained(case)


def _more_nodes(scenario: Scenario, pending: Pending) -> str:
    """How many nodes like one there is make all pods fit; empty where that is not found soon."""
    pods, cycle = sum(len(batch.names) for batch in scenario.batches), pending.cycle
    if cycle is None or cycle.pre_filter_status.code is Code.ERROR or pods > HELPING:
        return ""
    like = _template(cycle, scenario.batches[pending.batch].demand)
    if like is None:
        return ""
    group = NodeGroup("", like, MOST_LIKE)
    question = replace(scenario.question, groups=[group])
    found = fewest(replace(scenario, question=question), HELPING)
    if not found.all_fit:
        return ""
    (count,) = found.counts
    text = (
        f"{count} more node{'' if count == 1 else 's'} like {like.name}: all {pods} pods fit then"
    )
    return text if found.proved else f"{text}; fewer may do"


def _template(cycle: Cycle, demand: Demand) -> Node | None:
    """The first node by name that the pods could go to, were it empty."""
    snapshot = cycle.view.snapshot
    fitting = suited(
        snapshot,
        cycle.pod,
        cycle.constraints.requirements,
        demand,
        Fit.NODE,
        comparison_operators=cycle.rules.gates.taint_comparison_operators,
    ).nodes
    order = snapshot.nodes.order
    slots = order[fitting[order]]
    return snapshot.nodes.node(int(slots[0])) if slots.size else None
