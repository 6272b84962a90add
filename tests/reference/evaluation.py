"""The model's two questions: everything about a pod, and why it fits nowhere.

The message is that of FitError of kube-scheduler's framework, as recorded in fiterrors and
fitcounts.
"""

import copy
from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.reference import filtering, scoring
from tests.reference.constraints import Gates, Question
from tests.reference.defaults import refusal
from tests.reference.filtering import Spread, Status
from tests.reference.objects import Json
from tests.reference.snapshot import Snapshot

NO_NODES = "no nodes available to schedule pods"


def fit_error(statuses: Iterable[tuple[Status, int]]) -> str:
    """The message for nodes that were all refused.

    Args:
        statuses: a refusal and the number of nodes it was given for; reasons of other plugins may
            be among them. Each reason of each node counts one.

    Returns:
        `0/N nodes are available: COUNT REASON, COUNT REASON.`; the parts are sorted as text, so
        that "10 x" comes before "2 x".
    """
    total, reasons = 0, Counter[str]()
    for status, nodes in statuses:
        total += nodes
        for reason in status["reasons"]:
            reasons[reason] += nodes
    parts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return f"0/{total} nodes are available: {', '.join(parts)}."


def condition(answer: dict[str, Any], nodes: int) -> dict[str, str] | None:
    """The PodScheduled condition {reason, message} for an answer of evaluate, or None if some fit.

    Args:
        answer: of evaluate.
        nodes: how many nodes there are; with none nothing is evaluated at all.
    """
    if nodes == 0:
        return {"reason": "Unschedulable", "message": NO_NODES}
    pre_filter = answer.get("preFilter") or {}
    if pre_filter.get("code") == "Error":
        message = f'running PreFilter plugin "PodTopologySpread": {pre_filter["reasons"][0]}'
        return {"reason": "SchedulerError", "message": message}
    verdicts = answer.get("filter")
    if verdicts is None or any(status["code"] == "Success" for status in verdicts.values()):
        return None
    return {
        "reason": "Unschedulable",
        "message": fit_error((status, 1) for status in verdicts.values()),
    }


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


def unschedulable(cluster: Json, answer: Answer) -> dict[str, str] | None:
    """The PodScheduled condition's {reason, message} for an answer, or None if some node fits."""
    return condition(answer, len(Snapshot(cluster).nodes))
