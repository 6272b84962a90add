"""A pod's PodScheduled condition: the scheduler's own sentence, where it differs from ours."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from google.protobuf.timestamp_pb2 import Timestamp

from topospread_proto.v1 import explanation_pb2 as pb

if TYPE_CHECKING:
    from topospread.codec.stored_pods import UnscheduledCondition

GATED: Final = "SchedulingGated"

_REFUSED: Final = re.compile(r"\d+/\d+ nodes are available: (.*?)\.?(?:\. .*)?", re.DOTALL)
"""FitError's message, with or without what PostFilter appends."""

_NUMBERS: Final = re.compile(r"\d+")


def differing_condition(
    condition: UnscheduledCondition | None, message: str, *, gated: bool
) -> pb.PodScheduledCondition | None:
    """The condition, unless it says the same as an answer.

    Args:
        condition: of the pod; None where it has none. Without a message it says nothing.
        message: the answer's; empty where a node fits.
        gated: the answer says that scheduling gates hold the pod.
    """
    if condition is None or not condition.message or (gated and condition.reason == GATED):
        return None
    if message and reasons_in(condition.message) == reasons_in(message):
        return None
    made = pb.PodScheduledCondition(reason=condition.reason, message=condition.message)
    if condition.since:
        made.last_transition_time.CopyFrom(Timestamp(seconds=condition.since))
    return made


def reasons_in(message: str) -> frozenset[str]:
    """The reasons of kube-scheduler's message, whatever the numbers of nodes."""
    found = _REFUSED.fullmatch(message)
    text = message if found is None else found[1]
    return frozenset(_NUMBERS.sub("", each).strip() for each in text.split(", "))
