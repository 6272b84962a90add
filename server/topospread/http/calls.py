"""Calls over HTTP: the endpoint that reads them and has them pass the pipeline of all calls."""

from __future__ import annotations

import asyncio
import math
import time
import zlib
from threading import Event
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from starlette.responses import Response

from topospread.access.certificates import NO_NAMES, CertificateNames
from topospread.calls.call import Call, UnaryBytes
from topospread.calls.executor import current_work
from topospread.calls.rules import MethodRules, Permission
from topospread.checkpoints import Preempted
from topospread.errors import (
    CallerGone,
    InvalidRequest,
    MethodNotServed,
    QueueFull,
    TopospreadError,
    Unauthenticated,
)
from topospread.http.app import address_of, caller_of
from topospread.http.responses import (
    GZIP,
    TOO_LARGE,
    HttpFailure,
    body_too_large,
    compressed,
    failure_of,
    with_status,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.types import Receive

    from topospread.access.callers import Role
    from topospread.calls.call import Metadata, ServedMethod
    from topospread.calls.executor import Executor
    from topospread.calls.memory import MemoryGuard
    from topospread.calls.pipeline import Pipeline
    from topospread.calls.sizes import SizeLimit
    from topospread.checkpoints import Turn
    from topospread.telemetry.spans import CallSpan

_OK: Final = 200
_NOT_POST: Final = 405
_FULL: Final = 429
_GONE: Final = 499
_FOR_TRACING: Final = (b"traceparent", b"tracestate")
_GZIP_WINDOW: Final = 16 + zlib.MAX_WBITS

FREE_BYTES: Final = 1 << 16
"""Bytes of each body that are not held: requests of usual size are answered whatever others send.
uvicorn reads as much of a request before the application asks for it.
"""

BODY_COST: Final = 6
"""How often the bytes of a body are held: what JSON is read into takes a multiple of them."""


class Lane(NamedTuple):
    """Where a call is carried out.

    Attributes:
        executor: whose threads do it.
        turn: held while it computes; None: it mostly waits.
        shares: the turn is given up now and then.
        brief: it may be tried on the thread of all connections before; there it is preempted when
            it takes long.
    """

    executor: Executor
    turn: Turn | None = None
    shares: bool = False
    brief: bool = False


class HttpMethod(NamedTuple):
    """What a URL asks for.

    Attributes:
        name: for callers.
        label: its name in metrics and in the audit log.
        span: the name of its spans.
        cluster: that it is about.
        role: that its caller needs there.
        timeout: seconds for an answer.
        serve: carries out a call, whose `raw` is the body.
        lane: from the bytes of a body to where the call is carried out.
        failed: status and body for an error.
        compressed: answers are, for callers that accept it.
        audited: calls have a line in the audit log.
    """

    name: str
    label: str
    span: str
    cluster: str
    role: Role
    timeout: float
    serve: Callable[[Call], bytes]
    lane: Callable[[int], Lane]
    failed: Callable[[HttpFailure, Exception], tuple[int, bytes]] = lambda failure, _: (
        failure.status,
        failure.body,
    )
    compressed: bool = False
    audited: bool = False


class HttpContext:
    """The :class:`~topospread.calls.call.Context` of a request.

    Args:
        limit: bytes of its body, as it comes and unpacked.

    Attributes:
        held: by its body.
        method: that is called; None: there is none.
        deadline: on the monotonic clock.
        gone: set when the caller has closed its connection.
    """

    def __init__(self, request: Request, guard: MemoryGuard, limit: int) -> None:
        caller = caller_of(request)
        if caller is None:
            raise Unauthenticated
        self.caller = caller
        self.held = guard.hold(self.caller.credential or address_of(request))
        self.headers: Mapping[bytes, bytes] = dict(request.scope["headers"])
        self.method: HttpMethod | None = None
        self.body = b""
        self.deadline = math.inf
        self.gone = Event()
        self._address = address_of(request)
        self._limit = limit

    async def read(self, receive: Receive) -> None:
        """Read the body.

        Raises:
            TooLarge: it is larger than the limit; if it says so beforehand, nothing is read.
            LimitExceeded: too much is kept for the caller, or for all.
            CallerGone: the connection closed before the end.
        """
        length = self.headers.get(b"content-length", b"")
        if length.isdigit() and int(length) > self._limit:
            raise body_too_large(self._limit)
        parts: list[bytes] = []
        size, more = 0, True
        try:
            while more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise CallerGone("the caller went away before the request was complete")
                parts.append(message.get("body", b""))
                more = message.get("more_body", False)
                size += len(parts[-1])
                self._hold(size)
            self.body = parts[0] if len(parts) == 1 else b"".join(parts)
        finally:
            # The frames of an error that is raised here live as long as the error.
            parts.clear()

    def _hold(self, size: int) -> None:
        if size > self._limit:
            raise body_too_large(self._limit)
        if (cost := BODY_COST * (size - FREE_BYTES)) > self.held.size:
            self.held.resize(cost)

    def is_active(self) -> bool:
        """Whether the caller still waits."""
        return not self.gone.is_set()

    def time_remaining(self) -> float:
        """Seconds until the deadline; some are left always: a call that came late is tried."""
        return max(0.001, self.deadline - time.monotonic())

    def end(self, error: TopospreadError) -> None:
        """Do nothing: the HTTP server has bounds of its own for connections that do not read."""

    def add_callback(self, callback: Callable[[], None], /) -> bool:
        """Say that the call is over: its response is the HTTP server's from then on."""
        return False

    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """The headers that say whose span the call's is a child of."""
        return [
            (name.decode(), self.headers[name].decode("ascii", "replace"))
            for name in _FOR_TRACING
            if name in self.headers
        ]

    def peer(self) -> str:
        """The caller's address, as gRPC writes it."""
        return f"http:{self._address}:0"

    def names(self) -> CertificateNames:
        """None: callers are known by the time that there is a call."""
        return NO_NAMES

    def receive(self, limit: SizeLimit) -> bytes:
        """The body, unpacked.

        Raises:
            InvalidRequest: another encoding than gzip, or no gzip.
            LimitExceeded: too much comes out of it.
        """
        encoding = self.headers.get(b"content-encoding", b"").strip().lower()
        if encoding in (b"", b"identity"):
            return self.body
        if encoding not in GZIP:
            shown = encoding[:40].decode("ascii", "replace")
            text = f"Content-Encoding {shown!r} is unknown: send gzip, or none"
            raise with_status(415, InvalidRequest(text))
        unpacker = zlib.decompressobj(_GZIP_WINDOW)
        try:
            plain = unpacker.decompress(self.body, self._limit + 1)
        except zlib.error as cause:
            text = "the body is no gzip, as its Content-Encoding says"
            raise with_status(400, InvalidRequest(text)) from cause
        self._hold(len(plain))
        if not unpacker.eof or unpacker.unused_data:
            text = "the gzip body is incomplete, or something follows its end"
            raise with_status(400, InvalidRequest(text))
        return plain

    def send_headers(self, headers: Metadata) -> None:
        """No call with one answer sends any."""
        raise NotImplementedError

    def end_span(self, span: CallSpan, error: Exception | None) -> None:
        """End the call's span with the status of HTTP."""
        gone = isinstance(error, CallerGone)
        span.end_http(_OK if error is None else _GONE if gone else failure_of(error).status, error)


def _serve(_: bytes, call: Call) -> bytes:
    context = cast("HttpContext", call.context)
    assert context.method is not None, "what names no method is refused"
    call.span.set("topospread.cluster", context.method.cluster)
    return context.method.serve(call)


def _no_fields(*_: object) -> dict[str, object]:
    return {}


class HttpCalls:
    """The endpoint of one service's calls.

    Args:
        method: from a path and a query to what they ask for; raises where there is nothing.
        other: the label of requests for none of them.
        pipeline: that all calls pass; callers are known before.
        max_body_bytes: of a request, compressed or not.
    """

    def __init__(
        self,
        method: Callable[[str, bytes], HttpMethod],
        other: str,
        pipeline: Pipeline,
        *,
        max_body_bytes: int,
    ) -> None:
        self._method = method
        self._other = other
        self._pipeline = pipeline
        self._max_body_bytes = max_body_bytes
        self._served: dict[tuple[str, str], ServedMethod] = {}

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        started = time.perf_counter()
        context = HttpContext(request, self._pipeline.parts.guard, self._max_body_bytes)
        try:
            method = context.method = self._method(
                request.scope["path"], request.scope["query_string"]
            )
            context.caller.check(method.role, method.cluster)
            if request.scope["method"] != "POST":
                text = f"{method.name} is called with POST"
                raise with_status(_NOT_POST, MethodNotServed(text))
            return await self._respond(context, method, request.receive, started)
        except TopospreadError as error:
            call = self._call(context, started)
            call.refused = error
            self._pipeline.respond(call)
            return self._sent(call, b"")
        finally:
            context.held.release()

    async def _respond(
        self, context: HttpContext, method: HttpMethod, receive: Receive, started: float
    ) -> Response:
        context.deadline = time.monotonic() + method.timeout
        await context.read(receive)
        lane = method.lane(len(context.body))
        call = self._call(context, started, lane)
        if lane.brief:
            # A decision takes less time than its way to another thread and back. This thread
            # has other connections to mind, so that one that takes longer begins again there.
            call.brief = True
            try:
                return self._sent(call, self._pipeline.respond(call))
            except Preempted:
                call.brief = False
        watching = asyncio.create_task(_await_disconnect(receive, context.gone))
        try:
            done = lane.executor.submit(self._carry_out, call)
            return self._sent(call, await asyncio.wrap_future(done))
        finally:
            watching.cancel()

    def _carry_out(self, call: Call) -> bytes:
        """Answer a call on an executor's thread, or refuse it on the one that submits it."""
        work = current_work()
        if work is None or work.refused:
            call.refused = QueueFull.of(call.method.executor)
        return self._pipeline.respond(call)

    def _call(self, context: HttpContext, started: float, lane: Lane | None = None) -> Call:
        method = context.method
        label = self._other if method is None else method.label
        executor = "" if lane is None else lane.executor.name
        served = self._served.get((label, executor))
        if served is None:
            served = self._served[label, executor] = self._pipeline.method(
                label,
                UnaryBytes(_serve),
                MethodRules(Permission(None), executor or "extender"),
                describe=_no_fields,
                span=label if method is None else method.span,
                shares_turn=lane is not None and lane.shares,
            )
        call = Call(served, context, started)
        call.caller = context.caller
        call.turn = None if lane is None else lane.turn
        if method is not None and method.audited:
            call.fields = {"cluster": method.cluster}
        return call

    def _sent(self, call: Call, body: bytes) -> Response:
        """The response to a call that is over."""
        context = cast("HttpContext", call.context)
        method, error, traceparent = context.method, call.take_error(), call.span.traceparent
        headers = {"content-type": "application/json", "traceparent": traceparent}
        if error is None:
            if method is not None and method.compressed:
                body, packed = compressed(body, context.headers.get(b"accept-encoding", b""))
                if packed:
                    headers["content-encoding"] = "gzip"
            return Response(body, _OK, headers)
        if isinstance(error, CallerGone):
            return Response(status_code=_GONE)
        failure = failure_of(error, traceparent)
        status, body = failure.status, failure.body
        if method is not None:
            status, body = method.failed(failure, error)
        if status != _OK:
            headers |= failure.headers
        if status == _NOT_POST:
            headers["allow"] = "POST"
        if status in (TOO_LARGE, _FULL):
            # What was not read of the body would be taken for the next request.
            headers["connection"] = "close"
        return Response(body, status, headers)


async def _await_disconnect(receive: Receive, gone: Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()
