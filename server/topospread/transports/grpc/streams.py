"""Streams of requests, and the open streams of authenticated callers."""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import grpc
from google.protobuf.message import Message

from topospread.errors import (
    CallerGone,
    DeadlineExceeded,
    InvalidRequest,
    TopospreadError,
)
from topospread.servicers.calls import parse
from topospread.servicers.limits import SizeLimit, decompressed
from topospread.threads.pool import away
from topospread.transports.grpc.transport import end_call

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.telemetry.tracing import CallSpan
    from topospread.transports.grpc.transport import Context, StreamContext

LOG: Final = logging.getLogger(__name__)

CHECK_INTERVAL: Final = 0.25
"""Seconds between two checks of the open streams."""

GRACE: Final = 0.7
"""Seconds that a stream has to end by itself, saying why, before it is cancelled.

WatchObjects checks its caller twice a second. With the time until a change of the access file is
seen, all ends within two seconds.
"""

_Request = TypeVar("_Request", bound=Message)


def raw_messages(raws: Iterator[bytes], context: Context) -> Iterator[bytes]:
    """The messages of a stream of grpcio's as they come.

    The end of the messages does not mean that the caller has sent all it wanted to: a call that was
    cut can look the same. A method for which that matters asks for a last message.

    Args:
        raws: the messages.
        context: of the call.

    Raises:
        CallerGone, DeadlineExceeded: the call has ended.
    """
    while True:
        try:
            with away(partial(end_call, context)):
                raw = next(raws)
        except StopIteration:
            # The end of what the caller has sent, or of the call: gRPC does not always say which.
            if not context.is_active():
                raise call_ended(context) from None
            return
        except grpc.RpcError as cause:
            raise call_ended(context) from cause
        yield raw


def request_messages(
    kind: type[_Request],
    raws: Iterator[bytes],
    context: Context,
    limit: SizeLimit,
    permit: Callable[[bytes], None],
) -> Iterator[_Request]:
    """Parse the messages of a request that is a stream.

    Args:
        kind: of each message.
        raws: the messages.
        context: of the call.
        limit: of each message.
        permit: raises when the caller may not send the first message.
    """
    for number, raw in enumerate(raw_messages(raws, context)):
        message = decompressed(raw, limit)
        if number == 0:
            permit(message)
        yield parse(kind, message)


def send_headers(context: StreamContext, span: CallSpan) -> None:
    """Send the initial metadata, which tells the client that its call was accepted.

    Raises:
        CallerGone, DeadlineExceeded: the call has ended.
    """
    try:
        context.send_initial_metadata((("traceparent", span.traceparent),))
    except grpc.RpcError as cause:
        raise call_ended(context) from cause


def missing_message(context: Context) -> TopospreadError:
    """The error of a unary call whose message does not come."""
    if context.is_active():
        return InvalidRequest("the call has no request message")
    return call_ended(context)


def call_ended(context: Context) -> TopospreadError:
    """The error of a call that its caller or its deadline has ended."""
    if context.time_remaining() <= 0:
        return DeadlineExceeded("the call's deadline passed")
    return CallerGone("the caller cancelled the call or went away")


class OpenStreams:
    """Cancels streams whose callers' credentials have become invalid.

    A thread of its own checks them while any are open.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open: dict[object, tuple[Callable[[], bool], Callable[[], object]]] = {}
        self._checking = False

    @contextmanager
    def watched(self, valid: Callable[[], bool], cancel: Callable[[], object]) -> Iterator[None]:
        """Around a stream.

        Args:
            valid: whether its caller's credential is.
            cancel: ends it from this side, whatever it waits for.
        """
        key = object()
        with self._lock:
            if not self._checking:
                threading.Thread(target=self._check, name="open-streams", daemon=True).start()
                self._checking = True
            self._open[key] = valid, cancel
        try:
            yield
        finally:
            with self._lock:
                del self._open[key]

    def _check(self) -> None:
        pause = threading.Event()
        since: dict[object, float] = {}
        failed: set[object] = set()

        def guarded(key: object, act: Callable[[], object]) -> object:
            """Call a function; a failure is logged once for a stream and affects no other."""
            try:
                return act()
            except Exception:
                if key not in failed:
                    failed.add(key)
                    LOG.exception("an open stream cannot be checked")
                return None

        while True:
            pause.wait(CHECK_INTERVAL)
            with self._lock:
                if not self._open:
                    self._checking = False
                    return
                found = dict(self._open)
            now = time.monotonic()
            failed &= found.keys()
            # A caller that cannot be checked counts as invalid.
            since = {
                key: since.get(key, now)
                for key, (valid, _) in found.items()
                if not guarded(key, valid)
            }
            for key, begun in since.items():
                if now - begun >= GRACE:
                    _, cancel = found[key]
                    guarded(key, cancel)
