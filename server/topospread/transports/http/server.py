"""An HTTP(S) server on a thread of its own, beside the gRPC server's."""

from __future__ import annotations

import asyncio
import socket
import threading
from functools import partial
from typing import TYPE_CHECKING, Final

import uvicorn
from typing_extensions import override

from topospread.errors import ConfigError
from topospread.transports.http.protocol import KEEP_ALIVE, Protocol

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from topospread.config.certificates import PemFiles

HANDSHAKE_SECONDS: Final = 10.0
"""For TLS: far above the time that any network takes."""

NO_FILE_SECONDS: Final = 1.0
"""How long no connection is accepted after the system had no file descriptor for one."""

CROWDED: Final = "crowded"
HANDSHAKE: Final = "handshake"
"""Why a connection never began, beside what :class:`Protocol` ends them for."""


def _untold(why: str) -> None:
    """Of connections that nobody counts."""


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
        ended: told why, each time that a connection is ended for what its peer does: ``crowded``,
            ``handshake``, ``malformed`` or ``slow``.

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
        ended: Callable[[str], None] = _untold,
    ) -> None:
        self._tls = tls
        self._context = self._newest = None if tls is None else tls.context()
        if self._context is not None:
            self._context.sni_callback = self._show_newest
        self._socket = _bound(flag, host, port, reuse_port=reuse_port)
        config = uvicorn.Config(
            app,
            http=partial(Protocol, ended),  # type: ignore[arg-type] # any maker will do
            ws="none",
            lifespan="off",
            access_log=False,
            log_config=None,
            server_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            ssl_context_factory=None if self._context is None else lambda *_: self._tls_context(),
        )
        self._server = _Server(config, max_connections, ended)
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


class _Server(uvicorn.Server):
    """Accepts connections itself, so that those at their handshake are bounded as well.

    Attributes:
        accepting: set when it does.
    """

    def __init__(self, config: uvicorn.Config, most: int, ended: Callable[[str], None]) -> None:
        super().__init__(config)
        self.accepting = threading.Event()
        self._most = most
        self._ended = ended
        self._beginning: set[asyncio.Task[None]] = set()
        self._listening: list[asyncio.Task[None]] = []

    @override
    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        self.servers = []
        for bound in sockets or ():
            bound.setblocking(False)
            bound.listen(self.config.backlog)
            self._listening.append(asyncio.create_task(self._accept(bound)))
        self.started = True
        self.accepting.set()

    @override
    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        ended = [*self._listening, *self._beginning]
        for task in ended:
            task.cancel()
        await asyncio.gather(*ended, return_exceptions=True)
        await super().shutdown(sockets)

    async def _accept(self, bound: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                connection, _ = await loop.sock_accept(bound)
            except ConnectionError:
                continue
            except OSError:
                await asyncio.sleep(NO_FILE_SECONDS)
                continue
            if len(self.server_state.connections) + len(self._beginning) >= self._most:
                connection.close()
                self._ended(CROWDED)
            else:
                task = loop.create_task(self._begin(connection))
                self._beginning.add(task)
                task.add_done_callback(self._beginning.discard)
            # While more are waiting, accepting does not: others get their turn.
            await asyncio.sleep(0)

    async def _begin(self, connection: socket.socket) -> None:
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
            self._ended(HANDSHAKE)

    def _protocol(self) -> asyncio.Protocol:
        made: asyncio.Protocol = self.config.http_protocol_class(  # type: ignore[call-arg] # is bound
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return made


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
