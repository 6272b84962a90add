"""The operations of the SpreadEngine: where may a pod go, and where should it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from topospread_client import decoding, requests, rpcs
from topospread_client.answers import (
    BatchEvaluation,
    Evaluation,
    NodeTable,
    PreFiltered,
    Scores,
    Verdicts,
)
from topospread_client.errors import ServerFault
from topospread_client.operations import Operation, Session, call
from topospread_client.requests import Consistency, PodGiven, PodLike, Settings
from topospread_proto.v1 import spread_engine_pb2 as engine

WhatIf: TypeAlias = Sequence[tuple[PodGiven, str]]
"""Pods to imagine or to imagine away, each with its node (empty: the pod's own nodeName)."""


def pre_filter(
    session: Session,
    pod: PodLike,
    *,
    cluster: str | None = None,
    add_pods: WhatIf = (),
    remove_pods: WhatIf = (),
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validate: bool = False,
    with_counts: bool = False,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[PreFiltered]:
    """Count matching pods per domain for the pod's hard constraints and freeze them under a cycle.

    Args:
        session: what the client's operations share.
        pod: a message, a manifest, bytes of a v1.Pod, or ``namespace/name`` of a pod in the state.
        cluster: None takes the client's.
        add_pods: preemption what-ifs: pods to count as if they ran on a node.
        remove_pods: pods to count as if they were gone from a node.
        settings: None takes the profile of the pod's schedulerName.
        consistency: None answers from the newest snapshot at hand.
        validate: refuse what an API server would refuse in the pod's constraints.
        with_counts: also answer the matching pods of each domain.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        InvalidRequest: everything that is wrong with the pod or the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    subject = requests.subject(pod)
    request = engine.PreFilterRequest(
        cluster=cluster or session.cluster,
        pod=subject.pod,
        pod_ref=subject.pod_ref,
        add_pods=requests.pods_on_nodes(add_pods),
        remove_pods=requests.pods_on_nodes(remove_pods),
        settings=requests.carried(settings),
        consistency=requests.carried(consistency),
        validate=validate,
        with_counts=with_counts,
    )
    reply = yield from call(rpcs.PRE_FILTER, request, timeout, traceparent)
    return decoding.pre_filtered(reply.message, reply.traceparent)


def filter_nodes(
    session: Session,
    pod: PodLike | None = None,
    *,
    cycle: str = "",
    nodes: Sequence[str] | None = None,
    cluster: str | None = None,
    add_pods: WhatIf = (),
    remove_pods: WhatIf = (),
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validate: bool = False,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Verdicts]:
    """One verdict for each node.

    Args:
        session: what the client's operations share.
        pod: as for `pre_filter`; None asks about `cycle` alone.
        cycle: of an earlier answer; made again from the pod where it is not known any more.
        nodes: names to judge, answered in this order; None judges all nodes of the cluster.
        cluster: None takes the client's.
        add_pods: as for `pre_filter`.
        remove_pods: as for `pre_filter`.
        settings: as for `pre_filter`.
        consistency: as for `pre_filter`.
        validate: as for `pre_filter`.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        CycleExpired: the cycle is not known any more and no pod was given.
        InvalidRequest: everything that is wrong with the pod or the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    cluster = cluster or session.cluster
    held = session.tables.get(cluster) if nodes is None else None
    subject = requests.subject(pod)
    request = engine.FilterRequest(
        cluster=cluster,
        cycle=cycle,
        pod=subject.pod,
        pod_ref=subject.pod_ref,
        add_pods=requests.pods_on_nodes(add_pods),
        remove_pods=requests.pods_on_nodes(remove_pods),
        nodes=requests.selection(nodes),
        node_table=held.id if held else "",
        settings=requests.carried(settings),
        consistency=requests.carried(consistency),
        validate=validate,
    )
    reply = yield from call(rpcs.FILTER, request, timeout, traceparent)
    answer = reply.message
    names: Sequence[str]
    if nodes is not None:
        names = nodes
    elif held is not None and held.id == answer.node_table:
        names = held.names
    else:
        table = NodeTable(revision=answer.revision, id=answer.node_table, names=tuple(answer.names))
        session.tables[cluster] = table
        names = table.names
    if not answer.verdicts and answer.status.code != 0:
        names = ()  # Skip and Error say it of all nodes at once
    _same_length("Filter", names, answer.verdicts)
    return decoding.verdicts(answer, names, reply.traceparent)


def score(
    session: Session,
    pod: PodLike | None = None,
    *,
    cycle: str = "",
    nodes: Sequence[str] | None = None,
    cluster: str | None = None,
    add_pods: WhatIf = (),
    remove_pods: WhatIf = (),
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validate: bool = False,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Scores]:
    """Raw and normalized scores for nodes that passed the filter.

    Args:
        session: what the client's operations share.
        pod: as for `pre_filter`; None asks about `cycle` alone.
        cycle: of an earlier answer; made again from the pod where it is not known any more.
        nodes: the nodes that passed; None takes the server's own Filter result, empty means none.
        cluster: None takes the client's.
        add_pods: as for `pre_filter`.
        remove_pods: as for `pre_filter`.
        settings: as for `pre_filter`.
        consistency: as for `pre_filter`.
        validate: as for `pre_filter`.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        CycleExpired: the cycle is not known any more and no pod was given.
        InvalidRequest: everything that is wrong with the pod or the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    cluster = cluster or session.cluster
    held = session.tables.get(cluster) if nodes is None else None
    subject = requests.subject(pod)
    request = engine.ScoreRequest(
        cluster=cluster,
        cycle=cycle,
        pod=subject.pod,
        pod_ref=subject.pod_ref,
        add_pods=requests.pods_on_nodes(add_pods),
        remove_pods=requests.pods_on_nodes(remove_pods),
        nodes=requests.selection(nodes),
        node_table=held.id if held else "",
        settings=requests.carried(settings),
        consistency=requests.carried(consistency),
        validate=validate,
    )
    reply = yield from call(rpcs.SCORE, request, timeout, traceparent)
    answer = reply.message
    names: Sequence[str]
    if not answer.raw:
        names = ()
    elif nodes is not None:
        names = nodes
    elif held is not None and held.id == answer.node_table and answer.indices:
        names = tuple(map(held.names.__getitem__, answer.indices))
    else:
        names = tuple(answer.names)
    _same_length("Score", names, answer.raw)
    _same_length("Score", names, answer.normalized)
    return decoding.scores(answer, names, reply.traceparent)


def evaluate(
    session: Session,
    pod: PodLike,
    *,
    top_k: int = 5,
    nodes: Sequence[str] | None = None,
    cluster: str | None = None,
    add_pods: WhatIf = (),
    remove_pods: WhatIf = (),
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validate: bool = False,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Evaluation]:
    """PreFilter, Filter and Score in one round trip: counts by verdict and the best nodes.

    Args:
        session: what the client's operations share.
        pod: as for `pre_filter`.
        top_k: how many of the best nodes to name, at most 1000.
        nodes: names to judge (all nodes still count); None judges all.
        cluster: None takes the client's.
        add_pods: as for `pre_filter`.
        remove_pods: as for `pre_filter`.
        settings: as for `pre_filter`.
        consistency: as for `pre_filter`.
        validate: as for `pre_filter`.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        InvalidRequest: everything that is wrong with the pod or the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    subject = requests.subject(pod)
    request = engine.EvaluateRequest(
        cluster=cluster or session.cluster,
        pod=subject.pod,
        pod_ref=subject.pod_ref,
        top_k=top_k,
        add_pods=requests.pods_on_nodes(add_pods),
        remove_pods=requests.pods_on_nodes(remove_pods),
        nodes=requests.selection(nodes),
        settings=requests.carried(settings),
        consistency=requests.carried(consistency),
        validate=validate,
    )
    reply = yield from call(rpcs.EVALUATE, request, timeout, traceparent)
    return decoding.evaluation(reply.message, reply.traceparent)


def batch_evaluate(
    session: Session,
    pods: Iterable[PodGiven],
    *,
    top_k: int = 5,
    cluster: str | None = None,
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validate: bool = False,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[BatchEvaluation]:
    """Evaluate several pods at one revision, each on its own: none sees the others placed.

    Args:
        session: what the client's operations share.
        pods: messages, manifests or bytes of v1.Pods; servers take 1,000 unless set up otherwise.
        top_k: how many of the best nodes to name for each pod.
        cluster: None takes the client's.
        settings: as for `pre_filter`.
        consistency: as for `pre_filter`.
        validate: as for `pre_filter`.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Returns:
        One result for each pod: its evaluation, or what a call about it would have raised.

    Raises:
        InvalidRequest: the batch as a whole is refused.
        TopospreadClientError: any other failure of the call.
    """
    request = engine.BatchEvaluateRequest(
        cluster=cluster or session.cluster,
        pods=[requests.pod_message(pod) for pod in pods],
        top_k=top_k,
        settings=requests.carried(settings),
        consistency=requests.carried(consistency),
        validate=validate,
    )
    reply = yield from call(rpcs.BATCH_EVALUATE, request, timeout, traceparent)
    return decoding.batch_evaluation(reply.message, reply.traceparent)


def _same_length(rpc: str, names: Sequence[str], column: Sequence[int]) -> None:
    if len(names) != len(column):
        raise ServerFault(f"{rpc} answered {len(column)} values for {len(names)} nodes")
