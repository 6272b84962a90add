"""Before all pages: who asks, and whether they may.

With a gate, strangers get the statuses of /livez and /readyz and nothing else. The pages that every
server has need the role read for all clusters, because metrics name them. Any other path needs the
role decide, in some cluster; a route that serves one cluster checks that by :func:`permit`. With
rates, callers that ask for anything but health too often get 429.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from starlette.responses import Response

from topospread.access.callers import ANYBODY, Caller, Role
from topospread.access.certificates import NO_NAMES
from topospread.access.refusals import Refusals
from topospread.errors import PermissionDenied, RateExceeded, TopospreadError, Unauthenticated
from topospread.transports.http.failures import failure_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from starlette.requests import HTTPConnection
    from starlette.types import ASGIApp, Receive, Scope, Send

    from topospread.access.gate import Gate
    from topospread.access.rates import Rates

OPEN: Final = frozenset({"/livez", "/readyz"})
"""What strangers may ask for."""

READ_EVERYWHERE: Final = frozenset({"/", "/metrics"})

CALLER: Final = "topospread_caller"
NAMES: Final = "topospread_names"
REFUSED: Final = "topospread_refused"
"""Keys of a request's state. The second is set by the server, from the client's certificate; the
third is whom to tell of a refusal.
"""


class Guard:
    """An application behind a gate, if there is one, and within rates, if there are any.

    Args:
        app: the application.
        gate: tells who asks.
        rates: how often each may ask.
        refusals: told of who was not let in.
        open_paths: what strangers may ask for.
    """

    def __init__(
        self,
        app: ASGIApp,
        gate: Gate | None,
        rates: Rates | None,
        refusals: Refusals,
        open_paths: Collection[str],
    ) -> None:
        self._app = app
        self._gate = gate
        self._rates = rates
        self._refusals = refusals
        self._open = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 401, 403 or 429, or let the application answer."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        state, address = scope.setdefault("state", {}), (scope["client"] or ("",))[0]
        tell = partial(self._refusals.tell, _label(path))
        caller: Caller | None = None
        try:
            caller = self._caller(scope)
            state[CALLER], state[REFUSED] = caller, partial(tell, caller, address)
            if self._rates is not None and path not in self._open:
                self._rates.take(caller.proof or address)
            if path in READ_EVERYWHERE:
                caller.check_everywhere(Role.READ)
            elif path not in self._open:
                caller.clusters(Role.DECIDE)
        except Unauthenticated as refused:
            state[CALLER] = None
            if path not in self._open:
                tell(None, address, refused)
                challenge = {"www-authenticate": "Bearer"}
                await error_response(refused, challenge)(scope, receive, send)
                return
        except (RateExceeded, PermissionDenied) as refused:
            tell(caller, address, refused)
            await error_response(refused)(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _caller(self, scope: Scope) -> Caller:
        if self._gate is None:
            return ANYBODY
        return self._gate.caller(_shown(scope), lambda: scope["state"].get(NAMES, NO_NAMES))


def error_response(error: Exception, headers: Mapping[str, str] | None = None) -> Response:
    """The answer for an error."""
    failure = failure_of(error)
    return Response(failure.body, failure.status, {**failure.headers, **(headers or {})})


def guarded(
    app: ASGIApp,
    gate: Gate | None,
    rates: Rates | None,
    refusals: Refusals | None = None,
    *,
    open_paths: Collection[str] = OPEN,
) -> ASGIApp:
    """An application behind what there is of a gate and rates; see :class:`Guard`."""
    if gate is None and rates is None:
        return app
    return Guard(app, gate, rates, refusals or Refusals(), open_paths)


def caller_of(request: HTTPConnection) -> Caller | None:
    """Who asks: anybody where there is no gate, None for a stranger."""
    caller: Caller | None = getattr(request.state, CALLER, ANYBODY)
    return caller


def may(request: HTTPConnection, role: Role) -> bool:
    """Whether the caller has a role in all clusters."""
    caller = caller_of(request)
    return caller is not None and caller.may_everywhere(role)


def permit(request: HTTPConnection, role: Role, cluster: str) -> None:
    """For a route that serves a cluster, before it does.

    Raises:
        Unauthenticated: a stranger.
        PermissionDenied: the caller lacks the role there; the answer is 403.
    """
    caller = caller_of(request)
    if caller is None:
        raise Unauthenticated
    try:
        caller.check(role, cluster)
    except PermissionDenied as refused:
        tell: Callable[[TopospreadError], None] = getattr(request.state, REFUSED)
        tell(refused)
        raise


def _label(path: str) -> str:
    """What the audit log calls a path: none that a stranger made up."""
    if path in READ_EVERYWHERE or path in OPEN:
        return f"HTTP {path}"
    return "Extender" if path.startswith("/extender/") else "HTTP other"


def _shown(scope: Scope) -> list[str]:
    return [value.decode("latin-1") for key, value in scope["headers"] if key == b"authorization"]
