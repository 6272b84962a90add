"""Simulate's requests to questions, and what would happen to answers."""

from __future__ import annotations

import time
from itertools import zip_longest
from typing import TYPE_CHECKING, Final

from topospread.codec.cluster import node_from_proto
from topospread.codec.demands import amounts
from topospread.errors import CallerGone, FieldViolation, InvalidRequest
from topospread.kube.objects import (
    DEFAULT_NAMESPACE,
    DO_NOT_SCHEDULE,
    HONOR,
    IGNORE,
    SCHEDULE_ANYWAY,
)
from topospread.kube.violations import invalid, not_supported, required
from topospread.replica.replicas import NEWEST_AT_HAND
from topospread.service.asks import DEFAULT_CLUSTER, NO_SETTINGS, Ask, PodRef
from topospread.service.constraint_changes import ConstraintChange
from topospread.service.fit import Fit
from topospread.service.node_groups import NodeGroup
from topospread.service.questions import Drained, PodsToPlace, Question
from topospread.service.spreads import spread_changes
from topospread.transports.grpc.decode import consistency_of, fit_of, settings_of
from topospread.transports.grpc.encode import stale_for, status_message
from topospread.transports.grpc.explain import explanation_message
from topospread_proto.v1 import planner_pb2 as pb
from topospread_proto.v1 import simulate_pb2 as detail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from topospread.service.explaining.findings import Explanation
    from topospread.service.fewest import Fewest
    from topospread.service.scenario import Scenario
    from topospread.service.simulate import Pending
    from topospread.service.simulated import Simulated
    from topospread.service.spreads import SpreadChange
    from topospread.service.what_if import Answer
    from topospread.transports.grpc.calls import Call
    from topospread_proto.v1 import common_pb2

NAMED: Final = 100
"""Pods or nodes that an answer names where it tells their number anyway."""

_POLICIES: Final = (HONOR, IGNORE)
_ACTIONS: Final = (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY)


def question_of(request: pb.SimulateRequest, call: Call) -> Question:
    """What a request asks.

    Raises:
        InvalidRequest: everything that cannot be read.
    """
    wrong: list[FieldViolation] = []
    changes = request.changes
    ask = Ask(
        deadline=call.deadline,
        cluster=request.cluster or DEFAULT_CLUSTER,
        settings=settings_of(request.settings) if request.HasField("settings") else NO_SETTINGS,
        consistency=consistency_of(request.consistency)
        if request.HasField("consistency")
        else NEWEST_AT_HAND,
        validate=request.validate,
    )
    question = Question(
        ask=ask,
        pods=list(_pods(request, wrong)),
        groups=[_group(n, group, wrong) for n, group in enumerate(changes.add_nodes)],
        drained=[_drained(n, drained, wrong) for n, drained in enumerate(changes.drain)],
        added=[(move.pod.SerializeToString(), move.node) for move in changes.add_pods],
        removed=[_reference(r) for r in changes.remove_pods],
        constraints=list(_constraints(changes.constraints, wrong)),
        fit=fit_of(request.fit) or Fit.NODE_AND_RESOURCES,
        seed=request.seed,
        fewest=request.fewest_nodes,
        reschedule=request.reschedule,
        pause=pause_between(call),
    )
    if wrong:
        raise InvalidRequest.of(wrong)
    return question


def answer_of(answer: Answer) -> pb.SimulateResponse:
    """What would happen."""
    found = answer.found
    scenario, simulation = found.scenario, found.simulation
    batches, groups = simulation.batches, found.group_of
    return pb.SimulateResponse(
        revision=scenario.view.token,
        stale_for=stale_for(scenario.replica),
        placed=len(simulation.placements),
        pending=simulation.waiting,
        placements=[
            detail.SimulatedPlacement(
                namespace=batches[placement.batch].namespace,
                pod=placement.name,
                node=placement.node,
                node_group=groups.get(placement.node, ""),
            )
            for placement in simulation.placements
        ],
        pending_pods=[
            _pending(pending, batches[pending.batch].namespace, explanation)
            for pending, explanation in zip_longest(simulation.pending, answer.explanations)
        ],
        spread=[_spread(change, scenario) for change in spread_changes(simulation)],
        not_modelled=scenario.not_modelled,
        warnings=scenario.warnings,
        joined=_joined(found),
        evicted=simulation.evicted,
        fewest=None if answer.fewest is None else _fewest(answer.fewest, found),
        advice=answer.advice,
        rescheduled=scenario.evicted,
    )


# ------------------------------ requests


def _pods(request: pb.SimulateRequest, wrong: list[FieldViolation]) -> Iterator[PodsToPlace]:
    if request.HasField("pod"):
        replicas = request.replicas if request.HasField("replicas") else None
        begin = request.pod.metadata.generate_name
        yield PodsToPlace(request.pod.SerializeToString(), replicas, begin, "pod")
    elif request.HasField("replicas"):
        wrong.append(required("pod", "replicas are of a pod"))
    for number, given in enumerate(request.pods):
        path = f"pods[{number}]"
        replicas = given.replicas if given.HasField("replicas") else None
        match given.WhichOneof("subject"):
            case "pod":
                begin = given.pod.metadata.generate_name
                yield PodsToPlace(given.pod.SerializeToString(), replicas, begin, path)
            case "pod_ref":
                if not given.pod_ref.name:
                    wrong.append(required(f"{path}.podRef.name", ""))
                elif replicas is not None:
                    text = "a pod of the state is only one"
                    wrong.append(invalid(f"{path}.replicas", replicas, text))
                yield PodsToPlace(_reference(given.pod_ref), path=path)
            case _:
                wrong.append(required(path, "give a pod, or the name of one in the state"))


