"""Messages from the server → answers."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Literal, Protocol

from topospread_client import answers
from topospread_client.arrays import int_array
from topospread_client.status import error_in_answer
from topospread_proto.v1 import cluster_state_pb2 as state
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import spread_engine_pb2 as engine

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from google.protobuf.duration_pb2 import Duration


class _WithStaleness(Protocol):
    @property
    def stale_for(self) -> Duration: ...
    def HasField(self, field_name: Literal["stale_for"]) -> bool: ...  # noqa: N802


def status(message: common.Status) -> answers.Status:
    """A status of the scheduler framework."""
    return answers.Status(answers.Code(message.code), tuple(message.reasons))


def pre_filtered(message: engine.PreFilterResponse, traceparent: str | None) -> answers.PreFiltered:
    """PreFilter's answer."""
    return answers.PreFiltered(
        revision=message.revision,
        stale_for=stale_for(message),
        traceparent=traceparent,
        status=status(message.status),
        cycle=message.cycle,
        constraints=tuple(_constraint_state(c) for c in message.constraints),
        extensions=tuple(status(s) for s in message.extensions),
    )


def verdicts(
    message: engine.FilterResponse, names: Sequence[str], traceparent: str | None
) -> answers.Verdicts:
    """Filter's answer; `names` has one name for each verdict."""
    return answers.Verdicts(
        revision=message.revision,
        stale_for=stale_for(message),
        traceparent=traceparent,
        status=status(message.status),
        cycle=message.cycle,
        cycle_remade=message.cycle_remade,
        node_table=message.node_table,
        names=names,
        positions=int_array(message.verdicts, "uint32"),
        table=tuple(status(s) for s in message.verdict_table),
    )


def scores(
    message: engine.ScoreResponse, names: Sequence[str], traceparent: str | None
) -> answers.Scores:
    """Score's answer; `names` has one name for each score."""
    return answers.Scores(
        revision=message.revision,
        stale_for=stale_for(message),
        traceparent=traceparent,
        status=status(message.status),
        cycle=message.cycle,
        cycle_remade=message.cycle_remade,
        node_table=message.node_table,
        names=names,
        raw=int_array(message.raw, "int64"),
        normalized=int_array(message.normalized, "uint32"),
    )


def evaluation(message: engine.EvaluateResponse, traceparent: str | None) -> answers.Evaluation:
    """Evaluate's answer."""
    return answers.Evaluation(
        revision=message.revision,
        stale_for=stale_for(message),
        traceparent=traceparent,
        pre_filter=status(message.pre_filter),
        pre_score=status(message.pre_score),
        nodes=message.nodes,
        feasible=message.feasible,
        verdicts=tuple(answers.VerdictCount(status(v.status), v.nodes) for v in message.verdicts),
        top=tuple(answers.NodeScore(n.node, n.raw, n.normalized) for n in message.top),
        message=message.message,
        reason=message.reason,
    )


def batch_evaluation(
    message: engine.BatchEvaluateResponse, traceparent: str | None
) -> answers.BatchEvaluation:
    """BatchEvaluate's answer; a pod that could not be judged has its error in its place."""
    return answers.BatchEvaluation(
        revision=message.revision,
        traceparent=traceparent,
        results=tuple(
            error_in_answer(result.error)
            if result.WhichOneof("result") == "error"
            else evaluation(result.response, traceparent)
            for result in message.results
        ),
    )


def object_results(results: Iterable[state.ObjectResult]) -> tuple[answers.ObjectResult, ...]:
    """The outcomes of an Apply or a Delete."""
    return tuple(
        answers.ObjectResult(
            kind=answers.Kind(result.kind),
            namespace=result.namespace,
            name=result.name,
            outcome=answers.Outcome(result.outcome),
            warnings=tuple(result.warnings),
        )
        for result in results
    )


def replaced(message: state.ReplaceResponse, traceparent: str | None) -> answers.Replaced:
    """Replace's answer."""
    return answers.Replaced(
        revision=message.revision,
        traceparent=traceparent,
        created=message.created,
        updated=message.updated,
        unchanged=message.unchanged,
        ignored_stale=message.ignored_stale,
        deleted=message.deleted,
        warnings=tuple(message.warnings),
    )


def stored(message: state.GetResponse, traceparent: str | None) -> answers.Stored:
    """Get's answer."""
    return answers.Stored(
        revision=message.revision,
        stale_for=stale_for(message),
        traceparent=traceparent,
        object=message.object,
    )


def page(message: state.ListResponse, traceparent: str | None) -> answers.Page:
    """List's answer."""
    return answers.Page(
        revision=message.revision,
        stale_for=stale_for(message),
        traceparent=traceparent,
        objects=message.objects,
        next_page_token=message.next_page_token,
    )


def changes(message: state.WatchResponse) -> answers.Changes:
    """One message of a Watch."""
    deleted = state.WatchEvent.Type.TYPE_DELETED
    return answers.Changes(
        revision=message.revision,
        events=tuple(
            answers.Event(
                kind=answers.Kind(event.kind),
                namespace=event.namespace,
                name=event.name,
                object=None if event.type == deleted else event.object,
            )
            for event in message.events
        ),
    )


def node_table(message: state.NodeTableResponse, traceparent: str | None) -> answers.NodeTable:
    """NodeTable's answer."""
    return answers.NodeTable(
        revision=message.revision,
        stale_for=stale_for(message),
        traceparent=traceparent,
        id=message.node_table,
        names=tuple(message.names),
    )


def server_status(
    message: state.ListClustersResponse, traceparent: str | None
) -> answers.ServerStatus:
    """ListClusters' answer."""
    started = message.started_at.ToDatetime(tzinfo=UTC) if message.HasField("started_at") else None
    return answers.ServerStatus(
        clusters=tuple(_cluster_status(cluster) for cluster in message.clusters),
        server_version=message.server_version,
        store=message.store,
        started_at=started,
        config_generation=message.config_generation,
        config_error=message.config_error,
        settings_digest=message.settings_digest,
        differing_settings=tuple(message.differing_settings),
        traceparent=traceparent,
    )


def _cluster_status(message: state.ClusterStatus) -> answers.ClusterStatus:
    return answers.ClusterStatus(
        name=message.name,
        loaded=message.loaded,
        revision=message.revision,
        lag=message.lag,
        stale_for=stale_for(message),
        nodes=message.nodes,
        pods=message.pods,
        workloads=message.workloads,
        reservations=message.reservations,
        groups=message.groups,
        corrupt=message.corrupt,
        identity_changed=message.identity_changed,
        label_sets=message.label_sets,
    )


def _constraint_state(message: engine.ConstraintState) -> answers.ConstraintState:
    return answers.ConstraintState(
        topology_key=message.topology_key,
        max_skew=message.max_skew,
        min_domains=message.min_domains,
        self_match=message.self_match,
        eligible_domains=message.eligible_domains,
        global_minimum=message.global_minimum,
        pods={domain.value: domain.pods for domain in message.domains},
    )


def stale_for(message: _WithStaleness) -> float | None:
    """Seconds for which the store has been out of reach; None while it answers."""
    if not message.HasField("stale_for"):
        return None
    return message.stale_for.seconds + message.stale_for.nanos / 1e9
