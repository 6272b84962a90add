"""The HTTP application: the pages of every server, calls, and who may ask for which.

With an access file, unauthenticated callers get the statuses of /livez and /readyz and nothing
else. The pages that every server has need the role read for all clusters, because metrics name
them. Any other path needs the role decide, in some cluster; a call checks that for its own
one. With a rate limit, callers that ask for anything but health too often get 429.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import BaseRoute, Route

from topospread.access.audit import DenialLog
from topospread.access.callers import ANONYMOUS, Caller, Role
from topospread.access.certificates import NO_NAMES
from topospread.errors import (
    MethodNotServed,
    PermissionDenied,
    RateExceeded,
    TopospreadError,
    Unauthenticated,
)
from topospread.http.responses import TOO_LARGE, body_too_large, error_response, with_status
from topospread.http.server import NAMES

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.types import ASGIApp, Receive, Scope, Send

    from topospread.access.authentication import Authenticator
    from topospread.access.rate_limit import RateLimiter

Health = Callable[[], tuple[bool, Sequence[str]]]
"""Whether all is well, and if not, the reasons: a line each."""

Exposition = Callable[[str], tuple[bytes, str]]
"""An Accept header to metrics in a format it allows, and their content type."""

Endpoint = Callable[[Request], Awaitable[Response]]

NO_CALLS: Final[Mapping[str, Endpoint]] = MappingProxyType({})

EXTENDER: Final = "/extender/"
WEBHOOK: Final = "/validate"
"""What the paths of the extender and of the webhook begin with."""

OPEN: Final = frozenset({"/livez", "/readyz"})
"""Paths that need no authentication."""

READ_EVERYWHERE: Final = frozenset({"/", "/metrics"})

CALLER: Final = "topospread_caller"
"""The key of a request's state that has its caller."""

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
) -> ASGIApp:
    """The pages of every server, and more routes.

    ``live`` is false only when a restart would help, ``ready`` while calls should go elsewhere.
    """

    async def scrape(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        body, content_type = await run_in_threadpool(metrics, accept)
        return Response(body, headers={"content-type": content_type})

    async def page(_: Request) -> Response:
        return HTMLResponse(_PAGE.format(version=escape(version)))

    pages = [
        Route("/", page),
        Route("/metrics", scrape),
        Route("/livez", _health(live)),
        Route("/readyz", _health(ready)),
    ]
    return Starlette(
        routes=[*pages, *routes],
        max_body_size=max_body_bytes,
        exception_handlers={
            HTTPException: partial(_http_exception, max_body_bytes),
            Exception: lambda _, cause: error_response(cause),
        },
    )


def _health(check: Health) -> Callable[[Request], Response]:
    def answer(request: Request) -> Response:
        well, reasons = check()
        # Reasons name clusters: callers without the role get the status alone.
        caller = caller_of(request)
        shown: Sequence[str] = () if well else ("not well",)
        if caller is not None and caller.may_everywhere(Role.READ):
            shown = reasons
        lines = "".join(f"{reason}\n" for reason in shown)
        return PlainTextResponse(lines or "ok\n", 200 if well else 503)

    return answer


def _http_exception(limit: int, _: Request, cause: Exception) -> Response:
    """The response for Starlette's own errors: unknown pages, other methods, large bodies."""
    assert isinstance(cause, HTTPException), "as registered"
    error: TopospreadError = MethodNotServed("there is no such page")
    if cause.status_code == TOO_LARGE:
        error = body_too_large(limit)
    return error_response(with_status(cause.status_code, error), cause.headers)


class Access:
    """Calls and pages for those who may ask for them.

    Args:
        pages: an application; None: there are calls alone.
        calls: by the beginning of their paths; they bound their bodies by themselves.
    """

    def __init__(
        self,
        pages: ASGIApp | None,
        calls: Mapping[str, Endpoint] = NO_CALLS,
        authenticator: Authenticator | None = None,
        rate_limiter: RateLimiter | None = None,
        denials: DenialLog | None = None,
    ) -> None:
        self._pages = pages
        self._calls = calls
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter
        self._denials = denials or DenialLog()
        self._open: Collection[str] = () if pages is None else OPEN

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, 403 or 429, or let the application answer."""
        app = self._pages
        if scope["type"] == "http":
            request = Request(scope, receive)
            app = self._denied(request) or await self._called(request) or app
        await (app or _NO_PAGE)(scope, receive, send)

    async def _called(self, request: Request) -> Response | None:
        """The response of a call; without Starlette's routes, which take as long as a decision."""
        path: str = request.scope["path"]
        for start, call in self._calls.items():
            if path.startswith(start):
                return await call(request)
        return None

    def _denied(self, request: Request) -> Response | None:
        path, address = request.scope["path"], address_of(request)
        state = request.scope.setdefault("state", {})
        log = partial(self._denials.log, _label(path))
        caller: Caller | None = None
        try:
            caller = self._caller(request)
            state[CALLER] = caller
            if self._rate_limiter is not None and path not in self._open:
                self._rate_limiter.take(caller.credential or address)
            if path in READ_EVERYWHERE:
                caller.check_everywhere(Role.READ)
            elif path not in self._open:
                caller.clusters(Role.DECIDE)
        except (Unauthenticated, RateExceeded, PermissionDenied) as refused:
            unknown = isinstance(refused, Unauthenticated)
            if unknown and path in self._open:
                state[CALLER] = None
                return None
            log(caller, address, refused)
            return error_response(refused, {"www-authenticate": "Bearer"} if unknown else None)
        return None

    def _caller(self, request: Request) -> Caller:
        if self._authenticator is None:
            return ANONYMOUS
        return self._authenticator.caller(
            request.headers.getlist("authorization"),
            lambda: request.scope["state"].get(NAMES, NO_NAMES),
        )


_NO_PAGE: Final = error_response(with_status(404, MethodNotServed("there is no such page")))


def caller_of(request: Request) -> Caller | None:
    """The caller: ANONYMOUS where there is no access file, None when not authenticated."""
    caller: Caller | None = getattr(request.state, CALLER, ANONYMOUS)
    return caller


def address_of(request: Request) -> str:
    """The caller's address, without the port."""
    client: tuple[str, int] | None = request.scope["client"]
    return client[0] if client else ""


def _label(path: str) -> str:
    """The audit log's name for a path: never one that a caller made up."""
    if path in READ_EVERYWHERE or path in OPEN:
        return f"HTTP {path}"
    return "Extender" if path.startswith(EXTENDER) else "HTTP other"
