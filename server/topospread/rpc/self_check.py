"""A self-check of what the completion queue's transport uses of grpcio that is not public.

A server of its own answers one call over the loop-back interface, at each start of
the process: some milliseconds. Only what was seen to work is used.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import grpc

from topospread.calls.access import AccessControl
from topospread.calls.call import UnaryBytes
from topospread.calls.executor import Executor
from topospread.calls.memory import MemoryGuard, Sweeper
from topospread.calls.pipeline import Parts, Pipeline
from topospread.calls.rules import MethodRules, Permission
from topospread.calls.sizes import MessageLimits
from topospread.checkpoints import Turn

if TYPE_CHECKING:
    from topospread.calls.call import Call

SECONDS: Final = 5.0
"""For each call, on the busiest of machines."""

_ROUNDING: Final = 1.0
"""Seconds by which gRPC may move a deadline: it is rounded up on the way, and read on another clock
than it is kept on; 10 ms were seen.
"""

_METHOD: Final = "/topospread.SelfCheck/Call"
_CHANNEL: Final = (("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1))
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
    from topospread.rpc.completion_queue import CompletionQueue

    server = grpc.server(ThreadPoolExecutor(1))
    sweeper = Sweeper()
    parts = Parts(None, None, AccessControl(), MessageLimits(), MemoryGuard(1 << 20), sweeper)
    pipeline = Pipeline(parts)
    unlike: list[str] = []
    transport = CompletionQueue(1, Executor("self-check", 1, 1, Turn()), sweeper)
    echo = UnaryBytes(lambda raw, call: _echo(raw, call, unlike))
    method = pipeline.method(_METHOD, echo, MethodRules(Permission(None), ""))
    try:
        transport.register(server, (method,), pipeline)
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        transport.start()
        with grpc.insecure_channel(f"127.0.0.1:{port}", _CHANNEL) as channel:
            call: Any = channel.unary_unary(_METHOD)
            if call(_REQUEST, timeout=SECONDS, metadata=_METADATA) != _REQUEST:
                unlike.append("a call is not answered as it should be")
            return unlike[0] if unlike else ""
    finally:
        transport.stop()
        server.stop(None).wait(SECONDS)
        transport.shutdown()


def _echo(raw: bytes, call: Call, unlike: list[str]) -> bytes:
    """Answer with the request, and note what of the call is not as it should be."""
    context = call.context
    context.names()
    if not context.is_active():
        unlike.append("a call is over before it is answered")
    elif not 0 < context.time_remaining() <= SECONDS + _ROUNDING:
        unlike.append("the deadline of a call is not its caller's")
    elif _METADATA[0] not in tuple(context.metadata()):
        unlike.append("the metadata of a call is missing")
    elif not context.peer().startswith("ipv4"):
        unlike.append("the peer of a call is missing")
    return raw
