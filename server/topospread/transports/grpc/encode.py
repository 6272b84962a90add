"""Encode responses as bytes.

Thousands of small integers are written as a packed field by hand and joined to the rest of the
message: concatenated serialized fields are one message. Setting them in a message one by one costs
ten times as much as the decision.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from google.protobuf.duration_pb2 import Duration

from topospread.codec.observed import observed_messages
from topospread.service.decisions.evaluate import DEFAULT_TOP_K
from topospread.spread.per_node import CellScores
from topospread.spread.verdicts import VERDICTS, Code, Status
from topospread.transports.grpc.messages import constraint_message
from topospread_proto.v1 import common_pb2, decision_service_pb2

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from topospread.index.nodes import NodeTable
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.decisions.engine import ResolvedCycle
    from topospread.service.decisions.evaluate import Evaluation
    from topospread.service.decisions.extension_points import (
        FilterResult,
        PreFilterResult,
        ScoreResult,
    )
    from topospread.spread.scoring import Scores
    from topospread.spread.topology import Ints
    from topospread.store.values import Observed

_LENGTH_DELIMITED: Final = 2
_TABLES_KEPT: Final = 8

_CODES: Final = {code: common_pb2.VerdictCode.Value(f"VERDICT_CODE_{code.name}") for code in Code}

_INDICES: Final = decision_service_pb2.ScoreResponse.NODE_INDICES_FIELD_NUMBER
_RAW: Final = decision_service_pb2.ScoreResponse.RAW_FIELD_NUMBER
_NORMALIZED: Final = decision_service_pb2.ScoreResponse.NORMALIZED_FIELD_NUMBER
_PRE_FILTER: Final = decision_service_pb2.EvaluatePodResponse.PRE_FILTER_VERDICT_FIELD_NUMBER
_PRE_SCORE: Final = decision_service_pb2.EvaluatePodResponse.PRE_SCORE_VERDICT_FIELD_NUMBER
_VERDICTS: Final = decision_service_pb2.EvaluatePodResponse.VERDICT_COUNTS_FIELD_NUMBER
_META: Final = decision_service_pb2.EvaluatePodResponse.META_FIELD_NUMBER
_NODES: Final = decision_service_pb2.EvaluatePodResponse.NODE_COUNT_FIELD_NUMBER
_TOP_K: Final = decision_service_pb2.EvaluatePodResponse.TOP_K_FIELD_NUMBER
_FEASIBLE: Final = decision_service_pb2.EvaluatePodResponse.FEASIBLE_NODE_COUNT_FIELD_NUMBER


def verdict_message(status: Status) -> common_pb2.Verdict:
    """Encode a status."""
    return common_pb2.Verdict(code=_CODES[status.code], reasons=status.reasons)


def _written_status(field: int, status: Status) -> bytes:
    return delimited(field, verdict_message(status).SerializeToString())


_known_status_field = lru_cache(maxsize=256)(_written_status)


def _status_field(field: int, status: Status) -> bytes:
    # An error repeats what its caller sent, which may be long and will not come again.
    written = _written_status if status.code is Code.ERROR else _known_status_field
    return written(field, status)


@lru_cache(maxsize=4096)
def _verdict_field(status: Status, nodes: int) -> bytes:
    """A serialized verdict with its number of nodes; cached: the statuses are few."""
    return delimited(_VERDICTS, _written_status(1, status) + _number(2, nodes))


@lru_cache(maxsize=65536)
def _text_field(field: int, text: str) -> bytes:
    """A serialized string field; cached: revisions and names of nodes recur."""
    return delimited(field, text.encode())


def _number(field: int, number: int) -> bytes:
    """A field that is an integer; nothing for 0, its default. `field` at most 15."""
    return _SMALL[field << 3] + varint(number) if number else b""


@lru_cache(maxsize=64)
def _top_k_field(top_k: int) -> bytes:
    return _number(_TOP_K, top_k)


def delimited(field: int, payload: bytes) -> bytes:
    """A field that is a string, bytes or a message; `field` at most 15."""
    return _SMALL[field << 3 | _LENGTH_DELIMITED] + varint(len(payload)) + payload


_VERDICT_TABLE: Final = tuple(verdict_message(status) for status in VERDICTS)


def meta_of(view: View, replica: Replica) -> common_pb2.ResponseMeta:
    """The metadata of the state behind a response."""
    return common_pb2.ResponseMeta(
        revision=view.token,
        store_unreachable_for=unreachable_for(replica),
        observed=observed_messages(view.observed),
    )


def revision_meta(token: str) -> common_pb2.ResponseMeta:
    """The metadata of a response of the store itself, which was reached just now."""
    return common_pb2.ResponseMeta(revision=token)


def unreachable_for(replica: Replica) -> Duration | None:
    """The time for which the store has been unreachable; None while it is reachable."""
    seconds = replica.stale_for
    if not seconds:
        return None
    duration = Duration()
    duration.FromNanoseconds(int(seconds * 1e9))
    return duration


@lru_cache(maxsize=64)
def _current_meta(field: int, token: str, observed: Observed) -> bytes:
    """The field of the ResponseMeta while the store is reachable."""
    meta = common_pb2.ResponseMeta(revision=token, observed=observed_messages(observed))
    return delimited(field, meta.SerializeToString())


def _meta_field(field: int, view: View, replica: Replica) -> bytes:
    if replica.stale_for:
        return delimited(field, meta_of(view, replica).SerializeToString())
    return _current_meta(field, view.token, view.observed)


class Encoder:
    """Encodes decisions; caches the serialized names of the newest node tables."""

    def __init__(self) -> None:
        self._names: dict[str, bytes] = {}

    def pre_filter(self, result: PreFilterResult) -> decision_service_pb2.PreFilterResponse:
        """Encode a PreFilterResponse."""
        resolved = result.resolved
        return decision_service_pb2.PreFilterResponse(
            meta=meta_of(resolved.cycle.view, resolved.replica),
            verdict=verdict_message(result.status),
            cycle=resolved.cycle_id,
            constraints=[
                decision_service_pb2.ConstraintState(
                    constraint=constraint_message(counts.state.constraint),
                    self_match=counts.state.constraint.self_match,
                    eligible_domain_count=counts.state.eligible_domains,
                    global_minimum=counts.state.global_minimum,
                    domain_counts=[
                        common_pb2.DomainCount(value=value, pod_count=pods)
                        for value, pods in counts.domains
                    ],
                )
                for counts in result.constraints
            ],
            extension_verdicts=[verdict_message(status) for status in result.extensions],
        )

    def filter(self, result: FilterResult, held_table: str) -> bytes:
        """Encode a FilterResponse; no names when the caller has the table or chose the nodes."""
        message = decision_service_pb2.FilterResponse(
            verdict=verdict_message(result.status), verdict_table=_VERDICT_TABLE
        )
        names = self._about(message, result.resolved, result.selected.choice is None, held_table)
        field = decision_service_pb2.FilterResponse.VERDICTS_FIELD_NUMBER
        return message.SerializeToString() + names + packed(field, result.verdicts)

    def score(self, result: ScoreResult, held_table: str) -> bytes:
        """Encode a ScoreResponse; positions replace names when the caller holds the table."""
        message = decision_service_pb2.ScoreResponse(verdict=verdict_message(result.status))
        self._about(message, result.resolved, False, held_table)
        scores, positions = result.scores, result.positions
        if scores is None:
            return message.SerializeToString()
        where = b""
        if positions is not None:
            nodes = result.resolved.cycle.view.snapshot.nodes
            if held_table == nodes.id:
                every = positions.size == nodes.count
                where = _positions(_INDICES, nodes.count) if every else packed(_INDICES, positions)
            else:
                names = nodes.sorted_names
                message.node_names.extend([names[position] for position in positions.tolist()])
        raw, normalized, at = _columns(scores)
        if int(raw.min()) < 0:  # only a maxSkew below 1 makes such
            message.raw.extend(scores.raw.tolist())
            written = b""
        else:
            written = packed(_RAW, raw, at)
        return message.SerializeToString() + where + written + packed(_NORMALIZED, normalized, at)

    def evaluation(self, answer: Evaluation, top_k: int, *, with_meta: bool = True) -> bytes:
        """Encode an EvaluatePodResponse from parts that are mostly serialized already."""
        resolved = answer.resolved
        parts = [
            _meta_field(_META, resolved.cycle.view, resolved.replica) if with_meta else b"",
            _status_field(_PRE_FILTER, answer.pre_filter),
            _status_field(_PRE_SCORE, answer.pre_score),
            _number(_NODES, answer.nodes),
            _number(_FEASIBLE, answer.feasible),
        ]
        for status, nodes in answer.verdicts:
            parts.append(_verdict_field(status, nodes))
        before, numbers = None, b""
        for name, raw, normalized in answer.top:
            if (raw, normalized) != before:  # mostly the best nodes' scores are equal
                before, numbers = (raw, normalized), _number(2, raw) + _number(3, normalized)
            score = _text_field(1, name) + numbers
            parts += (_TOP_TAG, varint(len(score)), score)
        if answer.message:
            rare = decision_service_pb2.EvaluatePodResponse(
                message=answer.message, reason=answer.reason
            )
            parts.append(rare.SerializeToString())
        parts.append(_top_k_field(top_k or DEFAULT_TOP_K))
        return b"".join(parts)

    def _about(self, message: Any, resolved: ResolvedCycle, all_nodes: bool, held: str) -> bytes:
        """Set the fields that Filter and Score share; return the names to append, if any."""
        view = resolved.cycle.view
        nodes = view.snapshot.nodes
        message.meta.CopyFrom(meta_of(view, resolved.replica))
        message.cycle = resolved.cycle_id
        message.cycle_remade = resolved.remade
        message.node_table_id = nodes.id
        return self.names(nodes) if all_nodes and held != nodes.id else b""

    def names(self, nodes: NodeTable) -> bytes:
        """All names of a table as FilterResponse's field, serialized once a table."""
        known = self._names.get(nodes.id)
        if known is None:
            known = decision_service_pb2.FilterResponse(
                node_names=nodes.sorted_names
            ).SerializeToString()
            if len(self._names) >= _TABLES_KEPT:
                self._names = {}
            self._names[nodes.id] = known
        return known


