"""The message on a pod that fits nowhere, as kube-scheduler's PodScheduled condition words it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

REASON_CONSTRAINTS_NOT_MATCH: Final = "node(s) didn't match pod topology spread constraints"
REASON_LABEL_MISSING: Final = f"{REASON_CONSTRAINTS_NOT_MATCH} (missing required label)"

NO_NODES: Final = "no nodes available to schedule pods"


def fit_message(nodes: int, reason_counts: Mapping[str, int]) -> str:
    """The message when no node passed Filter.

    Args:
        nodes: all nodes of the cluster.
        reason_counts: how many nodes were refused for each reason; a node may have several.
    """
    if nodes == 0:
        return NO_NODES
    # Upstream sorts the finished strings, so "10 ..." stands before "2 ...".
    parts = sorted((f"{count} {reason}" for reason, count in reason_counts.items()), key=str.encode)
    return f"0/{nodes} nodes are available: {', '.join(parts)}."


def error_message(reason: str) -> str:
    """The message when PreFilter failed with this reason."""
    return f'running PreFilter plugin "PodTopologySpread": {reason}'
