"""Operations of InspectorService: how the pods of all constraints are spread."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from topospread_client import _arguments as arguments
from topospread_client import _decoding as decoding
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._constraint_statuses import (
    ConstraintStatus,
    GetConstraintResponse,
    ListConstraintsResponse,
    WatchConstraintsResponse,
    WorkloadReference,
)
from topospread_client._enums import ConstraintOrder, SpreadState
from topospread_client._operations import (
    ClientSession,
    Operation,
    PagedList,
    RpcCall,
    ServerStream,
    call,
)
from topospread_proto.v1 import inspector_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread_client._requests import Consistency, LabelSelector, Settings


def list_constraints_page(
    session: ClientSession,
    *,
    namespace: str | None = None,
    label_selector: LabelSelector | None = None,
    states: Iterable[SpreadState] = (),
    topology_key: str | None = None,
    owner: WorkloadReference | None = None,
    when_unsatisfiable: str | None = None,
    order: ConstraintOrder | None = None,
    domain_limit: int | None = None,
    page_size: int | None = None,
    page_token: str | None = None,
    settings: Settings | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ListConstraintsResponse]:
    """List a page of the constraints in force, the worst first.

    Args:
        namespace: of the pods; None means all.
        label_selector: of the pods: a message, labels that must be equal, or a query as kubectl's
            ``-l`` takes it; None selects all.
        states: of the constraints; none given means all.
        topology_key: None means all.
        owner: of the pods; an empty kind or name is any, None means all.
        when_unsatisfiable: ``DoNotSchedule`` or ``ScheduleAnyway``; None means both.
        order: None: SEVERITY.
        domain_limit: domains to list of each, at most 1,000; None lists 10.
        page_size: at most 5,000; None leaves it to the server.
        page_token: from the page before, asked for with the same arguments.
        settings: None takes the profile of each pod's schedulerName.
        cluster: None takes the client's.
        consistency: how fresh the state must be; None answers from the newest at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        InvalidRequest: all errors in the request.
        NotFound: the cluster is not in the state.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.ListConstraintsRequest,
        cluster=cluster or session.cluster,
        filter=_filter(namespace, label_selector, states, topology_key, owner, when_unsatisfiable),
        order=arguments.enum_value(pb.ConstraintOrder, ConstraintOrder, order, "order"),
        page_size=page_size or 0,
        page_token=page_token or "",
        consistency=requests.consistency_message(consistency),
        settings=requests.settings_message(settings),
        domain_limit=domain_limit or 0,
    )
    reply = yield from call(rpcs.LIST_CONSTRAINTS, request, timeout, traceparent)
    return decoding.answer(ListConstraintsResponse, reply)


