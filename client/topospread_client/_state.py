"""Operations of ClusterStateService that read, and those about clusters and the server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from topospread_client import _arguments as arguments
from topospread_client import _decoding as decoding
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._answers import (
    AcceptStoreResponse,
    Cluster,
    DeleteClusterResponse,
    GetClusterResponse,
    GetNodeTableResponse,
    GetObjectResponse,
    GetServerInfoResponse,
    ListClustersResponse,
    ListObjectsResponse,
    WatchObjectsResponse,
)
from topospread_client._operations import (
    ClientSession,
    Operation,
    PagedList,
    RpcCall,
    ServerStream,
    call,
)
from topospread_client._references import kind_message
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import server_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread_client._enums import Kind
    from topospread_client._requests import Consistency, LabelSelector


def get_object(
    session: ClientSession,
    kind: Kind,
    name: str,
    *,
    namespace: str | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[GetObjectResponse]:
    """Get one object as it is stored.

    Args:
        kind: of the object.
        name: of the object.
        namespace: None means ``default``; not for nodes.
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        NotFound: there is no such object.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.GetObjectRequest,
        cluster=cluster or session.cluster,
        kind=kind_message(kind, "kind"),
        namespace=namespace or "",
        name=name,
        consistency=requests.consistency_message(consistency),
    )
    reply = yield from call(rpcs.GET_OBJECT, request, timeout, traceparent)
    return decoding.answer(GetObjectResponse, reply)


def list_objects_page(
    session: ClientSession,
    kind: Kind,
    *,
    namespace: str | None = None,
    label_selector: LabelSelector | None = None,
    page_size: int | None = None,
    page_token: str | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ListObjectsResponse]:
    """List a page of objects of one kind, ordered by namespace and name as bytes.

    Args:
        kind: of the objects.
        namespace: None means all.
        label_selector: a message, labels that must be equal, or a query as kubectl's
            ``-l`` takes it; None selects all.
        page_size: at most 5,000; None leaves it to the server.
        page_token: from the page before, asked for with the same arguments; empty on the last one
            only, though a page may have no objects.
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        RevisionUnavailable: too much has changed since the first page: begin with it again.
        TopospreadClientError: the call failed.
    """
    request = arguments.request(
        pb.ListObjectsRequest,
        cluster=cluster or session.cluster,
        kind=kind_message(kind, "kind"),
        namespace=namespace or "",
        label_selector=requests.label_selector(label_selector),
        page_size=page_size or 0,
        page_token=page_token or "",
        consistency=requests.consistency_message(consistency),
    )
    reply = yield from call(rpcs.LIST_OBJECTS, request, timeout, traceparent)
    return decoding.answer(ListObjectsResponse, reply)


