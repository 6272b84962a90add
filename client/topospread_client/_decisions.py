"""Operations of DecisionService: on which nodes a pod may run, and which are best."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread_client import _arguments as arguments
from topospread_client import _decoding as decoding
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._answers import (
    BatchEvaluatePodsResponse,
    EvaluatePodResponse,
    FilterResponse,
    GetNodeTableResponse,
    PreFilterResponse,
    ResponseMeta,
    ScoreResponse,
)
from topospread_client._errors import ServerFault
from topospread_client._operations import ClientSession, Operation, call
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread_client._enums import ConstraintValidation
    from topospread_client._requests import Consistency, PodSource, Settings, WhatIf


def pre_filter(
    session: ClientSession,
    pod: PodSource,
    *,
    cluster: str | None = None,
    add_pods: WhatIf = (),
    remove_pods: WhatIf = (),
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validation: ConstraintValidation | None = None,
    with_counts: bool = False,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[PreFilterResponse]:
    """Count matching pods per domain for the pod's hard constraints and freeze them under a cycle.

    Args:
        pod: a message, a manifest, bytes of a v1.Pod, or the name of a pod in the state.
        cluster: None takes the client's.
        add_pods: preemption what-ifs: pods to count as if they ran on a node.
        remove_pods: pods to count as if they were gone from a node.
        settings: None takes the profile of the pod's schedulerName.
        consistency: None answers from the newest snapshot at hand.
        validation: `ConstraintValidation.STRICT` refuses what an API server would refuse in the
            pod's constraints, and fields of manifests that Kubernetes does not have.
        with_counts: also return the number of matching pods of each domain.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span; None takes the current OpenTelemetry span.

    Raises:
        InvalidRequest: all errors in the pod and the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.PreFilterRequest,
        cluster=cluster or session.cluster,
        pod=requests.decided_pod(pod, validation=validation),
        add_pods=requests.pods_on_nodes(add_pods, "addPods", validation),
        remove_pods=requests.pods_on_nodes(remove_pods, "removePods", validation),
        settings=requests.settings_message(settings),
        consistency=requests.consistency_message(consistency),
        validation=requests.validation_message(validation),
        with_counts=with_counts,
    )
    reply = yield from call(rpcs.PRE_FILTER, request, timeout, traceparent)
    return decoding.answer(PreFilterResponse, reply)


