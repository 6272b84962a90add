"""What is easier to read than in the messages of answers, and the table of watched constraints."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from google.protobuf.message import Message

from topospread_client._arguments import checked, value_names
from topospread_client._errors import ServerFault, TopospreadClientError, invalid
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject
from topospread_proto.v1.decision_service_pb2 import (
    EvaluatePodResponse,
    FilterResponse,
    ScoreResponse,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread_proto.v1 import inspector_service_pb2 as inspector


def best(answer: EvaluatePodResponse) -> str | None:
    """Name of the best node; None when none fits."""
    nodes = checked(EvaluatePodResponse, answer, "answer").top_nodes
    return nodes[0].node if nodes else None


def verdicts_by_node(answer: FilterResponse) -> dict[str, common.Verdict]:
    """Verdict of each node; empty where that of the answer holds for all of them at once.

    Raises:
        ServerFault: the answer has not one name for each verdict: the call named a node table.
    """
    table = checked(FilterResponse, answer, "answer").verdict_table[:]
    verdicts = _by_name("Filter", answer.node_names if answer.verdicts else (), answer.verdicts)
    return {name: table[at] for name, at in verdicts.items()}


def feasible(answer: FilterResponse) -> list[str]:
    """Names of the nodes that pass, in the order of the answer; raises as `verdicts_by_node`."""
    verdicts = verdicts_by_node(answer)
    return [name for name, each in verdicts.items() if each.code == common.VERDICT_CODE_SUCCESS]


def raw_by_node(answer: ScoreResponse) -> dict[str, int]:
    """Raw score of each node, the lower the better; raises as `verdicts_by_node`."""
    checked(ScoreResponse, answer, "answer")
    return _by_name("Score", answer.node_names if answer.raw else (), answer.raw)


def normalized_by_node(answer: ScoreResponse) -> dict[str, int]:
    """Score of each node from 0 to 100, the higher the better; raises as `verdicts_by_node`."""
    checked(ScoreResponse, answer, "answer")
    return _by_name("Score", answer.node_names if answer.raw else (), answer.normalized)


def _by_name(method: str, names: Sequence[str], column: Sequence[int]) -> dict[str, int]:
    if len(names) != len(column):
        raise ServerFault(f"{method} answered {len(column)} values for {len(names)} nodes")
    return dict(zip(names, column, strict=True))


def trace_id(answer: Message | TopospreadClientError) -> str | None:
    """Trace id of the call that an answer or an error came from: 32 hexadecimal digits."""
    meta: Any = getattr(answer, "meta", answer)
    parts = str(getattr(meta, "traceparent", None) or "").split("-")
    return parts[1] if len(parts) == 4 else None


def enum_name(message: Message, field: str) -> str:
    """Name of an enum's value in a message without its prefix, for example ``VIOLATED``.

    Raises:
        InvalidRequest: the message has no such field with an enum.
    """
    found = checked(Message, message, "message").DESCRIPTOR.fields_by_name.get(str(field))
    enum = None if found is None or found.is_repeated else found.enum_type
    if enum is None:
        raise invalid("field", f"{message.DESCRIPTOR.name} has no enum {field!r}")
    number = getattr(message, field)
    return value_names(enum).get(number, str(number))


def kind_of(given: ClusterObject) -> common.Kind.ValueType:
    """Kind of the object in a ClusterObject; KIND_UNSPECIFIED for an empty one."""
    content = checked(ClusterObject, given, "object").WhichOneof("content")
    return common.Kind.Value(f"KIND_{content or 'unspecified'}".upper())


class ConstraintTable:
    """What a watch has told so far: the constraints by their ids.

    ::

        table = ConstraintTable()
        for changes in client.watch_constraints():
            if table.apply(changes):
                show(table.constraints)

    Attributes:
        constraints: by id, in no order.
        totals: of the newest message.
    """

    def __init__(self) -> None:
        self.constraints: dict[str, inspector.ConstraintStatus] = {}
        self.totals: Sequence[inspector.SpreadStateCount] = ()
        self._unfinished: str | None = None

    def apply(self, changes: inspector.WatchConstraintsResponse) -> bool:
        """Take a message in.

        Returns:
            Whether the table is now that of the message's revision: False while more follow.
        """
        revision = changes.meta.revision
        if changes.complete and self._unfinished != revision:
            self.constraints.clear()
        for each in changes.constraints:
            self.constraints[each.constraint_id] = each
        for gone in changes.deleted_constraint_ids:
            self.constraints.pop(gone, None)
        self.totals = changes.totals
        # A watch that is cut amid changes begins again with all, maybe at the same revision.
        self._unfinished = revision if changes.partial and changes.complete else None
        return not changes.partial
