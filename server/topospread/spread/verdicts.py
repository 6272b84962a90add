"""Statuses as the scheduler framework has them, and verdicts as small integers.

A verdict is a position in :data:`VERDICTS`, so that an answer about thousands of nodes is one byte
array.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from topospread.kube.fit_message import REASON_CONSTRAINTS_NOT_MATCH, REASON_LABEL_MISSING

REASON_UNKNOWN_NODE: Final = "node is not in the cluster's state"


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

FITS: Final = 0
TOO_SKEWED: Final = 1
LABEL_MISSING: Final = 2
UNKNOWN_NODE: Final = 3

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
