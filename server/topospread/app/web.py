"""Makes the server of metrics and health out of the settings, for a server or for a supervisor."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.transports.http.routes import http_app
from topospread.transports.http.server import HttpServer, TlsFiles

if TYPE_CHECKING:
    from topospread.access.gate import Gate
    from topospread.config.settings import ServerSettings
    from topospread.transports.http.routes import Exposition, Health


def make_http(
    settings: ServerSettings,
    version: str,
    metrics: Exposition,
    ready: Health,
    gate: Gate | None,
) -> HttpServer | None:
    """The server of metrics and health; None when that is off.

    Args:
        settings: where and how.
        version: of the server.
        metrics: what /metrics shows.
        ready: what /readyz shows.
        gate: tells who asks; None lets anybody in.

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
        gate=gate,
    )
    tls = None
    if settings.tls:
        ca = settings.http_verifies_clients_by
        tls = TlsFiles(settings.tls_cert, settings.tls_key, ca)
    return HttpServer(app, settings.http.host, settings.http.port, tls=tls)
