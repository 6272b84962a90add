"""kube-scheduler's HTTP extender: the ASGI application around its handlers.

A malformed or denied request gets a status of HTTP. A failure of a request that a scheduler may
well send is reported, where the protocol has a field for it, in a response with 200.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Final, Protocol

from starlette.requests import HTTPConnection

from topospread.access.audit import audit
from topospread.access.callers import Role
from topospread.checkpoints import Beneficiary, TakesLong, checkpoint, computing_for
from topospread.errors import CallerGone, MethodNotServed
from topospread.http.authorization import caller_of, require_role
from topospread.http.bodies import Body, BodyBudget, compressed, decompressed
from topospread.http.calls import (
    CallResponse,
    Submit,
    await_disconnect,
    response_start,
    trace_headers,
)
from topospread.http.extender_handlers import (
    ExtenderCall,
    ExtenderHandlers,
    ExtenderTarget,
    Verb,
    error_result,
    parse_target,
    uses_store,
)
from topospread.http.failures import HttpError, failure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import Receive, Scope, Send

    from topospread.telemetry.metrics import Metrics
    from topospread.telemetry.tracing import Tracing

TIMEOUT: Final = 4.5
"""Seconds for a response: kube-scheduler waits 5 by default, and should get the error before."""

LARGE: Final = 1 << 18
"""Bytes of a body past which it is not worked on among the quick decisions."""

BUDGET_BODIES: Final = 2
"""How many of the largest bodies fit into memory for all requests in flight."""

_NOT_POST: Final = 405
_GONE: Final = 499


class RunDecision(Protocol):
    """Runs a decision; one that takes long waits for its turn."""

    def __call__(
        self,
        decide: Callable[[], bytes],
        left: Callable[[], float],
        deadline: float,
        active: Callable[[], bool],
        /,
    ) -> bytes:
        """See :func:`topospread.threads.pool.decided`."""
        ...


@dataclass(frozen=True, slots=True)
class Executors:
    """The thread pools that carry out calls.

    Attributes:
        decide: for decisions, which only compute.
        wait: for calls that wait for the store, and for large bodies.
        run_decision: runs what may take long on one of their threads.
    """

    decide: Submit
    wait: Submit
    run_decision: RunDecision


@dataclass(frozen=True, slots=True)
class _Call:
    """A request whose body was read.

    Attributes:
        gone: set when the caller has closed its connection.
    """

    target: ExtenderTarget
    body: bytes
    headers: Mapping[bytes, bytes]
    deadline: float
    gone: Event = field(default_factory=Event)

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - time.monotonic()


class Extender:
    """An ASGI application for all that begins with ``/extender/``.

    Args:
        handlers: one for each verb.
        tracing: starts spans.
        metrics: counts calls.
        executors: carry out the calls.
        places: filter reserves the node that it answers, where a URL does not say.
        max_body_bytes: of a request, compressed or not.
    """

    def __init__(
        self,
        handlers: ExtenderHandlers,
        tracing: Tracing,
        metrics: Metrics,
        executors: Executors,
        *,
        places: bool = False,
        max_body_bytes: int = 64 << 20,
    ) -> None:
        self._handlers = handlers
        self._tracing = tracing
        self._executors = executors
        self._places = places
        self._max_body_bytes = max_body_bytes
        self._budget = BodyBudget(BUDGET_BODIES * max_body_bytes)
        self._meters = {verb: metrics.call(f"Extender/{verb.value}") for verb in Verb}
        self._other = metrics.call("Extender/other")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        started = time.perf_counter()
        meter = self._other
        target: ExtenderTarget | None = None
        try:
            target = parse_target(scope["path"], scope["query_string"], self._places)
            meter = self._meters[target.verb]
            role = Role.PLACE if target.places else Role.DECIDE
            require_role(HTTPConnection(scope), role, target.cluster)
            response = await self._respond(target, scope, receive)
        except CallerGone:
            meter.done("CANCELLED", time.perf_counter() - started)
            return
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            failure = failure_of(error)
            status, body = failure.status, failure.body
            if target is not None:
                status, body = error_result(target.verb, failure, error)
            response = CallResponse(status, body, failure.code, retry_after=failure.retry_after)
        meter.done(response.code, time.perf_counter() - started)
        # Denied calls are logged by the middleware.
        if target is not None and target.places and response.code != "PERMISSION_DENIED":
            _audit(target, response, scope)
        await send(response_start(response))
        await send({"type": "http.response.body", "body": response.body})

    async def _respond(
        self, target: ExtenderTarget, scope: Scope, receive: Receive
    ) -> CallResponse:
        if scope["method"] != "POST":
            raise HttpError(_NOT_POST, MethodNotServed(f"{target.verb.value} is called with POST"))
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        with Body(self._budget) as body:
            await body.read(receive, length, self._max_body_bytes)
            call = _Call(target, body.content, headers, time.monotonic() + TIMEOUT)
            quick = len(body.content) <= LARGE and not uses_store(target)
            if quick and self._handlers.is_loaded(target.cluster):
                # A decision takes less time than its way to another thread and back. This thread
                # has other connections to mind, so that one that takes longer is begun anew there.
                with suppress(TakesLong):
                    return self._serve(call, _at_once)
            submit = self._executors.decide if quick else self._executors.wait
            watching = asyncio.create_task(await_disconnect(receive, call.gone))
            try:
                return await asyncio.wrap_future(
                    submit(lambda: self._serve(call, self._executors.run_decision))
                )
            finally:
                watching.cancel()

    # ------------------------------ on whichever thread does the work

    def _serve(self, call: _Call, decided: RunDecision) -> CallResponse:
        """Carry out a call in its span."""
        verb, headers = call.target.verb, call.headers
        span = self._tracing.start(f"extender {verb.value}", trace_headers(headers))
        span.set("topospread.cluster", call.target.cluster)
        audit_fields: dict[str, object] = {}
        try:

            def decide() -> bytes:
                checkpoint()  # it may have waited in a queue
                encoding = headers.get(b"content-encoding", b"")
                body = decompressed(call.body, encoding, self._max_body_bytes)
                return self._handlers.serve(
                    ExtenderCall(call.target, body, call.deadline, span, audit_fields)
                )

            found = decided(decide, call.left, call.deadline, lambda: not call.gone.is_set())
        except CallerGone as gone:
            span.end_http(_GONE, gone)
            raise
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            failure = failure_of(error, span.traceparent)
            status, found = error_result(verb, failure, error)
            span.end_http(failure.status, error)
            return CallResponse(
                status,
                found,
                failure.code,
                traceparent=span.traceparent,
                audit_fields=audit_fields,
                retry_after=failure.retry_after,
            )
        span.end_http(200)
        found, is_compressed = compressed(found, headers.get(b"accept-encoding", b""))
        return CallResponse(
            200,
            found,
            is_compressed=is_compressed,
            traceparent=span.traceparent,
            audit_fields=audit_fields,
        )


class _NoLongTurns:
    """Ends any long computation."""

    def try_take(self) -> bool:
        return False

    def take(self, left: Callable[[], float], active: Callable[[], bool]) -> None:
        raise TakesLong

    def give(self) -> None:
        raise AssertionError("nothing was taken")


_NO_LONG_TURNS: Final = _NoLongTurns()


def _at_once(
    decide: Callable[[], bytes],
    left: Callable[[], float],
    deadline: float,
    active: Callable[[], bool],
) -> bytes:
    """Carry out a decision that takes no time; otherwise it ends with TakesLong."""
    del left
    with computing_for(Beneficiary(deadline, active, _NO_LONG_TURNS, anew=True)):
        return decide()


def _audit(target: ExtenderTarget, response: CallResponse, scope: Scope) -> None:
    """Write a filter that reserved a node to the audit log."""
    fields = {"cluster": target.cluster, **response.audit_fields}
    if response.traceparent:
        fields["trace_id"] = response.traceparent.split("-")[1]
    caller, address = caller_of(HTTPConnection(scope)), (scope["client"] or ("",))[0]
    audit(f"Extender/{target.verb.value}", caller, address, response.code, fields)
