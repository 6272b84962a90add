"""Factories of the HTTP servers, for a server process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.http.app import NO_CALLS, Access, make_app
from topospread.http.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import ExitStack

    from starlette.types import ASGIApp

    from topospread.app.credentials import CredentialWatcher
    from topospread.config.settings import ServerSettings
    from topospread.config.values import Address
    from topospread.http.app import Endpoint, Exposition, Health


MAX_CONNECTIONS: Final = 512
"""Of each address: schedulers, the API server and Prometheus have a few each."""


class HttpServers(NamedTuple):
    """The servers of metrics and health, and of calls alone; None where there is none."""

    pages: HttpServer | None
    calls: HttpServer | None


def make_http_servers(
    settings: ServerSettings,
    version: str,
    made: ExitStack,
    *,
    metrics: Exposition,
    ready: Health,
    watcher: CredentialWatcher,
    on_dropped: Callable[[str], None],
    calls: Mapping[str, Endpoint],
) -> HttpServers:
    """The HTTP servers of a server process; `made` stops them.

    Calls (the extender, the webhook) are served beside the pages of metrics and health where they
    have no address of their own.

    Raises:
        ConfigError: one cannot listen, or a TLS file cannot be used.
    """

    def server(address: Address, flag: str, app: Access, *, reuse_port: bool) -> HttpServer:
        http = HttpServer(
            app,
            address.host,
            address.port,
            tls=watcher.http_files if settings.tls else None,
            reuse_port=reuse_port,
            flag=flag,
            max_connections=min(MAX_CONNECTIONS, settings.max_connections),
            on_dropped=on_dropped,
        )
        made.callback(http.stop)
        watcher.keep_reloaded(http)
        return http

    def access(pages: ASGIApp | None, calls: Mapping[str, Endpoint]) -> Access:
        return Access(pages, calls, watcher.authenticator, watcher.rate_limiter, watcher.denials)

    own = settings.extender_listen
    pages_server = calls_server = None
    if settings.http is not None:
        pages = make_app(
            version=version,
            metrics=metrics,
            live=lambda: (True, ()),
            ready=ready,
            max_body_bytes=settings.http_max_body_bytes,
        )
        app = access(pages, NO_CALLS if own else calls)
        pages_server = server(settings.http, "--http", app, reuse_port=False)
    if own is not None and calls:
        app = access(None, calls)
        calls_server = server(own, "--extender-listen", app, reuse_port=settings.reuse_port)
    return HttpServers(pages_server, calls_server)
