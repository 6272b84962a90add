"""Calls before they are made and after they were answered: what both clients do alike."""

from __future__ import annotations

import math
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from google.protobuf.message import Message

from topospread_client import _arguments as arguments
from topospread_client._methods import METHODS, Method, method_of
from topospread_client._retries import Retries, may_be_repeated, seconds
from topospread_proto.v1 import cluster_state_service_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread_client._connection import Connection
    from topospread_proto.v1.server_service_pb2 import ServerLimits

DEFAULT_BATCH_SIZE: Final = 500
"""Default limit of a server for the objects of one request."""


class Calls:
    """Defaults of one client's calls.

    Raises:
        InvalidRequest: an argument of a wrong type.

    Attributes:
        batch_size: objects for one request.
        limits_known: whether that is the server's limit, and not its default.
    """

    def __init__(
        self, connection: Connection, cluster: str, timeout: float, bulk_timeout: float
    ) -> None:
        self._cluster = arguments.checked(str, cluster, "cluster")
        self._timeout = seconds(timeout, 0)
        self._bulk_timeout = seconds(bulk_timeout, 0)
        self._retry_timeout = connection.retry_timeout if connection.retries else 0.0
        self.batch_size, self.limits_known = DEFAULT_BATCH_SIZE, False

    def made(self, name: str, given: dict[str, Any], fields: dict[str, Any]) -> tuple[Method, Any]:
        """A method, and its request of arguments by position and by name."""
        method = METHODS[name]
        return method, self._completed(method, arguments.request(method, given | fields))

    def checked(self, name: str, request: Any, *, streaming: bool = False) -> tuple[Method, Any]:
        """A method, and a copy of the caller's request with what this client adds."""
        method = method_of(name, streaming=streaming)
        if method.kind == "stream_unary":
            return method, request
        copied = method.request()
        copied.CopyFrom(arguments.checked(method.request, request, "request"))
        return method, self._completed(method, copied)

    def _completed(self, method: Method, request: Any) -> Any:
        # No default stands for a cluster that is destroyed.
        if method.takes_cluster and method.name != "DeleteCluster":
            request.cluster = request.cluster or self._cluster
        if method.name in ("PlacePod", "ReserveNode"):
            # A server knows repeats of the call by it.
            request.request_id = request.request_id or str(uuid.uuid4())
        return request

    def retries(self, method: Method, request: Any, timeout: float | None) -> Retries:
        """Time for all tries of a call."""
        if method.kind == "unary_stream":
            retries = Retries(seconds(timeout, math.inf), self._retry_timeout)
            retries.restart(self._timeout)
            return retries
        default = self._timeout
        if method.kind == "stream_unary":
            default = self._bulk_timeout
        elif method.name == "PlanRebalance":  # its search ends before the call does
            default += max(request.search_timeout.ToTimedelta().total_seconds(), 0.0)
        repeated = self._retry_timeout > 0 and may_be_repeated(method, request)
        return Retries(seconds(timeout, default), self._retry_timeout if repeated else 0.0)

    def write(self, name: str, objects: Any, given: dict[str, Any]) -> Write:
        """A write of any number of objects; raises as `arguments.request` does."""
        given["objects"] = arguments.several(objects, "objects")
        given["cluster"] = given.get("cluster") or self._cluster
        return Write(METHODS[name], arguments.converted(METHODS[name], given))

    def replacement(
        self, kind: Any, objects: Any, given: dict[str, Any]
    ) -> tuple[state.ReplaceStart, list[Any]]:
        """The first message of a ReplaceObjects, and its objects."""
        given |= {"kind": kind, "cluster": given.get("cluster") or self._cluster}
        start = arguments.part(state.ReplaceStart, "start", given)
        # Not within the stream: an error there would reach the caller as a mere cancellation.
        batch = {"objects": arguments.several(objects, "objects")}
        return start, arguments.converted(METHODS["ApplyObjects"], batch)["objects"]

    def stream_of(self, start: state.ReplaceStart, objects: Sequence[Any]) -> Iterator[Any]:
        """The messages of a ReplaceObjects."""
        size = self.batch_size
        yield state.ReplaceObjectsRequest(start=start)
        for at in range(0, len(objects), size):
            batch = state.ReplaceBatch(objects=objects[at : at + size])
            yield state.ReplaceObjectsRequest(batch=batch)
        # Without the commit the server takes the list for incomplete.
        yield state.ReplaceObjectsRequest(commit=state.ReplaceCommit(object_count=len(objects)))

    @staticmethod
    def several(pods: Any) -> Any:
        """One thing to place, or an iterable of them, as an iterable."""
        return [pods] if isinstance(pods, str | bytes | Mapping | Message | tuple) else pods

    def learn(self, limits: ServerLimits) -> None:
        """Take the server's limits for those of its requests."""
        self.batch_size, self.limits_known = max(limits.max_batch_objects, 1), True

    @staticmethod
    def named(method: Method, request: Any, answer: Any) -> Any:
        """An answer of Filter or Score with the names that its caller gave: it leaves them out."""
        if method.name in ("Filter", "Score") and not answer.node_names:
            answer.node_names.extend(request.candidates.names.names)
        return answer

    @staticmethod
    def continued(request: Any, message: Any) -> Any:
        """The request that goes on after a message of a watch; None where none can."""
        after = type(request)()
        after.CopyFrom(request)
        after.revision = message.meta.revision
        if isinstance(message, state.WatchObjectsResponse):
            after.send_initial = False
            # Amid what `send_initial` begins with, messages come without a revision.
            return after if after.revision else None
        if message.partial:
            after.revision = ""  # amid the messages of a revision: all constraints again
        return after


class Write:
    """A write in as many requests as the server's limit makes of it.

    Attributes:
        total: objects to write.
        written: those of them that are written.
        ended: whether nothing is left to write.
        answer: with the results so far.
    """

    def __init__(self, method: Method, values: dict[str, Any]) -> None:
        self.method: Final = method
        self._objects: list[Any] = values.pop("objects", [])
        self._observed: list[Any] = values.pop("observed", [])
        self._values = values
        self.total, self.written = len(self._objects), 0
        self.ended = not (self._objects or self._observed)
        self.answer = method.response()

    def request(self, size: int) -> Any:
        """The next request, of so many objects at most; the last one has what was observed."""
        values = {**self._values, "objects": self._objects[self.written : self.written + size]}
        if self.written + size >= self.total:
            values["observed"] = self._observed
        return arguments.assembled(self.method.request, values)

    def done(self, request: Any, step: Any) -> None:
        """Take the answer of a request in."""
        self.written += len(request.objects)
        self.ended = self.written == self.total
        self.answer.results.extend(step.results)
        self.answer.meta.CopyFrom(step.meta)
