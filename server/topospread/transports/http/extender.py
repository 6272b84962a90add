"""kube-scheduler's HTTP extender: the frame around every call of it.

What is wrong with a request as such is told by a status of HTTP. What goes wrong with one that a
scheduler may well send is told, where the protocol has a place for it, in an answer with 200.
"""

from __future__ import annotations

import asyncio
import math
import time
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Event
from typing import TYPE_CHECKING, Final, Protocol

from starlette.requests import HTTPConnection

from topospread.access.audit import audit
from topospread.access.callers import Role
from topospread.checkpoints import Beneficiary, TakesLong, checkpoint, computing_for
from topospread.errors import CallerGone, NotOffered
from topospread.transports.http.bodies import Body, Room, packed, unpacked
from topospread.transports.http.extender_paths import Target, Verb, target_of
from topospread.transports.http.extender_verbs import Asked, Verbs, failed, waits
from topospread.transports.http.failures import Refused, failure_of
from topospread.transports.http.guard import caller_of, permit

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future

    from starlette.types import Message, Receive, Scope, Send

    from topospread.telemetry.metrics import Metrics
    from topospread.telemetry.tracing import Tracing

PATIENCE: Final = 4.5
"""Seconds for an answer: kube-scheduler waits 5 by default, and is to learn why there is none."""

LARGE: Final = 1 << 18
"""Bytes of a body past which it is not worked on among the quick decisions."""

ROOM: Final = 2
"""Of the largest bodies, for all requests under way together."""

_OK: Final = 200
_TOO_LARGE: Final = 413
_FULL: Final = 429
_NOT_POST: Final = 405
_GONE: Final = 499
_FOR_TRACING: Final = (b"traceparent", b"tracestate")


@dataclass(frozen=True, slots=True)
class Answer:
    """What goes back.

    Attributes:
        code: gRPC's name for how the call ended, which metrics count by.
        is_packed: the body is gzip.
        traceparent: of the call; empty where none was begun.
        what: the audit log says of a place.
        retry_after: seconds after which trying again may help; None where it does not.
    """

    status: int
    body: bytes
    code: str = "OK"
    is_packed: bool = False
    traceparent: str = ""
    what: Mapping[str, object] = field(default_factory=dict)
    retry_after: float | None = None


class Submit(Protocol):
    """Has some work done by a thread of a pool."""

    def __call__(self, work: Callable[[], Answer], /) -> Future[Answer]:
        """The future fails with LimitExceeded where the pool's line is full."""
        ...


class Decided(Protocol):
    """Carries out a decision; one that takes long waits for its turn."""

    def __call__(
        self,
        decide: Callable[[], bytes],
        left: Callable[[], float],
        deadline: float,
        active: Callable[[], bool],
        /,
    ) -> bytes:
        """See :func:`topospread.transports.grpc.pool.decided`."""
        ...


@dataclass(frozen=True, slots=True)
class Workplaces:
    """Who does the work.

    Attributes:
        decide: for what is computed at once.
        wait: for what waits for the store, and for large bodies.
        decided: carries out what may take long on one of their threads.
    """

    decide: Submit
    wait: Submit
    decided: Decided