def list_constraints(
    session: ClientSession,
    *,
    namespace: str | None = None,
    label_selector: LabelSelector | None = None,
    states: Iterable[SpreadState] = (),
    topology_key: str | None = None,
    owner: WorkloadReference | None = None,
    when_unsatisfiable: str | None = None,
    order: ConstraintOrder | None = None,
    domain_limit: int | None = None,
    page_size: int | None = None,
    settings: Settings | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> PagedList[ConstraintStatus]:
    """List the constraints in force, the worst first, page by page.

    Each page shows the state at its own time, so that one which meanwhile becomes better or worse
    may come twice or not at all.

    Args:
        namespace: of the pods; None means all.
        label_selector: of the pods: a message, labels that must be equal, or a query as kubectl's
            ``-l`` takes it; None selects all.
        states: of the constraints; none given means all.
        topology_key: None means all.
        owner: of the pods; an empty kind or name is any, None means all.
        when_unsatisfiable: ``DoNotSchedule`` or ``ScheduleAnyway``; None means both.
        order: None: SEVERITY.
        domain_limit: domains to list of each, at most 1,000; None lists 10.
        page_size: at most 5,000; None leaves it to the server.
        settings: None takes the profile of each pod's schedulerName.
        cluster: None takes the client's.
        consistency: how fresh the state must be; None answers from the newest at hand.
        timeout: seconds for each page; None takes the client's.
        traceparent: parent of the server's spans.

    Raises:
        InvalidRequest: all errors in the request.
        NotFound: the cluster is not in the state.
        TopospreadClientError: any other failure of a call.
    """
    wanted = arguments.as_list(states, "filter.states")

    def fetch(page_token: str | None) -> Operation[ListConstraintsResponse]:
        return list_constraints_page(
            session,
            namespace=namespace,
            label_selector=label_selector,
            states=wanted,
            topology_key=topology_key,
            owner=owner,
            when_unsatisfiable=when_unsatisfiable,
            order=order,
            domain_limit=domain_limit,
            page_size=page_size,
            page_token=page_token,
            settings=settings,
            cluster=cluster,
            consistency=consistency,
            timeout=timeout,
            traceparent=traceparent,
        )

    return PagedList(fetch, lambda page: page.constraints)


def get_constraint(
    session: ClientSession,
    constraint_id: str,
    *,
    domain_limit: int | None = None,
    node_limit: int | None = None,
    pod_limit: int | None = None,
    settings: Settings | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[GetConstraintResponse]:
    """Get one constraint with its domains, their nodes, and its pods.

    Args:
        constraint_id: from a list.
        domain_limit: domains to describe, at most 1,000; None describes 100.
        node_limit: nodes to name of each domain, at most 1,000; None names 100.
        pod_limit: pods to name, at most 1,000; None names 100.
        settings: those of the list.
        cluster: None takes the client's.
        consistency: how fresh the state must be; None answers from the newest at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        InvalidRequest: all errors in the request.
        NotFound: there is no such constraint, or no pod has it any more.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.GetConstraintRequest,
        cluster=cluster or session.cluster,
        constraint_id=constraint_id,
        consistency=requests.consistency_message(consistency),
        settings=requests.settings_message(settings),
        domain_limit=domain_limit or 0,
        node_limit=node_limit or 0,
        pod_limit=pod_limit or 0,
    )
    reply = yield from call(rpcs.GET_CONSTRAINT, request, timeout, traceparent)
    return decoding.answer(GetConstraintResponse, reply)


def watch_constraints(
    session: ClientSession,
    *,
    namespace: str | None = None,
    label_selector: LabelSelector | None = None,
    states: Iterable[SpreadState] = (),
    topology_key: str | None = None,
    owner: WorkloadReference | None = None,
    when_unsatisfiable: str | None = None,
    revision: str | None = None,
    domain_limit: int | None = None,
    settings: Settings | None = None,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> ServerStream[WatchConstraintsResponse]:
    """Watch the constraints in force until the iteration is left: all of them, then changes.

    When its server or its connection goes away, the watch continues from its last revision; a
    server that does not know that one sends all constraints again, as `complete` says.

    Args:
        namespace: of the pods; None means all.
        label_selector: of the pods: a message, labels that must be equal, or a query as kubectl's
            ``-l`` takes it; None selects all.
        states: of the constraints; none given means all. One that leaves them counts as deleted.
        topology_key: None means all.
        owner: of the pods; an empty kind or name is any, None means all.
        when_unsatisfiable: ``DoNotSchedule`` or ``ScheduleAnyway``; None means both.
        revision: of a list: begin with what differs from it, where the server still knows.
        domain_limit: domains to list of each, at most 1,000; None lists 10.
        settings: None takes the profile of each pod's schedulerName.
        cluster: None takes the client's.
        timeout: seconds after which the stream ends with DeadlineExceeded; None: never.
        traceparent: parent of the server's span.

    Raises:
        InvalidRequest: all errors in the request.
        NotFound: the cluster is not in the state.
        Unavailable: no server answered for too long.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.WatchConstraintsRequest,
        cluster=cluster or session.cluster,
        filter=_filter(namespace, label_selector, states, topology_key, owner, when_unsatisfiable),
        revision=revision or "",
        settings=requests.settings_message(settings),
        domain_limit=domain_limit or 0,
    )
    first = RpcCall(rpcs.WATCH_CONSTRAINTS, request, timeout, traceparent)

    def after(changes: WatchConstraintsResponse) -> RpcCall:
        """Next call: amid the messages of a revision, for all constraints."""
        request_after = pb.WatchConstraintsRequest()
        request_after.CopyFrom(request)
        request_after.revision = "" if changes.partial else changes.revision
        return replace(first, request=request_after)

    return ServerStream(
        first, lambda message: decoding.value(WatchConstraintsResponse, message), after
    )


def _filter(
    namespace: str | None,
    label_selector: LabelSelector | None,
    states: Iterable[SpreadState],
    topology_key: str | None,
    owner: WorkloadReference | None,
    when_unsatisfiable: str | None,
) -> pb.ConstraintFilter:
    numbers: list[Any] = [
        arguments.enum_value(pb.SpreadState, SpreadState, state, where)
        for where, state in arguments.with_paths(states, "filter.states")
    ]
    return arguments.part(
        "filter",
        pb.ConstraintFilter,
        namespace=namespace or "",
        label_selector=requests.label_selector(label_selector, "filter.labelSelector"),
        states=numbers,
        topology_key=topology_key or "",
        owner=requests.part_message(owner, WorkloadReference, "filter.owner"),
        when_unsatisfiable=when_unsatisfiable or "",
    )
