"""The operations of the ClusterState that write: Apply, Delete, Replace."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, TypeVar

from topospread_client import decoding, requests, rpcs
from topospread_client.answers import Kind, Replaced, Written
from topospread_client.operations import Operation, Reply, Session, call, call_again
from topospread_proto.v1 import cluster_state_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from topospread_client.requests import ObjectLike, Reference

_T = TypeVar("_T")

_Step: TypeAlias = Reply[state.ApplyResponse] | Reply[state.DeleteResponse]


def apply(
    session: Session,
    objects: Iterable[ObjectLike],
    *,
    cluster: str | None = None,
    force: bool = False,
    fence: int = 0,
    progress: Callable[[int, int], None] | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Written]:
    """Write objects, in atomic steps of at most 500.

    A step is repeated when the server was out of reach if all of its objects have a
    resourceVersion: then what others wrote after a first try whose answer was lost stays. It is not
    repeated with objects that have none, nor with force.

    Args:
        session: what the client's operations share.
        objects: messages or manifests of the kinds that a server keeps.
        cluster: None takes the client's.
        force: write also what is older than the stored version.
        fence: of one's lease to feed the cluster; 0 for whoever is no feeder.
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
    messages = [requests.object_message(given) for given in objects]
    cluster = cluster or session.cluster

    def step(piece: Sequence[state.Object]) -> Operation[_Step]:
        request = state.ApplyRequest(cluster=cluster, objects=piece, force=force, fence=fence)
        if not force and all(map(requests.has_version, piece)):
            return call_again(rpcs.APPLY, request, timeout, traceparent)
        return call(rpcs.APPLY, request, timeout, traceparent)

    return (yield from _in_steps(messages, step, progress))


def delete(
    session: Session,
    references: Iterable[Reference],
    *,
    cluster: str | None = None,
    force: bool = False,
    fence: int = 0,
    progress: Callable[[int, int], None] | None = None,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Written]:
    """Remove objects, in atomic steps of at most 500; absent ones are reported, not refused.

    Args:
        session: what the client's operations share.
        references: what to remove.
        cluster: None takes the client's.
        force: remove also what is newer than the given version.
        fence: as for `apply`.
        progress: as for `apply`.
        timeout: seconds for each step; None takes the client's.
        traceparent: parent of the server's spans.

    Raises:
        Unavailable: the store is out of reach.
        TopospreadClientError: any other failure of a call.
    """
    messages = [reference.message() for reference in references]
    cluster = cluster or session.cluster

    def step(piece: Sequence[state.ObjectReference]) -> Operation[_Step]:
        request = state.DeleteRequest(cluster=cluster, objects=piece, force=force, fence=fence)
        return call(rpcs.DELETE, request, timeout, traceparent)

    return (yield from _in_steps(messages, step, progress))


def _in_steps(
    messages: Sequence[_T],
    step: Callable[[Sequence[_T]], Operation[_Step]],
    progress: Callable[[int, int], None] | None,
) -> Operation[Written]:
    """Write piece by piece; the answer has the results of all, and the revision of the last."""
    revision, trace, done = "", None, 0
    results: list[state.ObjectResult] = []
    for piece in requests.pieces(messages):
        reply = yield from step(piece)
        revision, trace = reply.message.revision, reply.traceparent
        results.extend(reply.message.results)
        done += len(piece)
        if progress is not None:
            progress(done, len(messages))
    return Written(revision=revision, traceparent=trace, results=decoding.object_results(results))


def replace(
    session: Session,
    kind: Kind,
    objects: Iterable[ObjectLike],
    *,
    cluster: str | None = None,
    resource_version: str = "",
    force: bool = False,
    fence: int = 0,
    timeout: float | None = None,
    traceparent: str | None = None,
) -> Operation[Replaced]:
    """Make these the full content of one kind; it converges, but is not one transaction.

    All objects are read before the first is sent. A call that fails before all of them have arrived
    (an error of `objects`, a time-out, a lost connection) changes nothing.

    Args:
        session: what the client's operations share.
        kind: of all the objects.
        objects: messages or manifests.
        cluster: None takes the client's.
        resource_version: the list's own; what is stored with a newer version stays, and
            nothing else when it is empty.
        force: write also what is older than the stored version.
        fence: of one's lease to feed the cluster; 0 for whoever is no feeder.
        timeout: seconds for all of it; None takes the client's for bulk work.
        traceparent: parent of the server's span.

    Raises:
        InvalidRequest: an object of another kind, or one that cannot be stored.
        ReplaceIncomplete: the list did not arrive as a whole.
        Unavailable: the store is out of reach.
        TopospreadClientError: any other failure of the call.
    """
    start = state.ReplaceStart(
        cluster=cluster or session.cluster,
        kind=requests.kind_message(kind),
        resource_version=resource_version,
        force=force,
        fence=fence,
    )
    # Not within the stream: an error there would reach the caller as a mere cancellation.
    messages = [requests.object_message(given) for given in objects]
    stream = _replace_stream(start, messages)
    reply = yield from call(rpcs.REPLACE, stream, timeout, traceparent, bulk=True)
    return decoding.replaced(reply.message, reply.traceparent)


def _replace_stream(
    start: state.ReplaceStart, objects: list[state.Object]
) -> Iterator[state.ReplaceRequest]:
    yield state.ReplaceRequest(start=start)
    for piece in requests.pieces(objects):
        yield state.ReplaceRequest(batch=state.ReplaceBatch(objects=piece))
    # Last: what ends before it, for whatever reason, is no list to the server.
    yield state.ReplaceRequest(commit=state.ReplaceCommit(object_count=len(objects)))
