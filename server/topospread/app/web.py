"""Makes the server of metrics and health out of the settings, for a server or for a supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.transports.http.routes import http_app
from topospread.transports.http.server import HttpServer

if TYPE_CHECKING:
    from topospread.app.doors import Doors
    from topospread.config.settings import ServerSettings
    from topospread.transports.http.routes import Exposition, Health


def make_http(
    settings: ServerSettings,
    version: str,
    metrics: Exposition,
    ready: Health,
    doors: Doors,
) -> HttpServer | None:
    """The server of metrics and health; None when that is off.

    Args:
        settings: where and how.
        version: of the server.
        metrics: what /metrics shows.
        ready: what /readyz shows.
        doors: who may come in, and by which certificates.

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
    )
    tls = doors.http_files if settings.tls else None
    server = HttpServer(app, settings.http.host, settings.http.port, tls=tls)
    doors.renew(server)
    return server
