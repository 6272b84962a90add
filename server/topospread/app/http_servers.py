"""Factories of the HTTP servers, for a server process or for a supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.transports.http.authorization import with_authorization
from topospread.transports.http.routes import make_app
from topospread.transports.http.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from topospread.app.credentials import CredentialWatcher
    from topospread.config.settings import ServerSettings
    from topospread.transports.http.routes import Exposition, Health


def make_http(
    settings: ServerSettings,
    version: str,
    metrics: Exposition,
    ready: Health,
    watcher: CredentialWatcher,
    on_dropped: Callable[[str], None],
    extender: ASGIApp | None = None,
) -> HttpServer | None:
    """The server of metrics and health, and of an extender beside them; None when that is off.

    Args:
        settings: where and how.
        version: of the server.
        metrics: what /metrics shows.
        ready: what /readyz shows.
        watcher: of the access file and the certificates.
        on_dropped: called with the reason each time that a connection is dropped for what its peer
            does.
        extender: the scheduler extender, served here if it has no address of its own.

    Raises:
        ConfigError: it cannot listen, or a TLS file cannot be used.
    """
    if settings.http is None:
        return None
    app = make_app(
        version=version,
        metrics=metrics,
        live=lambda: (True, ()),
        ready=ready,
        max_body_bytes=settings.http_max_body_bytes,
        authenticator=watcher.authenticator,
        extender=None if settings.extender_listen else extender,
        rate_limiter=watcher.rate_limiter,
        denials=watcher.denials,
    )
    tls = watcher.http_files if settings.tls else None
    server = HttpServer(
        app,
        settings.http.host,
        settings.http.port,
        tls=tls,
        max_connections=settings.max_connections,
        on_dropped=on_dropped,
    )
    watcher.keep_reloaded(server)
    return server


def make_extender_http(
    settings: ServerSettings,
    extender: ASGIApp | None,
    watcher: CredentialWatcher,
    on_dropped: Callable[[str], None],
    *,
    reuse_port: bool,
) -> HttpServer | None:
    """A server of the extender alone; None when it has no address of its own.

    Raises:
        ConfigError: as :func:`make_http`.
    """
    address = settings.extender_listen
    if address is None or extender is None:
        return None
    server = HttpServer(
        with_authorization(
            extender,
            watcher.authenticator,
            watcher.rate_limiter,
            watcher.denials,
            open_paths=frozenset(),
        ),
        address.host,
        address.port,
        tls=watcher.http_files if settings.tls else None,
        reuse_port=reuse_port,
        flag="--extender-listen",
        max_connections=settings.max_connections,
        on_dropped=on_dropped,
    )
    watcher.keep_reloaded(server)
    return server
