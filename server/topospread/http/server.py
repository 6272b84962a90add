"""An HTTP(S) server on a thread of its own, beside the gRPC server's: uvicorn, with bounds.

uvicorn reads request heads without end, queues pipelined requests without end, waits for slow
readers without end, logs a line for each malformed request, and bounds no TLS handshakes. Here each
of these closes the connection and is counted. Only names of uvicorn without an underscore are used;
server/pyproject.toml bounds its version to those that were tested.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from topospread.access.certificates import NO_NAMES, CertificateNames, names_of
from topospread.errors import ConfigError
from topospread.http.authorization import NAMES

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from topospread.config.certificates import PemFiles

HANDSHAKE_SECONDS: Final = 10.0
"""For a TLS handshake: far above the time that any network takes."""

NO_FILE_SECONDS: Final = 1.0
"""How long no connection is accepted after the system had no file descriptor for one."""

KEEP_ALIVE: Final = 120
"""Seconds that an idle connection stays open. Longer than the 90 s of Go's clients, so that it is
they who close it: a request that crosses the server's closing is lost, and a POST is not repeated.
"""

REQUEST_SECONDS: Final = 30.0
"""In which a request must have come as a whole: many times what the largest body takes."""

RESPONSE_SECONDS: Final = 30.0
"""In which a response must have been read: many times what the longest one takes."""

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

# uvicorn warns of each malformed request; its errors are bugs of the application.
_ERRORS: Final = logging.getLogger("uvicorn.error.connection")
_ERRORS.setLevel(logging.ERROR)


def _ignore(reason: str) -> None:
    """Count no closed connection."""


class HttpServer:
    """Serves an application from :meth:`start` until :meth:`stop`.

    Args:
        app: an ASGI application.
        host: a name or an IP address.
        port: 0 lets the system choose; see :attr:`port`.
        tls: None serves plain text.
        reuse_port: share the port with other processes that ask for the same.
        flag: what the address was configured by, for errors.
        max_connections: open at once, those that are at their handshake included; others are
            closed at once.
        on_dropped: called with the reason each time that a connection is closed for what its peer
            does: ``over_limit``, ``handshake``, ``malformed`` or ``slow``.

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
        on_dropped: Callable[[str], None] = _ignore,
    ) -> None:
        self._tls = tls
        self._context = self._newest = None if tls is None else tls.context()
        if self._context is not None:
            self._context.sni_callback = self._use_newest
        self._socket = _bound(flag, host, port, reuse_port=reuse_port)
        config = uvicorn.Config(
            app,
            http=partial(BoundedProtocol, on_dropped),  # type: ignore[arg-type] # any maker will do
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            ssl_context_factory=None if self._context is None else lambda *_: self._tls_context(),
        )
        self._server = _UvicornServer(config, max_connections, on_dropped)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    @property
    def port(self) -> int:
        """The port that is bound."""
        port: int = self._socket.getsockname()[1]
        return port

    def start(self) -> None:
        """Begin to serve; returns when connections are accepted."""
        self._thread.start()
        self._server.accepting.wait()
        if not self._server.started:
            raise RuntimeError("the HTTP server ended before it began")

    def stop(self, grace: float = 5.0) -> None:
        """Accept no more, let running requests end for ``grace`` seconds, then close."""
        if not self._thread.is_alive():
            self._socket.close()
            return
        self._server.config.timeout_graceful_shutdown = max(1, round(grace))
        self._server.should_exit = True
        self._thread.join()

    def reload_certificates(self) -> None:
        """Read certificates and key again, for connections that come from now on.

        Raises:
            ConfigError: they cannot be used; the old ones stay.
        """
        if self._tls is not None:
            self._newest = self._tls.context()

    def _use_newest(
        self, connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        """At the beginning of each handshake, also of those that ask for no name."""
        del name, context
        if self._newest is not None:
            connection.context = self._newest

    def _tls_context(self) -> ssl.SSLContext:
        assert self._context is not None
        return self._context

    def _run(self) -> None:
        try:
            self._server.run([self._socket])
        finally:
            self._server.accepting.set()


class _UvicornServer(uvicorn.Server):
    """Accepts connections itself, so that those at their handshake are bounded as well.

    Attributes:
        accepting: set when it does.
    """

    def __init__(
        self, config: uvicorn.Config, max_connections: int, on_dropped: Callable[[str], None]
    ) -> None:
        super().__init__(config)
        self.accepting = threading.Event()
        self._max_connections = max_connections
        self._on_dropped = on_dropped
        self._handshakes: dict[asyncio.Task[None], socket.socket] = {}
        self._listening: set[socket.socket] = set()
        self._resuming: dict[socket.socket, asyncio.TimerHandle] = {}

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        self.servers = []
        for bound in sockets or ():
            bound.setblocking(False)
            bound.listen(self.config.backlog)
            self._listen(bound)
        self.started = True
        self.accepting.set()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        for bound in self._listening:
            loop.remove_reader(bound)
        for timer in self._resuming.values():
            timer.cancel()
        handshakes = list(self._handshakes)
        for task in handshakes:
            task.cancel()
        await asyncio.gather(*handshakes, return_exceptions=True)
        await super().shutdown(sockets)

    def _listen(self, bound: socket.socket) -> None:
        self._resuming.pop(bound, None)
        self._listening.add(bound)
        asyncio.get_running_loop().add_reader(bound, self._accept, bound)

    def _accept(self, bound: socket.socket) -> None:
        """Accept one connection; others that wait get their turns of the loop.

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
            self._listening.discard(bound)
            self._resuming[bound] = loop.call_later(NO_FILE_SECONDS, self._listen, bound)
            return
        if len(self.server_state.connections) + len(self._handshakes) >= self._max_connections:
            connection.close()
            self._on_dropped(OVER_LIMIT)
            return
        connection.setblocking(False)
        task = loop.create_task(self._handshake(connection))
        self._handshakes[task] = connection
        task.add_done_callback(self._handshake_done)

    async def _handshake(self, connection: socket.socket) -> None:
        tls = self.config.ssl
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                self._protocol,
                connection,
                ssl=tls,
                ssl_handshake_timeout=None if tls is None else HANDSHAKE_SECONDS,
            )
        except OSError:
            connection.close()
            self._on_dropped(HANDSHAKE)

    def _handshake_done(self, task: asyncio.Task[None]) -> None:
        connection = self._handshakes.pop(task)
        if task.cancelled():
            # It may have been cancelled before its first step.
            connection.close()

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg] # is bound
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


class BoundedProtocol(HttpToolsProtocol):
    """One HTTP connection, closed when its peer sends too much or keeps the server waiting.

    Args:
        on_dropped: called with the reason when the connection is closed for what its peer does.
        arguments, more: uvicorn's.
    """

    def __init__(self, on_dropped: Callable[[str], None], *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.logger = _ERRORS
        self._on_dropped = on_dropped
        self._names: CertificateNames = NO_NAMES
        self._request_timer: asyncio.TimerHandle | None = None
        self._response_timer: asyncio.TimerHandle | None = None
        self._received = 0
        self._body = 0

    # ------------------------------ the connection

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        self._start_request_timer()
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            certificate = tls.getpeercert(binary_form=True)
            self._names = NO_NAMES if certificate is None else names_of(certificate)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_request_timer()
        self._cancel_response_timer()
        super().connection_lost(exc)
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
        if self.transport.is_closing():
            return
        self._on_dropped(MALFORMED)
        super().send_400_response(msg)
        self._start_response_timer()

    def _abort(self) -> None:
        self._on_dropped(SLOW)
        self.transport.abort()

    # ------------------------------ requests

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        if len(self.pipeline) >= MAX_PIPELINED:
            raise OverflowError("too many requests before their responses")
        self._received = self._body = 0
        self._start_request_timer()
        self.scope["state"][NAMES] = self._names

    @override
    def on_header(self, name: bytes, value: bytes) -> None:
        if len(self.headers) >= MAX_FIELDS:
            raise OverflowError("too many header fields")
        super().on_header(name, value)

    @override
    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        super().on_body(body)

    @override
    def on_message_complete(self) -> None:
        self._cancel_request_timer()
        super().on_message_complete()

    def _start_request_timer(self) -> None:
        self._cancel_request_timer()
        self._request_timer = self.loop.call_later(REQUEST_SECONDS, self._abort)

    def _cancel_request_timer(self) -> None:
        if self._request_timer is not None:
            self._request_timer.cancel()
            self._request_timer = None

    # ------------------------------ responses

    @override
    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_response_timer()

    @override
    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_response_timer()

    @override
    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._cancel_response_timer()

    @override
    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        # Closing waits for a peer that never reads the rest of its response.
        self._start_response_timer()

    def _start_response_timer(self) -> None:
        if self._response_timer is None:
            self._response_timer = self.loop.call_later(RESPONSE_SECONDS, self._abort)

    def _cancel_response_timer(self) -> None:
        if self._response_timer is not None:
            self._response_timer.cancel()
            self._response_timer = None


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
