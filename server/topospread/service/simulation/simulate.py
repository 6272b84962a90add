"""Simulate: what would happen, and why pods stay pending."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.kube.label_syntax import label_text
from topospread.service.explaining.context import EvaluationContext
from topospread.service.explaining.explain import explain_at
from topospread.service.explaining.new_nodes import (
    added_node,
    larger_text,
    scarce_resources,
    template_of,
)
from topospread.service.messages import meta_of, verdict_message
from topospread.service.simulation.fewest_nodes import minimum_nodes, with_nodes
from topospread.service.simulation.request import NodeGroup, checked
from topospread.service.simulation.rollouts import outcomes
from topospread.service.simulation.run import spread_changes
from topospread.spread.settings import PREEMPTION, gaps_text
from topospread.spread.verdicts import Code
from topospread.wording import counted
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import planner_service_pb2 as pb
from topospread_proto.v1 import scenario_pb2 as detail

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topospread.kube.violations import Problems
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.decisions.request import DecisionRequest
    from topospread.service.fit.question import Fit
    from topospread.service.simulation.fewest_nodes import MinimumNodes
    from topospread.service.simulation.request import SimulationQuestion
    from topospread.service.simulation.run import PendingPods, SimulationResult
    from topospread.service.simulation.scenario import Scenario, ScenarioBuilder
    from topospread.spread.rollouts import RolloutOutcome
    from topospread_proto.v1.explanation_pb2 import Explanation


MAX_NAMES: Final = 100
"""Pods or nodes that an answer lists beside their number."""

HELPING: Final = 500
"""The effort for advice that was not requested, and the pods that it may be about: some tenths of
a second on thousands of nodes."""

MOST_LIKE: Final = 500
"""Nodes that such an advice may speak of."""


def simulate(
    scenarios: ScenarioBuilder,
    request: pb.SimulateRequest,
    decision: DecisionRequest,
    fit: Fit | None,
    wrong: Problems,
) -> pb.SimulateResponse:
    """Run a simulation.

    Raises:
        As ScenarioBuilder.make.
    """
    question = checked(request, decision, fit, wrong)
    scenario = scenarios.make(question)
    smallest = minimum_nodes(scenario) if request.find_fewest_nodes else None
    counts = [group.count or 0 for group in question.groups]
    if smallest is not None:
        counts = [*smallest.counts]
    found = with_nodes(scenario, counts)
    rollouts = _outcomes(scenario, counts)
    explained = [_pending(pending, scenario) for pending in found.pending]
    advice = "" if question.groups or not found.pending else _more_nodes(scenario, found.pending[0])
    # Preemption, if anything, lets pods in: it makes no advice less sure.
    gaps = (each for each in found.not_modelled if not each.startswith(PREEMPTION))
    if advice and (unseen := gaps_text(gaps)):
        advice += f" ({unseen})"
    return pb.SimulateResponse(
        meta=meta_of(scenario.view, scenario.replica, scenario.version),
        placed_pod_count=len(found.placements),
        pending_pod_count=found.waiting,
        placements=_placements(found, question),
        pending_pods=explained,
        spread_changes=spread_changes(found),
        not_modelled=found.not_modelled,
        warnings=[*scenario.warnings, *_while_cordoned(scenario, counts, found)],
        joined=[
            detail.JoinedNodes(
                node_group=group.name, node_count=len(names), node_names=names[:MAX_NAMES]
            )
            for group, names in zip(question.groups, found.joined, strict=True)
        ],
        evicted_pod_count=found.evicted,
        fewest_nodes=None if smallest is None else _fewest(smallest),
        advice=[advice] if advice else (),
        rescheduled_pod_count=scenario.evicted,
        workloads=[each.message(rollouts.get(each.pods.asked)) for each in scenario.workloads],
    )


def _outcomes(scenario: Scenario, counts: Sequence[int]) -> Mapping[int, RolloutOutcome]:
    """What becomes of the rollouts, by their positions in the request."""
    if not scenario.rollouts:
        return {}
    # Each begins with the pods that it replaces, and none of those that are placed.
    batches = [replace(each.batch, names=(), numbered=()) for each in scenario.rollouts]
    at_first = replace(scenario, batches=batches, changes=scenario.beside)
    found = with_nodes(at_first, counts)
    return outcomes(scenario.rollouts, scenario.view, found.changed, scenario.question.fit)


def _while_cordoned(
    scenario: Scenario, counts: Sequence[int], end: SimulationResult
) -> Iterator[str]:
    """That pods which all fit without the drained nodes wait as long as these are still there."""
    changes = scenario.changes
    pods = sum(len(batch.names) for batch in scenario.batches)
    if end.pending or not changes.gone or pods > HELPING:
        return
    there = replace(changes, gone=(), emptied=(*changes.emptied, *changes.gone))
    found = with_nodes(replace(scenario, changes=there), counts, all_or_nothing=True)
    if found.pending:
        first = found.pending[0]
        batch, name = first.pods[0]
        alone = len(changes.gone) == 1
        nodes = f"{changes.gone[0]} is" if alone else f"the {len(changes.gone)} drained nodes are"
        yield (
            f"while {nodes} still there and cordoned, as kubectl drain leaves"
            f" {'it' if alone else 'them'}, {found.batches[batch].namespace}/{name} waits"
            " (--drain NODE=tainted, DRAIN_MODE_TAINTED):"
            f" {first.refusal.message or ', '.join(first.refusal.status.reasons)}"
        )


def _placements(
    found: SimulationResult, question: SimulationQuestion
) -> list[detail.SimulatedPlacement]:
    groups = {
        name: group.name
        for group, names in zip(question.groups, found.joined, strict=True)
        for name in names
    }
    return [
        detail.SimulatedPlacement(
            pod=found.batches[batch].reference(name), node=node, node_group=groups.get(node, "")
        )
        for batch, name, node in found.placements
    ]


def _fewest(fewest: MinimumNodes) -> detail.FewestNodes:
    proved = common_pb2.OPTIMALITY_PROVEN if fewest.proved else common_pb2.OPTIMALITY_BEST_FOUND
    return detail.FewestNodes(
        all_fit=fewest.all_fit, optimality=proved, simulation_count=fewest.simulations
    )


def _pending(pending: PendingPods, scenario: Scenario) -> detail.PendingPods:
    cycle, batches = pending.cycle, scenario.batches
    return detail.PendingPods(
        pods=[batches[batch].reference(name) for batch, name in pending.pods[:MAX_NAMES]],
        pod_count=len(pending.pods),
        verdict=verdict_message(pending.refusal.status),
        message=pending.refusal.message,
        explanation=None if cycle is None else _explained(cycle, scenario),
    )


def _explained(cycle: Cycle, scenario: Scenario) -> Explanation:
    """The reason why a pod of a batch was refused, at the state it was refused at."""
    return explain_at(EvaluationContext.of(cycle, scenario.question.fit))


def _more_nodes(scenario: Scenario, pending: PendingPods) -> str:
    """Advice on how many nodes like an existing one make all pods fit; empty if not found soon."""
    pods, cycle = sum(len(batch.names) for batch in scenario.batches), pending.cycle
    if cycle is None or cycle.pre_filter_status.code is Code.ERROR or pods > HELPING:
        return ""
    for like, group, where in _groups(cycle, scenario):
        question = replace(scenario.question, groups=[group])
        found = minimum_nodes(replace(scenario, question=question), HELPING)
        if found.all_fit:
            (count,) = found.counts
            fit = "the pod fits" if pods == 1 else f"all {pods} pods fit"
            text = f"{counted(count, 'more node')} like {like}{where}: {fit} then"
            return text if found.proved else f"{text}; fewer may do"
    return ""


def _groups(cycle: Cycle, scenario: Scenario) -> Iterator[tuple[str, NodeGroup, str]]:
    """Groups to try: what their nodes are like, and where: in the open domain, then in all."""
    context = EvaluationContext.of(cycle, scenario.question.fit)
    added = added_node(context)
    if added is None:
        like = template_of(context)
        if like is not None:
            yield like.name, NodeGroup("", like, MOST_LIKE), ""
        return
    scarce = scarce_resources(context)
    larger = f", with {larger_text(context, scarce)}" if scarce else ""
    where = f" in {added.where}" if added.keys else ""
    yield added.like, NodeGroup("", added.node, MOST_LIKE), where + larger
    in_turn = added.in_turn(cycle.view.snapshot)
    if len(in_turn) > 1:
        key, template = added.keys[0], replace(added.node, labels={})
        values = ", ".join(label_text(each.labels[key]) for each in in_turn)
        group = NodeGroup("", template, MOST_LIKE, [each.labels for each in in_turn])
        yield added.like, group, f" in {label_text(key)}={values} in turn{larger}"