def list_objects(
    session: ClientSession,
    kind: Kind,
    *,
    namespace: str | None = None,
    label_selector: LabelSelector | None = None,
    page_size: int | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> PagedList[pb.ClusterObject]:
    """List all objects of one kind as they are at one revision, page by page.

    A page is fetched when the objects of the one before are used up. The store keeps what its
    newest 25,000 changes replaced: an iteration that takes longer ends in RevisionUnavailable.

    Args:
        kind: of the objects.
        namespace: None means all.
        label_selector: a message, labels that must be equal, or a query as kubectl's
            ``-l`` takes it; None selects all.
        page_size: at most 5,000; None leaves it to the server.
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds for each page; None takes the client's.
        traceparent: parent of the server's spans.

    Raises:
        RevisionUnavailable: too much has changed since the first page. The objects so far are those
            of its revision, and not all of them: begin anew.
        TopospreadClientError: a call failed.
    """

    def fetch(page_token: str | None) -> Operation[ListObjectsResponse]:
        return list_objects_page(
            session,
            kind,
            namespace=namespace,
            label_selector=label_selector,
            page_size=page_size,
            page_token=page_token,
            cluster=cluster,
            consistency=consistency,
            timeout=timeout,
            traceparent=traceparent,
        )

    return PagedList(fetch, lambda page: page.objects)


def watch_objects(
    session: ClientSession,
    *,
    revision: str | None = None,
    kinds: Iterable[Kind] = (),
    send_initial: bool = False,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> ServerStream[WatchObjectsResponse]:
    """Watch changes until the iteration is left; bookmarks show the progress meanwhile.

    When its server or its connection goes away, as each connection does once it is old enough, the
    watch continues from its last revision, on any server that answers within the connection's
    `retry_timeout`. No change is left out or repeated: where that is impossible, an error is
    raised. The objects of `send_initial` are not sent again when they are interrupted.

    Args:
        revision: start after it; None starts after the present one. Not with `send_initial`.
        kinds: of the objects; none given means all.
        send_initial: begin with all objects, as APPLIED events, up to a BOOKMARK.
        cluster: None takes the client's.
        timeout: seconds after which the stream ends with DeadlineExceeded; None: never.
        traceparent: parent of the server's span.

    Raises:
        RevisionUnavailable: the log no longer reaches back to the revision: list again.
        Unavailable: no server answered for too long, or it went away amid the objects of
            `send_initial`.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.WatchObjectsRequest,
        cluster=cluster or session.cluster,
        revision=revision or "",
        kinds=[kind_message(kind, where) for where, kind in arguments.with_paths(kinds, "kinds")],
        send_initial=send_initial,
    )
    first = RpcCall(rpcs.WATCH_OBJECTS, request, timeout, traceparent)

    def after(changes: WatchObjectsResponse) -> RpcCall | None:
        """Next call; None amid the initial objects, which come without a revision."""
        if not changes.revision:
            return None
        request_after = pb.WatchObjectsRequest()
        request_after.CopyFrom(request)
        request_after.revision = changes.revision
        request_after.send_initial = False
        return replace(first, request=request_after)

    return ServerStream(first, lambda message: decoding.value(WatchObjectsResponse, message), after)


def get_node_table(
    session: ClientSession,
    *,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[GetNodeTableResponse]:
    """Get the node names of verdicts and scores, which later responses then leave out.

    Args:
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    cluster = cluster or session.cluster
    request = arguments.request(
        pb.GetNodeTableRequest,
        cluster=cluster,
        consistency=requests.consistency_message(consistency),
    )
    reply = yield from call(rpcs.GET_NODE_TABLE, request, timeout, traceparent)
    table = decoding.answer(GetNodeTableResponse, reply)
    session.tables[cluster] = table
    return table


def get_cluster(
    session: ClientSession,
    *,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[GetClusterResponse]:
    """Get the state of one cluster.

    Args:
        cluster: None takes the client's.
        consistency: loads the cluster where the server does not follow it yet, and waits; None
            answers how it stands, loaded or not.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        NotFound: there is no such cluster.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.GetClusterRequest,
        cluster=cluster or session.cluster,
        consistency=requests.consistency_message(consistency),
    )
    reply = yield from call(rpcs.GET_CLUSTER, request, timeout, traceparent)
    return decoding.answer(GetClusterResponse, reply)


def list_clusters_page(
    session: ClientSession,
    *,
    page_size: int | None = None,
    page_token: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ListClustersResponse]:
    """List a page of the clusters that the caller may read, by name.

    Args:
        page_size: at most 5,000; None leaves it to the server.
        page_token: from the page before.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    del session
    request = arguments.request(
        pb.ListClustersRequest, page_size=page_size or 0, page_token=page_token or ""
    )
    reply = yield from call(rpcs.LIST_CLUSTERS, request, timeout, traceparent)
    return decoding.answer(ListClustersResponse, reply)


def list_clusters(
    session: ClientSession,
    *,
    page_size: int | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> PagedList[Cluster]:
    """List all clusters that the caller may read, by name.

    Args:
        page_size: at most 5,000; None leaves it to the server.
        timeout: seconds for each page; None takes the client's.
        traceparent: parent of the server's spans.

    Raises:
        TopospreadClientError: a call failed.
    """

    def fetch(page_token: str | None) -> Operation[ListClustersResponse]:
        return list_clusters_page(
            session,
            page_size=page_size,
            page_token=page_token,
            timeout=timeout,
            traceparent=traceparent,
        )

    return PagedList(fetch, lambda page: page.clusters)


def delete_cluster(
    session: ClientSession,
    cluster: str,
    *,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[DeleteClusterResponse]:
    """Delete a cluster with all its objects; its cycles, revisions and page tokens become invalid.

    Args:
        cluster: required, so that the default one is not changed by mistake.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = arguments.request(pb.DeleteClusterRequest, cluster=cluster)
    reply = yield from call(rpcs.DELETE_CLUSTER, request, timeout, traceparent)
    session.tables.pop(cluster, None)
    return decoding.answer(DeleteClusterResponse, reply)


def accept_store(
    session: ClientSession,
    cluster: str,
    store_identity: str,
    *,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[AcceptStoreResponse]:
    """Accept the present content of the store for a cluster, whatever servers knew before.

    Servers that find a store emptied, restored from elsewhere or replaced keep what they know and
    refuse writes, until it is accepted.

    Args:
        cluster: required, so that the default one is not changed by mistake.
        store_identity: of the store to accept, from `get_cluster`.
        timeout: seconds, also for loading it; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        StoreIdentityChanged: the store has changed again.
        TopospreadClientError: any other failure of the call.
    """
    request = arguments.request(
        pb.AcceptStoreRequest, cluster=cluster, store_identity=store_identity
    )
    reply = yield from call(rpcs.ACCEPT_STORE, request, timeout, traceparent)
    session.tables.pop(cluster, None)
    return decoding.answer(AcceptStoreResponse, reply)


def get_server_info(
    session: ClientSession, *, timeout: float | None = None, traceparent: str | None = None
) -> Operation[GetServerInfoResponse]:
    """Get the version, features, limits and configuration of the server.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = server_service_pb2.GetServerInfoRequest()
    reply = yield from call(rpcs.GET_SERVER_INFO, request, timeout, traceparent)
    info = decoding.answer(GetServerInfoResponse, reply)
    session.limits = info.limits
    return info
