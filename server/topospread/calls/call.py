"""A call, whichever way it came: what the pipeline, methods and transports know of it.

Methods are plain functions from a request message and a :class:`Call` to an answer; they raise
the errors of :mod:`topospread.errors` and never touch gRPC.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from topospread.access.callers import ANONYMOUS
from topospread.calls.memory import Held, MemoryGuard
from topospread.checkpoints import Computation
from topospread.codec.fields import SMALL_VARINTS, varint
from topospread.codec.parsing import SMALL, check_repeats
from topospread.errors import CallerGone, DeadlineExceeded, InvalidRequest, code_of
from topospread.service.decisions.request import DEFAULT_CLUSTER
from topospread.telemetry.spans import CallSpan
from topospread_proto.v1.common_pb2 import ResponseMeta

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable, Mapping, Sequence
    from contextlib import AbstractContextManager

    from topospread.access.callers import Caller
    from topospread.access.certificates import CertificateNames
    from topospread.calls.rules import Permission
    from topospread.calls.sizes import SizeLimit
    from topospread.checkpoints import Turn
    from topospread.errors import TopospreadError
    from topospread.telemetry.meters import Histogram, HistogramsByStatus
    from topospread.telemetry.spans import Attribute

Metadata = tuple[tuple[str, str | bytes], ...]

Payload = bytes | Iterator[bytes]
"""A serialized answer, or several."""

Proceed = Callable[["Call"], Payload]
Interceptor = Callable[["Call", Proceed], Payload]
"""Is given a call and what comes after it."""

Describe = Callable[[Any, Any], dict[str, object]]
"""From a request and its response, which is None when the call failed, to fields of a log line."""

FAST_BYTES: Final = 64 << 10
FAST_BATCH_BYTES: Final = 16 << 10
"""Bytes of a request past which a decision, or a batch of them, is not tried where nothing may take
long: some milliseconds are over before it is read.
"""

_META: Final = b"\x0a"
"""The tag of field 1 of all answers, their ResponseMeta."""

_TRACEPARENT: Final = b"\x22\x37"
"""The tag of the field 4 of a ResponseMeta, and the length that each traceparent has."""

DEADLINE_MARGIN: Final = 0.5
"""Seconds before the deadline at which a call fails; a tenth of what is left if that is less."""

NO_SPAN: Final = CallSpan(0, 0, 0)
UNBOUNDED: Final = MemoryGuard(1 << 62)

_Request = TypeVar("_Request", bound=Message)


class Encoded(NamedTuple):
    """An answer that is serialized already, but for its ResponseMeta, to which a trace is added.

    Attributes:
        body: all other fields.
        meta: the serialized ResponseMeta.
    """

    body: bytes
    meta: bytes


Response = Message | bytes | Encoded
"""What a servicer answers; bytes are a serialized message."""


def _never(_: Call) -> None:
    return None


class Context(Protocol):
    """What a transport knows of a call."""

    def is_active(self) -> bool:
        """Whether the caller may still be waiting."""

    def time_remaining(self) -> float:
        """Seconds until the caller's deadline; years when there is none."""

    def end(self, error: TopospreadError) -> object:
        """End the call with an error's status, from a thread that does not carry it out."""

    def add_callback(self, callback: Callable[[], None], /) -> bool:
        """Run a function when the call is over and its answer sent; False: it is over."""

    def metadata(self) -> Sequence[tuple[str, str | bytes]]:
        """The metadata or headers that the caller sent, with keys in lower case."""

    def peer(self) -> str:
        """The caller's address with its port, as gRPC writes it."""

    def names(self) -> CertificateNames:
        """The names in the caller's verified certificate."""

    def receive(self, limit: SizeLimit) -> bytes | None:
        """The next message, unpacked, which may be waited for; None: there is none.

        Raises:
            CallerGone, DeadlineExceeded: the call has ended.
            TooLarge, InvalidRequest: it is larger than the limit, or packed and broken.
        """

    def send_headers(self, headers: Metadata) -> None:
        """Send the metadata before the first answer of a stream.

        Raises:
            CallerGone, DeadlineExceeded: the call has ended.
        """

    def end_span(self, span: CallSpan, error: Exception | None) -> None:
        """End the call's span with the status of its protocol."""


def call_ended(context: Context) -> TopospreadError:
    """The error of a call that its caller or its deadline has ended."""
    if context.time_remaining() <= 0:
        return DeadlineExceeded("the call's deadline passed")
    return CallerGone("the caller cancelled the call or went away")