@dataclass(frozen=True, slots=True)
class _Call:
    """A request whose body was read.

    Attributes:
        gone: set when the caller has closed its connection.
    """

    target: Target
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
        verbs: what is called.
        tracing: starts spans.
        metrics: counts calls.
        workplaces: who does the work.
        places: filter holds the node that it answers, where a URL does not say.
        max_body_bytes: of a request, packed or not.
    """

    def __init__(
        self,
        verbs: Verbs,
        tracing: Tracing,
        metrics: Metrics,
        workplaces: Workplaces,
        *,
        places: bool = False,
        max_body_bytes: int = 64 << 20,
    ) -> None:
        self._verbs = verbs
        self._tracing = tracing
        self._workplaces = workplaces
        self._places = places
        self._max_body_bytes = max_body_bytes
        self._room = Room(ROOM * max_body_bytes)
        self._meters = {verb: metrics.call(f"Extender/{verb.value}") for verb in Verb}
        self._other = metrics.call("Extender/other")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        started = time.perf_counter()
        meter = self._other
        target: Target | None = None
        try:
            target = target_of(scope["path"], scope["query_string"], self._places)
            meter = self._meters[target.verb]
            role = Role.PLACE if target.places else Role.DECIDE
            permit(HTTPConnection(scope), role, target.cluster)
            answer = await self._answered(target, scope, receive)
        except CallerGone:
            meter.done("CANCELLED", time.perf_counter() - started)
            return
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            failure = failure_of(error)
            status, body = failure.status, failure.body
            if target is not None:
                status, body = failed(target.verb, failure, error)
            answer = Answer(status, body, failure.code, retry_after=failure.retry_after)
        meter.done(answer.code, time.perf_counter() - started)
        # The guard tells of who was not let in.
        if target is not None and target.places and answer.code != "PERMISSION_DENIED":
            _tell(target, answer, scope)
        await send(_start(answer))
        await send({"type": "http.response.body", "body": answer.body})

    async def _answered(self, target: Target, scope: Scope, receive: Receive) -> Answer:
        if scope["method"] != "POST":
            raise Refused(_NOT_POST, NotOffered(f"{target.verb.value} is called with POST"))
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        with Body(self._room) as body:
            await body.read(receive, length, self._max_body_bytes)
            call = _Call(target, body.content, headers, time.monotonic() + PATIENCE)
            quick = len(body.content) <= LARGE and not waits(target)
            if quick and self._verbs.waits_for_nothing(target.cluster):
                # A decision takes less time than its way to another thread and back. This thread
                # has other connections to mind, so that one that takes longer is begun anew there.
                with suppress(TakesLong):
                    return self._served(call, _at_once)
            submit = self._workplaces.decide if quick else self._workplaces.wait
            leaving = asyncio.create_task(_await_leaving(receive, call.gone))
            try:
                return await asyncio.wrap_future(
                    submit(lambda: self._served(call, self._workplaces.decided))
                )
            finally:
                leaving.cancel()

    # ------------------------------ on whichever thread does the work

    def _served(self, call: _Call, decided: Decided) -> Answer:
        """Carry out a call in its span."""
        verb, headers = call.target.verb, call.headers
        span = self._tracing.start(f"extender {verb.value}", _trace(headers))
        span.set("topospread.cluster", call.target.cluster)
        what: dict[str, object] = {}
        try:

            def decide() -> bytes:
                checkpoint()  # it may have stood in line
                encoding = headers.get(b"content-encoding", b"")
                body = unpacked(call.body, encoding, self._max_body_bytes)
                return self._verbs.serve(Asked(call.target, body, call.deadline, span, what))

            found = decided(decide, call.left, call.deadline, lambda: not call.gone.is_set())
        except CallerGone as gone:
            span.end_http(_GONE, gone)
            raise
        except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
            failure = failure_of(error, span.traceparent)
            status, found = failed(verb, failure, error)
            span.end_http(failure.status, error)
            return Answer(
                *(status, found, failure.code),
                traceparent=span.traceparent,
                what=what,
                retry_after=failure.retry_after,
            )
        span.end_http(200)
        found, is_packed = packed(found, headers.get(b"accept-encoding", b""))
        return Answer(200, found, is_packed=is_packed, traceparent=span.traceparent, what=what)


class _NoRoom:
    """No long computation may go on."""

    def try_take(self) -> bool:
        return False

    def take(self, left: Callable[[], float], active: Callable[[], bool]) -> None:
        raise TakesLong

    def give(self) -> None:
        raise AssertionError("nothing was taken")


_NO_ROOM: Final = _NoRoom()


def _at_once(
    decide: Callable[[], bytes],
    left: Callable[[], float],
    deadline: float,
    active: Callable[[], bool],
) -> bytes:
    """Carry out a decision that takes no time; otherwise it ends with TakesLong."""
    del left
    with computing_for(Beneficiary(deadline, active, _NO_ROOM, anew=True)):
        return decide()


async def _await_leaving(receive: Receive, gone: Event) -> None:
    """Set the event when the caller closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


def _start(answer: Answer) -> Message:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(answer.body)).encode()),
    ]
    if answer.is_packed:
        headers.append((b"content-encoding", b"gzip"))
    if answer.traceparent:
        headers.append((b"traceparent", answer.traceparent.encode()))
    if answer.status == _NOT_POST:
        headers.append((b"allow", b"POST"))
    if answer.retry_after is not None and answer.status != _OK:
        headers.append((b"retry-after", str(math.ceil(answer.retry_after)).encode()))
    if answer.status in (_TOO_LARGE, _FULL):
        # What was not read of the body would be taken for the next request.
        headers.append((b"connection", b"close"))
    return {"type": "http.response.start", "status": answer.status, "headers": headers}


def _trace(headers: Mapping[bytes, bytes]) -> Sequence[tuple[str, str]]:
    return [
        (name.decode(), headers[name].decode("ascii", "replace"))
        for name in _FOR_TRACING
        if name in headers
    ]


def _tell(target: Target, answer: Answer, scope: Scope) -> None:
    """The audit log tells of filters that hold a node."""
    what = {"cluster": target.cluster, **answer.what}
    if answer.traceparent:
        what["trace_id"] = answer.traceparent.split("-")[1]
    caller, address = caller_of(HTTPConnection(scope)), (scope["client"] or ("",))[0]
    audit(f"Extender/{target.verb.value}", caller, address, answer.code, what)
