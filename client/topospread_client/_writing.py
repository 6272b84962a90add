"""Operations of ClusterStateService that write: ApplyObjects, DeleteObjects, ReplaceObjects.

A server's limit of objects for one request is requested once it has refused a request, which leaves
the state unchanged.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from topospread_client import _arguments as arguments
from topospread_client import _decoding as decoding
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._answers import Answer, ResponseMeta
from topospread_client._errors import InvalidRequest, TopospreadClientError
from topospread_client._operations import ClientSession, Operation, call, call_with_retry
from topospread_client._references import ObjectReference, kind_message, versions
from topospread_client._state import get_server_info
from topospread_proto.v1 import cluster_state_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from topospread_client._enums import Kind, ObjectOutcome
    from topospread_client._references import ResourceVersion
    from topospread_client._requests import KeptObject


@dataclass(frozen=True, slots=True)
class ObjectResult:
    """Outcome of writing one object, with the warnings about it."""

    kind: Kind
    namespace: str
    name: str
    outcome: ObjectOutcome
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class _WriteResponse(Answer):
    """Results of a write by object, in order."""

    results: tuple[ObjectResult, ...]

    def counts(self) -> dict[ObjectOutcome, int]:
        """Number of objects for each outcome."""
        return dict(Counter(result.outcome for result in self.results))


@dataclass(frozen=True, kw_only=True)
class ApplyObjectsResponse(_WriteResponse):
    """Results by object, in order; the revision contains all of them."""


@dataclass(frozen=True, kw_only=True)
class DeleteObjectsResponse(_WriteResponse):
    """Results by object, in order; the revision contains none of them."""


@dataclass(frozen=True, kw_only=True)
class ReplaceObjectsResponse(Answer):
    """Changes of the stored objects of one kind."""

    created_count: int
    updated_count: int
    unchanged_count: int
    ignored_stale_count: int
    deleted_count: int
    warnings: tuple[str, ...]


_T = TypeVar("_T")
_W = TypeVar("_W", ApplyObjectsResponse, DeleteObjectsResponse)

_DEFAULT_BATCH_SIZE: Final = 500
"""Default limit of a server for the objects of one request."""


def apply_objects(
    session: ClientSession,
    objects: Iterable[KeptObject],
    *,
    cluster: str | None = None,
    force: bool = False,
    fencing_token: int | None = None,
    observed: Iterable[ResourceVersion] = (),
    progress: Callable[[int, int], None] | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ApplyObjectsResponse]:
    """Write objects, in atomic steps of as many as the server takes in one request.

    A step is retried when the server was out of reach if all of its objects have a
    resourceVersion: then writes of others after a first try, whose response was lost, stay. It is
    not retried with objects that have none, nor with force.

    Args:
        objects: messages or manifests of the kinds that a server keeps.
        cluster: None takes the client's.
        force: write also what is older than the stored version.
        fencing_token: of the lease; None for callers that do not hold it.
        observed: how far the writer has read the API server, these objects included; sent with
            the last step.
        progress: called after each step with the objects written so far and all there are.
        timeout: seconds for each step; None takes the client's.
        traceparent: parent of the server's spans.

    Returns:
        One result for each object, in order, and the revision that contains them all.

    Raises:
        InvalidRequest: an object that cannot be stored; the steps before it are written.
        Fenced: another process holds the lease now.
        Unavailable: the store is out of reach, or the response was lost; see the message.
        TopospreadClientError: any other failure of a call.
    """
    messages = requests.object_messages(objects)
    seen = versions(observed, "observed")

    def step(piece: Sequence[pb.ClusterObject], last: bool) -> Operation[Any]:
        request = arguments.request(
            pb.ApplyObjectsRequest,
            cluster=cluster or session.cluster,
            objects=piece,
            force=force,
            fencing_token=fencing_token,
            observed=seen if last else (),
        )
        again = not force and all(map(requests.has_version, piece))
        make = call_with_retry if again else call
        return make(rpcs.APPLY_OBJECTS, request, timeout, traceparent)

    return (
        yield from _in_steps(
            session, ApplyObjectsResponse, messages, step, progress, empty=bool(seen)
        )
    )


def delete_objects(
    session: ClientSession,
    objects: Iterable[ObjectReference],
    *,
    cluster: str | None = None,
    force: bool = False,
    fencing_token: int | None = None,
    observed: Iterable[ResourceVersion] = (),
    progress: Callable[[int, int], None] | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[DeleteObjectsResponse]:
    """Remove objects, in atomic steps; absent ones are reported, not refused.

    Args:
        objects: what to remove.
        cluster: None takes the client's.
        force: remove also what is newer than the given version.
        fencing_token: as for `apply_objects`.
        observed: as for `apply_objects`.
        progress: as for `apply_objects`.
        timeout: seconds for each step; None takes the client's.
        traceparent: parent of the server's spans.

    Raises:
        Unavailable: the store is out of reach.
        TopospreadClientError: any other failure of a call.
    """
    messages = [
        arguments.checked(ObjectReference, each, where).message(where)
        for where, each in arguments.with_paths(objects, "objects")
    ]
    seen = versions(observed, "observed")

    def step(piece: Sequence[pb.ObjectReference], last: bool) -> Operation[Any]:
        request = arguments.request(
            pb.DeleteObjectsRequest,
            cluster=cluster or session.cluster,
            objects=piece,
            force=force,
            fencing_token=fencing_token,
            observed=seen if last else (),
        )
        return call(rpcs.DELETE_OBJECTS, request, timeout, traceparent)

    return (
        yield from _in_steps(
            session, DeleteObjectsResponse, messages, step, progress, empty=bool(seen)
        )
    )


def _in_steps(
    session: ClientSession,
    kind: type[_W],
    messages: Sequence[_T],
    step: Callable[[Sequence[_T], bool], Operation[Any]],
    progress: Callable[[int, int], None] | None,
    *,
    empty: bool,
) -> Operation[_W]:
    """Write batch by batch; the response is that of the last, with the results of all."""
    done = 0
    written = kind(meta=ResponseMeta(), results=())
    results: list[ObjectResult] = []
    while done < len(messages) or empty:
        size = _batch_size(session)
        piece = messages[done : done + size]
        try:
            reply = yield from step(piece, done + len(piece) == len(messages))
        except InvalidRequest:
            if (yield from _requested_batch_size(session)) < len(piece):
                continue
            raise
        written = decoding.answer(kind, reply)
        results += written.results
        done, empty = done + len(piece), False
        if progress is not None:
            progress(done, len(messages))
    return replace(written, results=tuple(results))


def replace_objects(
    session: ClientSession,
    kind: Kind,
    objects: Iterable[KeptObject],
    *,
    cluster: str | None = None,
    resource_version: str | None = None,
    force: bool = False,
    fencing_token: int | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[ReplaceObjectsResponse]:
    """Replace all objects of one kind; it converges, but is not one transaction.

    All objects are read before the first is sent. A call that fails before all of them have arrived
    (an error of `objects`, a time-out, a lost connection) changes nothing.

    Args:
        kind: of all the objects.
        objects: messages or manifests.
        cluster: None takes the client's.
        resource_version: the list's own; what is stored with a newer version stays, and nothing
            else when it is None.
        force: write also what is older than the stored version.
        fencing_token: of the lease; None for callers that do not hold it.
        timeout: seconds for all of it; None takes the client's for bulk work.
        traceparent: parent of the server's span.

    Raises:
        InvalidRequest: an object of another kind, or one that cannot be stored.
        ReplaceIncomplete: the list did not arrive as a whole.
        Unavailable: the store is out of reach.
        TopospreadClientError: any other failure of the call.
    """
    start = arguments.part(
        "start",
        pb.ReplaceStart,
        cluster=cluster or session.cluster,
        kind=kind_message(kind, "start.kind"),
        resource_version=resource_version or "",
        force=force,
        fencing_token=fencing_token,
    )
    # Not within the stream: an error there would reach the caller as a mere cancellation.
    messages = requests.object_messages(objects)
    while True:
        size = _batch_size(session)
        stream = _replace_stream(start, messages, size)
        try:
            reply = yield from call(rpcs.REPLACE_OBJECTS, stream, timeout, traceparent, bulk=True)
        except InvalidRequest:
            if (yield from _requested_batch_size(session)) < min(size, len(messages)):
                continue
            raise
        return decoding.answer(ReplaceObjectsResponse, reply)


def _replace_stream(
    start: pb.ReplaceStart, objects: list[pb.ClusterObject], size: int
) -> Iterator[pb.ReplaceObjectsRequest]:
    yield pb.ReplaceObjectsRequest(start=start)
    for piece in requests.batches(objects, size):
        yield pb.ReplaceObjectsRequest(batch=pb.ReplaceBatch(objects=piece))
    # Without the commit the server takes the list for incomplete.
    yield pb.ReplaceObjectsRequest(commit=pb.ReplaceCommit(object_count=len(objects)))


def _batch_size(session: ClientSession) -> int:
    """Number of objects for one request."""
    return (
        _DEFAULT_BATCH_SIZE if session.limits is None else max(session.limits.max_batch_objects, 1)
    )


def _requested_batch_size(session: ClientSession) -> Operation[int]:
    """Number of objects for one request, as the server gives it; the default where it does not."""
    if session.limits is None:
        with suppress(TopospreadClientError):
            yield from get_server_info(session)
    return _batch_size(session)
