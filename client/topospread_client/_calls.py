"""Calls before they are made and after they were answered: what both clients do alike.

gRPC's own retries are not used: they know methods and no requests, end after five tries, and each
try of the loop here would be five of theirs.
"""

from __future__ import annotations

import math
import random
import time
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.protobuf.message import Message

from topospread_client import _arguments as arguments
from topospread_client._errors import LimitExceeded, TopospreadClientError, Unavailable, invalid
from topospread_client._methods import METHODS, Method, method_of
from topospread_proto.v1 import cluster_state_service_pb2 as state

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread_client._connection import Connection
    from topospread_proto.v1.server_service_pb2 import ServerLimits

DEFAULT_BATCH_SIZE: Final = 500
"""Default limit of a server for the objects of one request."""


class Calls:
    """Defaults of one client's calls.

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
    def options(fields: dict[str, Any]) -> dict[str, Any]:
        """Take what is no field of a request from the arguments of a call."""
        return {name: fields.pop(name) for name in ("timeout", "traceparent") if name in fields}

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
        if isinstance(message, state.WatchObjectsResponse):
            after.revision, after.send_initial = message.meta.revision, False
            # Amid what `send_initial` begins with, messages come without a revision.
            return after if after.revision else None
        return after  # a watch of constraints begins with all of them


class Write:
    """A write in as many requests as the server's limit makes of it.

    `written` of its `total` objects are written; `answer` has the results so far.
    """

    def __init__(self, method: Method, values: dict[str, Any]) -> None:
        self.method: Final = method
        self._objects: list[Any] = values.pop("objects", [])
        self._observed: list[Any] = values.pop("observed", [])
        self._values = values
        self.total, self.written = len(self._objects), 0
        self.ended = not (self._objects or self._observed or values.get("unknown_kinds"))
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


INITIAL_PAUSE: Final = 0.1
MAX_PAUSE: Final = 1.0
"""Seconds between tries: quick enough after a restart, and no burden while nothing answers."""

MAX_REFUSALS: Final = 4
"""Retries of a call that servers refuse for now: each of them is work for a busy server."""

MAX_CANCELS: Final = 2
"""Retries of a call that a server cancels, as it does when it stops: in a rolling restart, the one
that answers then may stop next.
"""

_UNSENT: Final = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "DNS",
)
"""How gRPC's messages begin where there was no connection to send a call over."""

_NO_DEADLINE: Final = 365 * 86400.0
"""Seconds from which on gRPC is given no deadline: its arithmetic overflows."""


def seconds(timeout: float | None, default: float) -> float:
    """Time-out of a call, `math.inf` for none; what is no positive number is an InvalidRequest."""
    chosen = default if timeout is None else timeout
    try:
        positive = not isinstance(chosen, bool) and chosen > 0  # NaN is not
    except TypeError:
        positive = False
    if not positive:
        text = f"{chosen!r}: must be more than 0 seconds; math.inf is no limit"
        raise invalid("timeout", text)
    return chosen


def may_be_repeated(method: Method, request: Any) -> bool:
    """Whether a call may be made again when it may have arrived: docs/api.md has the reasons."""
    match method.name:
        case "PlacePod" | "ReserveNode":
            return bool(request.request_id)
        case "ReleaseReservation":
            return bool(request.reservation_id)
        case "ApplyObjects":
            return not request.force and all(map(_has_version, request.objects))
    return method.idempotent


def _has_version(given: Any) -> bool:
    content = given.WhichOneof("content")
    return content is not None and bool(getattr(given, content).metadata.resource_version)


class Retries:
    """Deadline of a call over all its tries, and the pauses between them.

    No try begins after `retry_timeout` seconds; 0 is for a single try. `may_have_arrived` tells
    whether a server may have received the call in one of the tries.
    """

    def __init__(self, timeout: float, retry_timeout: float) -> None:
        self._deadline = time.monotonic() + timeout
        self._retry_timeout = retry_timeout
        self._in_doubt = self.may_have_arrived = False
        self.restart()

    def restart(self, most: float = math.inf) -> None:
        """Begin to retry, anew after a success: for so many seconds from now on at most."""
        wait = min(self._retry_timeout, most)
        until = time.monotonic() + wait if wait > 0 else -math.inf
        self._retry_until = min(until, self._deadline)
        self._pause = INITIAL_PAUSE
        self._cancels = self._refusals = 0

    def remaining(self) -> float | None:
        """Seconds for a try that begins now, as gRPC takes them: None for no deadline."""
        left = max(self._deadline - time.monotonic(), 0.001)
        return left if left < _NO_DEADLINE else None

    def next_pause(self, error: TopospreadClientError) -> float | None:
        """Seconds until the next try; None where the error is final."""
        if isinstance(error, LimitExceeded):
            # Refused before anything was done. Without a time to wait, the same call never passes.
            self._refusals += 1
            if error.retry_after is None or self._refusals > MAX_REFUSALS:
                return None
        elif not isinstance(error, Unavailable):
            return None
        else:
            unsent = not error.reached and str(error).startswith(_UNSENT)
            self.may_have_arrived |= not unsent
            self._in_doubt |= not (error.reached or unsent)
            self._cancels += error.code is grpc.StatusCode.CANCELLED
            if self._cancels > MAX_CANCELS:
                return None
        # Twice as long each time.
        pause = self._pause * random.uniform(0.8, 1.2)
        if error.retry_after is not None:
            # Not all at once: those that were refused together would be so again.
            pause = max(pause, error.retry_after * random.uniform(1.0, 1.5))
        self._pause = min(2 * self._pause, MAX_PAUSE)
        return pause if time.monotonic() + pause < self._retry_until else None

    def final_error(self, method: Method, error: TopospreadClientError) -> TopospreadClientError:
        """Error to raise after the last try; that of a write says that it may have happened."""
        if not method.idempotent and self._in_doubt and isinstance(error, Unavailable):
            text = f"{error}; whether the call was carried out is not known: "
            error.args = (f"{text}look before you make it again",)
        return error
