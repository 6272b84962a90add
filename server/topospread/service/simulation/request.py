"""The checked request of a simulation: pods, nodes, and changed constraints."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from topospread.checkpoints import checkpoint
from topospread.codec.amounts import amounts
from topospread.codec.pods import checked_reference, node_from_proto, pod_from_source
from topospread.errors import FieldViolation
from topospread.kube.objects import (
    DEFAULT_NAMESPACE,
    DO_NOT_SCHEDULE,
    HONOR,
    IGNORE,
    SCHEDULE_ANYWAY,
    Node,
)
from topospread.kube.violations import forbidden, invalid, not_supported, required
from topospread.service.decisions.request import PodRef
from topospread.service.explaining.copied_nodes import labels_of_new, lasting_taints
from topospread.service.fit.question import Fit
from topospread_proto.v1 import common_pb2
from topospread_proto.v1 import scenario_pb2 as detail

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from topospread.kube.objects import Pod, SpreadConstraint
    from topospread.kube.violations import Problems
    from topospread.service.decisions.request import DecisionRequest
    from topospread_proto.v1 import planner_service_pb2 as pb


UNNAMED: Final = "node"

CHANGES: Final = "scenario.changes"

_ACTIONS: Final = (DO_NOT_SCHEDULE, SCHEDULE_ANYWAY)
_WORDS: Final = {
    "nodeAffinityPolicy": (HONOR, IGNORE),
    "nodeTaintsPolicy": (HONOR, IGNORE),
    "whenUnsatisfiable": _ACTIONS,
}
"""What a constraint may say, by field."""


class GivenPod(NamedTuple):
    """A pod of a request.

    Attributes:
        pod: the bytes of a v1.Pod, or its name in the state.
        path: where that stands in the request.
        generate_name: begins the names of a pod that has none.
    """

    pod: bytes | PodRef
    path: str
    generate_name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class SimulationQuestion:
    """A checked request of Simulate.

    Attributes:
        decision: the fields that all decision calls share.
        pods: to place: those of `message`, in its order.
        groups: nodes that join, or that may join where the fewest are looked for.
        added: to the state: those of `message`, in its order.
        removed: pods of the state.
        gone: the same, to look up: there may be thousands, of pods that are asked about, too.
    """

    message: pb.SimulateRequest
    decision: DecisionRequest
    fit: Fit
    pods: Sequence[GivenPod]
    groups: Sequence[NodeGroup]
    added: Sequence[GivenPod]
    removed: Sequence[PodRef]
    gone: AbstractSet[PodRef]

    @property
    def changes(self) -> detail.SupposedChanges:
        """What is supposed."""
        return self.message.scenario.changes

    @property
    def reschedules(self) -> bool:
        """Whether pods of drained nodes are placed anew."""
        return self.message.reschedule and bool(self.changes.drain_nodes)


def checked(
    request: pb.SimulateRequest,
    decision: DecisionRequest,
    fit: Fit | None,
    wrong: Problems,
) -> SimulationQuestion:
    """Check a request, of whose decision and fit something may be wrong already.

    Raises:
        InvalidRequest: with all that is wrong.
    """
    changes = request.scenario.changes
    pods = _pods(request.pods, wrong)
    groups = [
        _group(group, f"{CHANGES}.addNodeGroups[{number}]", number, request, wrong)
        for number, group in enumerate(changes.add_node_groups)
    ]
    for number, drained in enumerate(changes.drain_nodes):
        if drained.mode not in detail.DrainMode.values():
            path = f"{CHANGES}.drainNodes[{number}].mode"
            wrong.add(not_supported(path, str(drained.mode), detail.DrainMode.keys()))
    added: list[GivenPod] = []
    for number, move in enumerate(changes.add_pods):
        checkpoint()
        with wrong.under():  # there may be many: their errors are not kept
            added.append(_given(move.pod, f"{CHANGES}.addPods[{number}].pod"))
    removed: list[PodRef] = []
    for number, reference in enumerate(changes.delete_pods):
        checkpoint()
        with wrong.under():
            removed.append(_reference(reference, f"{CHANGES}.deletePods[{number}]"))
    for number, change in enumerate(changes.constraint_changes):
        _check_change(change, f"{CHANGES}.constraintChanges[{number}]", wrong)
    wrong.raise_all()
    fit = fit or Fit.ALL
    return SimulationQuestion(request, decision, fit, pods, groups, added, removed, {*removed})


def _pods(asked: Iterable[detail.PodsToPlace], wrong: Problems) -> list[GivenPod]:
    pods: list[GivenPod] = []
    for number, given in enumerate(asked):
        path = f"pods[{number}]"
        with wrong.under():
            pods.append(_given(given.pod, f"{path}.pod"))
        if given.replicas < 0:
            wrong.add(invalid(f"{path}.replicas", given.replicas, "must not be negative"))
        if given.HasField("replicas") and given.pod.HasField("ref"):
            text = "a pod of the state is only one"
            wrong.add(invalid(f"{path}.replicas", given.replicas, text))
        _check_workload(given, path, wrong)
    return pods


def _check_workload(given: detail.PodsToPlace, path: str, wrong: Problems) -> None:
    if given.completions < 0:
        wrong.add(invalid(f"{path}.completions", given.completions, "must not be negative"))
    if not given.HasField("workload"):
        if given.HasField("completions"):
            wrong.add(required(f"{path}.workload", "completions are of a Job in the state"))
        return
    for field in ("kind", "name"):
        if not getattr(given.workload, field):
            wrong.add(required(f"{path}.workload.{field}", ""))
    if given.pod.HasField("ref"):
        text = "may not be set for a pod of the state"
        wrong.add(forbidden(f"{path}.workload", text))


def _given(source: common_pb2.PodSource, path: str) -> GivenPod:
    pod, path = pod_from_source(source, path)
    if isinstance(pod, common_pb2.PodReference):
        return GivenPod(_reference(pod, path), path)
    encoded = source.object_proto or pod.SerializeToString()
    return GivenPod(encoded, path, pod.metadata.generate_name)


def _reference(pod: common_pb2.PodReference, path: str) -> PodRef:
    checked_reference(pod, path)
    return PodRef(pod.name, pod.namespace or DEFAULT_NAMESPACE, pod.uid)


def _group(
    group: detail.NodeGroup,
    path: str,
    number: int,
    request: pb.SimulateRequest,
    wrong: Problems,
) -> NodeGroup:
    if not group.HasField("template"):
        wrong.add(required(f"{path}.template", "say what the nodes are like"))
    here = f"{path}.template.status.allocatable"
    wrong.read(amounts, group.template.status.allocatable, here)
    count = group.node_count if group.HasField("node_count") else None
    if count is None and not request.find_fewest_nodes:
        wrong.add(required(f"{path}.nodeCount", "say how many nodes join"))
    if count is not None and count < 0:
        wrong.add(invalid(f"{path}.nodeCount", count, "must not be negative"))
    like = node_from_proto(group.template)
    # A node that is there may be cordoned, or not ready; those that join are not.
    template = replace(like, unschedulable=False, taints=lasting_taints(like))
    variants = [dict(variant.labels) for variant in group.variants]
    return NodeGroup(group.name or template.name or f"group-{number}", template, count, variants)


def _check_change(change: detail.ConstraintChange, path: str, wrong: Problems) -> None:
    match = change.match
    if not match.topology_key:
        wrong.add(required(f"{path}.match.topologyKey", ""))
    if match.when_unsatisfiable not in ("", *_ACTIONS):
        here = f"{path}.match.whenUnsatisfiable"
        wrong.add(not_supported(here, match.when_unsatisfiable, _ACTIONS))
    values = {field.json_name: value for field, value in change.set.ListFields()}
    for field in ("maxSkew", "minDomains"):
        if values.get(field, 1) < 1:
            text = "must be greater than zero"
            wrong.add(invalid(f"{path}.set.{field}", values[field], text))
    if "minDomains" in values and change.clear_min_domains:
        text = "may not be set with set.minDomains"
        wrong.add(forbidden(f"{path}.clearMinDomains", text))
    for field, known in _WORDS.items():
        if field in values and values[field] not in known:
            wrong.add(not_supported(f"{path}.set.{field}", values[field], known))


def changed_constraints(
    pod: Pod, changes: Sequence[detail.ConstraintChange], used: set[int]
) -> Pod:
    """A pod with other constraints.

    Args:
        pod: as its author wrote it.
        changes: applied in order.
        used: gets the positions of those that concerned a constraint.
    """
    constraints = list(pod.constraints)
    for number, change in enumerate(changes):
        checkpoint()
        for position, constraint in enumerate(constraints):
            if _concerns(change.match, constraint):
                constraints[position] = _changed(change, constraint)
                used.add(number)
    return replace(pod, constraints=tuple(constraints))


def _concerns(match: detail.ConstraintMatch, constraint: SpreadConstraint) -> bool:
    action = match.when_unsatisfiable
    return constraint.topology_key == match.topology_key and (
        not action or constraint.when_unsatisfiable == action
    )


def _changed(change: detail.ConstraintChange, constraint: SpreadConstraint) -> SpreadConstraint:
    given: dict[str, Any] = {field.name: value for field, value in change.set.ListFields()}
    if change.clear_min_domains:
        given["min_domains"] = None
    return replace(constraint, **given)


def unused_changes(
    changes: Iterable[detail.ConstraintChange], used: set[int]
) -> Iterator[FieldViolation]:
    """The changes that concern no constraint of any pod."""
    for number, change in enumerate(changes):
        if number not in used:
            yield FieldViolation(
                f"{CHANGES}.constraintChanges[{number}].match.topologyKey",
                "none of the pods has such a constraint of its own",
                "Not found",
                change.match.topology_key,
            )


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal nodes that may join.

    Attributes:
        name: of the group, in answers.
        template: what each is like; its name begins the nodes' names.
        count: how many; None: as many as may be, where the fewest are looked for.
        variants: labels that the nodes take in turn, one mapping a zone; none when they are alike.
    """

    name: str
    template: Node
    count: int | None
    variants: Sequence[Mapping[str, str]] = ()


