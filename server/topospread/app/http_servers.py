"""Factories of the HTTP servers, for a server process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.http.authorization import with_authorization
from topospread.http.routes import NO_CALLS, by_path, make_app, nothing_else
from topospread.http.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp

    from topospread.app.credentials import CredentialWatcher
    from topospread.config.settings import ServerSettings
    from topospread.http.routes import Exposition, Health


def make_http(
    settings: ServerSettings,
    version: str,
    metrics: Exposition,
    ready: Health,
    watcher: CredentialWatcher,
    on_dropped: Callable[[str], None],
    calls: Mapping[str, ASGIApp] = NO_CALLS,
) -> HttpServer | None:
    """The server of metrics and health, and of calls beside them; None when that is off.

    Args:
        settings: where and how.
        version: of the server.
        metrics: what /metrics shows.
        ready: what /readyz shows.
        watcher: of the access file and the certificates.
        on_dropped: called with the reason each time that a connection is dropped for what its peer
            does.
        calls: the scheduler extender and the webhook by their paths, served here if they have no
            address of their own.

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
        calls=NO_CALLS if settings.extender_listen else calls,
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
    calls: Mapping[str, ASGIApp],
    watcher: CredentialWatcher,
    on_dropped: Callable[[str], None],
) -> HttpServer | None:
    """A server of the extender and the webhook alone; None when they have no own address.

    Raises:
        ConfigError: as :func:`make_http`.
    """
    address = settings.extender_listen
    if address is None or not calls:
        return None
    server = HttpServer(
        with_authorization(
            by_path(calls, nothing_else),
            watcher.authenticator,
            watcher.rate_limiter,
            watcher.denials,
            open_paths=frozenset(),
        ),
        address.host,
        address.port,
        tls=watcher.http_files if settings.tls else None,
        reuse_port=settings.reuse_port,
        flag="--extender-listen",
        max_connections=settings.max_connections,
        on_dropped=on_dropped,
    )
    watcher.keep_reloaded(server)
    return server
