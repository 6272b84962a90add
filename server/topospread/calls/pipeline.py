"""What is done for each call, whichever way it comes: an explicit, ordered list.

An :data:`Interceptor` is given a call and what comes after it. It answers bytes, or an iterator of
bytes where the method has a stream of answers; what is to happen at the call's end it puts on the
call (``call.ends``). :func:`interceptors` is the list, the same for all methods and ways.
"""

from __future__ import annotations

import logging
import math
import time
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from topospread.calls.access import FIELDS, audit
from topospread.calls.call import (
    Bidirectional,
    Call,
    ClientStreaming,
    Interceptor,
    Method,
    Payload,
    Proceed,
    ServedMethod,
    ServerStreaming,
    Unary,
    UnaryBytes,
    call_ended,
    parse,
    serialized,
)
from topospread.calls.memory import MAX_PENDING, MemoryGuard, Sweeper
from topospread.calls.rules import MethodRules, rules_of
from topospread.checkpoints import Preempted
from topospread.errors import (
    DeadlineExceeded,
    InvalidRequest,
    QueueFull,
    ShuttingDown,
    StreamsFull,
    TopospreadError,
    Unauthenticated,
)
from topospread.service.decisions.request import DEFAULT_CLUSTER

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.calls.access import AccessControl
    from topospread.calls.sizes import MessageLimits
    from topospread.telemetry.metrics import Metrics
    from topospread.telemetry.spans import CallSpan
    from topospread.telemetry.tracing import Tracing

LOG: Final = logging.getLogger(__name__)

DEFAULT_DEADLINE: Final = 30.0
"""Seconds for callers that state no deadline; streams last."""

MAX_DEADLINE: Final = 24 * 3600.0
"""Seconds past which a deadline counts as none: without one grpcio answers years."""

LARGE: Final = 1 << 16
"""Bytes from which an answer counts for its caller. Smaller ones are bounded by the calls that
there may be.
"""

ANSWER_COST: Final = 4
"""How often a byte of such an answer counts: gRPC copies it, and free memory goes back late."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What the interceptors of one server are made of; without metrics no call is counted."""

    tracing: Tracing | None
    metrics: Metrics | None
    access: AccessControl
    sizes: MessageLimits
    guard: MemoryGuard
    sweeper: Sweeper


class Pipeline:
    """The interceptors of one server, around each method.

    Attributes:
        stopping: open streams are to end.
        guarded: calls are admitted before their requests are read.
    """

    def __init__(self, parts: Parts) -> None:
        self.parts: Final = parts
        self.stopping = False
        self.interceptors: Final = interceptors(parts)
        self.guarded: Final = not {"authentication", "rate"}.isdisjoint(self.interceptors)

    def method(
        self,
        path: str,
        method: Method,
        rules: MethodRules | None = None,
        **options: Any,
    ) -> ServedMethod:
        """A method that is called through this pipeline: see :class:`ServedMethod`.

        Args:
            path: as there.
            method: as there.
            rules: None: those that options.proto states of its path.
            **options: as there.
        """
        service, _, name = path.lstrip("/").partition("/")
        rules = rules or rules_of(service, name)
        made = ServedMethod(
            path,
            method,
            rules.executor,
            rules.permission,
            self.parts.sizes.of(name),
            **{"describe": FIELDS[name] if rules.audited else None, **options},
        )
        # Where nothing is denied, only what changes something has a line in the audit log.
        spared = () if self.guarded or made.describe else ("audit",)
        made.chain = tuple([name for name in self.interceptors if name not in spared])
        made.carry_out = composed([self.interceptors[name] for name in made.chain], serve)
        if made.streaming:
            made.ended = self._ended
        if (counters := self.parts.metrics) is not None:
            made.meters = counters.call(made.label), counters.queue_wait(rules.executor)
        return made

    def admit(self, call: Call) -> bool:
        """Admit a call before its request is read; its error is kept for :meth:`respond`."""
        try:
            self.parts.access.authenticate(call)
            self.parts.access.limit_rate(call)
        except TopospreadError as refused:
            call.refused = refused
        call.admitted = True
        return call.refused is None

    def respond(self, call: Call) -> bytes:
        """The answer to a call with one; without meaning where ``call.error`` is set then.

        Raises:
            Preempted: it is to be carried out again, where it may take long.
        """
        try:
            payload = call.method.carry_out(call)
        except Preempted:
            call.ends.clear()
            raise
        call.end()
        assert isinstance(payload, bytes), "a stream is not answered at once"
        return payload

    def responses(self, call: Call) -> Iterator[bytes]:
        """The answers to a call with a stream of them, until ``call.error`` is set or it ends."""
        try:
            payload = call.method.carry_out(call)
            if not isinstance(payload, bytes):
                yield from payload
        finally:
            call.end()

    def _ended(self, call: Call) -> TopospreadError | None:
        """Why a stream ends: its caller is admitted no more, or the server stops."""
        if not self.parts.access.is_valid(call):
            return Unauthenticated()
        return ShuttingDown() if self.stopping else None


