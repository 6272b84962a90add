"""The operations of the ClusterState that read, and those about whole clusters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread_client import decoding, requests, rpcs
from topospread_client.operations import Ask, Operation, Pages, Session, Subscription, call
from topospread_proto.v1 import cluster_state_pb2 as state
from topospread_proto.v1 import kubernetes_pb2 as kube

if TYPE_CHECKING:
    from collections.abc import Iterable

    from topospread_client.answers import (
        Changes,
        Kind,
        NodeTable,
        Page,
        ServerStatus,
        Stored,
    )
    from topospread_client.requests import Consistency


def get(
    session: Session,
    kind: Kind,
    name: str,
    *,
    namespace: str = "",
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Stored]:
    """One object as it is stored.

    Args:
        session: what the client's operations share.
        kind: of the object.
        name: of the object.
        namespace: empty means ``default``; not for nodes.
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        NotFound: there is no such object.
        TopospreadClientError: any other failure of the call.
    """
    request = state.GetRequest(
        cluster=cluster or session.cluster,
        kind=requests.kind_message(kind),
        namespace=namespace,
        name=name,
        consistency=requests.carried(consistency),
    )
    reply = yield from call(rpcs.GET, request, timeout, traceparent)
    return decoding.stored(reply.message, reply.traceparent)


def list_page(
    session: Session,
    kind: Kind,
    *,
    namespace: str = "",
    label_selector: kube.LabelSelector | None = None,
    page_size: int = 0,
    page_token: str = "",
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Page]:
    """Some objects of one kind, ordered by namespace and name as bytes.

    Args:
        session: what the client's operations share.
        kind: of the objects.
        namespace: empty means all.
        label_selector: None selects all.
        page_size: at most 5,000; 0 leaves it to the server.
        page_token: from the page before.
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = state.ListRequest(
        cluster=cluster or session.cluster,
        kind=requests.kind_message(kind),
        namespace=namespace,
        label_selector=label_selector,
        page_size=page_size,
        page_token=page_token,
        consistency=requests.carried(consistency),
    )
    reply = yield from call(rpcs.LIST, request, timeout, traceparent)
    return decoding.page(reply.message, reply.traceparent)


def list_objects(
    session: Session,
    kind: Kind,
    *,
    namespace: str = "",
    label_selector: kube.LabelSelector | None = None,
    page_size: int = 0,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Pages:
    """All objects of one kind, fetched page by page; later pages may hold newer objects.

    Args:
        session: what the client's operations share.
        kind: of the objects.
        namespace: empty means all.
        label_selector: None selects all.
        page_size: at most 5,000; 0 leaves it to the server.
        cluster: None takes the client's.
        consistency: of the first page; None answers from the newest snapshot at hand.
        timeout: seconds for each page; None takes the client's.
        traceparent: parent of the server's spans.

    Raises:
        TopospreadClientError: a call failed.
    """
    token = ""
    while True:
        page = yield list_page(
            session,
            kind,
            namespace=namespace,
            label_selector=label_selector,
            page_size=page_size,
            page_token=token,
            cluster=cluster,
            consistency=None if token else consistency,
            timeout=timeout,
            traceparent=traceparent,
        )
        token = page.next_page_token
        if not token:
            return


def watch(
    session: Session,
    *,
    revision: str = "",
    kinds: Iterable[Kind] = (),
    cluster: str | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Subscription[Changes]:
    """Changes as they happen, until the iteration is left.

    Args:
        session: what the client's operations share.
        revision: start after it; empty starts after the present one.
        kinds: of the objects; none given means all.
        cluster: None takes the client's.
        timeout: seconds after which the stream ends with DeadlineExceeded; None: never.
        traceparent: parent of the server's span.

    Raises:
        RevisionUnavailable: the log no longer reaches back to the revision: list again.
        TopospreadClientError: any other failure of the call.
    """
    request = state.WatchRequest(
        cluster=cluster or session.cluster,
        revision=revision,
        kinds=[requests.kind_message(kind) for kind in kinds],
    )
    return Subscription(Ask(rpcs.WATCH, request, timeout, traceparent), decoding.changes)


def node_table(
    session: Session,
    *,
    cluster: str | None = None,
    consistency: Consistency | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[NodeTable]:
    """The node names that verdicts and scores are aligned with; later answers are spared them.

    Args:
        session: what the client's operations share.
        cluster: None takes the client's.
        consistency: None answers from the newest snapshot at hand.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Raises:
        TopospreadClientError: the call failed.
    """
    cluster = cluster or session.cluster
    request = state.NodeTableRequest(cluster=cluster, consistency=requests.carried(consistency))
    reply = yield from call(rpcs.NODE_TABLE, request, timeout, traceparent)
    table = decoding.node_table(reply.message, reply.traceparent)
    session.tables[cluster] = table
    return table


def clusters(
    session: Session, *, timeout: float | None = None, traceparent: str | None = None
) -> Operation[ServerStatus]:
    """The server, and how it follows each cluster of its store.

    Raises:
        TopospreadClientError: the call failed.
    """
    del session
    request = state.ListClustersRequest()
    reply = yield from call(rpcs.LIST_CLUSTERS, request, timeout, traceparent)
    return decoding.server_status(reply.message, reply.traceparent)


def drop_cluster(
    session: Session,
    cluster: str,
    *,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[int]:
    """Forget a cluster: all its objects go and its tokens die.

    Args:
        session: what the client's operations share.
        cluster: always named: this must not hit the default by a slip.
        timeout: seconds; None takes the client's.
        traceparent: parent of the server's span.

    Returns:
        How many objects went.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = state.DropClusterRequest(cluster=cluster)
    reply = yield from call(rpcs.DROP_CLUSTER, request, timeout, traceparent)
    session.tables.pop(cluster, None)
    return reply.message.objects


def accept_store(
    session: Session,
    cluster: str,
    *,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[str]:
    """Take what the store holds now of a cluster as the truth, whatever servers knew before.

    They keep what they knew and refuse writes when they find a store emptied, restored from
    elsewhere or exchanged, until somebody says so.

    Args:
        session: what the client's operations share.
        cluster: always named: this must not hit the default by a slip.
        timeout: seconds, also for loading it; None takes the client's.
        traceparent: parent of the server's span.

    Returns:
        The revision from which the store is followed.

    Raises:
        TopospreadClientError: the call failed.
    """
    request = state.AcceptStoreRequest(cluster=cluster)
    reply = yield from call(rpcs.ACCEPT_STORE, request, timeout, traceparent)
    session.tables.pop(cluster, None)
    return reply.message.revision
