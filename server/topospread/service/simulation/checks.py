"""Checks of a simulation's question: how much it asks for, and against the nodes of the state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.errors import FieldViolation, InvalidRequest
from topospread.index.snapshot import PODS
from topospread.kube.objects import HOSTNAME_LABEL
from topospread.kube.violations import duplicate, invalid, required
from topospread.service.fit.question import Fit
from topospread.service.simulation.request import CHANGES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.index.overlay import PodDelta
    from topospread.replica.view import View
    from topospread.service.decisions.pods import Limits
    from topospread.service.simulation.request import SimulationQuestion
    from topospread.service.simulation.run import PodBatch

ADD_NODE_GROUPS: Final = f"{CHANGES}.addNodeGroups"

MOST_JUDGED: Final = 60_000
"""Pods times constraints of each: some seconds of work on thousands of nodes."""

MOST_GROUPS: Final = 64
"""Node groups of which the fewest nodes are looked for."""


def check_counts(question: SimulationQuestion, limits: Limits, wrong: list[FieldViolation]) -> None:
    """Check how much is asked for; where that is too much, at once.

    Raises:
        InvalidRequest: more pods or nodes than any answer is about.
    """
    message, groups = question.message, question.groups
    what_ifs = len(question.added) + len(question.removed)
    if not message.pods and not question.reschedules:
        wrong.append(required("pods", "say which pods to place"))
    pods = sum(each.replicas if each.HasField("replicas") else 1 for each in message.pods)
    if pods > limits.simulated_pods:
        wrong.append(invalid("pods", pods, f"at most {limits.simulated_pods} pods are placed"))
    nodes = sum(group.count or 0 for group in groups)
    if nodes > limits.simulated_nodes:
        text = f"at most {limits.simulated_nodes} nodes join"
        wrong.append(invalid(ADD_NODE_GROUPS, nodes, text))
    if what_ifs > limits.what_ifs:
        text = f"at most {limits.what_ifs} pods are added and deleted"
        wrong.append(invalid(f"{CHANGES}.addPods", what_ifs, text))
    if message.find_fewest_nodes and not groups:
        wrong.append(required(ADD_NODE_GROUPS, "say which nodes may join"))
    if message.find_fewest_nodes and len(groups) > MOST_GROUPS:
        text = f"the fewest of at most {MOST_GROUPS} node groups are looked for"
        wrong.append(invalid(ADD_NODE_GROUPS, len(groups), text))
    if pods > limits.simulated_pods or nodes > limits.simulated_nodes or what_ifs > limits.what_ifs:
        # What else may be wrong is not looked for: each of them would be named or looked up.
        raise InvalidRequest.of(wrong)


def check_nodes(
    question: SimulationQuestion,
    view: View,
    added: Mapping[int, PodDelta],
    wrong: list[FieldViolation],
) -> None:
    """Check that the nodes are there that are drained, and that added pods run on."""
    nodes = view.snapshot.nodes
    seen: set[str] = set()
    for number, drained in enumerate(question.changes.drain_nodes):
        path = f"{CHANGES}.drainNodes[{number}].node"
        if nodes.slot(drained.node) < 0:
            wrong.append(_no_such_node(path, drained.node))
        elif drained.node in seen:
            wrong.append(duplicate(path, drained.node))
        seen.add(drained.node)
    for number, move in added.items():
        if nodes.slot(move.row.node_name) < 0:
            path = f"{CHANGES}.addPods[{number}].node"
            wrong.append(_no_such_node(path, move.row.node_name))


def check_templates(
    question: SimulationQuestion,
    view: View,
    batches: Sequence[PodBatch],
    wrong: list[FieldViolation],
) -> list[str]:
    """Warn of templates that lack a key, or pods; those to which no pod could go are wrong."""
    judged = [each.shape.effective_constraints(each.rules, view.snapshot) for each in batches]
    wanted = [set(each.constraints.hard.keys) - {HOSTNAME_LABEL} for each in judged]
    warnings: list[str] = []
    for number, group in enumerate(question.groups):
        has = set(group.template.labels)
        if group.variants:
            has |= set.intersection(*(set(each) for each in group.variants))
        lacking = [keys - has for keys in wanted]
        path = f"{ADD_NODE_GROUPS}[{number}].template.metadata.labels"
        missing = sorted(set[str]().union(*lacking))
        if lacking and all(lacking):
            text = "the pods spread over it: no pod could go to these nodes"
            wrong += [required(f"{path}[{key}]", text) for key in missing]
        text = "is missing: pods that spread over it cannot go to these nodes"
        warnings += [f"{path}[{key}] {text}" for key in missing]
        if question.fit is Fit.ALL and not dict(group.template.allocatable).get(PODS):
            path = f"{ADD_NODE_GROUPS}[{number}].template.status.allocatable[{PODS}]"
            warnings.append(f"{path} is missing: these nodes have room for no pod")
    return warnings


def too_many_judged(
    path: str, batches: Iterable[PodBatch], advice: str
) -> Iterator[FieldViolation]:
    """That pods, times the constraints of each, are more than MOST_JUDGED."""
    judged = 0
    for batch in batches:
        constraints = batch.shape.pod.constraints or batch.rules.profile.defaults
        judged += len(batch.names) * len(constraints)
    if judged > MOST_JUDGED:
        text = f"pods times constraints of each are at most {MOST_JUDGED}: {advice}"
        yield invalid(path, judged, text)


def _no_such_node(path: str, name: str) -> FieldViolation:
    return FieldViolation(path, "no such node in the state", "Not found", name)