def expand_group(
    group: NodeGroup,
    count: int,
    is_taken: Callable[[str], bool],
    numbers: Iterator[int] | None = None,
) -> list[Node]:
    """The first nodes of a group.

    Each has a name of its own, and that as its hostname label, whatever the template's, and in
    each other label that holds the template's name: two nodes never share a host. Names go on with
    the next of the numbers, which groups that begin alike share.
    """
    begin, numbers = _begin(group), numbers or itertools.count()
    found: list[Node] = []
    while len(found) < count:
        checkpoint()
        name = f"{begin}-{next(numbers)}"
        if is_taken(name):
            continue
        varied = group.variants[len(found) % len(group.variants)] if group.variants else {}
        like = replace(group.template, labels={**group.template.labels, **varied})
        found.append(replace(like, name=name, labels=labels_of_new(like, name)))
    return found


def _begin(group: NodeGroup) -> str:
    """What the names of its nodes begin with."""
    return group.template.name or group.name or UNNAMED


def expand_groups(
    groups: Sequence[NodeGroup], counts: Sequence[int], is_known: Callable[[str], bool]
) -> list[list[Node]]:
    """The nodes of each group, all under names that differ."""
    names: set[str] = set()
    numbers: dict[str, Iterator[int]] = {}
    nodes: list[list[Node]] = []
    for group, count in zip(groups, counts, strict=True):
        own = numbers.setdefault(_begin(group), itertools.count())
        here = expand_group(group, count, lambda name: name in names or is_known(name), own)
        names.update(node.name for node in here)
        nodes.append(here)
    return nodes
