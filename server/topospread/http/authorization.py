"""Authentication and authorization of HTTP requests.

With an access file, unauthenticated callers get the statuses of /livez and /readyz and nothing
else. The pages that every server has need the role read for all clusters, because metrics name
them. Any other path needs the role decide, in some cluster; a route that serves one cluster checks
that by :func:`require_role`. With a rate limit, callers that ask for anything but health too often
get 429.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from topospread.access.audit import DenialLog
from topospread.access.callers import ANONYMOUS, Caller, Role
from topospread.access.certificates import NO_NAMES
from topospread.errors import PermissionDenied, RateExceeded, TopospreadError, Unauthenticated
from topospread.http.failures import failure_of
from topospread.http.server import NAMES

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from starlette.requests import HTTPConnection
    from starlette.types import ASGIApp, Receive, Scope, Send

    from topospread.access.authentication import Authenticator
    from topospread.access.rate_limit import RateLimiter

OPEN: Final = frozenset({"/livez", "/readyz"})
"""Paths that need no authentication."""

READ_EVERYWHERE: Final = frozenset({"/", "/metrics"})

CALLER: Final = "topospread_caller"
LOG_DENIAL: Final = "topospread_refused"
"""Keys of a request's state; the second writes a denial to the audit log."""


class AuthMiddleware:
    """An application behind an authenticator and a rate limiter, where there are any.

    Args:
        app: the application.
        authenticator: finds the caller.
        rate_limiter: bounds the requests of each caller.
        denials: logs denied requests.
        open_paths: need no authentication.
    """

    def __init__(
        self,
        app: ASGIApp,
        authenticator: Authenticator | None,
        rate_limiter: RateLimiter | None,
        denials: DenialLog,
        open_paths: Collection[str],
    ) -> None:
        self._app = app
        self._authenticator = authenticator
        self._rate_limiter = rate_limiter
        self._denials = denials
        self._open_paths = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, 403 or 429, or let the application answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        state, address = scope.setdefault("state", {}), (scope["client"] or ("",))[0]
        log = partial(self._denials.log, _label(path))
        caller: Caller | None = None
        try:
            caller = self._caller(scope)
            state[CALLER], state[LOG_DENIAL] = caller, partial(log, caller, address)
            if self._rate_limiter is not None and path not in self._open_paths:
                self._rate_limiter.take(caller.credential or address)
            if path in READ_EVERYWHERE:
                caller.check_everywhere(Role.READ)
            elif path not in self._open_paths:
                caller.clusters(Role.DECIDE)
        except Unauthenticated as refused:
            state[CALLER] = None
            if path not in self._open_paths:
                log(None, address, refused)
                challenge = {"www-authenticate": "Bearer"}
                await error_response(refused, challenge)(scope, receive, send)
                return
        except (RateExceeded, PermissionDenied) as refused:
            log(caller, address, refused)
            await error_response(refused)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> Caller:
        if self._authenticator is None:
            return ANONYMOUS
        return self._authenticator.caller(
            _authorization_values(scope), lambda: scope["state"].get(NAMES, NO_NAMES)
        )


def error_response(error: Exception, headers: Mapping[str, str] | None = None) -> Response:
    """The answer for an error."""
    failure = failure_of(error)
    return Response(failure.body, failure.status, {**failure.headers, **(headers or {})})


def with_authorization(
    app: ASGIApp,
    authenticator: Authenticator | None,
    rate_limiter: RateLimiter | None,
    denials: DenialLog | None = None,
    *,
    open_paths: Collection[str] = OPEN,
) -> ASGIApp:
    """The application, behind :class:`AuthMiddleware` if access or rates are limited."""
    if authenticator is None and rate_limiter is None:
        return app
    return AuthMiddleware(app, authenticator, rate_limiter, denials or DenialLog(), open_paths)


def caller_of(request: HTTPConnection) -> Caller | None:
    """The caller: ANONYMOUS where there is no access file, None when not authenticated."""
    caller: Caller | None = getattr(request.state, CALLER, ANONYMOUS)
    return caller


def has_role(request: HTTPConnection, role: Role) -> bool:
    """Whether the caller has a role in all clusters."""
    caller = caller_of(request)
    return caller is not None and caller.may_everywhere(role)


def require_role(request: HTTPConnection, role: Role, cluster: str) -> None:
    """Check the caller's role for a cluster, before a route serves it.

    Raises:
        Unauthenticated: the caller is unknown.
        PermissionDenied: the caller lacks the role there; the answer is 403.
    """
    caller = caller_of(request)
    if caller is None:
        raise Unauthenticated
    try:
        caller.check(role, cluster)
    except PermissionDenied as refused:
        log: Callable[[TopospreadError], None] = getattr(request.state, LOG_DENIAL)
        log(refused)
        raise


def _label(path: str) -> str:
    """The audit log's name for a path: never one that a caller made up."""
    if path in READ_EVERYWHERE or path in OPEN:
        return f"HTTP {path}"
    return "Extender" if path.startswith("/extender/") else "HTTP other"


def _authorization_values(scope: Scope) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == b"authorization"]
