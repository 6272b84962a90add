"""The operations of ClusterStateService that read, and those about clusters and the server."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from topospread_client import _decoding as decoding
from topospread_client import _given as given
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
from topospread_client._operations import Ask, Listing, Operation, Session, Subscription, call
from topospread_client._references import kind_message
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import server_service_pb2

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread_client._enums import Kind
    from topospread_client._requests import Consistency, LabelSelector


def get_object(
    session: Session,
    kind: Kind,
    name: str,
    *,
    namespace: str | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[GetObjectResponse]:
    """One object as it is stored.

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
    request = given.request(
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
    session: Session,
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
    """Some objects of one kind, ordered by namespace and name as bytes.

    Args:
        kind: of the objects.
        namespace: None means all.
        label_selector: a message, labels that must be equal, or a query as kubectl's
            ``-l`` takes it; None selects all.
        page_size: at most 5,000; None leaves it to the server.
        page_token: from the page before, asked for with the same arguments.
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = given.request(
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
    session: Session,
    kind: Kind,
    *,
    namespace: str | None = None,
    label_selector: LabelSelector | None = None,
    page_size: int | None = None,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Listing[pb.ClusterObject]:
    """All objects of one kind, fetched page by page; later pages may hold newer objects.

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

    return Listing(fetch, lambda page: page.objects)


def watch_objects(
    session: Session,
    *,
    revision: str | None = None,
    kinds: Iterable[Kind] = (),
    send_initial: bool = False,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Subscription[WatchObjectsResponse]:
    """Changes as they happen, until the iteration is left; bookmarks tell how far it is meanwhile.

    When its server or its connection goes, as each connection does once it is old enough, the watch
    goes on from the last revision that it told, on whichever server answers within the connection's
    `retry_timeout`. No change is left out or told twice: where that cannot be, an error is raised.
    What `send_initial` begins with is not told anew when it is cut.

    Args:
        revision: start after it; None starts after the present one. Not with `send_initial`.
        kinds: of the objects; none given means all.
        send_initial: begin with what there is, as APPLIED events, up to a BOOKMARK.
        cluster: None takes the client's.
        timeout: seconds after which the stream ends with DeadlineExceeded; None: never.
        traceparent: parent of the server's span.

    Raises:
        RevisionUnavailable: the log no longer reaches back to the revision: list again.
        Unavailable: no server answered for too long, or it went amid what `send_initial` begins
            with.
        TopospreadClientError: any other failure of the call.
    """
    request = given.request(
        pb.WatchObjectsRequest,
        cluster=cluster or session.cluster,
        revision=revision or "",
        kinds=[kind_message(kind, where) for where, kind in given.each(kinds, "kinds")],
        send_initial=send_initial,
    )
    ask = Ask(rpcs.WATCH_OBJECTS, request, timeout, traceparent)

    def after(changes: WatchObjectsResponse) -> Ask | None:
        """None amid what there is, which has no revision."""
        if not changes.revision:
            return None
        further = pb.WatchObjectsRequest()
        further.CopyFrom(request)
        further.revision = changes.revision
        further.send_initial = False
        return replace(ask, request=further)

    return Subscription(ask, lambda message: decoding.value(WatchObjectsResponse, message), after)


def get_node_table(
    session: Session,
    *,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[GetNodeTableResponse]:
    """The node names that verdicts and scores are aligned with; later answers are spared them.

    Args:
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    cluster = cluster or session.cluster
    request = given.request(
        pb.GetNodeTableRequest,
        cluster=cluster,
        consistency=requests.consistency_message(consistency),
    )
    reply = yield from call(rpcs.GET_NODE_TABLE, request, timeout, traceparent)
    table = decoding.answer(GetNodeTableResponse, reply)
    session.tables[cluster] = table
    return table


def get_cluster(
    session: Session,
    *,
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[GetClusterResponse]:
    """How the server follows one cluster.

    Args:
        cluster: None takes the client's.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        NotFound: there is no such cluster.
        TopospreadClientError: any other failure of the call.
    """
    request = given.request(pb.GetClusterRequest, cluster=cluster or session.cluster)
    reply = yield from call(rpcs.GET_CLUSTER, request, timeout, traceparent)
    return decoding.answer(GetClusterResponse, reply)


def list_clusters_page(
    session: Session,
    *,
    page_size: int | None = None,
    page_token: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ListClustersResponse]:
    """Some of the clusters that the caller may read, by name.

    Args:
        page_size: at most 5,000; None leaves it to the server.
        page_token: from the page before.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    del session
    request = given.request(
        pb.ListClustersRequest, page_size=page_size or 0, page_token=page_token or ""
    )
    reply = yield from call(rpcs.LIST_CLUSTERS, request, timeout, traceparent)
    return decoding.answer(ListClustersResponse, reply)


def list_clusters(
    session: Session,
    *,
    page_size: int | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Listing[Cluster]:
    """The clusters that the caller may read, and how the server follows each, by name.

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

    return Listing(fetch, lambda page: page.clusters)


def delete_cluster(
    session: Session,
    cluster: str,
    *,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[DeleteClusterResponse]:
    """Forget a cluster: all its objects go and its tokens die.

    Args:
        cluster: always named: this must not hit the default by a slip.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = given.request(pb.DeleteClusterRequest, cluster=cluster)
    reply = yield from call(rpcs.DELETE_CLUSTER, request, timeout, traceparent)
    session.tables.pop(cluster, None)
    return decoding.answer(DeleteClusterResponse, reply)


def accept_store(
    session: Session,
    cluster: str,
    store_identity: str,
    *,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[AcceptStoreResponse]:
    """Take what the store holds now of a cluster as the truth, whatever servers knew before.

    They keep what they knew and refuse writes when they find a store emptied, restored from
    elsewhere or exchanged, until somebody says so.

    Args:
        cluster: always named: this must not hit the default by a slip.
        store_identity: of the store that is meant, as `get_cluster` told it.
        timeout: seconds, also for loading it; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        StoreIdentityChanged: the store is yet another one by now.
        TopospreadClientError: any other failure of the call.
    """
    request = given.request(pb.AcceptStoreRequest, cluster=cluster, store_identity=store_identity)
    reply = yield from call(rpcs.ACCEPT_STORE, request, timeout, traceparent)
    session.tables.pop(cluster, None)
    return decoding.answer(AcceptStoreResponse, reply)


def get_server_info(
    session: Session, *, timeout: float | None = None, traceparent: str | None = None
) -> Operation[GetServerInfoResponse]:
    """What the server is, what it can do, and how much it takes at once.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = server_service_pb2.GetServerInfoRequest()
    reply = yield from call(rpcs.GET_SERVER_INFO, request, timeout, traceparent)
    info = decoding.answer(GetServerInfoResponse, reply)
    session.limits = info.limits
    return info
