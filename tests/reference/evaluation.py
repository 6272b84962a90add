"""The model's three questions: everything about a pod, one node's verdict, and why nothing fits."""

import copy
from typing import Any

from tests.reference import filtering, message, scoring
from tests.reference.constraints import Gates, Question
from tests.reference.defaults import refusal
from tests.reference.filtering import SUCCESS, Spread, Status
from tests.reference.objects import Json
from tests.reference.snapshot import Snapshot

Answer = dict[str, Any]


def evaluate(
    cluster: Json,
    pod: Json,
    *,
    args: Json | None = None,
    gates: Json | None = None,
    ops: list[Json] | None = None,
    filter_nodes: list[str] | None = None,
) -> Answer:
    """One scheduling cycle of the PodTopologySpread plugin.

    Args:
        cluster: nodes, pods, services, replicationControllers, replicaSets, statefulSets.
        pod: the incoming pod.
        args: PodTopologySpreadArgs; absent means System defaults.
        gates: feature gates by their name in constraints.GATES.
        ops: [{op: add or remove, pod, node}], made between PreFilter and Filter.
        filter_nodes: names of the nodes to score; absent, those that pass Filter.

    Returns:
        `expect` of the recorded decisions: newError alone, or preFilter and what follows it.
    """
    plugin_args = args or {}
    if refused := refusal(plugin_args):
        return {"newError": refused}
    snapshot = Snapshot(cluster)
    question = Question(pod, plugin_args, Gates.parse(gates), cluster)
    status, spread = filtering.pre_filter(question, snapshot)
    answer: Answer = {"preFilter": status}
    if status["code"] == "Error":
        return copy.deepcopy(answer)
    passing = list(snapshot.nodes)
    if spread is not None:
        answer |= judged(question, snapshot, spread, ops)
        passing = [name for name, given in answer["filter"].items() if given["code"] == "Success"]
    answer |= scored(question, snapshot, passing if filter_nodes is None else filter_nodes)
    # The statuses above are shared constants; the caller gets values of its own.
    return copy.deepcopy(answer)


def judged(
    question: Question, snapshot: Snapshot, spread: Spread, ops: list[Json] | None
) -> Answer:
    """The members `ops`, when there are any, and `filter`."""
    answer: Answer = {}
    if ops:
        answer["ops"] = [filtering.apply_op(question, snapshot, spread, op) for op in ops]
    minima = spread.minima()
    answer["filter"] = {
        name: filtering.filter_node(question, spread, minima, node)
        for name, node in snapshot.nodes.items()
    }
    return answer


def scored(question: Question, snapshot: Snapshot, names: list[str]) -> Answer:
    """The members `preScore`, `score` and `normalized`; none when no node is left to score."""
    if not names:
        return {}
    candidates = [snapshot.nodes[name] for name in names]
    status, spread = scoring.pre_score(question, snapshot, candidates)
    if spread is None:
        return {"preScore": status}
    scores = {
        name: scoring.score_node(question, snapshot, spread, snapshot.nodes[name]) for name in names
    }
    return {
        "preScore": status,
        "score": scores,
        "normalized": scoring.normalize(scores, spread.ignored),
    }


def filter_verdict(
    cluster: Json,
    pod: Json,
    node_name: str,
    *,
    args: Json | None = None,
    gates: Json | None = None,
    ops: list[Json] | None = None,
) -> Status:
    """Whether this one node may take the pod: Success when nothing constrains it.

    Raises:
        ValueError: the plugin refuses the args.
        KeyError: the cluster has no such node.
    """
    plugin_args = args or {}
    if refused := refusal(plugin_args):
        raise ValueError(refused)
    snapshot = Snapshot(cluster)
    node = snapshot.nodes[node_name]
    question = Question(pod, plugin_args, Gates.parse(gates), cluster)
    status, spread = filtering.pre_filter(question, snapshot)
    if spread is None:
        return copy.deepcopy(status if status["code"] == "Error" else SUCCESS)
    for op in ops or []:
        filtering.apply_op(question, snapshot, spread, op)
    return copy.deepcopy(filtering.filter_node(question, spread, spread.minima(), node))


def unschedulable(cluster: Json, answer: Answer) -> dict[str, str] | None:
    """The PodScheduled condition's {reason, message} for an answer, or None if some node fits."""
    return message.condition(answer, len(Snapshot(cluster).nodes))
