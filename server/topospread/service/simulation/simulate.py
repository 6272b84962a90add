"""Simulate: what would happen, the fewest nodes for it, and why pods stay pending."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.snapshot import PODS
from topospread.kube.label_syntax import label_text
from topospread.service.explaining.context import EvaluationContext
from topospread.service.explaining.explain import explain_at
from topospread.service.explaining.new_nodes import (
    added_node,
    larger_text,
    scarce_resources,
    template_of,
)
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit, FitQuestion
from topospread.service.messages import meta_of, verdict_message
from topospread.service.simulation.request import NodeGroup, checked, expand_groups
from topospread.service.simulation.run import PlacementOptions, place_batches, spread_changes
from topospread.spread.settings import PREEMPTION, gaps_text
from topospread.spread.verdicts import Code
from topospread.wording import counted
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import planner_service_pb2 as pb
from topospread_proto.v1 import scenario_pb2 as detail

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.violations import Problems
    from topospread.service.decisions.cycle import Cycle
    from topospread.service.decisions.request import DecisionRequest
    from topospread.service.simulation.request import SimulationQuestion
    from topospread.service.simulation.run import PendingPods, PodBatch, SimulationResult
    from topospread.service.simulation.scenario import Scenario, ScenarioBuilder
    from topospread_proto.v1.explanation_pb2 import Explanation


MAX_NAMES: Final = 100
"""Pods or nodes that an answer lists beside their number."""

EFFORT: Final = 20_000
"""Pods that a search may place: some seconds on thousands of nodes."""

OVERHEAD: Final = 20
"""What a simulation takes beside placing, in pods."""

MOST: Final = 1000
"""Nodes of a group where no number is given: what cluster-autoscaler adds at once at most."""

MOST_IN_ALL: Final = 5000
"""Nodes of all such groups together."""

Counts = tuple[int, ...]
"""Nodes of each group."""

HELPING: Final = 500
"""The effort for advice that was not requested, and the pods that it may be about: some tenths of
a second on thousands of nodes."""

MOST_LIKE: Final = 500
"""Nodes that such an advice may speak of."""


def with_nodes(
    scenario: Scenario,
    counts: Sequence[int],
    *,
    all_or_nothing: bool = False,
    place: bool = True,
) -> SimulationResult:
    """Simulate with so many nodes of each group.

    Args:
        scenario: what is asked.
        counts: nodes of each group.
        all_or_nothing: stop at the first pod that fits nowhere.
        place: False changes the nodes only.
    """
    question, view = scenario.question, scenario.view
    batches = scenario.batches if place else ()
    nodes = expand_groups(question.groups, counts, lambda name: view.snapshot.slot(name) >= 0)
    changes = replace(scenario.changes, joined=[node for group in nodes for node in group])
    seed = question.message.scenario.seed
    options = PlacementOptions(question.fit, seed, all_or_nothing)
    simulation = place_batches(view, changes, batches, options)
    simulation.joined = [[node.name for node in group] for group in nodes]
    return simulation


@dataclass(frozen=True, slots=True)
class MinimumNodes:
    """The fewest nodes with which all pods fit, as far as the search got.

    Attributes:
        counts: nodes of each group; with `all_fit` False the most that may join.
        all_fit: whether all pods fit with these.
        proved: nothing smaller does; without `all_fit`: nothing at all does.
        simulations: how many were made.
    """

    counts: Counts
    all_fit: bool
    proved: bool
    simulations: int


def minimum_nodes(scenario: Scenario, effort: int = EFFORT) -> MinimumNodes:
    """Find the fewest nodes of the groups with which all pods fit.

    Args:
        scenario: the groups' counts are the most that may join; None is MOST, or an equal share
            of MOST_IN_ALL.
        effort: pods to place at most, about.

    Raises:
        DeadlineExceeded, CallerGone: see checkpoint().
    """
    groups = scenario.question.groups
    share = max(1, min(MOST, MOST_IN_ALL // len(groups)))
    most = tuple(share if group.count is None else group.count for group in groups)
    search = _Search(scenario, effort)
    lowest = _least(scenario)
    if lowest is None or lowest > sum(most):
        return MinimumNodes(most, all_fit=False, proved=True, simulations=0)
    for total in range(lowest, sum(most) + 1):
        for counts in mixtures(total, most):
            if search.spent > effort // 2:
                return _best_found(search, most, total)
            if search.fits(counts):
                return MinimumNodes(counts, True, True, len(search.known))
    return MinimumNodes(most, all_fit=False, proved=True, simulations=len(search.known))


def mixtures(total: int, most: Sequence[int]) -> Iterator[Counts]:
    """All ways to take so many nodes, those with more of the first groups first."""
    if len(most) == 1:
        if total <= most[0]:
            yield (total,)
        return
    for first in range(min(total, most[0]), -1, -1):
        for others in mixtures(total - first, most[1:]):
            yield (first, *others)


@dataclass(slots=True)
class _Search:
    """The simulations of one search, within its effort.

    Attributes:
        spent: of the effort.
        known: whether all fit, by counts.
    """

    scenario: Scenario
    effort: int
    spent: int = 0
    known: dict[Counts, bool] = field(default_factory=dict)

    def over(self) -> bool:
        return self.spent > self.effort

    def fits(self, counts: Counts) -> bool:
        checkpoint()
        known = self.known.get(counts)
        if known is None:
            simulation = with_nodes(self.scenario, counts, all_or_nothing=True)
            self.spent += OVERHEAD + sum(counts) // 10 + len(simulation.placements)
            known = self.known[counts] = not simulation.pending
        return known


def _best_found(search: _Search, most: Counts, total: int) -> MinimumNodes:
    """Search downwards from a number of nodes that works."""
    upper = max(1, total)
    found: Counts | None = None
    while found is None and not search.over():
        upper = min(upper * 2, sum(most))
        shapes = (counts for counts in _shapes(upper, most) if not search.over())
        found = next(filter(search.fits, shapes), None)
        if upper == sum(most):
            break
    if found is None:
        return MinimumNodes(most, all_fit=False, proved=False, simulations=len(search.known))
    step = max(found)
    while step and not search.over():
        lower = _lower(search, found, step)
        if lower is None:
            step //= 2
        else:
            found = lower
    return MinimumNodes(found, True, False, len(search.known))


def _shapes(total: int, most: Counts) -> Iterator[Counts]:
    """Numbers of nodes to try, up to a total: of all groups alike, then of each alone."""
    share, rest = divmod(total, len(most))
    yield tuple(min(m, share + (n < rest)) for n, m in enumerate(most))
    for alone in range(len(most)):
        yield tuple(min(m, total) if n == alone else 0 for n, m in enumerate(most))


def _lower(search: _Search, counts: Counts, step: int) -> Counts | None:
    """Counts with fewer nodes of one group that still work; the last groups give way first."""
    for position in reversed(range(len(counts))):
        if counts[position] >= step and not search.over():
            less = (*counts[:position], counts[position] - step, *counts[position + 1 :])
            if search.fits(less):
                return less
    return None


# ------------------------------ resources


def _least(scenario: Scenario) -> int | None:
    """Fewer nodes than these lack the room, however pods spread; None: no number is enough."""
    groups, batches = scenario.question.groups, scenario.batches
    state = with_nodes(scenario, [0] * len(groups), place=False).changed
    if scenario.question.fit is not Fit.ALL or _holds(state, batches):
        return 0
    least = 0
    wanted: dict[str, int] = {}
    for batch in batches:
        for name, amount in ((PODS, 1), *batch.demand.requests):
            wanted[name] = wanted.get(name, 0) + amount * len(batch.names)
    usable = _usable(state, batches)
    for name, amount in wanted.items():
        lacking = amount - _left(state, usable, name)
        if lacking <= 0:
            continue
        largest = max(dict(group.template.allocatable).get(name, 0) for group in groups)
        if not largest:
            return None
        least = max(least, -(-lacking // largest))
    return least


def _holds(state: Snapshot, batches: Sequence[PodBatch]) -> bool:
    """Whether something is held for one of the pods, which is room of its own."""
    held = state.reservations
    return len(held) > 0 and any(
        held.of(batch.namespace, name, batch.uid) for batch in batches for name in batch.names
    )


def _usable(
    state: Snapshot, batches: Sequence[PodBatch]
) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """[slots] nodes that one of the pods could go to, were they empty."""
    found = np.zeros_like(state.alive)
    for batch in batches:
        if batch.names_claims and len(batch.names) > 1:
            return state.alive  # each has claims of its own
        effective = batch.shape.effective_constraints(batch.rules, state)
        requirements = effective.constraints.requirements
        pod, name = batch.shape.pod, batch.pod.name
        uid = batch.judged_uid
        asked = FitQuestion(state, pod, requirements, batch.demand, batch.rules, name, uid)
        found |= suited(asked, Fit.NODE).nodes
    return found & state.alive


def _left(state: Snapshot, usable: np.ndarray[tuple[int], np.dtype[np.bool_]], name: str) -> int:
    """The free amount of a resource on all nodes."""
    nodes = state.nodes
    left = nodes.allocatable(name) - state.usage.taken(name, nodes.capacity)
    return int(np.maximum(left[usable], 0).sum())


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
    waits = _waiting_rollouts(scenario, counts, found)
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
        warnings=scenario.warnings,
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
        workloads=[each.message(waits=each.pods.asked in waits) for each in scenario.workloads],
    )


def _waiting_rollouts(
    scenario: Scenario, counts: Sequence[int], end: SimulationResult
) -> frozenset[int]:
    """Positions of rollouts that end well, whose first pod finds no node beside those that run."""
    rolling = {plan.pods.asked for plan in scenario.workloads if plan.begins_beside}
    rolling -= {end.batches[batch].asked for each in end.pending for batch, _ in each.pods}
    firsts: dict[int, PodBatch] = {}
    for each in scenario.batches:
        if each.asked in rolling:
            firsts.setdefault(each.asked, replace(each, names=each.names[:1], numbered=()))
    if not firsts:
        return frozenset()
    batches = [*firsts.values()]
    found = with_nodes(replace(scenario, batches=batches, changes=scenario.beside), counts)
    return frozenset(batches[batch].asked for each in found.pending for batch, _ in each.pods)


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
    larger = f", with {larger_text(scarce)}" if scarce else ""
    where = f" in {added.where}" if added.keys else ""
    yield added.like, NodeGroup("", added.node, MOST_LIKE), where + larger
    in_turn = added.in_turn(cycle.view.snapshot)
    if len(in_turn) > 1:
        key, template = added.keys[0], replace(added.node, labels={})
        values = ", ".join(label_text(each.labels[key]) for each in in_turn)
        group = NodeGroup("", template, MOST_LIKE, [each.labels for each in in_turn])
        yield added.like, group, f" in {label_text(key)}={values} in turn{larger}"
