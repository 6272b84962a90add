"""topospread.v1.ClusterState: decode, call the use case, encode."""

from __future__ import annotations

from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.timestamp_pb2 import Timestamp

from topospread.access.callers import Role
from topospread.codec.oddities import oddities
from topospread.codec.pods import selector_from_proto
from topospread.codec.stored import ends_reservation, object_from_stored, stored
from topospread.errors import CorruptValue, FieldViolation, InvalidRequest, ReplaceIncomplete
from topospread.kube.objects import DEFAULT_NAMESPACE
from topospread.kube.selectors import SelectorError, compile_selector
from topospread.replica.replicas import NEWEST_AT_HAND, Consistency
from topospread.replica.view import Token
from topospread.service.asks import DEFAULT_CLUSTER
from topospread.service.write import Incoming, Writes, Written
from topospread.store.api import Key, Kind, LogEntry, Outcome, Remove, StoredObject
from topospread.transports.grpc.calls import Call, Method, StreamIn, StreamOut, Unary
from topospread.transports.grpc.decode import consistency_of
from topospread.transports.grpc.encode import stale_for
from topospread_proto.v1 import cluster_state_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from topospread.service.read import Followed, Reads
    from topospread.telemetry.tracing import Attribute
    from topospread.transports.grpc.budget import MemoryBudget

SERVICE: Final = "topospread.v1.ClusterState"

OBJECT_BYTES: Final = 1024
"""Memory that an object of a Replace takes beside its stored form, at most."""

_OUTCOMES: Final = {outcome: pb.Outcome.Value(f"OUTCOME_{outcome.name}") for outcome in Outcome}


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """What ListClusters says of the server itself.

    Attributes:
        config: (generation, error) of the configuration.
        started: seconds since 1970.
        settings: digest of the settings that answers depend on, and the names of those that another
            server of the store has otherwise.
    """

    version: str
    store: str
    started: float
    config: Callable[[], tuple[int, str]]
    settings: Callable[[], tuple[str, Sequence[str]]]


