"""topospread.v1.ClusterStateService, the methods that write: decode, call the use case, encode."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.api.decode import any_kind, check_required, object_key, object_kind
from topospread.api.envelope import read_cluster
from topospread.calls.call import Call, ClientStreaming, Method, Unary, store_spans
from topospread.codec.pods import check_version, observed_from_proto
from topospread.codec.stored import ends_reservation, stored, warnings_of
from topospread.errors import InvalidRequest, ReplaceIncomplete
from topospread.kube.versions import parse_version
from topospread.kube.violations import Problems, duplicate, forbidden, invalid, required
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread.service.messages import revision_meta
from topospread.service.state.write import IncomingObjects, WriteResult
from topospread.store.checks import check_cluster, check_size, wrong_words
from topospread.store.model import Key, Kind, Remove, WriteOutcome
from topospread.store.values import OBJECT_KINDS
from topospread.wording import counted
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from topospread.kube.versions import KubernetesVersion
    from topospread.service.state.write import StateWriter


OBJECT_BYTES: Final = 1024
"""Memory that an object of a ReplaceObjects takes beside its stored form, at most."""

MAX_REASON: Final = 200
"""Bytes that say why a kind is unknown: each replica has them, and answers repeat them."""

_OUTCOMES: Final = {
    outcome: pb.ObjectOutcome.Value(f"OBJECT_OUTCOME_{outcome.name}") for outcome in WriteOutcome
}

_MAY_LACK: Final = {kind.value for kind in OBJECT_KINDS}
"""Kinds that a feed may list whether it names them or not: those that it may do without."""

_JSON_NAMES: Final = {field.name: field.json_name for field in pb.ClusterObject.DESCRIPTOR.fields}


class ClusterStateWriteServicer:
    """The methods that write.

    Args:
        writes: the use cases.
    """

    def __init__(self, writes: StateWriter) -> None:
        self._writes = writes

    def methods(self) -> dict[str, Method]:
        return {
            "ApplyObjects": Unary(pb.ApplyObjectsRequest, self.apply),
            "DeleteObjects": Unary(pb.DeleteObjectsRequest, self.delete),
            "ReplaceObjects": ClientStreaming(pb.ReplaceObjectsRequest, self.replace),
            "DeleteCluster": Unary(pb.DeleteClusterRequest, self.delete_cluster),
        }

    def apply(self, request: pb.ApplyObjectsRequest, call: Call) -> pb.ApplyObjectsResponse:
        wrong = Problems()
        cluster = read_cluster(request, wrong)
        objects = wrong.read(_incoming, request.objects, "objects")
        observed = wrong.read(observed_from_proto, request.observed, "observed")
        unknown = wrong.read(_unknown_kinds, request)
        wrong.raise_all()
        written = self._writes.apply(
            cluster,
            objects,
            force=request.force,
            timeout=call.time_left(),
            traced=store_spans(call, request.cluster),
            observed=observed,
            unknown=unknown,
        )
        keys = [incoming.object.key for incoming in objects]
        warnings = [incoming.warnings for incoming in objects]
        return pb.ApplyObjectsResponse(
            meta=revision_meta(written.token), results=_results(keys, written, warnings)
        )

    def delete(self, request: pb.DeleteObjectsRequest, call: Call) -> pb.DeleteObjectsResponse:
        wrong = Problems()
        cluster = read_cluster(request, wrong)
        removals = wrong.read(_removals, request)
        observed = wrong.read(observed_from_proto, request.observed, "observed")
        wrong.raise_all()
        written = self._writes.delete(
            cluster,
            removals,
            force=request.force,
            timeout=call.time_left(),
            traced=store_spans(call, request.cluster),
            observed=observed,
        )
        keys = [removal.key for removal in removals]
        return pb.DeleteObjectsResponse(
            meta=revision_meta(written.token), results=_results(keys, written)
        )

    def replace(
        self, requests: Iterator[pb.ReplaceObjectsRequest], call: Call
    ) -> pb.ReplaceObjectsResponse:
        fields: dict[str, object] = {"objects": 0, "committed": False}
        call.fields = fields
        first = next(requests, None)
        if first is None:
            raise _incomplete(0)
        if not first.HasField("start"):
            raise InvalidRequest.of([required("start", "the first message must have it")])
        start = first.start
        cluster, version = start.cluster or DEFAULT_CLUSTER, start.resource_version
        wrong = Problems()
        wrong.read(_check_started, cluster)
        kind = wrong.read(object_kind, start.kind, "start.kind")
        wrong.read(check_version, version or "0", "start.resourceVersion")
        kinds = wrong.read(_feed_kinds, start.kind, start.kinds)
        reported = wrong.read(_reported_version, start.kubernetes_version)
        wrong.raise_all()
        with call.memory() as take:
            replaced = self._writes.replace(
                cluster,
                kind,
                _listed(requests, take, self._writes.limits.batch, fields),
                resource_version=version,
                force=start.force,
                timeout=call.time_left(),
                traced=store_spans(call, start.cluster),
                kinds=kinds,
                kubernetes_version=reported,
            )
        counts = replaced.outcomes
        return pb.ReplaceObjectsResponse(
            meta=revision_meta(replaced.token),
            created_count=counts[WriteOutcome.CREATED],
            updated_count=counts[WriteOutcome.UPDATED],
            unchanged_count=counts[WriteOutcome.UNCHANGED],
            ignored_stale_count=counts[WriteOutcome.IGNORED_STALE],
            deleted_count=counts[WriteOutcome.DELETED],
            warnings=replaced.warnings,
        )

    def delete_cluster(
        self, request: pb.DeleteClusterRequest, call: Call
    ) -> pb.DeleteClusterResponse:
        cluster = _named_cluster(request.cluster)
        with store_spans(call, cluster)("drop", 1):
            count = self._writes.drop(cluster)
        # There is no state any more that a revision could be of.
        return pb.DeleteClusterResponse(meta=common_pb2.ResponseMeta(), object_count=count)


def _named_cluster(name: str) -> str:
    check_required(name, "cluster", "no name stands for another here")
    check_cluster(name)
    return name


def _check_started(cluster: str) -> None:
    try:
        check_cluster(cluster)
    except InvalidRequest as wrong:
        raise wrong.under("start") from wrong


def _feed_kinds(kind: int, kinds: Iterable[int]) -> frozenset[Kind]:
    """All kinds that the feed of a list lists; none where it does not say.

    Raises:
        InvalidRequest: one that is not known, or the list's is not among them though every feed
            lists it.
    """
    wrong = Problems()
    found = {
        wrong.read(object_kind, each, f"start.kinds[{position}]")
        for position, each in enumerate(kinds)
    }
    wrong.raise_all()
    if found and kind not in {each.value for each in found} | _MAY_LACK:
        text = "start.kind must be among them, as it is no kind that a feed may do without"
        raise InvalidRequest.of([required("start.kinds", text)])
    return frozenset(found)


def _reported_version(text: str) -> KubernetesVersion | None:
    """The version of the API server; None where the feed does not say.

    Raises:
        InvalidRequest: it is none.
    """
    version = parse_version(text) if text else None
    if text and version is None:
        words = "must be a version such as 1.37, or what an API server says of itself: v1.37.2"
        raise InvalidRequest.of([invalid("start.kubernetesVersion", text[:64], words)])
    return version


def _unknown_kinds(request: pb.ApplyObjectsRequest) -> dict[Kind, str]:
    """Why the writer does not read some kinds.

    Raises:
        InvalidRequest: a kind that every feed reads, one that is observed or given twice, or no
            reason, or a long one.
    """
    found: dict[Kind, str] = {}
    wrong = Problems()
    seen = {each.kind for each in request.observed}
    for position, each in enumerate(request.unknown_kinds):
        path = f"unknownKinds[{position}]"
        if len(wrong.violations) > len(OBJECT_KINDS):
            break  # as many may be sent as a request holds
        with wrong.under():
            kind = any_kind(each.kind, f"{path}.kind", OBJECT_KINDS)
            if each.kind in seen:
                wrong.add(duplicate(f"{path}.kind", f"KIND_{kind.name}"))
            if not 0 < len(each.reason.encode()) <= MAX_REASON:
                text = f"must have 1 to {MAX_REASON} bytes"
                wrong.add(invalid(f"{path}.reason", each.reason[:MAX_REASON], text))
            seen.add(each.kind)
            found[kind] = each.reason
    wrong.raise_all()
    return found


def _incoming(objects: Iterable[pb.ClusterObject], path: str) -> list[IncomingObjects]:
    """Objects in their stored form.

    Raises:
        InvalidRequest: with the violations of all objects that cannot be stored.
    """
    incoming: list[IncomingObjects] = []
    wrong = Problems()
    for position, message in enumerate(objects):
        arm = _JSON_NAMES.get(message.WhichOneof("content") or "")
        here = f"{path}[{position}].{arm}" if arm else f"{path}[{position}]"
        with wrong.under(here):
            kept = stored(message)
            check_size(kept, here)
            incoming.append(
                IncomingObjects(kept, tuple(warnings_of(message)), ends_reservation(message))
            )
    wrong.raise_all()
    return incoming


def _listed(
    requests: Iterator[pb.ReplaceObjectsRequest],
    take: Callable[[int], object],
    max_objects: int,
    fields: dict[str, object],
) -> Iterator[list[IncomingObjects]]:
    """The batches of a list between its start and its commit, which must be the last message.

    Args:
        requests: the messages after the start.
        take: reserves the memory of each batch before it is kept.
        max_objects: of a batch.
        fields: for the audit log. A list without its commit was cut, and has changed nothing.

    Raises:
        ReplaceIncomplete: there was no commit.
        InvalidRequest: a message out of order, or a commit with another number of objects.
    """
    count = 0
    for number, message in enumerate(requests, 1):
        if message.HasField("batch"):
            sent = len(message.batch.objects)
            fields["objects"] = count + sent
            if sent > max_objects:
                text = f"{sent} in one batch, at most {max_objects}: split them (batch {number})"
                raise InvalidRequest.at("batch.objects", text, "Too many")
            try:
                batch = _incoming(message.batch.objects, "batch.objects")
            except InvalidRequest as wrong:
                raise wrong.noting(f"batch {number}") from wrong
            count += len(batch)
            take(sum(map(_memory_of, batch)))
            yield batch
        elif message.HasField("commit"):
            expected = message.commit.object_count
            fields["committed"] = True
            break
        elif message.HasField("start"):
            raise InvalidRequest.of([forbidden("start", "only the first message may have it")])
        else:
            raise InvalidRequest.of([required("batch", "give a batch, or the commit")])
    else:
        raise _incomplete(count)
    if next(requests, None) is not None:
        raise InvalidRequest.of([forbidden("commit", "it must be in the last message")])
    if expected != count:
        text = f"{_objects(count)} arrived: nothing was changed: send the whole list again"
        raise InvalidRequest.of([invalid("commit.objectCount", expected, text)])


def _objects(count: int) -> str:
    return counted(count, "object")


def _memory_of(incoming: IncomingObjects) -> int:
    return OBJECT_BYTES + len(incoming.object.payload) + sum(map(len, incoming.warnings))


def _incomplete(count: int) -> ReplaceIncomplete:
    return ReplaceIncomplete(
        f"the list ended after {_objects(count)} without a commit: nothing was changed: send the"
        " whole list again"
    )


def _removals(request: pb.DeleteObjectsRequest) -> list[Remove]:
    removals: list[Remove] = []
    wrong = Problems()
    for position, reference in enumerate(request.objects):
        path = f"objects[{position}]"
        if not reference.name:
            wrong.add(required(f"{path}.name", ""))
            continue
        with wrong.under():
            key = object_key(reference.kind, reference.namespace, reference.name, f"{path}.kind")
            words = wrong_words(key, reference.uid, reference.resource_version)
            wrong.add(*[each.below(path) for each in words])
            removals.append(Remove(key, reference.uid, reference.resource_version))
    wrong.raise_all()
    return removals


def _results(
    keys: Sequence[Key], written: WriteResult, warnings: Sequence[Sequence[str]] | None = None
) -> list[pb.ObjectResult]:
    warned = warnings or [()] * len(keys)
    return [
        pb.ObjectResult(
            kind=key.kind.value,  # type: ignore[arg-type] # the numbers are the same
            namespace=key.namespace,
            name=key.name,
            outcome=_OUTCOMES[outcome],
            warnings=texts,
        )
        for key, outcome, texts in zip(keys, written.outcomes, warned, strict=True)
    ]
