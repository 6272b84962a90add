"""The pages every server has: metrics, liveness, readiness, and a word for whoever drops by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

if TYPE_CHECKING:
    from starlette.requests import Request

Health = Callable[[], tuple[bool, Sequence[str]]]
"""Whether all is well, and if not, why: a line each."""

Exposition = Callable[[str], tuple[bytes, str]]
"""An Accept header to metrics in a format it allows, and their content type."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>topospread</title></head>
<body><h1>topospread {version}</h1>
<p>Pod topology spread decisions, served over gRPC.</p>
<ul><li><a href="/metrics">metrics</a></li><li><a href="/livez">alive?</a></li>
<li><a href="/readyz">ready?</a></li></ul></body></html>
"""


def http_app(
    *,
    version: str,
    metrics: Exposition,
    live: Health,
    ready: Health,
    max_body_bytes: int,
    routes: Sequence[BaseRoute] = (),
) -> Starlette:
    """The application.

    Args:
        version: the server's.
        metrics: see :data:`Exposition`; called on a thread of its own.
        live: false only when a restart would help.
        ready: false while calls should go elsewhere.
        max_body_bytes: a larger request body is answered with 413.
        routes: more of them, for example the extender's.
    """

    async def scrape(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        body, content_type = await run_in_threadpool(metrics, accept)
        return Response(body, headers={"content-type": content_type})

    async def page(_: Request) -> Response:
        return HTMLResponse(_PAGE.format(version=escape(version)))

    return Starlette(
        routes=[
            Route("/", page),
            Route("/metrics", scrape),
            Route("/livez", _health(live)),
            Route("/readyz", _health(ready)),
            *routes,
        ],
        max_body_size=max_body_bytes,
    )


def _health(check: Health) -> Callable[[Request], Response]:
    def answer(_: Request) -> Response:
        well, reasons = check()
        lines = "".join(f"{reason}\n" for reason in reasons)
        return PlainTextResponse(lines or "ok\n", 200 if well else 503)

    return answer
