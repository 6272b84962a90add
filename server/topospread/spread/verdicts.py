"""Statuses and messages as the scheduler framework has them, and verdicts as small integers.

A verdict is a position in :data:`VERDICTS`, so that an answer about thousands of nodes is one byte
array.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

REASON_CONSTRAINTS_NOT_MATCH: Final = "node(s) didn't match pod topology spread constraints"
REASON_LABEL_MISSING: Final = f"{REASON_CONSTRAINTS_NOT_MATCH} (missing required label)"
REASON_UNKNOWN_NODE: Final = "node is not in the cluster's state"

FITS: Final = 0
TOO_SKEWED: Final = 1
LABEL_MISSING: Final = 2
UNKNOWN_NODE: Final = 3

NO_NODES: Final = "no nodes available to schedule pods"


class Code(IntEnum):
    """The framework's status codes that the plugin answers, with upstream's numbers."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    SKIP = 5

    label: str
    """Upstream's spelling: ``Success``, ``UnschedulableAndUnresolvable``."""

    def __init__(self, number: int) -> None:
        """Spell it once: calls read it several times."""
        del number
        self.label = "".join(word.capitalize() for word in self.name.split("_"))


@dataclass(frozen=True, slots=True)
class Status:
    """The answer of an extension point, or about one node; ``reasons`` are upstream's texts."""

    code: Code
    reasons: tuple[str, ...] = ()


SUCCESS: Final = Status(Code.SUCCESS)
SKIP: Final = Status(Code.SKIP)

VERDICTS: Final = (
    SUCCESS,
    Status(Code.UNSCHEDULABLE, (REASON_CONSTRAINTS_NOT_MATCH,)),
    Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (REASON_LABEL_MISSING,)),
    Status(Code.ERROR, (REASON_UNKNOWN_NODE,)),
)
"""What a verdict stands for; indexed by FITS, TOO_SKEWED, LABEL_MISSING, UNKNOWN_NODE."""


def error(reason: str) -> Status:
    """The status of something that went wrong."""
    return Status(Code.ERROR, (reason,))


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
