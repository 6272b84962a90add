"""Authentication, authorization and rate limit of calls, and the log of denied ones."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from topospread.access.audit import DenialLog

if TYPE_CHECKING:
    from topospread.access.authentication import Authenticator
    from topospread.access.rate_limit import RateLimiter
    from topospread.calls.call import Call


@dataclass(frozen=True, slots=True)
class AccessControl:
    """The checks of a server's callers.

    Attributes:
        authenticator: finds the caller; None: every caller may do everything.
        rate_limiter: bounds how often each caller may call; None: as often as it likes.
        denials: writes denied calls to the audit log.
    """

    authenticator: Authenticator | None = None
    rate_limiter: RateLimiter | None = None
    denials: DenialLog = field(default_factory=DenialLog)

    def authenticate(self, call: Call) -> None:
        """Find out who calls; before the request is read.

        Raises:
            Unauthenticated, PermissionDenied: the caller is not known, or has the role nowhere.
        """
        if self.authenticator is None:
            return
        shown = [value for key, value in call.context.metadata() if key == "authorization"]
        call.caller = self.authenticator.caller(
            [value if isinstance(value, str) else value.decode("latin-1") for value in shown],
            call.context.names,
        )
        if (role := call.method.permission.role) is not None:
            call.caller.clusters(role)

    def limit_rate(self, call: Call) -> None:
        """Count a call of a credential or else an address, or raise RateExceeded."""
        if self.rate_limiter is not None:
            self.rate_limiter.take(call.caller.credential or call.address())

    def authorize(self, call: Call) -> None:
        """Check that the caller may make the call with its request; raises as Permission.check."""
        if self.authenticator is not None:
            call.method.permission.check(call.caller, call.raw)

    def is_valid(self, call: Call) -> bool:
        """Whether the credential of an admitted caller is still valid."""
        return self.authenticator is None or self.authenticator.is_still_valid(call.caller)