def stream_answer(identifier: int, answer: bytes, error: bytes, traceparent: str) -> bytes:
    """StreamEvaluatePodsResponse around a serialized answer or, if there is none, an error."""
    result = delimited(3, error) if error else delimited(2, answer)
    result += delimited(4, traceparent.encode())
    return b"\x08" + varint(identifier) + result if identifier else result


def _columns(scores: Scores | CellScores) -> tuple[Ints, Ints, NDArray[np.intp] | None]:
    """Raw and normalized scores, and where in them each node's stand; None: one after the other."""
    if isinstance(scores, CellScores):
        return scores.raw_of, scores.normalized_of, scores.cell
    return scores.raw, scores.normalized, None


def packed(
    field: int,
    values: NDArray[np.unsignedinteger[Any]] | NDArray[np.int64],
    at: NDArray[np.intp] | None = None,
) -> bytes:
    """A packed field of integers that are not negative; `field` at most 15.

    All are written in the width of the largest, 1, 2, 4 or 8 bytes: protobuf's numbers may be
    longer than they need to be, and all of one width are written in a few steps.

    Args:
        field: its number.
        values: the integers.
        at: [numbers] where in `values` each number stands; None: one after the other.
    """
    if not (values if at is None else at).size:
        return b""
    written = _varints(values)
    if written is None:
        numbers = values if at is None else values[at]
        return delimited(field, b"".join(map(varint, numbers.tolist())))
    return delimited(field, (written if at is None else written.take(at)).tobytes())