class ClusterStateServicer:
    """Each method takes a request and a call, and raises what the use case raises.

    Args:
        reads: the use cases that read.
        writes: those that write.
        facts: what ListClusters says of the server.
        lists: what all Replaces may keep until their commits have come.
    """

    def __init__(
        self, reads: Reads, writes: Writes, facts: ServerFacts, lists: MemoryBudget
    ) -> None:
        self._reads = reads
        self._writes = writes
        self._facts = facts
        self._lists = lists

    def methods(self) -> dict[str, tuple[Method, str]]:
        """The methods by name, with the pool that each runs on."""
        return {
            "Apply": (Unary(pb.ApplyRequest, self.apply), "state"),
            "Delete": (Unary(pb.DeleteRequest, self.delete), "state"),
            "Replace": (StreamIn(pb.ReplaceRequest, self.replace), "state"),
            "Get": (Unary(pb.GetRequest, self.get), "state"),
            "List": (Unary(pb.ListRequest, self.list), "state"),
            "Watch": (StreamOut(pb.WatchRequest, self.watch), "streams"),
            "NodeTable": (Unary(pb.NodeTableRequest, self.node_table), "state"),
            "ListClusters": (Unary(pb.ListClustersRequest, self.list_clusters), "state"),
            "DropCluster": (Unary(pb.DropClusterRequest, self.drop_cluster), "state"),
            "AcceptStore": (Unary(pb.AcceptStoreRequest, self.accept_store), "state"),
        }

    # ------------------------------ writes

    def apply(self, request: pb.ApplyRequest, call: Call) -> pb.ApplyResponse:
        """ClusterState.Apply."""
        objects = _incoming(request.objects)
        written = self._writes.apply(
            request.cluster or DEFAULT_CLUSTER,
            objects,
            force=request.force,
            timeout=call.left(),
            traced=traced(call, request.cluster),
            fence=request.fence,
        )
        keys = [incoming.object.key for incoming in objects]
        warnings = [incoming.warnings for incoming in objects]
        return pb.ApplyResponse(revision=written.token, results=_results(keys, written, warnings))

    def delete(self, request: pb.DeleteRequest, call: Call) -> pb.DeleteResponse:
        """ClusterState.Delete."""
        removals = _removals(request)
        written = self._writes.delete(
            request.cluster or DEFAULT_CLUSTER,
            removals,
            force=request.force,
            timeout=call.left(),
            traced=traced(call, request.cluster),
            fence=request.fence,
        )
        keys = [removal.key for removal in removals]
        return pb.DeleteResponse(revision=written.token, results=_results(keys, written))

    def replace(self, requests: Iterator[pb.ReplaceRequest], call: Call) -> pb.ReplaceResponse:
        """ClusterState.Replace."""
        first = next(requests, None)
        if first is None:
            raise _incomplete(0)
        if not first.HasField("start"):
            raise InvalidRequest("start: the first message of a Replace must have it")
        start = first.start
        with self._lists.share() as take:
            replaced = self._writes.replace(
                start.cluster or DEFAULT_CLUSTER,
                kind_of(start.kind, "start.kind"),
                _listed(requests, take),
                resource_version=start.resource_version,
                force=start.force,
                timeout=call.left(),
                traced=traced(call, start.cluster),
                fence=start.fence,
            )
        counts = replaced.outcomes
        return pb.ReplaceResponse(
            revision=replaced.token,
            created=counts[Outcome.CREATED],
            updated=counts[Outcome.UPDATED],
            unchanged=counts[Outcome.UNCHANGED],
            ignored_stale=counts[Outcome.IGNORED_STALE],
            deleted=counts[Outcome.DELETED],
            warnings=replaced.warnings,
        )

    def drop_cluster(self, request: pb.DropClusterRequest, call: Call) -> pb.DropClusterResponse:
        """ClusterState.DropCluster."""
        cluster = request.cluster or DEFAULT_CLUSTER
        with traced(call, cluster)("drop", 1):
            objects = self._writes.drop(cluster)
        return pb.DropClusterResponse(objects=objects)

    def accept_store(self, request: pb.AcceptStoreRequest, call: Call) -> pb.AcceptStoreResponse:
        """ClusterState.AcceptStore."""
        cluster = request.cluster or DEFAULT_CLUSTER
        return pb.AcceptStoreResponse(revision=self._writes.accept(cluster, call.deadline))

    # ------------------------------ reads

    def get(self, request: pb.GetRequest, call: Call) -> pb.GetResponse:
        """ClusterState.Get."""
        cluster = request.cluster or DEFAULT_CLUSTER
        if not request.name:
            raise InvalidRequest.of([FieldViolation("name", "", "Required value")])
        self._reads.fresh(cluster, _consistency(request), call.deadline)
        key = _key(request.kind, request.namespace, request.name, "kind")
        token, found = self._reads.get(cluster, key)
        return pb.GetResponse(revision=token, object=object_from_stored(found))

    def list(self, request: pb.ListRequest, call: Call) -> pb.ListResponse:
        """ClusterState.List."""
        cluster = request.cluster or DEFAULT_CLUSTER
        self._reads.fresh(cluster, _consistency(request), call.deadline)
        page = self._reads.list(
            cluster,
            kind_of(request.kind, "kind"),
            request.namespace,
            _label_query(request),
            request.page_size,
            request.page_token,
        )
        response = pb.ListResponse(revision=page.token, next_page_token=page.next)
        for item in page.objects:
            with suppress(CorruptValue):  # counted and logged where it is followed
                response.objects.append(object_from_stored(item))
        return response

    def watch(self, request: pb.WatchRequest, call: Call) -> Iterable[pb.WatchResponse]:
        """ClusterState.Watch."""
        cluster = request.cluster or DEFAULT_CLUSTER
        kinds = {kind_of(kind, f"kinds[{i}]") for i, kind in enumerate(request.kinds)}
        after = Token.decode(request.revision) if request.revision else None
        for token, entries in self._reads.watch(cluster, after, call.active):
            events = [
                _event(entry)
                for entry in entries
                if entry.key.kind is not Kind.RESERVATION and (not kinds or entry.key.kind in kinds)
            ]
            if events:
                yield pb.WatchResponse(revision=token, events=events)

    def node_table(self, request: pb.NodeTableRequest, call: Call) -> pb.NodeTableResponse:
        """ClusterState.NodeTable."""
        replica, view = self._reads.node_table(
            request.cluster or DEFAULT_CLUSTER, _consistency(request), call.deadline
        )
        nodes = view.snapshot.nodes
        return pb.NodeTableResponse(
            revision=view.token,
            stale_for=stale_for(replica),
            node_table=nodes.id,
            names=nodes.sorted_names,
        )

    def list_clusters(self, request: pb.ListClustersRequest, call: Call) -> pb.ListClustersResponse:
        """ClusterState.ListClusters."""
        del request
        generation, error = self._facts.config()
        digest, differing = self._facts.settings()
        started = Timestamp()
        started.FromMicroseconds(int(self._facts.started * 1e6))
        # These tell of all clusters: where they are, and what their configuration names.
        all_of_it = call.caller.may_everywhere(Role.READ)
        return pb.ListClustersResponse(
            clusters=[
                _cluster_status(followed)
                for followed in self._reads.clusters()
                if call.caller.may(Role.READ, followed.name)
            ],
            server_version=self._facts.version,
            store=self._facts.store if all_of_it else "",
            started_at=started,
            config_generation=generation,
            config_error=error if all_of_it else "",
            settings_digest=digest,
            differing_settings=differing if all_of_it else (),
        )


def kind_of(kind: int, path: str) -> Kind:
    """The store's kind.

    Raises:
        InvalidRequest: none, or one that is not known.
    """
    try:
        # The store's kinds have the same numbers; reservations are no objects of the cluster.
        pb.Kind.Name(kind)  # type: ignore[arg-type] # whatever was sent
        return Kind(kind)
    except ValueError as cause:
        known = ", ".join(name for name in pb.Kind.keys() if name != "KIND_UNSPECIFIED")  # noqa: SIM118 - an enum wrapper
        raise InvalidRequest.of(
            [FieldViolation(path, f"must be one of {known}", "Unsupported value", kind)]
        ) from cause


