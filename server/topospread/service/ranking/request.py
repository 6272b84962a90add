"""The checked request of a ranking."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.codec.pods import selector_of
from topospread.errors import FieldViolation
from topospread.kube.label_syntax import label_key_errors
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.kube.selectors import EVERYTHING
from topospread.kube.violations import (
    DUPLICATE,
    Problems,
    duplicate,
    invalid,
    required,
    unknown,
)
from topospread.service.ranking.deciders import deciders_of_class
from topospread.spread.deletion import SECOND, Strategy
from topospread_proto.v1 import deletion_order_pb2
from topospread_proto.v1 import planner_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.checkpoints import CooperativeYield
    from topospread.index.pod_classes import PodClass
    from topospread.kube.selectors import Selector
    from topospread.service.decisions.request import DecisionRequest
    from topospread.service.ranking.deciders import Controllers, Decider
    from topospread_proto.kubernetes.v1 import kubernetes_pb2

MAX_CONSTRAINTS: Final = 64

YEAR_10000: Final = 253_402_300_800
"""Seconds since 1970 where protobuf's timestamps end."""

STRATEGY_NUMBERS: Final = {
    each: deletion_order_pb2.RankStrategy.Value(f"RANK_STRATEGY_{each.name}") for each in Strategy
}
STRATEGIES: Final = {number: each for each, number in STRATEGY_NUMBERS.items()} | {
    deletion_order_pb2.RANK_STRATEGY_UNSPECIFIED: Strategy.EVEN
}


@dataclass(frozen=True, slots=True, eq=False)
class RankQuestion:
    """A checked request.

    Attributes:
        decision: the cluster, the freshness and the deadline.
        selector: of the pods.
    """

    message: pb.RankDeletionsRequest
    decision: DecisionRequest
    selector: Selector
    turn: CooperativeYield

    @property
    def namespace(self) -> str:
        """Of the pods."""
        return self.message.namespace or DEFAULT_NAMESPACE

    @property
    def completions(self) -> int | None:
        """Of the Job, if it is known."""
        return self.message.completions if self.message.HasField("completions") else None

    def means(self, deciders: Sequence[Decider]) -> bool:
        """Whether a pod with these controllers is meant, if the selector matches it."""
        if not self.message.HasField("workload"):
            return True
        if not deciders:
            # Its controller would adopt it.
            return bool(self.message.pods) or self.message.HasField("label_selector")
        workload = self.message.workload
        return any(each.same(workload.kind, workload.name) for each in deciders)

    def means_class(self, pod_class: PodClass, known: Controllers) -> bool:
        """Whether the pods of a class are meant, if the selector matches them."""
        if not self.message.HasField("workload"):
            return True
        return self.means(deciders_of_class(pod_class, known))


def checked(request: pb.RankDeletionsRequest, wrong: Problems) -> Selector:
    """Check a request; returns the selector of the pods.

    Raises:
        InvalidRequest: with all that is wrong.
    """
    selector = EVERYTHING
    if request.HasField("label_selector"):
        selector = wrong.read(selector_of, request.label_selector, "labelSelector")
    elif not request.pods and not request.HasField("workload"):
        text = "select pods of the state, or give pods or a workload"
        wrong.add(required("labelSelector", text))
    for name in ("kind", "name") if request.HasField("workload") else ():
        if not getattr(request.workload, name):
            wrong.add(required(f"workload.{name}", ""))
    if request.completions < 0:
        wrong.add(invalid("completions", request.completions, "must not be negative"))
    if request.strategy not in STRATEGIES:
        known = [deletion_order_pb2.RankStrategy.Name(each) for each in sorted(STRATEGIES)]
        wrong.add(unknown("strategy", request.strategy, known))
    _check_constraints(request.constraints, wrong)
    if request.delete_count < 0:
        wrong.add(invalid("deleteCount", request.delete_count, "must not be negative"))
    _check_names("pods", request.pods, wrong)
    _check_names("nodes", request.nodes, wrong)
    now = request.evaluation_time
    if not 0 <= now.seconds < YEAR_10000 or not 0 <= now.nanos < SECOND:
        given = f"{now.seconds}s {now.nanos}ns"
        wrong.add(invalid("evaluationTime", given, "must be between the years 1970 and 9999"))
    wrong.raise_all()
    return selector


def _check_constraints(
    constraints: Sequence[deletion_order_pb2.RankConstraint], wrong: Problems
) -> None:
    if len(constraints) > MAX_CONSTRAINTS:
        wrong.add(FieldViolation("constraints", f"must have at most {MAX_CONSTRAINTS} items"))
    seen: set[tuple[str, frozenset[str], int | None]] = set()
    for position, each in enumerate(constraints):
        path = f"constraints[{position}]"
        key = each.topology_key
        if not key:
            wrong.add(required(f"{path}.topologyKey", "can not be empty"))
        elif errors := label_key_errors(key):
            wrong.add(invalid(f"{path}.topologyKey", key, "; ".join(errors)))
        max_skew = each.max_skew if each.HasField("max_skew") else None
        if max_skew is not None and max_skew < 1:
            wrong.add(invalid(f"{path}.maxSkew", max_skew, "must be greater than zero"))
        same = key, frozenset(each.limited_values), max_skew
        if same in seen:
            values = ",".join(each.limited_values)
            shown = f"{key}={values}" if values else key
            wrong.add(FieldViolation(path, f"{shown} is named already", DUPLICATE, shown))
        seen.add(same)


def _check_names(
    path: str,
    objects: Iterable[kubernetes_pb2.Pod | kubernetes_pb2.Node],
    wrong: Problems,
) -> None:
    seen: set[tuple[str, str]] = set()
    for position, each in enumerate(objects):
        here, meta = f"{path}[{position}].metadata.name", each.metadata
        name = (meta.namespace, meta.name)
        if not meta.name:
            wrong.add(required(here, "name is required"))
        elif name in seen:
            wrong.add(duplicate(here, "/".join(part for part in name if part)))
        seen.add(name)
