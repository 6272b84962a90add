"""An HTTP(S) server on a thread of its own, beside the gRPC server's: uvicorn, with bounds.

uvicorn reads request heads without end, queues pipelined requests without end, waits for slow
readers without end, logs a line for each malformed request, and bounds no TLS handshakes. Here each
of these closes the connection and is counted. Only names of uvicorn without an underscore are used;
server/pyproject.toml bounds its version to those that were tested.
"""

from __future__ import annotations

import asyncio
import logging
import math
import socket
import threading
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Final

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from topospread.access.certificates import NO_NAMES, names_of
from topospread.errors import ConfigError

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from topospread.config.files import PemFiles

HANDSHAKE_SECONDS: Final = 10.0
"""For a TLS handshake: far above the time that any network takes."""

NO_FILE_SECONDS: Final = 1.0
"""How long no connection is accepted after the system had no file descriptor for one."""

KEEP_ALIVE: Final = 120
"""Seconds that an idle connection stays open. Longer than the 90 s of Go's clients, so that it is
they who close it: a request that crosses the server's closing is lost, and a POST is not repeated.
"""

SILENT_SECONDS: Final = 10.0
"""In which the first request of a connection must begin."""

REQUEST_SECONDS: Final = 30.0
RESPONSE_SECONDS: Final = 30.0
"""In which a request must have come, and a response been read, as a whole: many times what the
largest body takes. It is checked once a second.
"""

MAX_HEAD_BYTES: Final = 32 << 10
"""Of a request that are no body; a body's bytes pay for as much framing of their chunks."""

MAX_FIELDS: Final = 100
"""Header fields of a request: each costs many times its bytes. Schedulers send ten."""

MAX_PIPELINED: Final = 16
"""Requests that wait for the response to the one before; schedulers and Prometheus send none."""

OVER_LIMIT: Final = "over_limit"
HANDSHAKE: Final = "handshake"
MALFORMED: Final = "malformed"
SLOW: Final = "slow"
"""Why a connection was closed for what its peer did."""

NAMES: Final = "topospread_names"
"""The key of a request's state for the names in the client's certificate."""

# uvicorn warns of each malformed request; its errors are bugs of the application.
_ERRORS: Final = logging.getLogger("uvicorn.error.connection")
_ERRORS.setLevel(logging.ERROR)


