"""grpc.health.v1, implemented so that it blocks no thread and no shutdown.

grpcio's own servicer is not used. It holds a lock while it sends, and takes the same lock when a
watch ends, on the one thread that also completes sends: a few clients that open watches and leave
block all of gRPC. Here no lock is held while a response is sent.

Bytes that do not parse are INVALID_ARGUMENT, a full queue is RESOURCE_EXHAUSTED, and open watches
end with the server; otherwise they would keep it for its whole grace period.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health, health_pb2

from topospread.errors import LimitExceeded, ObjectNotFound, StreamsFull
from topospread.servicers.status import status_of
from topospread.threads.pool import away
from topospread.transports.grpc.pending_responses import PendingResponses
from topospread.transports.grpc.standard_services import first_message
from topospread.transports.grpc.transport import abort

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.threads.pool import Pool

SERVICE: Final = health.SERVICE_NAME

MAX_CHECKS: Final = 1024
"""Checks whose responses are pending."""

MAX_WATCHES: Final = 1024
"""Watches open at once: anybody may watch, and each watch is kept until it ends."""

MAX_SENDERS: Final = 8
"""Threads that send a new status to watches; each may wait for a client that takes no messages."""

NOTIFY_SECONDS: Final = 1.0
"""How long a server that stops waits until its watches have been sent NOT_SERVING."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class _Watch:
    """An open watch.

    Attributes:
        service: that it asked for.
        send: sends a response, and waits until it is on its way.
        cancel: ends it.
        sent: the status that was sent last.
        sending: a thread is about to send a new status.
    """

    __slots__ = ("cancel", "send", "sending", "sent", "service")

    def __init__(
        self,
        service: str,
        send: Callable[[health_pb2.HealthCheckResponse], None],
        cancel: Callable[[], object],
    ) -> None:
        self.service = service
        self.send = send
        self.cancel = cancel
        self.sent: int | None = None
        self.sending = False


class Health:
    """The health service; NOT_SERVING until :meth:`set_serving`.

    Args:
        services: full names; each has the status of the server.

    Attributes:
        pending_responses: bounds the responses that clients do not take.
    """

    def __init__(self, services: Sequence[str]) -> None:
        self._services = frozenset(("", *services, SERVICE))
        self._status: int = _NOT_SERVING
        self.pending_responses = PendingResponses(max_calls=MAX_CHECKS)
        self._lock = threading.Condition()
        self._watches: dict[grpc.ServicerContext, _Watch] = {}

    def set_serving(self) -> None:
        """Report SERVING."""
        self._set(_SERVING)

    def set_not_serving(self) -> None:
        """Report NOT_SERVING for good, and wait until the watches have been sent it."""
        self._set(_NOT_SERVING)
        with self._lock:
            self._lock.wait_for(self._all_sent, NOTIFY_SECONDS)

    def close(self) -> None:
        """End the watches."""
        for context in self._watches.copy():
            context.cancel()
        self.pending_responses.close()

    def _set(self, status: int) -> None:
        """Change the status, and begin to send it to all watches."""
        with self._lock:
            self._status = status
        left = deque(self._watches.copy().values())

        def send() -> None:
            while left:
                try:
                    watch = left.popleft()
                except IndexError:
                    return
                self._send(watch)

        for number in range(min(MAX_SENDERS, len(left))):
            threading.Thread(target=send, name=f"health-{number}", daemon=True).start()

    def _all_sent(self) -> bool:
        watches = self._watches.copy().values()
        return all(
            watch.sent == self._status_of(watch.service) and not watch.sending for watch in watches
        )

    def _status_of(self, service: str) -> int:
        """The status of a service."""
        return self._status if service in self._services else _UNKNOWN

    def _send(self, watch: _Watch) -> None:
        """Send a watch its status, unless it has it or another thread is sending it."""
        with self._lock:
            if watch.sending:
                return  # it checks again when it has sent
            watch.sending = True
        while True:
            with self._lock:
                status = self._status_of(watch.service)
                if watch.sent == status:
                    watch.sending = False
                    self._lock.notify_all()
                    return
                watch.sent = status
            try:
                # A client that does not take it is cut off when the thread is needed.
                with away(lambda _: watch.cancel()):
                    watch.send(health_pb2.HealthCheckResponse(status=status))
            except Exception:  # noqa: BLE001 - the call has ended
                return

    def handler(self, pool: Pool) -> grpc.GenericRpcHandler:
        """The handler of the service's methods, on a pool."""

        def check(raws: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            request = first_message(health_pb2.HealthCheckRequest, raws, context)
            if request.service not in self._services:
                text = "there is no such service"
                abort(context, status_of(ObjectNotFound(text, "Service", request.service)))
            response = health_pb2.HealthCheckResponse(status=self._status)
            try:
                self.pending_responses.admit(context)
                self.pending_responses.track(context, response.ByteSize())
            except LimitExceeded as refused:
                abort(context, status_of(refused))
            return response

        def watch(
            raws: Iterator[bytes],
            context: grpc.ServicerContext,
            send: Callable[[health_pb2.HealthCheckResponse | None], None],
        ) -> None:
            request = first_message(health_pb2.HealthCheckRequest, raws, context)
            if len(self._watches) >= MAX_WATCHES:
                text = f"{MAX_WATCHES} watches are open already: try again later"
                abort(context, status_of(StreamsFull(text)))
            watch = self._watches[context] = _Watch(request.service, send, context.cancel)

            def ended() -> None:
                # On the thread that all calls of grpcio wait for: it must not block.
                self._watches.pop(context, None)

            if not context.add_callback(ended):
                ended()
            self._send(watch)

        check.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
        watch.experimental_thread_pool = pool  # type: ignore[attr-defined] # grpcio's own hook
        # The thread is free after the first response; the thread that changes the status sends it.
        watch.experimental_non_blocking = True  # type: ignore[attr-defined] # grpcio's own hook
        written = health_pb2.HealthCheckResponse.SerializeToString
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "Check": grpc.stream_unary_rpc_method_handler(check, None, written),
                "Watch": grpc.stream_stream_rpc_method_handler(watch, None, written),
            },
        )
