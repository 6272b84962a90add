"""The message on a pod that fits nowhere, as kube-scheduler words it.

Source: FitError of kube-scheduler's framework, as recorded in fiterrors and fitcounts.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from tests.reference.filtering import Status

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
