"""A self-check of what the completion queue's transport uses of grpcio that is not public.

A server of its own answers one call over the loop-back interface, at each start of
the process: some milliseconds. Only what was seen to work is used.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import grpc

from topospread.access.callers import ANONYMOUS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.access.callers import Caller
    from topospread.errors import TopospreadError
    from topospread.transports.grpc.transport import Context, StreamContext

SECONDS: Final = 5.0
"""For each call, on the busiest of machines."""

_ROUNDING: Final = 1.0
"""Seconds by which gRPC may move a deadline: it is rounded up on the way, and read on another clock
than it is kept on; 10 ms were seen.
"""

_SERVICE: Final = "topospread.SelfCheck"
_REQUEST: Final = b"request"
_METADATA: Final = (("x-self-check", "1"),)


def self_check() -> str:
    """Try the transport; returns what is not as expected, empty when all is well."""
    try:
        return _tried()
    except grpc.RpcError as error:
        return f"a call fails: {error.code().name}: {error.details()}"
    except Exception as error:  # noqa: BLE001 - whatever it is, the transport cannot be used
        return f"{type(error).__name__}: {str(error).splitlines()[0][:200] if str(error) else ''}"


def _tried() -> str:
    # It imports grpcio's Cython layer, names of which may be missing.
    from topospread.transports.grpc.completion_queue import (
        CompletionQueueTransport,
    )

    server = grpc.server(ThreadPoolExecutor(1))
    transport = CompletionQueueTransport("self-check", workers=1, queue=1)
    echo = _Echo()
    try:
        transport.register(server, _SERVICE, (echo,))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        transport.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}", _CHANNEL) as channel:
            return _unlike(channel) or echo.unlike
    finally:
        transport.stop()
        server.stop(None).wait(SECONDS)
        transport.shutdown()


def _unlike(channel: grpc.Channel) -> str:
    """What of a call's answer is not as it should be."""
    call: Any = channel.unary_unary(f"/{_SERVICE}/Call")
    answer, ended = call.with_call(_REQUEST, timeout=SECONDS, metadata=_METADATA)
    if answer != _REQUEST or dict(ended.trailing_metadata()).get("peer", "")[:4] != "ipv4":
        return "a call is not answered as it should be"
    return ""


_CHANNEL: Final = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))


class _Echo:
    """A handler whose responses are the requests, and whose metadata is what it saw.

    Attributes:
        unlike: what of a call was not as it should be; empty when all was well.
    """

    name: Final = "Call"
    guarded: Final = True
    streaming: Final = False

    def __init__(self) -> None:
        self.unlike = ""

    def admit(self, context: Context) -> Caller:
        """Admit calls that can be told by their metadata."""
        context.auth_context()
        if _METADATA[0] not in tuple(context.invocation_metadata()):
            self.unlike = "the metadata of a call is missing"
        return ANONYMOUS

    def respond(
        self,
        context: Context,
        caller: Caller,
        raw: bytes | None,
        refused: TopospreadError | None,
        arrived: float,
    ) -> bytes:
        """The request, if the call has a caller who waits for it."""
        if raw is None or refused is not None or not context.is_active():
            self.unlike = "a call is over before it is answered"
        elif not 0 < context.time_remaining() <= SECONDS + _ROUNDING:
            self.unlike = "the deadline of a call is not its caller's"
        context.set_trailing_metadata((("peer", context.peer()),))
        return raw or b""

    def unary(self, raws: Iterator[bytes], context: Context) -> bytes:
        """No other transport is tried."""
        raise NotImplementedError

    def stream(self, raws: Iterator[bytes], context: StreamContext) -> Iterator[bytes]:
        """No other transport is tried."""
        raise NotImplementedError
