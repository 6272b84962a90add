"""grpc.health.v1, so that it holds up no thread and no shutdown.

The servicer is grpcio's. Around it: bytes that do not parse are INVALID_ARGUMENT, a full line is
told, and open watches end with the server; they would keep it for its whole grace time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health, health_pb2

from topospread.errors import LimitExceeded
from topospread.transports.grpc.standard import first_message
from topospread.transports.grpc.untaken import Untaken

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.transports.grpc.pool import Pool

SERVICE: Final = health.SERVICE_NAME

MAX_CHECKS: Final = 1024
"""Whose answers wait to be taken."""

MAX_WATCHES: Final = 1024
"""Open at once: strangers may watch, too, and each watch is kept until it ends."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING


class Health:
    """What callers and balancers are told; NOT_SERVING until :meth:`serving`.

    Args:
        services: by full name; each has the status of the whole.

    Attributes:
        untaken: answers that callers do not take.
    """

    def __init__(self, services: Sequence[str]) -> None:
        self._servicer = health.HealthServicer(experimental_non_blocking=True)
        self._services = ("", *services, SERVICE)
        self.untaken = Untaken(calls=MAX_CHECKS)
        self._watches: set[grpc.ServicerContext] = set()
        for service in self._services:
            self._servicer.set(service, _NOT_SERVING)

    def serving(self) -> None:
        """Calls are welcome."""
        for service in self._services:
            self._servicer.set(service, _SERVING)

    def leaving(self) -> None:
        """NOT_SERVING for good."""
        self._servicer.enter_graceful_shutdown()

    def close(self) -> None:
        """End the watches."""
        for context in tuple(self._watches):
            context.cancel()
        self.untaken.close()

    def handlers(self, pool: Pool) -> grpc.GenericRpcHandler:
        """The service's methods, on a pool."""

        def check(raws: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            request = first_message(health_pb2.HealthCheckRequest, raws, context)
            answer = self._servicer.Check(request, context)
            try:
                self.untaken.note(context, answer.ByteSize())
            except LimitExceeded as refused:
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, str(refused))
            return answer

        def watch(
            raws: Iterator[bytes],
            context: grpc.ServicerContext,
            send: Callable[[health_pb2.HealthCheckResponse | None], None],
        ) -> None:
            request = first_message(health_pb2.HealthCheckRequest, raws, context)
            if len(self._watches) >= MAX_WATCHES:
                text = f"{MAX_WATCHES} watches are open already: try again later"
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
            self._watches.add(context)
            context.add_callback(lambda: self._watches.discard(context))
            self._servicer.Watch(request, context, send)

        check.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
        watch.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
        # The thread goes back when the first answer is out; news are sent by whoever brings them.
        watch.experimental_non_blocking = True  # type: ignore[attr-defined] # grpcio's own hook
        written = health_pb2.HealthCheckResponse.SerializeToString
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.stream_unary_rpc_method_handler(check, None, written),
                "Watch": grpc.stream_stream_rpc_method_handler(watch, None, written),
            },
        )
