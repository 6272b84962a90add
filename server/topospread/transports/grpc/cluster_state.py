"""topospread.v1.ClusterStateService: decode, call the use case, encode."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from topospread.access.callers import Role
from topospread.codec.observed import check_version, observed_from_proto
from topospread.codec.oddities import oddities
from topospread.codec.reservations import reservation_row
from topospread.codec.stored import ends_reservation, object_from_stored, stored
from topospread.errors import CorruptValue, FieldViolation, InvalidRequest, ReplaceIncomplete
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.kube.violations import NOT_SUPPORTED, forbidden, invalid, noted, required
from topospread.replica.replicas import NEWEST_AT_HAND, Consistency
from topospread.replica.view import Token
from topospread.service.asks import DEFAULT_CLUSTER
from topospread.service.pages import PageAsk
from topospread.service.watch import Asked
from topospread.service.write import Incoming, Writes, Written
from topospread.store.api import Key, Kind, LogEntry, Outcome, Remove, StoredObject
from topospread.store.checks import check_cluster, check_size, wrong_words
from topospread.store.progress import OBSERVABLE
from topospread.transports.grpc.calls import Call, Method, StreamIn, StreamOut, Unary
from topospread.transports.grpc.decode import consistency_of, selector_of
from topospread.transports.grpc.encode import meta_of, revision_meta, unreachable_for
from topospread.transports.grpc.mistakes import together
from topospread.transports.grpc.reservation import reservation_message
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from topospread.service.read import Followed, Reads
    from topospread.telemetry.tracing import Attribute
    from topospread.transports.grpc.budget import MemoryBudget

SERVICE: Final = "topospread.v1.ClusterStateService"

OBJECT_BYTES: Final = 1024
"""Memory that an object of a ReplaceObjects takes beside its stored form, at most."""

_OUTCOMES: Final = {
    outcome: pb.ObjectOutcome.Value(f"OBJECT_OUTCOME_{outcome.name}") for outcome in Outcome
}

_BOOKMARK: Final = pb.WatchEvent(type=pb.WATCH_EVENT_TYPE_BOOKMARK)

_JSON_NAMES: Final = {field.name: field.json_name for field in pb.ClusterObject.DESCRIPTOR.fields}


class ClusterStateServicer:
    """Each method takes a request and a call, and raises what the use case raises.

    Args:
        reads: the use cases that read.
        writes: those that write.
        lists: what all ReplaceObjects may keep until their commits have come.
    """

    def __init__(self, reads: Reads, writes: Writes, lists: MemoryBudget) -> None:
        self._reads = reads
        self._writes = writes
        self._lists = lists

    def methods(self) -> dict[str, tuple[Method, str]]:
        """The methods by name, with the pool that each runs on."""
        return {
            "ApplyObjects": (Unary(pb.ApplyObjectsRequest, self.apply), "state"),
            "DeleteObjects": (Unary(pb.DeleteObjectsRequest, self.delete), "state"),
            "ReplaceObjects": (StreamIn(pb.ReplaceObjectsRequest, self.replace), "state"),
            "GetObject": (Unary(pb.GetObjectRequest, self.get), "state"),
            "ListObjects": (Unary(pb.ListObjectsRequest, self.list), "state"),
            "WatchObjects": (StreamOut(pb.WatchObjectsRequest, self.watch), "streams"),
            "GetNodeTable": (Unary(pb.GetNodeTableRequest, self.node_table), "state"),
            "GetCluster": (Unary(pb.GetClusterRequest, self.get_cluster), "state"),
            "ListClusters": (Unary(pb.ListClustersRequest, self.list_clusters), "state"),
            "DeleteCluster": (Unary(pb.DeleteClusterRequest, self.delete_cluster), "state"),
            "AcceptStore": (Unary(pb.AcceptStoreRequest, self.accept_store), "state"),
        }

    # ------------------------------ writes

    def apply(self, request: pb.ApplyObjectsRequest, call: Call) -> pb.ApplyObjectsResponse:
        """ClusterStateService.ApplyObjects."""
        cluster, objects = request.cluster or DEFAULT_CLUSTER, list[Incoming]()
        together(
            partial(check_cluster, cluster),
            lambda: objects.extend(_incoming(request.objects, "objects")),
            *_about_writes(request),
        )
        written = self._writes.apply(
            cluster,
            objects,
            force=request.force,
            timeout=call.left(),
            traced=traced(call, request.cluster),
            fence=_fence(request, "fencingToken"),
            observed=observed_from_proto(request.observed, "observed"),
        )
        keys = [incoming.object.key for incoming in objects]
        warnings = [incoming.warnings for incoming in objects]
        return pb.ApplyObjectsResponse(
            meta=revision_meta(written.token), results=_results(keys, written, warnings)
        )

    def delete(self, request: pb.DeleteObjectsRequest, call: Call) -> pb.DeleteObjectsResponse:
        """ClusterStateService.DeleteObjects."""
        cluster, removals = request.cluster or DEFAULT_CLUSTER, list[Remove]()
        together(
            partial(check_cluster, cluster),
            lambda: removals.extend(_removals(request)),
            *_about_writes(request),
        )
        written = self._writes.delete(
            cluster,
            removals,
            force=request.force,
            timeout=call.left(),
            traced=traced(call, request.cluster),
            fence=_fence(request, "fencingToken"),
            observed=observed_from_proto(request.observed, "observed"),
        )
        keys = [removal.key for removal in removals]
        return pb.DeleteObjectsResponse(
            meta=revision_meta(written.token), results=_results(keys, written)
        )

    def replace(
        self, requests: Iterator[pb.ReplaceObjectsRequest], call: Call
    ) -> pb.ReplaceObjectsResponse:
        """ClusterStateService.ReplaceObjects."""
        first = next(requests, None)
        if first is None:
            raise _incomplete(0)
        if not first.HasField("start"):
            raise InvalidRequest.of([required("start", "the first message must have it")])
        start = first.start
        cluster, version = start.cluster or DEFAULT_CLUSTER, start.resource_version
        together(
            lambda: _check_cluster(cluster, "start"),
            partial(kind_of, start.kind, "start.kind"),
            partial(check_version, version or "0", "start.resourceVersion"),
            partial(_fence, start, "start.fencingToken"),
        )
        with self._lists.share() as take:
            replaced = self._writes.replace(
                cluster,
                kind_of(start.kind, "start.kind"),
                _listed(requests, take, self._writes.most_at_once),
                resource_version=version,
                force=start.force,
                timeout=call.left(),
                traced=traced(call, start.cluster),
                fence=_fence(start, "start.fencingToken"),
            )
        counts = replaced.outcomes
        return pb.ReplaceObjectsResponse(
            meta=revision_meta(replaced.token),
            created_count=counts[Outcome.CREATED],
            updated_count=counts[Outcome.UPDATED],
            unchanged_count=counts[Outcome.UNCHANGED],
            ignored_stale_count=counts[Outcome.IGNORED_STALE],
            deleted_count=counts[Outcome.DELETED],
            warnings=replaced.warnings,
        )

    def delete_cluster(
        self, request: pb.DeleteClusterRequest, call: Call
    ) -> pb.DeleteClusterResponse:
        """ClusterStateService.DeleteCluster."""
        cluster = _named_cluster(request.cluster)
        with traced(call, cluster)("drop", 1):
            count = self._writes.drop(cluster)
        # There is no state any more that a revision could be of.
        return pb.DeleteClusterResponse(meta=common_pb2.ResponseMeta(), object_count=count)

    def accept_store(self, request: pb.AcceptStoreRequest, call: Call) -> pb.AcceptStoreResponse:
        """ClusterStateService.AcceptStore."""
        seen = request.store_identity
        together(
            partial(_named_cluster, request.cluster),
            partial(_required, seen, "storeIdentity", "give what GetCluster tells"),
        )
        cluster = request.cluster
        identity = "" if seen == NO_HISTORY else seen
        token = self._writes.accept(cluster, identity, call.deadline)
        return pb.AcceptStoreResponse(meta=revision_meta(token))

    # ------------------------------ reads

    def get(self, request: pb.GetObjectRequest, call: Call) -> pb.GetObjectResponse:
        """ClusterStateService.GetObject."""
        cluster = request.cluster or DEFAULT_CLUSTER
        together(
            partial(check_cluster, cluster),
            partial(kind_of, request.kind, "kind"),
            partial(_required, request.name, "name"),
            partial(demand_of, request),
        )
        key = _key(request.kind, request.namespace, request.name, "kind")
        self._reads.fresh(cluster, demand_of(request), call.deadline)
        token, found = self._reads.get(cluster, key)
        return pb.GetObjectResponse(meta=revision_meta(token), object=object_from_stored(found))

    def list(self, request: pb.ListObjectsRequest, call: Call) -> pb.ListObjectsResponse:
        """ClusterStateService.ListObjects."""
        cluster, ask = request.cluster or DEFAULT_CLUSTER, page_ask(request)
        together(
            partial(check_cluster, cluster),
            partial(kind_of, request.kind, "kind"),
            partial(label_query, request),
            lambda: ask.most,
            ask.place,
            partial(demand_of, request),
        )
        kind = kind_of(request.kind, "kind")
        self._reads.fresh(cluster, demand_of(request), call.deadline)
        page = self._reads.list(cluster, kind, request.namespace, _label_query(request), ask)
        response = pb.ListObjectsResponse(meta=revision_meta(page.token), next_page_token=page.next)
        for item in page.objects:
            with suppress(CorruptValue):  # counted and logged where it is followed
                response.objects.append(object_from_stored(item))
        return response

    def watch(
        self, request: pb.WatchObjectsRequest, call: Call
    ) -> Iterable[pb.WatchObjectsResponse]:
        """ClusterStateService.WatchObjects."""
        cluster = request.cluster or DEFAULT_CLUSTER
        together(
            partial(check_cluster, cluster),
            partial(_watched_from, request),
            *(
                partial(_watched_kind, kind, f"kinds[{position}]")
                for position, kind in enumerate(request.kinds)
            ),
        )
        after = _watched_from(request)
        kinds = {_watched_kind(kind, "kinds") for kind in request.kinds}
        asked = Asked(cluster, kinds, after, request.send_initial, self._lists.share)
        changes = self._reads.watch(asked, call.active)
        # Who opens watches again tells by it one that was cut from one that never began.
        call.accepted()
        for watched in changes:
            events = [_event(entry) for entry in watched.entries] or [_BOOKMARK]
            yield pb.WatchObjectsResponse(meta=revision_meta(watched.token), events=events)

    def node_table(self, request: pb.GetNodeTableRequest, call: Call) -> pb.GetNodeTableResponse:
        """ClusterStateService.GetNodeTable."""
        cluster = request.cluster or DEFAULT_CLUSTER
        together(partial(check_cluster, cluster), partial(demand_of, request))
        replica, view = self._reads.node_table(cluster, demand_of(request), call.deadline)
        nodes = view.snapshot.nodes
        return pb.GetNodeTableResponse(
            meta=meta_of(view, replica), node_table_id=nodes.id, node_names=nodes.sorted_names
        )

    def get_cluster(self, request: pb.GetClusterRequest, call: Call) -> pb.GetClusterResponse:
        """ClusterStateService.GetCluster."""
        del call
        followed = self._reads.cluster(request.cluster or DEFAULT_CLUSTER)
        replica = followed.replica
        view = None if replica is None else replica.view
        return pb.GetClusterResponse(
            meta=common_pb2.ResponseMeta()
            if replica is None or view is None
            else meta_of(view, replica),
            cluster=_cluster(followed),
        )

    def list_clusters(self, request: pb.ListClustersRequest, call: Call) -> pb.ListClustersResponse:
        """ClusterStateService.ListClusters."""
        ask = page_ask(request)
        together(lambda: ask.most, partial(ask.words, 1))
        found, more = self._reads.clusters(lambda name: call.caller.may(Role.READ, name), ask)
        return pb.ListClustersResponse(
            meta=common_pb2.ResponseMeta(), clusters=map(_cluster, found), next_page_token=more
        )


def page_ask(request: Any) -> PageAsk:
    """Which page of a list is wanted; its token is good for all else that the request says."""
    arguments = type(request)()
    arguments.CopyFrom(request)
    arguments.ClearField("page_size")
    arguments.ClearField("page_token")
    if "cluster" in request.DESCRIPTOR.fields_by_name:
        arguments.cluster = request.cluster or DEFAULT_CLUSTER
    # No two methods have the same request.
    name = request.DESCRIPTOR.full_name.encode()
    written = name + b"\0" + arguments.SerializeToString(deterministic=True)
    return PageAsk(request.page_size, request.page_token, written)


def _named_cluster(name: str) -> str:
    _required(name, "cluster", "no name stands for another here")
    check_cluster(name)
    return name


def _required(value: str, path: str, detail: str = "") -> None:
    if not value:
        raise InvalidRequest.of([required(path, detail)])


def _check_cluster(name: str, path: str) -> None:
    try:
        check_cluster(name)
    except InvalidRequest as wrong:
        raise wrong.under(path) from wrong


def _about_writes(request: Any) -> Sequence[Callable[[], object]]:
    """What reads the rest of an ApplyObjects or DeleteObjects."""
    return (
        partial(_fence, request, "fencingToken"),
        partial(observed_from_proto, request.observed, "observed"),
    )


def _watched_from(request: pb.WatchObjectsRequest) -> Token | None:
    """After which revision a watch begins; None for the present one."""
    if not request.revision:
        return None
    if request.send_initial:
        raise InvalidRequest.of([forbidden("revision", "not with sendInitial")])
    try:
        return Token.decode(request.revision)
    except InvalidRequest as wrong:
        raise wrong.under("revision") from wrong


def _fence(request: Any, path: str) -> int:
    """The fencing token of a write; 0 for one that has none.

    Raises:
        InvalidRequest: a number that no lease's token is.
    """
    if not request.HasField("fencing_token"):
        return 0
    fence: int = request.fencing_token
    if fence <= 0:
        raise InvalidRequest.of([invalid(path, fence, "must be that of a lease, or absent")])
    return fence


def kind_of(kind: int, path: str) -> Kind:
    """The store's kind of objects that callers write.

    Raises:
        InvalidRequest: none, or one that is not known.
    """
    return _kind_of(kind, path, OBSERVABLE)


def _watched_kind(kind: int, path: str) -> Kind:
    return _kind_of(kind, path, (*OBSERVABLE, Kind.RESERVATION))


def _kind_of(kind: int, path: str, known: Sequence[Kind]) -> Kind:
    # The store's kinds have the same numbers.
    found = next((each for each in known if each.value == kind), None)
    if found is None:
        names = ", ".join(f"KIND_{each.name}" for each in known)
        text = f"must be one of {names}"
        raise InvalidRequest.of([FieldViolation(path, text, NOT_SUPPORTED, kind)])
    return found


def _key(kind: int, namespace: str, name: str, path: str) -> Key:
    known = kind_of(kind, path)
    return Key(known, "" if known is Kind.NODE else namespace or DEFAULT_NAMESPACE, name)


def _incoming(objects: Iterable[pb.ClusterObject], path: str) -> list[Incoming]:
    """Objects in their stored form; everything that cannot be stored is said at once."""
    incoming: list[Incoming] = []
    violations: list[FieldViolation] = []
    for position, message in enumerate(objects):
        arm = _JSON_NAMES.get(message.WhichOneof("content") or "")
        here = f"{path}[{position}].{arm}" if arm else f"{path}[{position}]"
        with noted(violations, here):
            kept = stored(message)
            check_size(kept, here)
            incoming.append(Incoming(kept, tuple(oddities(message)), ends_reservation(message)))
    if violations:
        raise InvalidRequest.of(violations)
    return incoming


def _listed(
    requests: Iterator[pb.ReplaceObjectsRequest], take: Callable[[int], None], most: int
) -> Iterator[list[Incoming]]:
    """The batches of a list between its start and its commit, which must be the last message.

    Args:
        requests: the messages after the start.
        take: told of the memory of each batch before it is kept.
        most: objects of a batch.

    Raises:
        ReplaceIncomplete: there was no commit.
        InvalidRequest: a message that does not belong there, or not as many objects as it has.
    """
    count = 0
    for number, message in enumerate(requests, 1):
        if message.HasField("batch"):
            sent = len(message.batch.objects)
            if sent > most:
                text = f"{sent} in one batch, at most {most}: split them (batch {number})"
                raise InvalidRequest.at("batch.objects", text, "Too many")
            try:
                batch = _incoming(message.batch.objects, "batch.objects")
            except InvalidRequest as wrong:
                raise wrong.noting(f"batch {number}") from wrong
            count += len(batch)
            take(sum(map(_memory_of, batch)))
            yield batch
        elif message.HasField("commit"):
            said = message.commit.object_count
            break
        elif message.HasField("start"):
            raise InvalidRequest.of([forbidden("start", "only the first message may have it")])
        else:
            raise InvalidRequest.of([required("batch", "give a batch, or the commit")])
    else:
        raise _incomplete(count)
    if next(requests, None) is not None:
        raise InvalidRequest.of([forbidden("commit", "it must be in the last message")])
    if said != count:
        text = f"{count} objects have arrived: nothing was changed: send the whole list again"
        raise InvalidRequest.of([invalid("commit.objectCount", said, text)])


def _memory_of(incoming: Incoming) -> int:
    return OBJECT_BYTES + len(incoming.object.payload) + sum(map(len, incoming.warnings))


def _incomplete(count: int) -> ReplaceIncomplete:
    return ReplaceIncomplete(
        f"the list ended after {count} objects without a commit: nothing was changed: send the"
        " whole list again"
    )


def _removals(request: pb.DeleteObjectsRequest) -> list[Remove]:
    removals: list[Remove] = []
    violations: list[FieldViolation] = []
    for position, reference in enumerate(request.objects):
        path = f"objects[{position}]"
        if not reference.name:
            violations.append(required(f"{path}.name", ""))
            continue
        with noted(violations):
            key = _key(reference.kind, reference.namespace, reference.name, f"{path}.kind")
            wrong = wrong_words(key, reference.uid, reference.resource_version)
            violations += [each.below(path) for each in wrong]
            removals.append(Remove(key, reference.uid, reference.resource_version))
    if violations:
        raise InvalidRequest.of(violations)
    return removals


def _results(
    keys: Sequence[Key], written: Written, warnings: Sequence[Sequence[str]] | None = None
) -> list[pb.ObjectResult]:
    said = warnings or [()] * len(keys)
    return [
        pb.ObjectResult(
            kind=key.kind.value,  # type: ignore[arg-type] # the numbers are the same
            namespace=key.namespace,
            name=key.name,
            outcome=_OUTCOMES[outcome],
            warnings=odd,
        )
        for key, outcome, odd in zip(keys, written.outcomes, said, strict=True)
    ]


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


def label_query(request: Any) -> Callable[[Mapping[str, str]], bool] | None:
    """Which labels a list asks for; None for all.

    Raises:
        InvalidRequest: the selector is none.
    """
    if not request.HasField("label_selector"):
        return None
    return selector_of(request.label_selector, "labelSelector").matches


def _label_query(request: pb.ListObjectsRequest) -> Callable[[StoredObject], bool]:
    chosen = label_query(request)
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


NO_HISTORY: Final = "none"
"""The identity of a store that holds nothing of a cluster."""


def _cluster(followed: Followed) -> pb.Cluster:
    replica, head = followed.replica, followed.head
    written = 0 if head is None else head.revision.number
    identity = "" if head is None else head.identity
    view = None if replica is None else replica.view
    if replica is None or view is None:
        return pb.Cluster(name=followed.name, lag=written, store_identity=identity or NO_HISTORY)
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
        corrupt_count=replica.corrupt,
        label_set_count=snapshot.label_sets,
        identity_changed=replica.identity_changed,
        store_identity=identity or NO_HISTORY,
        observed=meta.observed,
    )


def demand_of(request: Any) -> Consistency:
    """How fresh the state behind an answer must be."""
    return (
        consistency_of(request.consistency) if request.HasField("consistency") else NEWEST_AT_HAND
    )


def traced(call: Call, cluster: str) -> Callable[[str, int], AbstractContextManager[object]]:
    """Writes to the store are child spans of the call."""
    call.span.set("topospread.cluster", cluster or DEFAULT_CLUSTER)

    def child(operation: str, changes: int) -> AbstractContextManager[object]:
        attributes: dict[str, Attribute] = {
            "topospread.cluster": cluster or DEFAULT_CLUSTER,
            "topospread.store.operation": operation,
            "topospread.store.changes": changes,
        }
        return call.span.child(f"store {operation}", attributes)

    return child