def composed(chosen: list[Interceptor], last: Proceed) -> Proceed:
    """One function of interceptors, the outermost first, and of what they are around."""
    proceed = last
    for interceptor in reversed(chosen):
        proceed = _around(interceptor, proceed)
    return proceed


def _around(interceptor: Interceptor, proceed: Proceed) -> Proceed:
    return lambda call: interceptor(call, proceed)


def interceptors(parts: Parts) -> dict[str, Interceptor]:
    """The interceptors by name, outermost first; what is switched off is not among them."""
    access = parts.access
    known = access.authenticator is not None
    chosen: dict[str, Interceptor | None] = {
        "metrics": metrics(parts.metrics) if parts.metrics else None,
        "trace": trace(parts.tracing) if parts.tracing else None,
        "status": status,
        "audit": audit(access.denials),
        "authentication": admission(access.authenticate) if known else None,
        "rate": admission(access.limit_rate) if access.rate_limiter is not None else None,
        "sizes": sizes(parts.sizes),
        "authorization": authorization(access, parts.sweeper) if known else None,
        "memory": memory(parts.guard, parts.sweeper),
        "deadline": deadline,
    }
    return {name: each for name, each in chosen.items() if each is not None}


# ------------------------------ the interceptors, outermost first


def metrics(counters: Metrics) -> Interceptor:
    """Count the call by its code, and how long it waited in a queue and took in all."""

    def counted(call: Call) -> None:
        method, error = call.method, call.error
        durations, queue_wait = method.meters
        if call.began:
            queue_wait.observe(call.began - call.arrived)
        if isinstance(error, QueueFull | StreamsFull):
            counters.rejection("streams" if isinstance(error, StreamsFull) else method.executor)
        seconds = time.perf_counter() - call.arrived
        durations.observe(call.code, seconds)
        LOG.debug("%s %s in %.1f ms", method.name, call.code, 1000 * seconds)

    def measured(call: Call, proceed: Proceed) -> Payload:
        call.ends.append(counted)
        return proceed(call)

    return measured


def trace(tracing: Tracing) -> Interceptor:
    """Put a span around the call."""

    def traced(call: Call, proceed: Proceed) -> Payload:
        call.span = tracing.start(call.method.span, call.context.metadata(), call.arrived)
        call.ends.append(_end_span)
        return proceed(call)

    return traced


def _end_span(call: Call) -> None:
    call.context.end_span(call.span, call.error)


def status(call: Call, proceed: Proceed) -> Payload:
    """Keep an error as the call's; what is outside sees no exception."""
    try:
        payload = proceed(call)
    except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
        call.error = error
        return b""
    return payload if isinstance(payload, bytes) else _until_error(call, payload)


