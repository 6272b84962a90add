"""topospread.v1.PlannerService/Simulate: decode, call the use case, encode."""

from __future__ import annotations

import time
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from topospread.api.decode import (
    consistency_of,
    fit_of,
    reference_of,
    settings_of,
    strict,
)
from topospread.calls.call import Call, Method, Unary
from topospread.checkpoints import checkpoint
from topospread.codec.demands import amounts
from topospread.codec.pods import node_from_proto, pod_from_source
from topospread.errors import CallerGone, FieldViolation, InvalidRequest
from topospread.kube.objects import DO_NOT_SCHEDULE, HONOR, IGNORE, SCHEDULE_ANYWAY
from topospread.kube.violations import forbidden, invalid, not_supported, noted, required
from topospread.service.decisions.node_fit import Fit
from topospread.service.decisions.request import DEFAULT_CLUSTER, DecisionRequest
from topospread.service.messages import constraint_message, meta_of, verdict_message
from topospread.service.simulation.request import (
    AddedPod,
    ConstraintChange,
    DrainedNode,
    NodeGroup,
    PodsToPlace,
    SimulationRequest,
)
from topospread.service.simulation.run import spread_changes
from topospread.service.simulation.scenario import ADD_NODE_GROUPS
from topospread.service.simulation.simulate import simulate
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import planner_service_pb2 as pb
from topospread_proto.v1 import scenario_pb2 as detail

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.calls.call import Call
    from topospread.service.decisions.request import PodRef
    from topospread.service.simulation.run import PendingPods, PodBatch, SpreadChange
    from topospread.service.simulation.scenario import Scenario, ScenarioBuilder
    from topospread.service.simulation.simulate import (
        MinimumNodes,
        SimulatedScenario,
        SimulationReport,
    )
    from topospread_proto.v1.explanation_pb2 import Explanation


MAX_NAMES: Final = 100
"""Pods or nodes that a response lists beside their number."""

_POLICIES: Final = (HONOR, IGNORE)
_ACTIONS: Final = (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY)


class SimulateServicer:
    """The method Simulate; raises what the use case raises."""

    def __init__(self, scenarios: ScenarioBuilder) -> None:
        self._scenarios = scenarios

    def methods(self) -> dict[str, Method]:
        """The method by its name."""
        return {"Simulate": Unary(pb.SimulateRequest, self.simulate)}

    def simulate(self, request: pb.SimulateRequest, call: Call) -> pb.SimulateResponse:
        """PlannerService.Simulate."""
        report = simulate(self._scenarios, simulation_request(request, call))
        simulation = report.found.simulation
        if call.span.recording:
            call.span.set_many(
                {
                    "topospread.placed": len(simulation.placements),
                    "topospread.pending": simulation.waiting,
                }
            )
        return simulate_response(report)


def simulation_request(request: pb.SimulateRequest, call: Call) -> SimulationRequest:
    """Decode a request.

    Raises:
        InvalidRequest: with all of its violations.
    """
    wrong: list[FieldViolation] = []
    scenario, changes = request.scenario, request.scenario.changes
    decision = DecisionRequest(deadline=call.deadline, cluster=request.cluster or DEFAULT_CLUSTER)
    fit = None
    with noted(wrong):
        decision = decision._replace(consistency=consistency_of(request.consistency))
    with noted(wrong, "scenario"):
        fit = fit_of(scenario.fit)
    with noted(wrong, "scenario"):
        decision = decision._replace(settings=settings_of(scenario.settings))
    with noted(wrong, "scenario"):
        decision = decision._replace(validate=strict(scenario.validation))
    simulation = SimulationRequest(
        decision=decision,
        pods=_pods(request, wrong),
        groups=[_group(n, request, wrong) for n in range(len(changes.add_node_groups))],
        drained=[_drained(n, drained, wrong) for n, drained in enumerate(changes.drain_nodes)],
        added=_added(changes, wrong),
        removed=_deleted(changes, wrong),
        constraints=[_constraint(n, c, wrong) for n, c in enumerate(changes.constraint_changes)],
        fit=fit or Fit.NODE_AND_RESOURCES,
        seed=scenario.seed,
        fewest=request.find_fewest_nodes,
        reschedule=request.reschedule,
        pause=pause_between(call),
    )
    if wrong:
        raise InvalidRequest.of(wrong)
    return simulation


