"""The operations of ClusterStateService that write: ApplyObjects, DeleteObjects, ReplaceObjects.

How many objects a server takes at once is asked when it has refused some: that leaves the state as
it was.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from topospread_client import _decoding as decoding
from topospread_client import _given as given
from topospread_client import _requests as requests
from topospread_client import _rpcs as rpcs
from topospread_client._answers import (
    ApplyObjectsResponse,
    DeleteObjectsResponse,
    ReplaceObjectsResponse,
    ResponseMeta,
)
from topospread_client._errors import InvalidRequest, TopospreadClientError
from topospread_client._operations import Operation, Session, call, call_again
from topospread_client._references import ObjectReference, kind_message, versions
from topospread_client._state import get_server_info
from topospread_proto.v1 import cluster_state_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from topospread_client._answers import ObjectResult
    from topospread_client._enums import Kind
    from topospread_client._references import ResourceVersion
    from topospread_client._requests import KeptObject

_T = TypeVar("_T")
_W = TypeVar("_W", ApplyObjectsResponse, DeleteObjectsResponse)

_BATCH: Final = 500
"""Objects that a server takes at once unless it is set up otherwise."""


def apply_objects(
    session: Session,
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
    """Write objects, in atomic steps of as many as the server takes at once.

    A step is repeated when the server was out of reach if all of its objects have a
    resourceVersion: then what others wrote after a first try whose answer was lost stays. It is not
    repeated with objects that have none, nor with force.

    Args:
        objects: messages or manifests of the kinds that a server keeps.
        cluster: None takes the client's.
        force: write also what is older than the stored version.
        fencing_token: of one's lease to feed the cluster; None for whoever is no feeder.
        observed: how far the writer has read the API server, these objects included; told with
            the last step.
        progress: called after each step with the objects written so far and all there are.
        timeout: seconds for each step; None takes the client's.
        traceparent: parent of the server's spans.

    Returns:
        One result for each object, in order, and the revision that contains them all.

    Raises:
        InvalidRequest: an object that cannot be stored; the steps before it are written.
        Fenced: another feeds the cluster now.
        Unavailable: the store is out of reach, or the answer was lost; the text says so then.
        TopospreadClientError: any other failure of a call.
    """
    messages = requests.object_messages(objects)
    seen = versions(observed, "observed")

    def step(piece: Sequence[pb.ClusterObject], last: bool) -> Operation[Any]:
        request = given.request(
            pb.ApplyObjectsRequest,
            cluster=cluster or session.cluster,
            objects=piece,
            force=force,
            fencing_token=fencing_token,
            observed=seen if last else (),
        )
        again = not force and all(map(requests.has_version, piece))
        make = call_again if again else call
        return make(rpcs.APPLY_OBJECTS, request, timeout, traceparent)

    return (
        yield from _in_steps(
            session, ApplyObjectsResponse, messages, step, progress, empty=bool(seen)
        )
    )


def delete_objects(
    session: Session,
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
        given.expect(ObjectReference, each, where).message(where)
        for where, each in given.each(objects, "objects")
    ]
    seen = versions(observed, "observed")

    def step(piece: Sequence[pb.ObjectReference], last: bool) -> Operation[Any]:
        request = given.request(
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
    session: Session,
    kind: type[_W],
    messages: Sequence[_T],
    step: Callable[[Sequence[_T], bool], Operation[Any]],
    progress: Callable[[int, int], None] | None,
    *,
    empty: bool,
) -> Operation[_W]:
    """Write piece by piece; the answer has the results of all, and all else from the last."""
    done = 0
    written = kind(meta=ResponseMeta(), results=())
    results: list[ObjectResult] = []
    while done < len(messages) or empty:
        size = _batch(session)
        piece = messages[done : done + size]
        try:
            reply = yield from step(piece, done + len(piece) == len(messages))
        except InvalidRequest:
            if (yield from _asked(session)) < len(piece):
                continue
            raise
        written = decoding.answer(kind, reply)
        results += written.results
        done, empty = done + len(piece), False
        if progress is not None:
            progress(done, len(messages))
    return replace(written, results=tuple(results))


def replace_objects(
    session: Session,
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
    """Make these the full content of one kind; it converges, but is not one transaction.

    All objects are read before the first is sent. A call that fails before all of them have arrived
    (an error of `objects`, a time-out, a lost connection) changes nothing.

    Args:
        kind: of all the objects.
        objects: messages or manifests.
        cluster: None takes the client's.
        resource_version: the list's own; what is stored with a newer version stays, and nothing
            else when it is None.
        force: write also what is older than the stored version.
        fencing_token: of one's lease to feed the cluster; None for whoever is no feeder.
        timeout: seconds for all of it; None takes the client's for bulk work.
        traceparent: parent of the server's span.

    Raises:
        InvalidRequest: an object of another kind, or one that cannot be stored.
        ReplaceIncomplete: the list did not arrive as a whole.
        Unavailable: the store is out of reach.
        TopospreadClientError: any other failure of the call.
    """
    start = given.part(
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
        size = _batch(session)
        stream = _replace_stream(start, messages, size)
        try:
            reply = yield from call(rpcs.REPLACE_OBJECTS, stream, timeout, traceparent, bulk=True)
        except InvalidRequest:
            if (yield from _asked(session)) < min(size, len(messages)):
                continue
            raise
        return decoding.answer(ReplaceObjectsResponse, reply)


def _replace_stream(
    start: pb.ReplaceStart, objects: list[pb.ClusterObject], size: int
) -> Iterator[pb.ReplaceObjectsRequest]:
    yield pb.ReplaceObjectsRequest(start=start)
    for piece in requests.pieces(objects, size):
        yield pb.ReplaceObjectsRequest(batch=pb.ReplaceBatch(objects=piece))
    # Last: what ends before it, for whatever reason, is no list to the server.
    yield pb.ReplaceObjectsRequest(commit=pb.ReplaceCommit(object_count=len(objects)))


def _batch(session: Session) -> int:
    """How many objects are sent at once."""
    return _BATCH if session.limits is None else max(session.limits.max_batch_objects, 1)


def _asked(session: Session) -> Operation[int]:
    """The same, once the server was asked; a server that does not say is taken at its refusal."""
    if session.limits is None:
        with suppress(TopospreadClientError):
            yield from get_server_info(session)
    return _batch(session)