def _group(number: int, group: detail.NodeGroup, wrong: list[FieldViolation]) -> NodeGroup:
    path = f"changes.addNodes[{number}].template"
    if not group.HasField("template"):
        wrong.append(required(path, "say what the nodes are like"))
    try:
        amounts(group.template.status.allocatable, f"{path}.status.allocatable")
    except InvalidRequest as refused:
        wrong.extend(refused.violations)
    template = node_from_proto(group.template)
    variants = [dict(variant.labels) for variant in group.variants]
    return NodeGroup(
        group.name or template.name or f"group-{number}", template, group.count, variants
    )


def _drained(number: int, drained: detail.DrainedNode, wrong: list[FieldViolation]) -> Drained:
    if drained.mode not in detail.DrainMode.values():
        known = detail.DrainMode.keys()
        wrong.append(not_supported(f"changes.drain[{number}].mode", str(drained.mode), known))
    return Drained(drained.node, drained.mode == detail.DRAIN_MODE_TAINTED)


def _reference(reference: common_pb2.PodReference) -> PodRef:
    return PodRef(reference.name, reference.namespace or DEFAULT_NAMESPACE)


def _constraints(
    changes: Iterable[detail.ConstraintChange], wrong: list[FieldViolation]
) -> Iterator[ConstraintChange]:
    for number, change in enumerate(changes):
        path = f"changes.constraints[{number}]"

        def given(field: str, change: detail.ConstraintChange = change) -> bool:
            return change.HasField(field)  # type: ignore[arg-type] # the names below are its own

        if not change.topology_key:
            wrong.append(required(f"{path}.topologyKey", ""))
        if given("max_skew") and change.max_skew < 1:
            text = "must be greater than zero"
            wrong.append(invalid(f"{path}.maxSkew", change.max_skew, text))
        if given("min_domains") and change.min_domains < 0:
            text = "must be greater than zero, or 0 for none"
            wrong.append(invalid(f"{path}.minDomains", change.min_domains, text))
        for field, value, known in (
            ("whenUnsatisfiable", change.when_unsatisfiable, ("", *_ACTIONS)),
            ("newWhenUnsatisfiable", change.new_when_unsatisfiable, ("", *_ACTIONS)),
            ("nodeAffinityPolicy", change.node_affinity_policy, ("", *_POLICIES)),
            ("nodeTaintsPolicy", change.node_taints_policy, ("", *_POLICIES)),
        ):
            if value not in known:
                wrong.append(not_supported(f"{path}.{field}", value, known[1:]))
        yield ConstraintChange(
            change.topology_key,
            change.when_unsatisfiable,
            change.max_skew if given("max_skew") else None,
            change.min_domains if given("min_domains") else None,
            change.node_affinity_policy or None,
            change.node_taints_policy or None,
            change.new_when_unsatisfiable or None,
        )


def pause_between(call: Call) -> Callable[[], None]:
    """Let others have their turn, and stop when nobody waits for the answer any more."""

    def pause() -> None:
        if not call.active():
            raise CallerGone("the caller cancelled the call or went away")
        # A decision that wants the interpreter would wait for its switch interval otherwise.
        time.sleep(0)

    return pause


# ------------------------------ answers


def _joined(found: Simulated) -> list[detail.JoinedNodes]:
    groups = found.scenario.question.groups
    return [
        detail.JoinedNodes(node_group=group.name, count=len(names), nodes=names[:NAMED])
        for group, names in zip(groups, found.joined, strict=True)
    ]


def _fewest(fewest: Fewest, found: Simulated) -> detail.FewestNodes:
    proved = detail.OPTIMALITY_PROVED if fewest.proved else detail.OPTIMALITY_BEST_FOUND
    return detail.FewestNodes(
        all_fit=fewest.all_fit,
        nodes=_joined(found),
        optimal=proved,
        simulations=fewest.simulations,
    )


def _pending(
    pending: Pending, namespace: str, explanation: Explanation | None
) -> detail.PendingPods:
    return detail.PendingPods(
        namespace=namespace,
        pods=pending.names[:NAMED],
        count=len(pending.names),
        status=status_message(pending.refusal.status),
        message=pending.refusal.message,
        explanation=None if explanation is None else explanation_message(explanation),
    )


def _spread(change: SpreadChange, scenario: Scenario) -> detail.SpreadChange:
    batch, asked = scenario.batches[change.batch], change.batch - scenario.evicted
    return detail.SpreadChange(
        pods=asked if asked >= 0 else None,
        pod=f"{batch.namespace}/{batch.pod.name}" if batch.names else "",
        topology_key=change.constraint.topology_key,
        when_unsatisfiable=change.when_unsatisfiable,
        max_skew=change.constraint.max_skew,
        min_domains=change.constraint.min_domains,
        skew_before=change.before.skew,
        skew_after=change.after.skew,
        domains_before=len(change.before.counts),
        domains_after=len(change.after.counts),
        domains=[
            detail.DomainChange(value=value, before=before, after=after)
            for value, before, after in change.domains
        ],
    )
