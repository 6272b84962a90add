"""topospread.v1.ClusterStateService, the methods that read: decode, call the use case, encode."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from topospread.access.callers import Role
from topospread.api.decode import (
    any_kind,
    check_required,
    label_matcher,
    object_key,
    object_kind,
    token_of,
)
from topospread.api.envelope import read_cluster, read_envelope, read_page
from topospread.calls.call import Call, Method, ServerStreaming, Unary
from topospread.codec.objects import KIND_NAMES
from topospread.codec.reservations import reservation_row
from topospread.codec.stored import object_from_stored
from topospread.errors import CorruptValue, InvalidRequest
from topospread.kube.violations import Problems, forbidden
from topospread.service.messages import (
    NO_HISTORY,
    meta_of,
    reservation_message,
    revision_meta,
    unreachable_for,
)
from topospread.service.state.log import WatchRequest
from topospread.store.model import Kind, LogEntry, StoredObject
from topospread.store.values import OBSERVABLE
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from topospread.replica.view import Token
    from topospread.service.state.read import FollowedCluster, StateReader
    from topospread.store.model import Lease


MAX_NAMED: Final = 10
"""Objects that cannot be read which an answer names."""

_BOOKMARK: Final = pb.WatchEvent(type=pb.WATCH_EVENT_TYPE_BOOKMARK)


class ClusterStateReadServicer:
    """The methods that read, and WatchObjects.

    Args:
        reads: the use cases.
    """

    def __init__(self, reads: StateReader) -> None:
        self._reads = reads

    def methods(self) -> dict[str, Method]:
        return {
            "GetObject": Unary(pb.GetObjectRequest, self.get),
            "ListObjects": Unary(pb.ListObjectsRequest, self.list),
            "WatchObjects": ServerStreaming(pb.WatchObjectsRequest, self.watch),
            "GetNodeTable": Unary(pb.GetNodeTableRequest, self.node_table),
            "GetCluster": Unary(pb.GetClusterRequest, self.get_cluster),
            "ListClusters": Unary(pb.ListClustersRequest, self.list_clusters),
        }

    def get(self, request: pb.GetObjectRequest, call: Call) -> pb.GetObjectResponse:
        wrong = Problems()
        cluster = read_cluster(request, wrong)
        key = wrong.read(object_key, request.kind, request.namespace, request.name, "kind")
        wrong.read(check_required, request.name, "name")
        shared = read_envelope(request, wrong)
        wrong.raise_all()
        self._reads.fresh(cluster, shared.consistency, call.deadline)
        token, found = self._reads.get(cluster, key)
        return pb.GetObjectResponse(meta=revision_meta(token), object=object_from_stored(found))

    def list(self, request: pb.ListObjectsRequest, call: Call) -> pb.ListObjectsResponse:
        wrong = Problems()
        cluster = read_cluster(request, wrong)
        kind = wrong.read(object_kind, request.kind, "kind")
        matches = wrong.read(_object_matcher, request)
        ask = read_page(request, wrong)
        wrong.read(ask.place, request.namespace)
        shared = read_envelope(request, wrong)
        wrong.raise_all()
        if not request.page_token:
            self._reads.fresh(cluster, shared.consistency, call.deadline)
        page = self._reads.list(cluster, kind, request.namespace, matches, ask)
        response = pb.ListObjectsResponse(meta=revision_meta(page.token), next_page_token=page.next)
        for item in page.objects:
            with suppress(CorruptValue):  # counted and logged where it is followed
                response.objects.append(object_from_stored(item))
        return response

    def watch(
        self, request: pb.WatchObjectsRequest, call: Call
    ) -> Iterable[pb.WatchObjectsResponse]:
        wrong = Problems()
        cluster = read_cluster(request, wrong)
        after = wrong.read(_watched_from, request)
        kinds = {
            wrong.read(any_kind, kind, f"kinds[{position}]", (*OBSERVABLE, Kind.RESERVATION))
            for position, kind in enumerate(request.kinds)
        }
        wrong.raise_all()
        asked = WatchRequest(cluster, kinds, after, request.send_initial, call.memory)
        changes = self._reads.watch(asked, call.active)
        # By the headers a client that retries knows a watch that was cut from one that never began.
        call.send_headers()
        for watched in changes:
            events = [_event(entry) for entry in watched.entries] or [_BOOKMARK]
            yield pb.WatchObjectsResponse(meta=revision_meta(watched.token), events=events)

    def node_table(self, request: pb.GetNodeTableRequest, call: Call) -> pb.GetNodeTableResponse:
        wrong = Problems()
        cluster, shared = read_cluster(request, wrong), read_envelope(request, wrong)
        wrong.raise_all()
        replica, view = self._reads.view(cluster, shared.consistency, call.deadline)
        nodes = view.snapshot.nodes
        return pb.GetNodeTableResponse(
            meta=meta_of(view, replica), node_table_id=nodes.id, node_names=nodes.sorted_names
        )

    def get_cluster(self, request: pb.GetClusterRequest, call: Call) -> pb.GetClusterResponse:
        wrong = Problems()
        cluster, shared = read_cluster(request, wrong), read_envelope(request, wrong)
        wrong.raise_all()
        if request.HasField("consistency"):
            self._reads.view(cluster, shared.consistency, call.deadline)
        followed = self._reads.cluster(cluster)
        replica = followed.replica
        view = None if replica is None else replica.view
        return pb.GetClusterResponse(
            meta=common_pb2.ResponseMeta()
            if replica is None or view is None
            else meta_of(view, replica),
            cluster=_cluster(followed),
        )

    def list_clusters(self, request: pb.ListClustersRequest, call: Call) -> pb.ListClustersResponse:
        wrong = Problems()
        ask = read_page(request, wrong)
        wrong.read(ask.words, 1)
        wrong.raise_all()
        found, more = self._reads.clusters(lambda name: call.caller.may(Role.READ, name), ask)
        return pb.ListClustersResponse(
            meta=common_pb2.ResponseMeta(), clusters=map(_cluster, found), next_page_token=more
        )


def _watched_from(request: pb.WatchObjectsRequest) -> Token | None:
    """The revision after which a watch begins; None for the present one."""
    if not request.revision:
        return None
    if request.send_initial:
        raise InvalidRequest.of([forbidden("revision", "not with sendInitial")])
    return token_of(request.revision, "revision")


def _event(entry: LogEntry) -> pb.WatchEvent:
    key, item = entry.key, entry.object
    uid, version = (entry.uid, entry.version) if item is None else (item.uid, item.resource_version)
    event = pb.WatchEvent(
        type=pb.WATCH_EVENT_TYPE_DELETED if item is None else pb.WATCH_EVENT_TYPE_APPLIED,
        ref=pb.ObjectReference(
            kind=key.kind.value,  # type: ignore[arg-type] # the numbers are the same
            namespace=key.namespace,
            name=key.name,
            uid=uid,
            resource_version=version,
        ),
    )
    if item is not None:
        with suppress(CorruptValue):  # counted and logged where it is followed
            if key.kind is Kind.RESERVATION:
                row = reservation_row(item)
                message = reservation_message(key.namespace, key.name, row)
                event.object.reservation.CopyFrom(message)
            else:
                event.object.CopyFrom(object_from_stored(item))
    return event


def _object_matcher(request: pb.ListObjectsRequest) -> Callable[[StoredObject], bool]:
    chosen = label_matcher(request)
    if chosen is None:
        return lambda _: True

    def matches(item: StoredObject) -> bool:
        try:
            message = object_from_stored(item)
        except CorruptValue:
            return False
        content: Any = getattr(message, message.WhichOneof("content") or "")
        return chosen(content.metadata.labels)

    return matches


def _cluster(followed: FollowedCluster) -> pb.Cluster:
    replica, head = followed.replica, followed.head
    written = 0 if head is None else head.revision.number
    identity = "" if head is None else head.identity
    view = None if replica is None else replica.view
    if replica is None or view is None:
        return pb.Cluster(
            name=followed.name,
            lag=written,
            store_identity=identity or NO_HISTORY,
            sync_lease=_sync_lease(followed.lease),
        )
    reported = view.snapshot.reported_version
    # What another history has written is nothing that this one lags behind.
    lag = written - view.revision.number if head and identity == view.identity else replica.lag
    snapshot = view.snapshot
    meta = meta_of(view, replica)
    return pb.Cluster(
        name=followed.name,
        loaded=True,
        revision=meta.revision,
        lag=max(0, lag),
        store_unreachable_for=unreachable_for(replica),
        node_count=snapshot.node_count,
        pod_count=snapshot.pods,
        workload_count=snapshot.workload_count,
        reservation_count=len(snapshot.reservations),
        group_count=len(snapshot.groups),
        corrupt_count=len(snapshot.unreadable),
        corrupt_objects=[
            pb.CorruptObject(kind=kind, namespace=namespace, name=name)
            for kind, namespace, name in snapshot.unreadable[:MAX_NAMED]
        ],
        label_set_count=snapshot.label_sets,
        identity_changed=replica.identity_changed,
        store_identity=identity or NO_HISTORY,
        observed=meta.observed,
        unknown_kinds=[
            pb.UnknownKind(
                kind=kind.value,  # type: ignore[arg-type] # the numbers are the same
                reason=reason,
            )
            for kind, name in KIND_NAMES.items()
            if (reason := snapshot.unknown(name))
        ],
        kubernetes_version=meta.kubernetes_version,
        reported_kubernetes_version="" if reported is None else str(reported),
        sync_lease=_sync_lease(followed.lease),
    )


def _sync_lease(lease: Lease | None) -> pb.SyncLease | None:
    """Who syncs a cluster; None where nobody does."""
    if lease is None or not lease.left:
        return None
    message = pb.SyncLease(holder_identity=lease.holder)
    message.expire_time.FromMilliseconds(lease.until)
    return message
