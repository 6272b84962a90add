"""grpc.health.v1, so that it holds up no thread and no shutdown.

grpcio's own servicer is not used. It keeps a lock while it sends, and asks for the same lock when a
watch ends, on the one thread that also tells senders that they are done: a few callers that open
watches and leave end all of gRPC. Here nothing is held while an answer is sent.

Bytes that do not parse are INVALID_ARGUMENT, a full line is told, and open watches end with the
server; they would keep it for its whole grace time.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health, health_pb2

from topospread.errors import LimitExceeded, ObjectNotFound, StreamsFull
from topospread.transports.grpc.failures import end, failure_of
from topospread.transports.grpc.pool import away
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

MAX_TELLERS: Final = 8
"""Threads that send a new status to watches; each may have to wait for a caller that takes none."""

NEWS_SECONDS: Final = 1.0
"""How long a server that stops waits for its watches to be told."""

_SERVING: Final = health_pb2.HealthCheckResponse.SERVING
_NOT_SERVING: Final = health_pb2.HealthCheckResponse.NOT_SERVING
_UNKNOWN: Final = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


class _Watch:
    """An open watch.

    Attributes:
        service: that it asked for.
        send: sends an answer, and waits until it is on its way.
        cancel: ends it.
        told: the status that was sent last.
        telling: a thread is about to send what is new.
    """

    __slots__ = ("cancel", "send", "service", "telling", "told")

    def __init__(
        self,
        service: str,
        send: Callable[[health_pb2.HealthCheckResponse], None],
        cancel: Callable[[], object],
    ) -> None:
        self.service = service
        self.send = send
        self.cancel = cancel
        self.told: int | None = None
        self.telling = False


class Health:
    """What callers and balancers are told; NOT_SERVING until :meth:`serving`.

    Args:
        services: by full name; each has the status of the whole.

    Attributes:
        untaken: answers that callers do not take.
    """

    def __init__(self, services: Sequence[str]) -> None:
        self._services = frozenset(("", *services, SERVICE))
        self._status: int = _NOT_SERVING
        self.untaken = Untaken(calls=MAX_CHECKS)
        self._lock = threading.Condition()
        self._watches: dict[grpc.ServicerContext, _Watch] = {}

    def serving(self) -> None:
        """Calls are welcome."""
        self._become(_SERVING)

    def leaving(self) -> None:
        """NOT_SERVING for good; watches that take their answers have been told."""
        self._become(_NOT_SERVING)
        with self._lock:
            self._lock.wait_for(self._all_told, NEWS_SECONDS)

    def close(self) -> None:
        """End the watches."""
        for context in self._watches.copy():
            context.cancel()
        self.untaken.close()

    def _become(self, status: int) -> None:
        """Have all watches told; does not wait for it."""
        with self._lock:
            self._status = status
        left = deque(self._watches.copy().values())

        def tell() -> None:
            while left:
                try:
                    watch = left.popleft()
                except IndexError:
                    return
                self._tell(watch)

        for number in range(min(MAX_TELLERS, len(left))):
            threading.Thread(target=tell, name=f"health-{number}", daemon=True).start()

    def _all_told(self) -> bool:
        watches = self._watches.copy().values()
        return all(
            watch.told == self._wanted(watch.service) and not watch.telling for watch in watches
        )

    def _wanted(self, service: str) -> int:
        """What a watch is to be told."""
        return self._status if service in self._services else _UNKNOWN

    def _tell(self, watch: _Watch) -> None:
        """Send a watch its status, unless it has that, or another thread is at it."""
        with self._lock:
            if watch.telling:
                return  # it looks again when it has sent
            watch.telling = True
        while True:
            with self._lock:
                status = self._wanted(watch.service)
                if watch.told == status:
                    watch.telling = False
                    self._lock.notify_all()
                    return
                watch.told = status
            try:
                # Who does not take it gives way when the thread is needed.
                with away(watch.cancel):
                    watch.send(health_pb2.HealthCheckResponse(status=status))
            except Exception:  # noqa: BLE001 - the call has ended; nobody sends any more
                return

    def handlers(self, pool: Pool) -> grpc.GenericRpcHandler:
        """The service's methods, on a pool."""

        def check(raws: Iterator[bytes], context: grpc.ServicerContext) -> Any:
            request = first_message(health_pb2.HealthCheckRequest, raws, context)
            if request.service not in self._services:
                text = "there is no such service"
                end(context, failure_of(ObjectNotFound(text, "Service", request.service)))
            answer = health_pb2.HealthCheckResponse(status=self._status)
            try:
                self.untaken.note(context, answer.ByteSize())
            except LimitExceeded as refused:
                end(context, failure_of(refused))
            return answer

        def watch(
            raws: Iterator[bytes],
            context: grpc.ServicerContext,
            send: Callable[[health_pb2.HealthCheckResponse | None], None],
        ) -> None:
            request = first_message(health_pb2.HealthCheckRequest, raws, context)
            if len(self._watches) >= MAX_WATCHES:
                text = f"{MAX_WATCHES} watches are open already: try again later"
                end(context, failure_of(StreamsFull(text)))
            watch = self._watches[context] = _Watch(request.service, send, context.cancel)

            def ended() -> None:
                # On the thread that all calls of grpcio wait for: nothing may hold it up.
                self._watches.pop(context, None)

            if not context.add_callback(ended):
                ended()
            self._tell(watch)

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