def filter_nodes(
    session: ClientSession,
    pod: PodSource | None = None,
    *,
    cycle: str | None = None,
    candidates: Sequence[str] | None = None,
    cluster: str | None = None,
    add_pods: WhatIf = (),
    remove_pods: WhatIf = (),
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validation: ConstraintValidation | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[FilterResponse]:
    """Judge each node by the pod's hard constraints.

    Args:
        pod: a message, a manifest, bytes of a v1.Pod, or the name of a pod in the state;
            None uses `cycle` alone.
        cycle: of an earlier answer; made again from the pod where it is not known any more.
        candidates: names to judge, answered in this order; None judges all nodes of the cluster.
        cluster: None takes the client's.
        add_pods: preemption what-ifs: pods to count as if they ran on a node.
        remove_pods: pods to count as if they were gone from a node.
        settings: None takes the profile of the pod's schedulerName.
        consistency: None answers from the newest snapshot at hand.
        validation: `ConstraintValidation.STRICT` refuses what an API server would refuse in the
            pod's constraints, and fields of manifests that Kubernetes does not have.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        CycleExpired: the cycle is not known any more and no pod was given.
        InvalidRequest: all errors in the pod and the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    cluster = arguments.checked(str, cluster or session.cluster, "cluster")
    chosen = None if candidates is None else arguments.as_list(candidates, "candidates")
    table = session.tables.get(cluster) if chosen is None else None
    request = arguments.request(
        pb.FilterRequest,
        cluster=cluster,
        cycle=cycle or "",
        pod=requests.decided_pod(pod, validation=validation),
        add_pods=requests.pods_on_nodes(add_pods, "addPods", validation),
        remove_pods=requests.pods_on_nodes(remove_pods, "removePods", validation),
        candidates=requests.selection(chosen),
        node_table_id=table.node_table_id if table else "",
        settings=requests.settings_message(settings),
        consistency=requests.consistency_message(consistency),
        validation=requests.validation_message(validation),
    )
    reply = yield from call(rpcs.FILTER, request, timeout, traceparent)
    answer: pb.FilterResponse = reply.message
    names: Sequence[str]
    if chosen is not None:
        names = chosen
    elif table is not None and table.node_table_id == answer.node_table_id:
        names = table.node_names
    else:
        sent = GetNodeTableResponse(
            meta=ResponseMeta(answer.meta.revision),
            node_table_id=answer.node_table_id,
            node_names=tuple(answer.node_names),
        )
        session.tables[cluster] = sent
        names = sent.node_names
    if not answer.verdicts and answer.verdict.code != common.VERDICT_CODE_SUCCESS:
        names = ()  # Skip and Error hold for all nodes at once
    _same_length("Filter", names, answer.verdicts)
    return decoding.filtered(reply, names)


def score(
    session: ClientSession,
    pod: PodSource | None = None,
    *,
    cycle: str | None = None,
    candidates: Sequence[str] | None = None,
    cluster: str | None = None,
    add_pods: WhatIf = (),
    remove_pods: WhatIf = (),
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validation: ConstraintValidation | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ScoreResponse]:
    """Score the nodes that passed the filter, raw and normalized.

    Args:
        pod: a message, a manifest, bytes of a v1.Pod, or the name of a pod in the state;
            None uses `cycle` alone.
        cycle: of an earlier answer; made again from the pod where it is not known any more.
        candidates: the nodes that passed; None takes the server's own Filter result, empty means
            none.
        cluster: None takes the client's.
        add_pods: preemption what-ifs: pods to count as if they ran on a node.
        remove_pods: pods to count as if they were gone from a node.
        settings: None takes the profile of the pod's schedulerName.
        consistency: None answers from the newest snapshot at hand.
        validation: `ConstraintValidation.STRICT` refuses what an API server would refuse in the
            pod's constraints, and fields of manifests that Kubernetes does not have.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        CycleExpired: the cycle is not known any more and no pod was given.
        InvalidRequest: all errors in the pod and the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    cluster = arguments.checked(str, cluster or session.cluster, "cluster")
    chosen = None if candidates is None else arguments.as_list(candidates, "candidates")
    table = session.tables.get(cluster) if chosen is None else None
    request = arguments.request(
        pb.ScoreRequest,
        cluster=cluster,
        cycle=cycle or "",
        pod=requests.decided_pod(pod, validation=validation),
        add_pods=requests.pods_on_nodes(add_pods, "addPods", validation),
        remove_pods=requests.pods_on_nodes(remove_pods, "removePods", validation),
        candidates=requests.selection(chosen),
        node_table_id=table.node_table_id if table else "",
        settings=requests.settings_message(settings),
        consistency=requests.consistency_message(consistency),
        validation=requests.validation_message(validation),
    )
    reply = yield from call(rpcs.SCORE, request, timeout, traceparent)
    answer: pb.ScoreResponse = reply.message
    names: Sequence[str]
    if not answer.raw:
        names = ()
    elif chosen is not None:
        names = chosen
    elif table is not None and table.node_table_id == answer.node_table_id and answer.node_indices:
        names = tuple(map(table.node_names.__getitem__, answer.node_indices))
    else:
        names = tuple(answer.node_names)
    _same_length("Score", names, answer.raw)
    _same_length("Score", names, answer.normalized)
    return decoding.scored(reply, names)


def evaluate_pod(
    session: ClientSession,
    pod: PodSource,
    *,
    top_k: int | None = None,
    candidates: Sequence[str] | None = None,
    cluster: str | None = None,
    add_pods: WhatIf = (),
    remove_pods: WhatIf = (),
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validation: ConstraintValidation | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[EvaluatePodResponse]:
    """Run PreFilter, Filter and Score in one call: counts by verdict and the best nodes.

    Args:
        pod: a message, a manifest, bytes of a v1.Pod, or the name of a pod in the state.
        top_k: how many of the best nodes to name, at most 1000; None names 5.
        candidates: names to judge (all nodes still count); None judges all.
        cluster: None takes the client's.
        add_pods: preemption what-ifs: pods to count as if they ran on a node.
        remove_pods: pods to count as if they were gone from a node.
        settings: None takes the profile of the pod's schedulerName.
        consistency: None answers from the newest snapshot at hand.
        validation: `ConstraintValidation.STRICT` refuses what an API server would refuse in the
            pod's constraints, and fields of manifests that Kubernetes does not have.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        InvalidRequest: all errors in the pod and the settings.
        NotFound: the cluster or the pod is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.EvaluatePodRequest,
        cluster=cluster or session.cluster,
        pod=requests.decided_pod(pod, validation=validation),
        top_k=top_k or 0,
        add_pods=requests.pods_on_nodes(add_pods, "addPods", validation),
        remove_pods=requests.pods_on_nodes(remove_pods, "removePods", validation),
        candidates=requests.selection(candidates),
        settings=requests.settings_message(settings),
        consistency=requests.consistency_message(consistency),
        validation=requests.validation_message(validation),
    )
    reply = yield from call(rpcs.EVALUATE_POD, request, timeout, traceparent)
    return decoding.evaluated(reply.message, reply.traceparent)


def batch_evaluate_pods(
    session: ClientSession,
    pods: Iterable[PodSource],
    *,
    top_k: int | None = None,
    cluster: str | None = None,
    settings: Settings | None = None,
    consistency: Consistency | None = None,
    validation: ConstraintValidation | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[BatchEvaluatePodsResponse]:
    """Evaluate several pods at one revision, each on its own: none sees the others placed.

    Args:
        pods: messages, manifests, bytes of a v1.Pod, or names of pods in the state; servers take
            1,000 unless set up otherwise.
        top_k: how many of the best nodes to name, at most 1000; None names 5.
        cluster: None takes the client's.
        settings: None takes the profile of the pod's schedulerName.
        consistency: None answers from the newest snapshot at hand.
        validation: `ConstraintValidation.STRICT` refuses what an API server would refuse in the
            pod's constraints, and fields of manifests that Kubernetes does not have.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Returns:
        One result for each pod: its evaluation, or the error that a call of its own would raise.

    Raises:
        InvalidRequest: the batch as a whole is refused.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.BatchEvaluatePodsRequest,
        cluster=cluster or session.cluster,
        pods=requests.decided_pods(pods, "pods", validation),
        top_k=top_k or 0,
        settings=requests.settings_message(settings),
        consistency=requests.consistency_message(consistency),
        validation=requests.validation_message(validation),
    )
    reply = yield from call(rpcs.BATCH_EVALUATE_PODS, request, timeout, traceparent)
    return decoding.batch(reply)


def _same_length(rpc: str, names: Sequence[str], column: Sequence[int]) -> None:
    if len(names) != len(column):
        raise ServerFault(f"{rpc} answered {len(column)} values for {len(names)} nodes")
