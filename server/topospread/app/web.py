"""Makes the HTTP servers out of the settings, for a server or for a supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.transports.http.guard import guarded
from topospread.transports.http.routes import http_app
from topospread.transports.http.server import HttpServer

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

    from topospread.app.doors import Doors
    from topospread.config.settings import ServerSettings
    from topospread.transports.http.routes import Exposition, Health


def make_http(
    settings: ServerSettings,
    version: str,
    metrics: Exposition,
    ready: Health,
    doors: Doors,
    ended: Callable[[str], None],
    extender: ASGIApp | None = None,
) -> HttpServer | None:
    """The server of metrics and health, and of an extender beside them; None when that is off.

    Args:
        settings: where and how.
        version: of the server.
        metrics: what /metrics shows.
        ready: what /readyz shows.
        doors: who may come in, and by which certificates.
        ended: told why, of each connection that is ended for what its peer does.
        extender: the scheduler extender, served here if it has no address of its own.

    Raises:
        ConfigError: it cannot listen, or a TLS file cannot be used.
    """
    if settings.http is None:
        return None
    app = http_app(
        version=version,
        metrics=metrics,
        live=lambda: (True, ()),
        ready=ready,
        max_body_bytes=settings.http_max_body_bytes,
        gate=doors.gate,
        extender=None if settings.extender_listen else extender,
        rates=doors.rates,
        refusals=doors.refusals,
    )
    tls = doors.http_files if settings.tls else None
    server = HttpServer(
        *(app, settings.http.host, settings.http.port),
        tls=tls,
        max_connections=settings.max_connections,
        ended=ended,
    )
    doors.renew(server)
    return server


def make_extender_http(
    settings: ServerSettings,
    extender: ASGIApp | None,
    doors: Doors,
    ended: Callable[[str], None],
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
        guarded(extender, doors.gate, doors.rates, doors.refusals, open_paths=frozenset()),
        address.host,
        address.port,
        tls=doors.http_files if settings.tls else None,
        reuse_port=reuse_port,
        flag="--extender-listen",
        max_connections=settings.max_connections,
        ended=ended,
    )
    doors.renew(server)
    return server