class Call:
    """One call.

    Attributes:
        arrived, began: when it came in and was carried out, on the clock of time.perf_counter; 0.0:
            it was not.
        admitted: the transport had the caller admitted before it read the request.
        authorize: checks its caller's role, given the call with a first message.
        refused: why it is not to be carried out.
        raw: the request; of a stream of requests the first message.
        request, response: the same and the answer as messages, where a method has such.
        deadline: on the monotonic clock; infinite for a stream whose caller states none.
        brief, turn, waits: see :class:`~topospread.checkpoints.Computation`.
        error: why it failed.
        ends: called at its end, the last first.
        fields: more fields for its line in the audit log.
    """

    # Defaults of the class: a call sets few of them, and there are many calls.
    caller: Caller = ANONYMOUS
    admitted = False
    refused: TopospreadError | None = None
    raw = b""
    request: Any = None
    response: Any = None
    span = NO_SPAN
    deadline = math.inf
    brief = False
    waits: Callable[[], AbstractContextManager[None]] | None = None
    guard = UNBOUNDED
    began = 0.0
    error: Exception | None = None
    fields: Mapping[str, object] = MappingProxyType({})

    def __init__(self, method: ServedMethod, context: Context, arrived: float) -> None:
        self.method = method
        self.context = context
        self.arrived = arrived
        self.turn: Turn | None = method.turn
        self.ends: list[Callable[[Call], object]] = []
        self.authorize: Callable[[Call], object] = _never

    # ------------------------------ for methods

    def active(self) -> bool:
        """Whether the caller still waits for an answer, and may."""
        return self.context.is_active() and self.method.ended(self) is None

    def time_left(self) -> float:
        """Seconds that may be spent on a response, at least a millisecond: a last try is made.

        A little less than there is until the deadline, so that the client learns why it failed.
        """
        left = self.deadline - time.monotonic()
        return max(0.001, left - min(DEADLINE_MARGIN, left / 10))

    def address(self) -> str:
        """The caller's address, without the port."""
        kind, _, address = self.context.peer().partition(":")
        # gRPC writes the brackets of IPv6 as a URI does.
        return address.rpartition(":")[0].replace("%5B", "[").replace("%5D", "]") or kind

    def send_headers(self) -> None:
        """Tell the caller of a stream that it was accepted; raises as Context.send_headers."""
        self.context.send_headers((("traceparent", self.span.traceparent),))

    def hold(self, size: int = 0) -> Held:
        """Keep bytes for the caller; a context manager that gives them back.

        Raises:
            LimitExceeded: too much is kept for it, or for all, already.
        """
        return self.guard.hold(self.owner, size, streaming=self.method.streaming)

    @contextmanager
    def memory(self) -> Iterator[Callable[[int], object]]:
        """Around what is kept for the caller: a function that takes bytes; raises as hold()."""
        with self.hold() as held:
            yield held.add

    # ------------------------------ for the pipeline and transports

    @property
    def owner(self) -> Hashable:
        """Whose the call is: its caller's credential, or else its connection."""
        return self.caller.credential or self.context.peer()

    @property
    def code(self) -> str:
        """GRPC's name of the status that it ended with."""
        return "OK" if self.error is None else code_of(self.error)

    def computation(self) -> Computation:
        """What is computed for it."""
        return Computation(
            self.deadline,
            self.active,
            brief=self.brief,
            turn=self.turn,
            share=self.method.shares_turn,
            waits=self.waits,
        )

    def take_error(self) -> Exception | None:
        """Why it failed, for its status; what an error refers to is kept no longer than that."""
        error, self.error, self.refused = self.error, None, None
        return error

    def end(self) -> None:
        """Note that it is over; once."""
        while self.ends:
            self.ends.pop()(self)
        self.raw, self.request, self.response = b"", None, None


@dataclass(frozen=True, slots=True)
class Unary(Generic[_Request]):
    """A method with one request and one response."""

    request: type[_Request]
    serve: Callable[[_Request, Call], Response]


@dataclass(frozen=True, slots=True)
class UnaryBytes:
    """A method with one request and one response that parses its request by itself."""

    serve: Callable[[bytes, Call], Response]


@dataclass(frozen=True, slots=True)
class ClientStreaming(Generic[_Request]):
    """A method with a stream of requests and one response."""

    request: type[_Request]
    serve: Callable[[Iterator[_Request], Call], Response]


@dataclass(frozen=True, slots=True)
class ServerStreaming(Generic[_Request]):
    """A method with one request and a stream of responses."""

    request: type[_Request]
    serve: Callable[[_Request, Call], Iterable[Response]]


