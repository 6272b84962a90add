"""What calls over HTTP have in common: their responses, and the threads that carry them out."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from concurrent.futures import Future
    from threading import Event

    from starlette.types import Message, Receive

_OK: Final = 200
_TOO_LARGE: Final = 413
_FULL: Final = 429
_NOT_POST: Final = 405
_FOR_TRACING: Final = (b"traceparent", b"tracestate")


@dataclass(frozen=True, slots=True)
class CallResponse:
    """A response.

    Attributes:
        code: gRPC's name for how the call ended, which metrics count by.
        is_compressed: the body is gzip.
        traceparent: of the call; empty where none was begun.
        audit_fields: what the audit log has of a placement.
        retry_after: seconds after which trying again may help; None where it does not.
    """

    status: int
    body: bytes
    code: str = "OK"
    is_compressed: bool = False
    traceparent: str = ""
    audit_fields: Mapping[str, object] = field(default_factory=dict)
    retry_after: float | None = None


class Submit(Protocol):
    """Submits work to a thread pool."""

    def __call__(self, work: Callable[[], CallResponse], /) -> Future[CallResponse]:
        """The future fails with LimitExceeded where the pool's queue is full."""
        ...


async def await_disconnect(receive: Receive, gone: Event) -> None:
    """Set the event when the caller closes its connection."""
    while (await receive())["type"] != "http.disconnect":
        pass
    gone.set()


def response_start(response: CallResponse) -> Message:
    """The first message of a response."""
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(response.body)).encode()),
    ]
    if response.is_compressed:
        headers.append((b"content-encoding", b"gzip"))
    if response.traceparent:
        headers.append((b"traceparent", response.traceparent.encode()))
    if response.status == _NOT_POST:
        headers.append((b"allow", b"POST"))
    if response.retry_after is not None and response.status != _OK:
        headers.append((b"retry-after", str(math.ceil(response.retry_after)).encode()))
    if response.status in (_TOO_LARGE, _FULL):
        # What was not read of the body would be taken for the next request.
        headers.append((b"connection", b"close"))
    return {"type": "http.response.start", "status": response.status, "headers": headers}


def trace_headers(headers: Mapping[bytes, bytes]) -> Sequence[tuple[str, str]]:
    """The headers of a request that say whose span the call's is a child of."""
    return [
        (name.decode(), headers[name].decode("ascii", "replace"))
        for name in _FOR_TRACING
        if name in headers
    ]
