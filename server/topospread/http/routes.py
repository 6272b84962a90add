"""The pages of every server: metrics, liveness, readiness, and a start page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from topospread.access.callers import Role
from topospread.errors import MethodNotServed, TooLarge, TopospreadError
from topospread.http.authorization import error_response, has_role, with_authorization
from topospread.http.failures import HttpError

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.types import ASGIApp, Receive, Scope, Send

    from topospread.access.audit import DenialLog
    from topospread.access.authentication import Authenticator
    from topospread.access.rate_limit import RateLimiter

Health = Callable[[], tuple[bool, Sequence[str]]]
"""Whether all is well, and if not, the reasons: a line each."""

Exposition = Callable[[str], tuple[bytes, str]]
"""An Accept header to metrics in a format it allows, and their content type."""

HTTP_TOO_LARGE: Final = 413

NO_CALLS: Final[Mapping[str, ASGIApp]] = MappingProxyType({})

EXTENDER: Final = "/extender/"
WEBHOOK: Final = "/validate"
"""What the paths of the extender and of the webhook begin with."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>topospread</title></head>
<body><h1>topospread {version}</h1>
<p>Pod topology spread decisions, served over gRPC.</p>
<ul><li><a href="/metrics">metrics</a></li><li><a href="/livez">alive?</a></li>
<li><a href="/readyz">ready?</a></li></ul></body></html>
"""


def make_app(
    *,
    version: str,
    metrics: Exposition,
    live: Health,
    ready: Health,
    max_body_bytes: int,
    routes: Sequence[BaseRoute] = (),
    authenticator: Authenticator | None = None,
    calls: Mapping[str, ASGIApp] = NO_CALLS,
    rate_limiter: RateLimiter | None = None,
    denials: DenialLog | None = None,
) -> ASGIApp:
    """The application.

    Args:
        version: the server's.
        metrics: see :data:`Exposition`; called on a thread of its own.
        live: false only when a restart would help.
        ready: false while calls should go elsewhere.
        max_body_bytes: a larger request body is answered with 413.
        routes: more of them; the authorization module has the role that they need.
        authenticator: finds callers; None: anonymous callers may do everything.
        calls: by the beginning of their paths; they bound their bodies by themselves.
        rate_limiter: bounds the requests of each caller; None: no bound.
        denials: logs denied requests.
    """

    async def scrape(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        body, content_type = await run_in_threadpool(metrics, accept)
        return Response(body, headers={"content-type": content_type})

    async def page(_: Request) -> Response:
        return HTMLResponse(_PAGE.format(version=escape(version)))

    app: ASGIApp = Starlette(
        routes=[
            Route("/", page),
            Route("/metrics", scrape),
            Route("/livez", _health(live)),
            Route("/readyz", _health(ready)),
            *routes,
        ],
        max_body_size=max_body_bytes,
        exception_handlers={
            HTTPException: partial(_http_exception, max_body_bytes),
            Exception: _server_error,
        },
    )
    return with_authorization(by_path(calls, app), authenticator, rate_limiter, denials)


def _http_exception(limit: int, _: Request, cause: Exception) -> Response:
    """The response for Starlette's own errors: unknown pages, other methods, large bodies."""
    assert isinstance(cause, HTTPException), "as registered"
    error: TopospreadError = MethodNotServed("there is no such page")
    if cause.status_code == HTTP_TOO_LARGE:
        setting = "--http-max-body-bytes"
        error = TooLarge(f"the request is larger than {limit} bytes ({setting})", setting, limit)
    return error_response(HttpError(cause.status_code, error), cause.headers)


def _server_error(_: Request, cause: Exception) -> Response:
    return error_response(cause)


def by_path(calls: Mapping[str, ASGIApp], pages: ASGIApp) -> ASGIApp:
    """Both; calls bypass Starlette, which takes longer than a decision does."""

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        chosen = pages
        if scope["type"] == "http":
            path: str = scope["path"]
            chosen = next((each for start, each in calls.items() if path.startswith(start)), pages)
        await chosen(scope, receive, send)

    return app if calls else pages


async def nothing_else(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer that there is no such page, where only calls are served."""
    if scope["type"] == "http":
        error = HttpError(404, MethodNotServed("there is no such page"))
        await error_response(error)(scope, receive, send)


def _health(check: Health) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        well, reasons = check()
        # Reasons name clusters: callers without the role get the status alone.
        shown = reasons if has_role(request, Role.READ) else () if well else ("not well",)
        lines = "".join(f"{reason}\n" for reason in shown)
        return PlainTextResponse(lines or "ok\n", 200 if well else 503)

    return answer
