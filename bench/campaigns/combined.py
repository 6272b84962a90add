"""Requests in which several fields have grown together, each within its own limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bench.campaigns.grown import pod
from bench.campaigns.measured import HOSTNAME
from topospread_proto.v1 import common_pb2, decision_service_pb2, placement_service_pb2

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.campaigns.measured import Cost, Measured


def _pod(number: int, constraints: int, terms: int, operator: str, *, requests: int = 0) -> Any:
    made = pod()
    made.metadata.name = f"combined-{number}"
    del made.spec.topology_spread_constraints[:]
    for each in range(constraints):
        constraint = made.spec.topology_spread_constraints.add()
        constraint.max_skew, constraint.topology_key = 5, HOSTNAME
        constraint.when_unsatisfiable = "ScheduleAnyway" if each % 2 else "DoNotSchedule"
        constraint.node_taints_policy = "Honor" if each % 4 < 2 else "Ignore"
        constraint.label_selector.match_labels["app"] = f"only-{number}-{each}"
    affinity = made.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    for each in range(terms):
        expression = required.node_selector_terms.add().match_expressions.add()
        expression.operator = operator
        expression.key = f"k{each}" if operator == "Exists" else HOSTNAME
        if operator == "Gt":
            expression.values.append(str(number + each))
        elif operator != "Exists":
            expression.values.extend(f"node-{(number + each * 9 + v) % 5000}" for v in range(9))
    for first in range(0, requests, 90):
        container = made.spec.containers.add()
        for each in range(90):
            name = f"only-{number}.io/r-{each}"
            container.resources.requests[name].string = str(first + 1)
    return made


def _evaluate(*grown: Any) -> Callable[[int], bytes]:
    return lambda i: decision_service_pb2.EvaluatePodRequest(
        pod=common_pb2.PodSource(object=_pod(i, *grown))
    ).SerializeToString()


def _place(*grown: Any) -> Callable[[int], bytes]:
    return lambda i: placement_service_pb2.PlacePodRequest(
        pod=common_pb2.PodSource(object=_pod(i, *grown, requests=4000))
    ).SerializeToString()


def _batch(pods: int, *grown: Any) -> Callable[[int], bytes]:
    return lambda i: decision_service_pb2.BatchEvaluatePodsRequest(
        pods=[common_pb2.PodSource(object=_pod(i * pods + each, *grown)) for each in range(pods)]
    ).SerializeToString()


EVALUATE = "/topospread.v1.DecisionService/EvaluatePod"
PLACE = "/topospread.v1.PlacementService/PlacePod"
BATCH = "/topospread.v1.DecisionService/BatchEvaluatePods"

COMBINED: dict[str, tuple[str, Callable[[int], bytes]]] = {
    "EvaluatePod of 64 constraints, 4,900 terms": (EVALUATE, _evaluate(64, 4900, "Exists")),
    "EvaluatePod of 64 constraints, 2,400 terms": (EVALUATE, _evaluate(64, 2400, "Gt")),
    "PlacePod of 64 constraints, 4,900 terms, 4,000 requests": (PLACE, _place(64, 4900, "Exists")),
    "PlacePod of 64 constraints, 490 terms of 9, 4,000 requests": (PLACE, _place(64, 490, "NotIn")),
    "batch of 60: 3 constraints, 20 terms of 9": (BATCH, _batch(60, 3, 20, "NotIn")),
    "batch of 60: 3 constraints, 40 terms of 9": (BATCH, _batch(60, 3, 40, "NotIn")),
    "batch of 60: 3 constraints, 53 terms": (BATCH, _batch(60, 3, 53, "Exists")),
    "batch of 125: one constraint, 200 terms": (BATCH, _batch(125, 1, 200, "Exists")),
    "batch of 30: 7 constraints, 90 terms": (BATCH, _batch(30, 7, 90, "Gt")),
}
"""By what is in them, which method and the requests, each with other selectors."""


def combined_costs(measured: Measured, name: str, tries: int) -> list[Cost]:
    """What a combination costs, tried so often."""
    method, request = COMBINED[name]
    return [measured.call(method, request(i)) for i in range(1, tries + 1)]
