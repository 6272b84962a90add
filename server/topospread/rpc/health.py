"""grpc.health.v1, through the pipeline as all calls, but for callers whom nobody knows.

grpcio's own servicer is not used. It holds a lock while it sends, and takes the same lock when a
watch ends, on the one thread that also completes sends: a few clients that open watches and leave
block all of gRPC. Here a watch is a stream on a thread of its own.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from grpc_health.v1 import health, health_pb2

from topospread.calls.call import Method, ServerStreaming, Unary
from topospread.errors import ObjectNotFound, ShuttingDown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.calls.call import Call

SERVICE: Final = health.SERVICE_NAME

WATCH_SECONDS: Final = 0.5
"""Between two checks of a watch whether its caller is still there."""

NOTIFY_SECONDS: Final = 1.0
"""How long a server that stops waits until its watches have been sent NOT_SERVING."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class Health:
    """The health service, of services by full name; NOT_SERVING until :meth:`set_serving`."""

    def __init__(self, services: Sequence[str]) -> None:
        self._services = frozenset(("", *services, SERVICE))
        self._status: int = _NOT_SERVING
        self._changed = threading.Condition()
        self._stopping = self._closed = False
        # The last status that each watch was sent; None before the first.
        self._sent: dict[Call, int | None] = {}

    def methods(self) -> dict[str, Method]:
        """The methods by name."""
        return {
            "Check": Unary(health_pb2.HealthCheckRequest, self.check),
            "Watch": ServerStreaming(health_pb2.HealthCheckRequest, self.watch),
        }

    def set_serving(self) -> None:
        """Report SERVING, unless the server stops."""
        if not self._stopping:
            self._status = _SERVING
            self._wake()

    def set_not_serving(self) -> None:
        """Report NOT_SERVING for good, and wait until the watches have been sent it."""
        self._stopping = True
        self._status = _NOT_SERVING
        self._wake()
        with self._changed:
            self._changed.wait_for(self._all_sent, NOTIFY_SECONDS)

    def close(self) -> None:
        """End the watches."""
        self._closed = True
        self._wake()
        for call in self._sent.copy():
            call.context.end(ShuttingDown())  # it may be that its caller takes nothing

    def check(
        self, request: health_pb2.HealthCheckRequest, _: Call
    ) -> health_pb2.HealthCheckResponse:
        """Return the status of a service.

        Raises:
            ObjectNotFound: there is no such service.
        """
        if request.service not in self._services:
            raise ObjectNotFound("there is no such service", "Service", request.service)
        return health_pb2.HealthCheckResponse(status=self._status)

    def watch(
        self, request: health_pb2.HealthCheckRequest, call: Call
    ) -> Iterator[health_pb2.HealthCheckResponse]:
        """Yield the status of a service, and again each time that it changes."""
        known = request.service in self._services
        sent = self._sent[call] = None
        call.context.add_callback(self._wake)
        try:
            while not self._closed and call.active():
                status = self._status if known else _UNKNOWN
                if status != sent:
                    yield health_pb2.HealthCheckResponse(status=status)
                with self._changed:
                    self._sent[call] = sent = status
                    self._changed.notify_all()
                    if not known or sent == self._status:
                        self._changed.wait(WATCH_SECONDS)
        finally:
            self._sent.pop(call, None)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _all_sent(self) -> bool:
        known = (self._status, _UNKNOWN)
        return all(status in known for status in self._sent.copy().values())