def _added(changes: detail.SupposedChanges, wrong: list[FieldViolation]) -> list[AddedPod]:
    added: list[AddedPod] = []
    for number, move in enumerate(changes.add_pods):
        checkpoint()
        try:
            pod, path = pod_from_source(move.pod, f"scenario.changes.addPods[{number}].pod")
        except InvalidRequest as refused:  # there may be many: `noted` takes longer than the rest
            wrong += refused.violations
        else:
            named = isinstance(pod, common_pb2.PodReference)
            given = reference_of(pod, path) if named else pod.SerializeToString()  # type: ignore[arg-type]
            added.append(AddedPod(given, path, move.node))
    return added


def simulate_response(report: SimulationReport) -> pb.SimulateResponse:
    """Encode a report."""
    found = report.found
    scenario, simulation = found.scenario, found.simulation
    batches, groups = simulation.batches, found.group_of
    return pb.SimulateResponse(
        meta=meta_of(scenario.view, scenario.replica),
        placed_pod_count=len(simulation.placements),
        pending_pod_count=simulation.waiting,
        placements=[
            detail.SimulatedPlacement(
                pod=_reference(batches[placement.batch], placement.name),
                node=placement.node,
                node_group=groups.get(placement.node, ""),
            )
            for placement in simulation.placements
        ],
        pending_pods=[
            _pending(pending, batches, explanation)
            for pending, explanation in zip_longest(simulation.pending, report.explanations)
        ],
        spread_changes=[_spread_change(each, scenario) for each in spread_changes(simulation)],
        not_modelled=scenario.not_modelled,
        warnings=scenario.warnings,
        joined=_joined(found),
        evicted_pod_count=simulation.evicted,
        fewest_nodes=None if report.min_nodes is None else _fewest(report.min_nodes),
        advice=report.advice,
        rescheduled_pod_count=scenario.evicted,
    )


# ------------------------------ requests


def _pods(request: pb.SimulateRequest, wrong: list[FieldViolation]) -> list[PodsToPlace]:
    pods: list[PodsToPlace] = []
    for number, given in enumerate(request.pods):
        path = f"pods[{number}]"
        with noted(wrong):
            pods.append(_to_place(given, f"{path}.pod"))
        if not given.HasField("replicas"):
            continue
        if given.replicas < 0:
            wrong.append(invalid(f"{path}.replicas", given.replicas, "must not be negative"))
        if given.pod.HasField("ref"):
            text = "a pod of the state is only one"
            wrong.append(invalid(f"{path}.replicas", given.replicas, text))
    return pods


def _to_place(given: detail.PodsToPlace, path: str) -> PodsToPlace:
    pod, path = pod_from_source(given.pod, path)
    if isinstance(pod, common_pb2.PodReference):
        return PodsToPlace(reference_of(pod, path), path)
    encoded = given.pod.object_proto or pod.SerializeToString()
    replicas = given.replicas if given.HasField("replicas") else None
    return PodsToPlace(encoded, path, replicas, pod.metadata.generate_name)


def _group(number: int, request: pb.SimulateRequest, wrong: list[FieldViolation]) -> NodeGroup:
    group = request.scenario.changes.add_node_groups[number]
    path = f"{ADD_NODE_GROUPS}[{number}]"
    if not group.HasField("template"):
        wrong.append(required(f"{path}.template", "say what the nodes are like"))
    with noted(wrong):
        amounts(group.template.status.allocatable, f"{path}.template.status.allocatable")
    count = group.node_count if group.HasField("node_count") else None
    if count is None and not request.find_fewest_nodes:
        wrong.append(required(f"{path}.nodeCount", "say how many nodes join"))
    if count is not None and count < 0:
        wrong.append(invalid(f"{path}.nodeCount", count, "must not be negative"))
    template = node_from_proto(group.template)
    variants = [dict(variant.labels) for variant in group.variants]
    return NodeGroup(group.name or template.name or f"group-{number}", template, count, variants)


def _drained(number: int, drained: detail.DrainedNode, wrong: list[FieldViolation]) -> DrainedNode:
    if drained.mode not in detail.DrainMode.values():
        path = f"scenario.changes.drainNodes[{number}].mode"
        wrong.append(not_supported(path, str(drained.mode), detail.DrainMode.keys()))
    return DrainedNode(drained.node, drained.mode == detail.DRAIN_MODE_TAINTED)