def _varints(values: NDArray[Any]) -> NDArray[Any] | None:
    """Each number as the bytes of a varint, in one little-endian integer; None: too large."""
    highest = int(values.max())
    if highest < 1 << 7:
        return values.astype(np.uint8, copy=False)
    for kind, width in (("<u2", 2), ("<u4", 4), ("<u8", 8)):
        if highest < 1 << 7 * width:
            narrow = values.astype(kind)
            written = narrow & 0x7F
            for byte in range(1, width):
                written |= 1 << 8 * byte - 1  # the byte before is not the last
                written |= (narrow >> 7 * byte & 0x7F) << 8 * byte
            return written
    return None


@lru_cache(maxsize=_TABLES_KEPT)
def _positions(field: int, count: int) -> bytes:
    """All positions of a table, where all nodes passed."""
    return packed(field, np.arange(count, dtype=np.int64))


def varint(number: int) -> bytes:
    """A number as protobuf writes it; negative ones in two's complement."""
    if 0 <= number < len(_SMALL):
        return _SMALL[number]
    return _written(number & 0xFFFF_FFFF_FFFF_FFFF)


def _written(number: int) -> bytes:
    written = bytearray()
    while number > 0x7F:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)


_SMALL: Final = [_written(number) for number in range(1 << 14)]
"""Lengths, counts and scores are small: written once."""

_TOP_TAG: Final = _SMALL[decision_service_pb2.EvaluatePodResponse.TOP_NODES_FIELD_NUMBER << 3 | 2]