class HttpServer(uvicorn.Server):
    """Serves an ASGI application from :meth:`start` until :meth:`stop`.

    It accepts connections itself, so that those at their handshake are bounded as well.

    Args:
        port: 0 lets the system choose; see :attr:`port`.
        tls: None serves plain text.
        flag: what the address was configured by, for errors.
        max_connections: open at once, those that are at their handshake included; past it the one
            that has been without a request for longest is closed, or else the new one.
        on_dropped: called with the reason each time that a connection is closed for what its peer
            does: ``over_limit``, ``handshake``, ``malformed`` or ``slow``.

    Attributes:
        waiting: how to close the connections without a request, the one that waits for longest
            first.

    Raises:
        ConfigError: the address cannot be bound or a TLS file cannot be used.
    """

    def __init__(
        self,
        app: ASGIApp,
        host: str,
        port: int,
        *,
        tls: PemFiles | None = None,
        reuse_port: bool = False,
        flag: str = "--http",
        max_connections: int = 1024,
        on_dropped: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                ws="none",
                lifespan="off",
                access_log=False,
                log_config=None,
                server_header=False,
                timeout_keep_alive=KEEP_ALIVE,
            )
        )
        self.waiting: OrderedDict[object, Callable[[], object]] = OrderedDict()
        self.on_dropped: Final = on_dropped
        self._max_connections = max_connections
        self._files = tls
        self._tls: ssl.SSLContext | None = None
        self.reload_certificates()
        self._handshakes: dict[BoundedProtocol, asyncio.Task[object]] = {}
        self._resuming: asyncio.TimerHandle | None = None
        self._accepting = threading.Event()
        self._socket = _bound(flag, host, port, reuse_port=reuse_port)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is bound."""
        port: int = self._socket.getsockname()[1]
        return port

    @property
    def connections(self) -> int:
        """How many are open, those at their handshake included."""
        return len(self.server_state.connections.union(self._handshakes))

    def start(self) -> None:
        """Begin to serve; returns when connections are accepted."""
        self._thread.start()
        self._accepting.wait()
        if not self.started:
            raise RuntimeError("the HTTP server ended before it began")

    def stop(self, grace: float = 5.0) -> None:
        """Accept no more, let running requests end for ``grace`` seconds, then close."""
        if not self._thread.is_alive():
            self._socket.close()
            return
        self.config.timeout_graceful_shutdown = max(1, round(grace))
        self.should_exit = True
        self._thread.join()

    def reload_certificates(self) -> None:
        """Read certificates and key again, for connections that come from now on.

        Raises:
            ConfigError: they cannot be used; the old ones stay.
        """
        if self._files is not None:
            self._tls = self._files.context()

    def _run(self) -> None:
        try:
            self.run([self._socket])
        finally:
            self._accepting.set()

    # ------------------------------ what uvicorn calls

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self.servers = []
        for bound in sockets or ():
            bound.setblocking(False)
            bound.listen(self.config.backlog)
            self._listen(bound)
        self.started = True
        self._accepting.set()

    @override
    async def on_tick(self, counter: int) -> bool:
        if counter % 10 == 0:  # of a second
            now = asyncio.get_running_loop().time()
            for each in list(self.server_state.connections):
                assert isinstance(each, BoundedProtocol), "no others are made"
                each.drop_if_slow(now)
        return await super().on_tick(counter)

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._resuming is not None:
            self._resuming.cancel()
        for bound in sockets or ():
            asyncio.get_running_loop().remove_reader(bound)
        handshakes = [*self._handshakes.values()]
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)
        await super().shutdown(sockets)

    def _listen(self, bound: socket.socket) -> None:
        asyncio.get_running_loop().add_reader(bound, self._accept, bound)

    def _accept(self, bound: socket.socket) -> None:
        """Accept one connection; others that wait are accepted after what the loop has to do.

        No coroutine (sock_accept), because one that is cancelled loses a connection that it has
        accepted but not returned: the peer would wait until Python collects the socket.
        """
        loop = asyncio.get_running_loop()
        try:
            connection, _ = bound.accept()
        except (BlockingIOError, InterruptedError, ConnectionError):
            return
        except OSError:
            loop.remove_reader(bound)
            self._resuming = loop.call_later(NO_FILE_SECONDS, self._listen, bound)
            return
        if self.connections >= self._max_connections:
            self.on_dropped(OVER_LIMIT)
            if not self.waiting:
                connection.close()
                return
            _, close = self.waiting.popitem(last=False)
            close()
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        protocol = BoundedProtocol(self)
        connecting = loop.connect_accepted_socket(
            lambda: protocol,
            connection,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else HANDSHAKE_SECONDS,
        )
        task: asyncio.Task[object] = loop.create_task(connecting)
        self._handshakes[protocol] = task
        self.waiting[protocol] = task.cancel
        task.add_done_callback(partial(self._connected, connection, protocol))

    def _connected(
        self, connection: socket.socket, protocol: BoundedProtocol, task: asyncio.Task[object]
    ) -> None:
        del self._handshakes[protocol]
        if task.cancelled() or task.exception() is not None:
            self.waiting.pop(protocol, None)
            connection.close()
        if not task.cancelled() and task.exception() is not None:
            self.on_dropped(HANDSHAKE)


class BoundedProtocol(HttpToolsProtocol):
    """One HTTP connection, closed when its peer sends too much or keeps the server waiting."""

    def __init__(self, server: HttpServer) -> None:
        super().__init__(server.config, server.server_state, {})
        self.logger = _ERRORS
        self._waiting = server.waiting
        self._on_dropped = server.on_dropped
        # On the loop's clock: until when a request must have come, and since when a response has
        # not been read.
        self._due = self.loop.time() + SILENT_SECONDS
        self._stuck = math.inf
        self._received = self._body = 0

    def drop_if_slow(self, now: float) -> None:
        """Close the connection if its peer sends or reads too slowly."""
        if not (self.flow.write_paused or self.transport.is_closing()):
            self._stuck = math.inf
        elif self._stuck == math.inf:
            self._stuck = now
        if now > self._due or now > self._stuck + RESPONSE_SECONDS:
            self._on_dropped(SLOW)
            self.transport.abort()

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._waiting[self] = transport.abort
        tls = transport.get_extra_info("ssl_object")
        certificate = None if tls is None else tls.getpeercert(binary_form=True)
        self.app_state[NAMES] = NO_NAMES if certificate is None else names_of(certificate)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._waiting.pop(self, None)
        # uvicorn leaves it when the connection was reset, and with it all that the connection had.
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    @override
    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        super().data_received(data)
        if self._received - 2 * self._body > MAX_HEAD_BYTES:
            self.send_400_response("The head of the request is too large.")

    @override
    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            self._on_dropped(MALFORMED)
            super().send_400_response(msg)

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        self._stuck = math.inf
        self._wait()

    def _wait(self) -> None:
        """Note that the connection is without a request, once its last response is on its way."""
        answered = self.cycle is not None and self.cycle.response_complete  # type: ignore[redundant-expr] # as uvicorn begins
        if answered and not (self.flow.write_paused or self.transport.is_closing()):
            self._waiting[self] = self.transport.abort

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        if len(self.pipeline) >= MAX_PIPELINED:
            raise OverflowError("too many requests before their responses")
        self._received = self._body = 0
        self._due = self.loop.time() + REQUEST_SECONDS

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_FIELDS:
            raise OverflowError("too many header fields")
        super().on_header(name, value)

    @override
    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._waiting.pop(self, None)

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._wait()

    @override
    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._due = math.inf


def _bound(flag: str, host: str, port: int, *, reuse_port: bool) -> socket.socket:
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
        try:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            bound.bind(address)
        except OSError:
            bound.close()
            raise
    except OSError as error:
        raise ConfigError(f"{flag}: {host}:{port} cannot be used: {error.strerror}") from error
    return bound
