"""Answers to bytes.

Thousands of small integers are written as a packed field by hand and joined to the rest of the
message: serialized fields that stand one behind the other are one message. Filling them into a
message one by one costs ten times the judgement itself.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from google.protobuf.duration_pb2 import Duration

from topospread.spread.verdicts import VERDICTS, Status
from topospread_proto.v1 import common_pb2, spread_engine_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from topospread.index.nodes import NodeTable
    from topospread.replica.replica import Replica
    from topospread.service.engine import Resolved
    from topospread.service.evaluate import Evaluation
    from topospread.service.filter import FilterAnswer
    from topospread.service.pre_filter import PreFilterAnswer
    from topospread.service.score import ScoreAnswer

_LENGTH_DELIMITED: Final = 2
_TABLES_KEPT: Final = 8


def status_message(status: Status) -> common_pb2.Status:
    """A status on the wire."""
    return common_pb2.Status(code=int(status.code), reasons=status.reasons)  # type: ignore[arg-type] # the numbers are upstream's


_PRE_FILTER: Final = spread_engine_pb2.EvaluateResponse.PRE_FILTER_FIELD_NUMBER
_PRE_SCORE: Final = spread_engine_pb2.EvaluateResponse.PRE_SCORE_FIELD_NUMBER
_VERDICTS: Final = spread_engine_pb2.EvaluateResponse.VERDICTS_FIELD_NUMBER
_TOP: Final = spread_engine_pb2.EvaluateResponse.TOP_FIELD_NUMBER


@lru_cache(maxsize=256)
def _status_field(field: int, status: Status) -> bytes:
    return _delimited(field, status_message(status).SerializeToString())


def _delimited(field: int, payload: bytes) -> bytes:
    return varint(field << 3 | _LENGTH_DELIMITED) + varint(len(payload)) + payload


def _node_score(name: str, raw: int, normalized: int) -> bytes:
    """A NodeScore message; its three fields are numbered in this order."""
    encoded = name.encode()
    score = b"\x0a" + varint(len(encoded)) + encoded
    if raw:
        score += b"\x10" + varint(raw & 0xFFFF_FFFF_FFFF_FFFF)
    return score + b"\x18" + varint(normalized) if normalized else score


_VERDICT_TABLE: Final = tuple(status_message(status) for status in VERDICTS)


def stale_for(replica: Replica) -> Duration | None:
    """How long the store has been out of reach; None while it answers."""
    seconds = replica.stale_for
    if not seconds:
        return None
    duration = Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration


class Encoder:
    """Encodes answers; remembers the serialized names of the newest node tables."""

    def __init__(self) -> None:
        self._names: dict[str, bytes] = {}

    def pre_filter(self, answer: PreFilterAnswer) -> spread_engine_pb2.PreFilterResponse:
        """PreFilter's answer."""
        resolved = answer.resolved
        return spread_engine_pb2.PreFilterResponse(
            revision=resolved.cycle.view.token,
            stale_for=stale_for(resolved.replica),
            status=status_message(answer.status),
            cycle=resolved.cycle_id,
            constraints=[
                spread_engine_pb2.ConstraintState(
                    topology_key=counts.state.constraint.topology_key,
                    max_skew=counts.state.constraint.max_skew,
                    min_domains=counts.state.constraint.min_domains,
                    self_match=counts.state.constraint.self_match,
                    eligible_domains=counts.state.eligible_domains,
                    global_minimum=counts.state.global_minimum,
                    domains=[
                        spread_engine_pb2.DomainCount(value=value, pods=pods)
                        for value, pods in counts.domains
                    ],
                )
                for counts in answer.constraints
            ],
            extensions=[status_message(status) for status in answer.extensions],
        )

    def filter(self, answer: FilterAnswer, held_table: str) -> bytes:
        """Filter's answer; no names when the caller holds the table or chose the nodes."""
        message = spread_engine_pb2.FilterResponse(
            status=status_message(answer.status), verdict_table=_VERDICT_TABLE
        )
        names = self._about(message, answer.resolved, answer.selected.choice is None, held_table)
        field = spread_engine_pb2.FilterResponse.VERDICTS_FIELD_NUMBER
        return message.SerializeToString() + names + packed_bytes(field, answer.verdicts)

    def score(self, answer: ScoreAnswer, held_table: str) -> bytes:
        """Score's answer; positions stand in for names when the caller holds the table."""
        message = spread_engine_pb2.ScoreResponse(status=status_message(answer.status))
        self._about(message, answer.resolved, False, held_table)
        if answer.scores is not None:
            message.raw.extend(answer.scores.raw.tolist())
            if answer.positions is not None:
                nodes = answer.resolved.cycle.view.snapshot.nodes
                if held_table == nodes.id:
                    message.indices.extend(answer.positions.tolist())
                else:
                    names = nodes.sorted_names
                    message.names.extend([names[i] for i in answer.positions.tolist()])
            field = spread_engine_pb2.ScoreResponse.NORMALIZED_FIELD_NUMBER
            return message.SerializeToString() + packed_bytes(field, answer.scores.normalized)
        return message.SerializeToString()

    def evaluation(self, answer: Evaluation) -> bytes:
        """Evaluate's answer."""
        message = spread_engine_pb2.EvaluateResponse(
            revision=answer.resolved.cycle.view.token,
            nodes=answer.nodes,
            feasible=answer.feasible,
            message=answer.message,
            reason=answer.reason,
        )
        if (stale := stale_for(answer.resolved.replica)) is not None:
            message.stale_for.CopyFrom(stale)
        parts = [
            message.SerializeToString(),
            _status_field(_PRE_FILTER, answer.pre_filter),
            _status_field(_PRE_SCORE, answer.pre_score),
        ]
        for status, nodes in answer.verdicts:
            parts.append(_delimited(_VERDICTS, _status_field(1, status) + b"\x10" + varint(nodes)))
        for name, raw, normalized in answer.top:
            parts.append(_delimited(_TOP, _node_score(name, raw, normalized)))
        return b"".join(parts)

    def _about(self, message: Any, resolved: Resolved, all_nodes: bool, held: str) -> bytes:
        """Fill in what Filter and Score share; returns the names to append, if any are due."""
        view = resolved.cycle.view
        nodes = view.snapshot.nodes
        message.revision = view.token
        stale = stale_for(resolved.replica)
        if stale is not None:
            message.stale_for.CopyFrom(stale)
        message.cycle = resolved.cycle_id
        message.cycle_remade = resolved.remade
        message.node_table = nodes.id
        return self.names(nodes) if all_nodes and held != nodes.id else b""

    def names(self, nodes: NodeTable) -> bytes:
        """All names of a table as FilterResponse's field, serialized once a table."""
        known = self._names.get(nodes.id)
        if known is None:
            known = spread_engine_pb2.FilterResponse(names=nodes.sorted_names).SerializeToString()
            if len(self._names) >= _TABLES_KEPT:
                self._names = {}
            self._names[nodes.id] = known
        return known


def packed_bytes(field: int, values: NDArray[np.unsignedinteger[Any]] | NDArray[np.int64]) -> bytes:
    """A packed field of integers below 128, each of which is its own varint."""
    if not values.size:
        return b""
    payload = values.astype(np.uint8, copy=False).tobytes()
    return varint(field << 3 | _LENGTH_DELIMITED) + varint(len(payload)) + payload


_SMALL: Final = [bytes((number,)) for number in range(0x80)]


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    if number < 0x80:
        return _SMALL[number]
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


def some(texts: Sequence[str], most: int) -> Iterable[str]:
    """At most so many texts, and how many more there are."""
    yield from texts[:most]
    if len(texts) > most:
        yield f"… and {len(texts) - most} more"
