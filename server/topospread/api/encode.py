"""Encode responses as bytes.

What recurs is kept serialized and joined: concatenated serialized fields are one message.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

import numpy as np
from google.rpc.status_pb2 import Status as RpcStatus

from topospread.calls.call import Encoded
from topospread.codec.fields import delimited, number_field, packed, packed_from
from topospread.service.decisions.evaluate import DEFAULT_TOP_K
from topospread.service.messages import constraint_message, meta_of, verdict_message
from topospread.spread.per_node import CellScores
from topospread.spread.verdicts import VERDICTS, Code, Status
from topospread_proto.v1 import common_pb2, decision_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.index.nodes import NodeTable
    from topospread.kube.versions import KubernetesVersion
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.decisions.engine import ResolvedCycle
    from topospread.service.decisions.evaluate import Evaluation, RankedNode
    from topospread.service.decisions.extension_points import (
        FilterResult,
        PreFilterResult,
        ScoreResult,
    )

_TABLES_KEPT: Final = 8

_VERDICT: Final = decision_service_pb2.FilterResponse.VERDICT_FIELD_NUMBER
_CYCLE: Final = decision_service_pb2.FilterResponse.CYCLE_FIELD_NUMBER
_CYCLE_REMADE: Final = decision_service_pb2.FilterResponse.CYCLE_REMADE_FIELD_NUMBER
_NODE_TABLE: Final = decision_service_pb2.FilterResponse.NODE_TABLE_ID_FIELD_NUMBER
"""The same in ScoreResponse, as is that of the names."""

_FILTER_VERDICTS: Final = decision_service_pb2.FilterResponse.VERDICTS_FIELD_NUMBER
_INDICES: Final = decision_service_pb2.ScoreResponse.NODE_INDICES_FIELD_NUMBER
_RAW: Final = decision_service_pb2.ScoreResponse.RAW_FIELD_NUMBER
_NORMALIZED: Final = decision_service_pb2.ScoreResponse.NORMALIZED_FIELD_NUMBER
_PRE_FILTER: Final = decision_service_pb2.EvaluatePodResponse.PRE_FILTER_VERDICT_FIELD_NUMBER
_PRE_SCORE: Final = decision_service_pb2.EvaluatePodResponse.PRE_SCORE_VERDICT_FIELD_NUMBER
_VERDICTS: Final = decision_service_pb2.EvaluatePodResponse.VERDICT_COUNTS_FIELD_NUMBER
_NODES: Final = decision_service_pb2.EvaluatePodResponse.NODE_COUNT_FIELD_NUMBER
_TOP_NODES: Final = decision_service_pb2.EvaluatePodResponse.TOP_NODES_FIELD_NUMBER
_TOP_K: Final = decision_service_pb2.EvaluatePodResponse.TOP_K_FIELD_NUMBER
_DEFAULTED: Final = decision_service_pb2.EvaluatePodResponse.DEFAULTED_FIELD_NUMBER
_FEASIBLE: Final = decision_service_pb2.EvaluatePodResponse.FEASIBLE_NODE_COUNT_FIELD_NUMBER
_RESULTS: Final = decision_service_pb2.BatchEvaluatePodsResponse.RESULTS_FIELD_NUMBER
_RESULT_RESPONSE: Final = decision_service_pb2.BatchEvaluatePodsResult.RESPONSE_FIELD_NUMBER
_RESULT_ERROR: Final = decision_service_pb2.BatchEvaluatePodsResult.ERROR_FIELD_NUMBER


def _written_status(field: int, status: Status) -> bytes:
    return delimited(field, verdict_message(status).SerializeToString())


_known_status_field = lru_cache(maxsize=256)(_written_status)


def _status_field(field: int, status: Status) -> bytes:
    # An error repeats what its caller sent, which may be long and will not come again.
    written = _written_status if status.code is Code.ERROR else _known_status_field
    return written(field, status)


@lru_cache(maxsize=4096)
def _verdict_field(counted: tuple[Status, int]) -> bytes:
    """A serialized verdict with its number of nodes; cached: the statuses are few."""
    status, nodes = counted
    return delimited(_VERDICTS, _written_status(1, status) + _number(2, nodes))


@lru_cache(maxsize=16384)
def _node_field(node: RankedNode) -> bytes:
    """A serialized node with its scores; cached: the best nodes recur."""
    name, raw, normalized = node
    scores = _number(2, raw) + _number(3, normalized)
    return delimited(_TOP_NODES, delimited(1, name.encode()) + scores)


@lru_cache(maxsize=1024)
def _text_field(field: int, text: str) -> bytes:
    """A serialized string field; cached: revisions and node tables recur."""
    return delimited(field, text.encode())


_number = lru_cache(maxsize=16384)(number_field)


_VERDICT_TABLE: Final = decision_service_pb2.FilterResponse(
    verdict_table=map(verdict_message, VERDICTS)
).SerializeToString()


def written_meta(view: View, replica: Replica, version: KubernetesVersion) -> bytes:
    """The serialized meta of what was judged by a version's rules at a view.

    The view has it ready while the store is reachable.
    """
    if replica.health.stale_since is None and version == view.snapshot.version:
        return view.meta
    return meta_of(view, replica, version).SerializeToString()


def written_evaluation(answer: Evaluation, top_k: int) -> bytes:
    """Encode an EvaluatePodResponse without its meta; kept with what is remembered."""
    kept = answer.kept
    if kept is not None and kept.encoded:
        return kept.encoded
    parts = [
        _status_field(_PRE_FILTER, answer.pre_filter),
        _status_field(_PRE_SCORE, answer.pre_score),
        _number(_NODES, answer.nodes),
        _number(_FEASIBLE, answer.feasible),
        *map(_verdict_field, answer.verdicts),
        *map(_node_field, answer.top),
        _number(_TOP_K, top_k or DEFAULT_TOP_K),
        _number(_DEFAULTED, int(answer.defaulted)),
    ]
    if answer.message:
        rare = decision_service_pb2.EvaluatePodResponse(
            message=answer.message, reason=answer.reason
        )
        parts.append(rare.SerializeToString())
    written = b"".join(parts)
    if kept is not None:
        kept.encoded = written
    return written


class Encoder:
    """Encodes decisions; caches the serialized names of the newest node tables."""

    def __init__(self) -> None:
        self._names: dict[str, bytes] = {}

    def pre_filter(self, result: PreFilterResult) -> Encoded:
        """Encode a PreFilterResponse."""
        resolved = result.resolved
        message = decision_service_pb2.PreFilterResponse(
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
        return _encoded([message.SerializeToString()], resolved)

    def filter(self, result: FilterResult, held_table: str) -> Encoded:
        """Encode a FilterResponse; no names when the caller has the table or chose the nodes."""
        nodes = result.resolved.cycle.view.snapshot.nodes
        known = result.selected.choice is not None or held_table == nodes.id
        parts = (
            *_about(result.resolved, result.status),
            b"" if known else self.names(nodes),
            # A verdict is a byte, and as a varint the same byte.
            delimited(_FILTER_VERDICTS, result.verdicts.tobytes()),
            _VERDICT_TABLE,
        )
        return _encoded(parts, result.resolved)

    def score(self, result: ScoreResult, held_table: str) -> Encoded:
        """Encode a ScoreResponse; positions replace names when the caller holds the table."""
        parts = _about(result.resolved, result.status)
        scores, positions = result.scores, result.positions
        if scores is None:
            return _encoded(parts, result.resolved)
        if positions is not None:
            nodes = result.resolved.cycle.view.snapshot.nodes
            every = positions.size == nodes.count
            if held_table == nodes.id:
                where = _positions(_INDICES, nodes.count) if every else packed(_INDICES, positions)
                parts.append(where)
            elif every:
                parts.append(self.names(nodes))
            else:
                names = nodes.sorted_names
                parts.append(_names_field([names[position] for position in positions.tolist()]))
        if isinstance(scores, CellScores):
            parts.append(packed_from(_RAW, scores.raw_of, scores.cell))
            parts.append(packed_from(_NORMALIZED, scores.normalized_of, scores.cell))
            return _encoded(parts, result.resolved)
        if int(scores.raw.min()) < 0:  # only a maxSkew below 1 makes such
            message = decision_service_pb2.ScoreResponse(raw=scores.raw.tolist())
            parts.append(message.SerializeToString())
        else:
            parts.append(packed(_RAW, scores.raw))
        parts.append(packed(_NORMALIZED, scores.normalized))
        return _encoded(parts, result.resolved)

    def batch(
        self,
        view: View,
        replica: Replica,
        version: KubernetesVersion,
        answers: Iterable[Evaluation | RpcStatus],
        top_k: int,
    ) -> Encoded:
        """Encode a BatchEvaluatePodsResponse; all were judged by one view and one version."""
        parts = list[bytes]()
        for answer in answers:
            if isinstance(answer, RpcStatus):
                one = delimited(_RESULT_ERROR, answer.SerializeToString())
            else:
                one = delimited(_RESULT_RESPONSE, written_evaluation(answer, top_k))
            parts.append(delimited(_RESULTS, one))
        return Encoded(b"".join(parts), written_meta(view, replica, version))

    def names(self, nodes: NodeTable) -> bytes:
        """All names of a table as a field of the response, serialized once a table."""
        known = self._names.get(nodes.id)
        if known is None:
            known = _names_field(nodes.sorted_names)
            if len(self._names) >= _TABLES_KEPT:
                self._names = {}
            self._names[nodes.id] = known
        return known


def _encoded(parts: Iterable[bytes], resolved: ResolvedCycle) -> Encoded:
    cycle = resolved.cycle
    meta = written_meta(cycle.view, resolved.replica, cycle.rules.version)
    return Encoded(b"".join(parts), meta)


def _about(resolved: ResolvedCycle, status: Status) -> list[bytes]:
    """The fields that FilterResponse and ScoreResponse have in common."""
    view = resolved.cycle.view
    return [
        _status_field(_VERDICT, status),
        delimited(_CYCLE, resolved.cycle_id.encode()) if resolved.cycle_id else b"",
        _number(_CYCLE_REMADE, int(resolved.remade)),
        _text_field(_NODE_TABLE, view.snapshot.nodes.id),
    ]


def _names_field(names: Sequence[str]) -> bytes:
    """Names of nodes, which FilterResponse and ScoreResponse have under one number."""
    return decision_service_pb2.FilterResponse(node_names=names).SerializeToString()


@lru_cache(maxsize=_TABLES_KEPT)
def _positions(field: int, count: int) -> bytes:
    """All positions of a table, where all nodes passed."""
    return packed(field, np.arange(count, dtype=np.int64))