def _until_error(call: Call, payload: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from payload
    except GeneratorExit:
        call.error = call_ended(call.context)  # the caller went away while an answer was sent
        raise
    except Exception as error:  # noqa: BLE001 - every failure becomes a status in one place
        call.error = error


def admission(check: Callable[[Call], None]) -> Interceptor:
    """Check the caller, unless the transport had that done before the request was read."""

    def admitted(call: Call, proceed: Proceed) -> Payload:
        if not call.admitted:
            check(call)
        return proceed(call)

    return admitted


def sizes(limits: MessageLimits) -> Interceptor:
    """Read the request, or refuse the call; check the sizes of request and answers."""
    most = limits.response

    def checked(payload: bytes) -> bytes:
        if len(payload) > most:
            limits.check_response(payload)
        return payload

    def sized(call: Call, proceed: Proceed) -> Payload:
        if call.refused is not None:
            raise call.refused
        call.began = time.perf_counter()
        if not call.method.reads:
            raw = call.context.receive(call.method.limit)
            if raw is None:
                if call.context.is_active():
                    raise InvalidRequest("the call has no request message")
                raise call_ended(call.context)
            call.raw = raw
        payload = proceed(call)
        return checked(payload) if isinstance(payload, bytes) else map(checked, payload)

    return sized


def authorization(access: AccessControl, sweeper: Sweeper) -> Interceptor:
    """Check the caller's role for what it asks; a stream ends when its credential does."""

    def over(call: Call) -> None:
        sweeper.streams.pop(call, None)

    def authorized(call: Call, proceed: Proceed) -> Payload:
        if call.method.reads:
            call.authorize = access.authorize  # once there is a message
        else:
            access.authorize(call)
        if call.method.reads or call.method.streaming:
            sweeper.streams[call] = partial(access.is_valid, call), call.context.end
            call.ends.append(over)
        return proceed(call)

    return authorized


def memory(guard: MemoryGuard, sweeper: Sweeper) -> Interceptor:
    """Bound what is kept for callers: answers until they are sent, and for how long that is."""
    pending = sweeper.pending

    def held(call: Call, proceed: Proceed) -> Payload:
        if len(pending) >= MAX_PENDING:
            raise QueueFull("too many answers wait to be taken: try again later")
        call.guard = guard
        method, context = call.method, call.context
        kept = call.hold(ANSWER_COST * method.expected) if method.grows else None
        try:
            payload = proceed(call)
            if not isinstance(payload, bytes):
                return sent_one_by_one(call, payload)
            size = len(payload)
            if method.grows:
                method.expected = size
            if kept is None and size >= LARGE:
                kept = call.hold()
            if kept is not None:
                kept.resize(ANSWER_COST * size)
        except BaseException:
            if kept is not None:
                kept.release()
            raise

        def sent() -> None:
            pending.pop(call, None)
            if kept is not None:
                kept.release()

        pending[call] = time.monotonic(), context.end
        if not context.add_callback(sent):
            sent()
        return payload

    def sent_one_by_one(call: Call, payload: Iterator[bytes]) -> Iterator[bytes]:
        end = call.context.end
        with call.hold() as kept:
            for each in payload:
                kept.resize(len(each) if len(each) >= LARGE else 0)
                with sweeper.wait(end):
                    yield each

    return held


def deadline(call: Call, proceed: Proceed) -> Payload:
    """Set the call's deadline, and compute no longer than until then."""
    left = call.context.time_remaining()
    if left <= 0:
        raise DeadlineExceeded("the call's deadline passed before it was begun")
    if call.method.streaming:
        call.deadline = math.inf if left > MAX_DEADLINE else time.monotonic() + left
        return proceed(call)
    call.deadline = time.monotonic() + (DEFAULT_DEADLINE if left > MAX_DEADLINE else left)
    with call.computation():
        return proceed(call)


# ------------------------------ what they are around


def serve(call: Call) -> Payload:
    """Parse the request, have the servicer answer, and serialize the answer."""
    method = call.method.served
    if isinstance(method, Unary):
        call.request = request = parse(method.request, call.raw)
        _describe_request(call.span, request)
        return serialized(call, method.serve(request, call))
    if isinstance(method, UnaryBytes):
        return serialized(call, method.serve(call.raw, call))
    if isinstance(method, ClientStreaming):
        return serialized(call, method.serve(_requests(call, method.request), call))
    return _stream(call, method)


def _stream(call: Call, method: ServerStreaming[Any] | Bidirectional[Any]) -> Iterator[bytes]:
    """The answers of a stream, until it, its caller or the server ends."""
    request: Any
    if isinstance(method, ServerStreaming):
        request = parse(method.request, call.raw)
        _describe_request(call.span, request)
    else:
        request = _requests(call, method.request)
    for response in method.serve(request, call):
        if (ended := call.method.ended(call)) is not None:
            raise ended
        yield serialized(call, response)
    if not call.context.is_active():
        raise call_ended(call.context)
    if (ended := call.method.ended(call)) is not None:
        raise ended


def _requests(call: Call, kind: type[Any]) -> Iterator[Any]:
    """The messages of a stream of requests.

    The end of the messages does not mean that the caller has sent all it wanted to: a call that was
    cut can look the same. A method for which that matters asks for a last message.
    """
    first = True
    while (message := call.context.receive(call.method.limit)) is not None:
        if first:
            call.raw, first = message, False
            call.authorize(call)
        parsed = parse(kind, message)
        call.request = call.request or parsed
        yield parsed


def _describe_request(span: CallSpan, request: Any) -> None:
    if span.recording and isinstance(cluster := getattr(request, "cluster", None), str):
        span.set("topospread.cluster", cluster or DEFAULT_CLUSTER)