@dataclass(frozen=True, slots=True)
class Bidirectional(Generic[_Request]):
    """A method with a stream of requests and a stream of responses."""

    request: type[_Request]
    serve: Callable[[Iterator[_Request], Call], Iterable[Response]]


Method = Unary[Any] | UnaryBytes | ClientStreaming[Any] | ServerStreaming[Any] | Bidirectional[Any]


class ServedMethod:
    """A method as the pipeline knows it.

    Args:
        path: gRPC's name of it, with the service's full name; or another one.
        method: what it does.
        executor: whose threads carry it out, by name.
        permission: that callers need.
        limit: of its requests.
        turn, shares_turn: see :class:`~topospread.checkpoints.Computation`.
        describe: its fields in the audit log; None: it has no line there.
        span: the name of its spans; empty: its path.

    Attributes:
        name: without its service.
        label: its name in metrics and in the audit log.
        streaming: its answers are a stream.
        reads: its requests are a stream, which it reads by itself.
        fast_bytes: of a request that may be decided at once.
        grows: its answers grow with the cluster: making one takes several times its size.
        expected: bytes of an answer that grows: as many as the last one had.
        ended: why a stream of answers is to end though its caller waits; None: it is not.
        chain: the names of the interceptors around it, outermost first.
        carry_out: these interceptors around the method.
        meters: of its calls and of their time in a queue, where calls are counted.
    """

    chain: tuple[str, ...]
    carry_out: Proceed
    meters: tuple[HistogramsByStatus, Histogram]

    def __init__(
        self,
        path: str,
        method: Method,
        executor: str,
        permission: Permission,
        limit: SizeLimit,
        *,
        turn: Turn | None = None,
        shares_turn: bool = False,
        describe: Describe | None = None,
        span: str = "",
    ) -> None:
        service, _, self.name = path.lstrip("/").partition("/")
        self.path: Final = path
        self.span: Final = span or path
        self.label: Final = f"{service.rsplit('.')[-1]}/{self.name}".rstrip("/")
        self.served: Final = method
        self.executor: Final = executor
        self.permission: Final = permission
        self.limit: Final = limit
        self.turn: Final = turn
        self.shares_turn: Final = shares_turn
        self.describe: Final = describe
        self.streaming: Final = isinstance(method, ServerStreaming | Bidirectional)
        self.reads: Final = isinstance(method, ClientStreaming | Bidirectional)
        self.fast_bytes: Final = FAST_BATCH_BYTES if "Batch" in self.name else FAST_BYTES
        self.grows: Final = executor == "lists"
        self.expected = 1
        self.ended: Callable[[Call], TopospreadError | None] = _never


def parse(kind: type[_Request], raw: bytes) -> _Request:
    """Read a message.

    Raises:
        InvalidRequest: a field is repeated more often than its limit, or the bytes do not parse:
            grpcio would answer INTERNAL if it parsed by itself.
    """
    if len(raw) > SMALL:
        check_repeats(kind, raw)
    try:
        return kind.FromString(raw)
    except DecodeError as cause:
        # A frame stands for the request of the same name; callers know the latter.
        name = kind.DESCRIPTOR.full_name.replace("Frame", "Request").replace(".internal.", ".")
        raise InvalidRequest(f"the request does not parse as {name}") from cause


def serialized(call: Call, response: Response) -> bytes:
    """An answer as bytes, with the call's trace in its meta."""
    if isinstance(response, bytes):
        return response
    if isinstance(response, Encoded):
        meta = response.meta + _TRACEPARENT + call.span.traceparent.encode()
        size = len(meta)
        length = SMALL_VARINTS[size] if size < len(SMALL_VARINTS) else varint(size)
        return b"".join((_META, length, meta, response.body))
    call.response = response
    note_trace(call, response)
    return response.SerializeToString()


def note_trace(call: Call, response: Message) -> None:
    """Note an answer's revision in the call's span, and the call's trace in the answer's meta."""
    meta = getattr(response, "meta", None)
    if isinstance(meta, ResponseMeta):
        if call.span.recording and meta.revision:
            call.span.set("topospread.revision", meta.revision)
        meta.traceparent = call.span.traceparent


def store_spans(call: Call, cluster: str) -> Callable[[str, int], AbstractContextManager[object]]:
    """Return a factory of child spans for the call's writes to the store."""
    cluster = cluster or DEFAULT_CLUSTER
    call.span.set("topospread.cluster", cluster)

    def child(operation: str, changes: int) -> AbstractContextManager[object]:
        attributes: dict[str, Attribute] = {
            "topospread.cluster": cluster,
            "topospread.store.operation": operation,
            "topospread.store.changes": changes,
        }
        return call.span.child(f"store {operation}", attributes)

    return child
