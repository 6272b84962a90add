"""One way for all calls over HTTP: caller, body, thread, span, status, metrics and audit log."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Final, NamedTuple

from starlette.responses import Response

from topospread.access.audit import audit
from topospread.checkpoints import Preempted
from topospread.errors import CallerGone, MethodNotServed
from topospread.http.app import address_of, caller_of, require_role
from topospread.http.bodies import Bodies
from topospread.http.responses import TOO_LARGE, HttpError, HttpFailure, compressed, failure_of

if TYPE_CHECKING:
    from collections.abc import Iterable
    from concurrent.futures import Future

    from starlette.requests import Request
    from starlette.types import Receive

    from topospread.access.callers import Role
    from topospread.telemetry.metrics import Metrics
    from topospread.telemetry.tracing import CallSpan, Tracing

_OK: Final = 200
_NOT_POST: Final = 405
_FULL: Final = 429
_GONE: Final = 499
_FOR_TRACING: Final = (b"traceparent", b"tracestate")


class CallResponse(NamedTuple):
    """A response.

    Attributes:
        code: gRPC's name for how the call ended, which metrics count by.
        headers: beside those that follow from status and body.
        fields: what the audit log has of the call.
    """

    status: int
    body: bytes
    code: str
    headers: dict[str, str]
    fields: Mapping[str, object]


Submit = Callable[[Callable[[], CallResponse]], "Future[CallResponse]"]
"""Submits work to a thread pool; the future fails with LimitExceeded where its queue is full."""


class HttpMethod(NamedTuple):
    """What a URL asks for.

    Attributes:
        name: for callers.
        label: its name in metrics and in the audit log.
        span: the name of its spans.
        cluster: that it is about.
        role: that its caller needs there.
        timeout: seconds for an answer.
        serve: carries out a call.
        lane: from the bytes of a body to who has a thread for the call, and whether it may be tried
            on the thread of all connections before; there Preempted ends what takes long.
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
    serve: Callable[[HttpCall], bytes]
    lane: Callable[[int], tuple[Submit, bool]]
    failed: Callable[[HttpFailure, Exception], tuple[int, bytes]] = lambda failure, _: (
        failure.status,
        failure.body,
    )
    compressed: bool = False
    audited: bool = False


@dataclass(slots=True)
class HttpCall:
    """A call whose body was read.

    Attributes:
        raw: the body as it came.
        headers: of the request.
        deadline: on the monotonic clock.
        span: of the call.
        bodies: unpack the body.
        gone: set when the caller has closed its connection.
        brief: it is tried where nothing may take long.
        fields: filled with what the audit log has of the call.
    """

    raw: bytes
    headers: Mapping[bytes, bytes]
    deadline: float
    span: CallSpan
    bodies: Bodies
    gone: Event
    brief: bool
    fields: dict[str, object] = field(default_factory=dict)

    def body(self) -> bytes:
        """The body, unpacked.

        Raises:
            HttpError, TooLarge: it cannot be.
        """
        return self.bodies.unpacked(self.raw, self.headers.get(b"content-encoding", b""))

    def active(self) -> bool:
        """Whether the caller still waits."""
        return not self.gone.is_set()