def _key(kind: int, namespace: str, name: str, path: str) -> Key:
    known = kind_of(kind, path)
    return Key(known, "" if known is Kind.NODE else namespace or DEFAULT_NAMESPACE, name)


def _incoming(objects: Iterable[pb.Object]) -> list[Incoming]:
    """Objects in their stored form; everything that cannot be stored is said at once."""
    incoming: list[Incoming] = []
    violations: list[FieldViolation] = []
    for position, message in enumerate(objects):
        try:
            incoming.append(
                Incoming(stored(message), tuple(oddities(message)), ends_reservation(message))
            )
        except InvalidRequest as refused:
            path = f"objects[{position}]"
            inner = refused.violations or (FieldViolation("", str(refused)),)
            violations += [
                FieldViolation(f"{path}.{v.field}".rstrip("."), v.description, v.type, v.bad_value)
                for v in inner
            ]
    if violations:
        raise InvalidRequest.of(violations)
    return incoming


def _listed(
    requests: Iterator[pb.ReplaceRequest], take: Callable[[int], None]
) -> Iterator[Incoming]:
    """The objects of a list between its start and its commit, which must be the last message.

    Args:
        requests: the messages after the start.
        take: told of the memory of each batch before it is kept.

    Raises:
        ReplaceIncomplete: there was no commit.
        InvalidRequest: a message that does not belong there, or not as many objects as it has.
    """
    count = 0
    for message in requests:
        if message.HasField("batch"):
            batch = _incoming(message.batch.objects)
            count += len(batch)
            take(sum(map(_memory_of, batch)))
            yield from batch
        elif message.HasField("commit"):
            said = message.commit.object_count
            break
        elif message.HasField("start"):
            raise InvalidRequest("start: only the first message of a Replace may have it")
        else:
            raise InvalidRequest(
                "step: each message of a Replace needs one that this server knows: start, batch or"
                " commit"
            )
    else:
        raise _incomplete(count)
    if next(requests, None) is not None:
        raise InvalidRequest("commit: it must be in the last message of a Replace")
    if said != count:
        raise InvalidRequest(
            f"commit.objectCount: it says {said}, but {count} objects have arrived: nothing was"
            " changed: send the whole list again"
        )


def _memory_of(incoming: Incoming) -> int:
    return OBJECT_BYTES + len(incoming.object.payload) + sum(map(len, incoming.warnings))


def _incomplete(count: int) -> ReplaceIncomplete:
    return ReplaceIncomplete(
        f"the list ended after {count} objects without a commit: nothing was changed: send the"
        " whole list again"
    )


def _removals(request: pb.DeleteRequest) -> list[Remove]:
    removals: list[Remove] = []
    violations: list[FieldViolation] = []
    for position, reference in enumerate(request.objects):
        path = f"objects[{position}]"
        if not reference.name:
            violations.append(FieldViolation(f"{path}.name", "", "Required value"))
            continue
        key = _key(reference.kind, reference.namespace, reference.name, f"{path}.kind")
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
    event = pb.WatchEvent(
        type=pb.WatchEvent.TYPE_DELETED if entry.object is None else pb.WatchEvent.TYPE_APPLIED,
        kind=entry.key.kind.value,  # type: ignore[arg-type] # the numbers are the same
        namespace=entry.key.namespace,
        name=entry.key.name,
    )
    if entry.object is not None:
        with suppress(CorruptValue):  # counted and logged where it is followed
            event.object.CopyFrom(object_from_stored(entry.object))
    return event


def _label_query(request: pb.ListRequest) -> Callable[[StoredObject], bool]:
    if not request.HasField("label_selector"):
        return lambda _: True
    try:
        selector = compile_selector(selector_from_proto(request.label_selector))
    except SelectorError as cause:
        raise InvalidRequest.of([FieldViolation("labelSelector", str(cause))]) from cause

    def matches(item: StoredObject) -> bool:
        try:
            message = object_from_stored(item)
        except CorruptValue:
            return False
        content: Any = getattr(message, message.WhichOneof("object") or "")
        return selector.matches(content.metadata.labels)

    return matches


def _cluster_status(followed: Followed) -> pb.ClusterStatus:
    replica, head = followed.replica, followed.head
    written = 0 if head is None else head.revision.number
    view = None if replica is None else replica.view
    if replica is None or view is None:
        return pb.ClusterStatus(name=followed.name, lag=written)
    # What another history has written is nothing that this one lags behind.
    lag = written - view.revision.number if head and head.identity == view.identity else replica.lag
    snapshot = view.snapshot
    stale = stale_for(replica)
    return pb.ClusterStatus(
        name=followed.name,
        loaded=True,
        revision=view.token,
        lag=max(0, lag),
        stale_for=stale,
        nodes=snapshot.node_count,
        pods=snapshot.pods,
        workloads=snapshot.workload_count,
        reservations=len(snapshot.reservations),
        groups=len(snapshot.groups),
        corrupt=replica.corrupt,
        identity_changed=replica.identity_changed,
        label_sets=snapshot.label_sets,
    )


def _consistency(request: Any) -> Consistency:
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
