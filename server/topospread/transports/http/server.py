"""An HTTP(S) server on a thread of its own, beside the gRPC server's."""

from __future__ import annotations

import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import uvicorn
from typing_extensions import override
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from topospread.access.gate import NO_NAMES, Names
from topospread.errors import ConfigError
from topospread.transports.http.guard import NAMES, certificate_names

if TYPE_CHECKING:
    import asyncio
    import ssl

    from starlette.types import ASGIApp

    from topospread.config.certificates import PemFiles

KEEP_ALIVE: Final = 120
"""Seconds that an idle connection stays open. Longer than the 90 s of Go's clients, so that it is
they who close it: a request that crosses the server's closing is lost, and a POST is not repeated.
"""

REQUEST_SECONDS: Final = 30.0
"""In which a request must have come as a whole: many times what the largest body takes."""


class HttpServer:
    """Serves an application from :meth:`start` until :meth:`stop`.

    Args:
        app: an ASGI application.
        host: a name or an IP address.
        port: 0 lets the system choose; see :attr:`port`.
        tls: None serves plain text.
        reuse_port: share the port with other processes that ask for the same.
        flag: what the address was configured by, for errors.
        max_connections: open at once; others are closed at once.

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
        max_connections: int = 4096,
    ) -> None:
        self._tls = tls
        self._context = self._newest = None if tls is None else tls.context()
        if self._context is not None:
            self._context.sni_callback = self._show_newest
        self._socket = _bound(flag, host, port, reuse_port=reuse_port)
        config = uvicorn.Config(
            app,
            http=partial(_Protocol, max_connections),  # type: ignore[arg-type] # any maker will do
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            ssl_context_factory=None if self._context is None else lambda *_: self._tls_context(),
        )
        self._server = _Server(config)
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

    def _show_newest(
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


class _Protocol(HttpToolsProtocol):
    """Tells the application the names in the client's certificate."""

    def __init__(self, most: int, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self._most = most
        self._names: Names = NO_NAMES
        self._patience: asyncio.TimerHandle | None = None

    @override
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn has it
        super().connection_made(transport)
        if len(self.connections) > self._most:
            transport.abort()
            return
        self._await_request()
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            self._names = certificate_names(tls.getpeercert())

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self._request_came()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        self._request_came()
        self._patience = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _request_came(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    @override
    def on_message_complete(self) -> None:
        self._request_came()
        super().on_message_complete()

    @override
    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._await_request()
        self.scope["state"][NAMES] = self._names


class _Server(uvicorn.Server):
    """Says when it accepts connections."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.accepting = threading.Event()

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.accepting.set()


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