class HttpCalls:
    """The endpoint of one service's calls.

    Args:
        method: from a path and a query to what they ask for; raises where there is nothing.
        labels: of all methods; the first one also counts requests for none of them.
        tracing: starts spans.
        metrics: counts calls.
        max_body_bytes: of a request, compressed or not.
        bodies: how many of the largest fit into memory for all requests in flight.
    """

    def __init__(
        self,
        method: Callable[[str, bytes], HttpMethod],
        labels: Iterable[str],
        tracing: Tracing,
        metrics: Metrics,
        *,
        max_body_bytes: int,
        bodies: int,
    ) -> None:
        self._method = method
        self._meters = {label: metrics.call(label) for label in labels}
        self._tracing = tracing
        self._bodies = Bodies(max_body_bytes, bodies)

    async def __call__(self, request: Request) -> Response:
        """Answer one request."""
        started = time.perf_counter()
        meter = next(iter(self._meters.values()))
        method: HttpMethod | None = None
        try:
            method = self._method(request.scope["path"], request.scope["query_string"])
            meter = self._meters[method.label]
            require_role(request, method.role, method.cluster)
            response = await self._respond(method, request)
        except CallerGone:
            meter.done("CANCELLED", time.perf_counter() - started)
            return Response(status_code=_GONE)
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            response = _failed(method, error, {})
        meter.done(response.code, time.perf_counter() - started)
        # Denied calls are logged by the application.
        if method is not None and method.audited and response.code != "PERMISSION_DENIED":
            _audit(method, response, request)
        return _sent(response)

    async def _respond(self, method: HttpMethod, request: Request) -> CallResponse:
        if request.scope["method"] != "POST":
            text = f"{method.name} is called with POST"
            raise HttpError(_NOT_POST, MethodNotServed(text))
        headers, receive = dict(request.scope["headers"]), request.receive
        deadline = time.monotonic() + method.timeout
        async with self._bodies.read(receive, headers.get(b"content-length", b"")) as body:
            gone = Event()

            def carry_out(*, brief: bool = False) -> CallResponse:
                span = self._tracing.start(method.span, _trace_headers(headers))
                call = HttpCall(body, headers, deadline, span, self._bodies, gone, brief)
                return _carried_out(method, call)

            submit, may_be_brief = method.lane(len(body))
            if may_be_brief:
                # A decision takes less time than its way to another thread and back. This thread
                # has other connections to mind, so that one that takes longer begins again there.
                with suppress(Preempted):
                    return carry_out(brief=True)
            watching = asyncio.create_task(_await_disconnect(receive, gone))
            try:
                return await asyncio.wrap_future(submit(carry_out))
            finally:
                watching.cancel()


def _carried_out(method: HttpMethod, call: HttpCall) -> CallResponse:
    """Carry out a call in its span, on whichever thread does the work."""
    span = call.span
    span.set("topospread.cluster", method.cluster)
    headers = {"traceparent": span.traceparent}
    try:
        body = method.serve(call)
    except CallerGone as gone:
        span.end_http(_GONE, gone)
        raise
    except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
        return _failed(method, error, headers, call)
    span.end_http(_OK)
    if method.compressed:
        body, is_compressed = compressed(body, call.headers.get(b"accept-encoding", b""))
        if is_compressed:
            headers["content-encoding"] = "gzip"
    return CallResponse(_OK, body, "OK", headers, call.fields)


def _failed(
    method: HttpMethod | None,
    error: Exception,
    headers: dict[str, str],
    call: HttpCall | None = None,
) -> CallResponse:
    failure = failure_of(error, "" if call is None else call.span.traceparent)
    if call is not None:
        call.span.end_http(failure.status, error)
    status, body = failure.status, failure.body
    if method is not None:
        status, body = method.failed(failure, error)
    if failure.retry_after is not None and status != _OK:
        headers["retry-after"] = str(math.ceil(failure.retry_after))
    return CallResponse(status, body, failure.code, headers, {} if call is None else call.fields)


def _sent(response: CallResponse) -> Response:
    status, headers = response.status, response.headers
    headers["content-type"] = "application/json"
    if status == _NOT_POST:
        headers["allow"] = "POST"
    if status in (TOO_LARGE, _FULL):
        # What was not read of the body would be taken for the next request.
        headers["connection"] = "close"
    return Response(response.body, status, headers)


async def _await_disconnect(receive: Receive, gone: Event) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


def _trace_headers(headers: Mapping[bytes, bytes]) -> list[tuple[str, str]]:
    """The headers of a request that say whose span the call's is a child of."""
    return [
        (name.decode(), headers[name].decode("ascii", "replace"))
        for name in _FOR_TRACING
        if name in headers
    ]


def _audit(method: HttpMethod, response: CallResponse, request: Request) -> None:
    fields = {"cluster": method.cluster, **response.fields}
    if traceparent := response.headers.get("traceparent"):
        fields["trace_id"] = traceparent.split("-")[1]
    audit(method.label, caller_of(request), address_of(request), response.code, fields)