def _deleted(changes: detail.SupposedChanges, wrong: list[FieldViolation]) -> list[PodRef]:
    pods: list[PodRef] = []
    for number, reference in enumerate(changes.delete_pods):
        with noted(wrong):
            pods.append(reference_of(reference, f"scenario.changes.deletePods[{number}]"))
    return pods


def _constraint(
    number: int, change: detail.ConstraintChange, wrong: list[FieldViolation]
) -> ConstraintChange:
    match, values = change.match, change.set
    path = f"scenario.changes.constraintChanges[{number}]"
    if not match.topology_key:
        wrong.append(required(f"{path}.match.topologyKey", ""))
    if match.when_unsatisfiable not in ("", *_ACTIONS):
        wrong.append(
            not_supported(f"{path}.match.whenUnsatisfiable", match.when_unsatisfiable, _ACTIONS)
        )
    max_skew = values.max_skew if values.HasField("max_skew") else None
    min_domains = values.min_domains if values.HasField("min_domains") else None
    for field, number_given in (("maxSkew", max_skew), ("minDomains", min_domains)):
        if number_given is not None and number_given < 1:
            text = "must be greater than zero"
            wrong.append(invalid(f"{path}.set.{field}", number_given, text))
    if min_domains is not None and change.clear_min_domains:
        text = "may not be set with set.minDomains"
        wrong.append(forbidden(f"{path}.clearMinDomains", text))
    affinity = values.node_affinity_policy if values.HasField("node_affinity_policy") else None
    taints = values.node_taints_policy if values.HasField("node_taints_policy") else None
    action = values.when_unsatisfiable if values.HasField("when_unsatisfiable") else None
    for field, word, known in (
        ("nodeAffinityPolicy", affinity, _POLICIES),
        ("nodeTaintsPolicy", taints, _POLICIES),
        ("whenUnsatisfiable", action, _ACTIONS),
    ):
        if word is not None and word not in known:
            wrong.append(not_supported(f"{path}.set.{field}", word, known))
    return ConstraintChange(
        match.topology_key,
        match.when_unsatisfiable,
        max_skew,
        min_domains,
        affinity,
        taints,
        action,
        change.clear_min_domains,
    )


def pause_between(call: Call) -> Callable[[], None]:
    """A function that lets other threads run, and stops the simulation when its caller has gone."""

    def pause() -> None:
        if not call.active():
            raise CallerGone("the caller cancelled the call or went away")
        # A decision that wants the interpreter would wait for its switch interval otherwise.
        time.sleep(0)

    return pause


# ------------------------------ answers


def _reference(batch: PodBatch, name: str) -> common_pb2.PodReference:
    return common_pb2.PodReference(namespace=batch.namespace, name=name, uid=batch.uid)


def _joined(found: SimulatedScenario) -> list[detail.JoinedNodes]:
    groups = found.scenario.request.groups
    return [
        detail.JoinedNodes(
            node_group=group.name, node_count=len(names), node_names=names[:MAX_NAMES]
        )
        for group, names in zip(groups, found.joined, strict=True)
    ]


def _fewest(fewest: MinimumNodes) -> detail.FewestNodes:
    proved = common_pb2.OPTIMALITY_PROVEN if fewest.proved else common_pb2.OPTIMALITY_BEST_FOUND
    return detail.FewestNodes(
        all_fit=fewest.all_fit, optimality=proved, simulation_count=fewest.simulations
    )


def _pending(
    pending: PendingPods, batches: Sequence[PodBatch], explanation: Explanation | None
) -> detail.PendingPods:
    return detail.PendingPods(
        pods=[_reference(batches[batch], name) for batch, name in pending.pods[:MAX_NAMES]],
        pod_count=len(pending.pods),
        verdict=verdict_message(pending.refusal.status),
        message=pending.refusal.message,
        explanation=explanation,
    )


def _spread_change(change: SpreadChange, scenario: Scenario) -> detail.SpreadChange:
    batch, asked = scenario.batches[change.batch], change.batch - scenario.evicted
    return detail.SpreadChange(
        constraint=constraint_message(change.constraint),
        pods_index=asked if asked >= 0 else None,
        pod=_reference(batch, batch.names[change.pod]) if batch.names else None,
        skew_before=change.before.skew,
        skew_after=change.after.skew,
        domain_count_before=len(change.before.counts),
        domain_count_after=len(change.after.counts),
        domains=[
            detail.DomainChange(value=value, pod_count_before=before, pod_count_after=after)
            for value, before, after in change.domains
        ],
    )
