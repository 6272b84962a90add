"""Tells callers by what they show: a bearer token, or the names in their certificate."""

from __future__ import annotations

import hmac
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from topospread.access.certificates import kind_of
from topospread.access.tokens import digest, identifier
from topospread.errors import Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from topospread.access.callers import Caller
    from topospread.access.certificates import Names

_SCHEME: Final = "bearer "
_NO_DIGEST: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class Roll:
    """All who are known. Immutable: a changed access file makes another one.

    Attributes:
        tokens: by identifier.
        common: by the common name of a certificate.
        alternative: by one of its alternative names.
    """

    tokens: Mapping[str, Caller]
    common: Mapping[str, Caller]
    alternative: Mapping[str, Caller]
    _by_proof: dict[bytes, list[Caller]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make what :meth:`knows` looks up."""
        by_proof: dict[bytes, list[Caller]] = {}
        for callers in (self.tokens, self.common, self.alternative):
            for caller in callers.values():
                by_proof.setdefault(caller.proof, []).append(caller)
        object.__setattr__(self, "_by_proof", by_proof)

    def knows(self, caller: Caller) -> bool:
        """Whether a caller is as it was when it came."""
        return caller in self._by_proof.get(caller.proof, ())


class Gate:
    """Where callers show what they have.

    Args:
        roll: that is in force.
        clock: seconds since 1970.
    """

    def __init__(self, roll: Callable[[], Roll], clock: Callable[[], float] = time.time) -> None:
        self._roll = roll
        self._clock = clock

    def caller(self, authorization: Sequence[str], names: Callable[[], Names]) -> Caller:
        """Who calls.

        Args:
            authorization: all values of that header. A token that is not known is not made good
                by a certificate.
            names: in the caller's certificate; asked for when there is no token.

        Raises:
            Unauthenticated: nobody who is known.
        """
        roll = self._roll()
        if authorization:
            found = _by_token(roll, authorization)
        elif roll.common or roll.alternative:
            found = _by_names(roll, names())
        else:
            found = None
        if found is None or found.expires <= self._clock():
            raise Unauthenticated
        return found

    def stands(self, caller: Caller) -> bool:
        """Whether a caller who came in earlier is still known, with the same roles."""
        return caller.expires > self._clock() and self._roll().knows(caller)


def _by_token(roll: Roll, authorization: Sequence[str]) -> Caller | None:
    value = authorization[0]
    if len(authorization) > 1 or value[: len(_SCHEME)].lower() != _SCHEME:
        return None
    token = value[len(_SCHEME) :].strip()
    found = roll.tokens.get(identifier(token))
    # Compared in constant time, and also when there is nothing to compare with.
    known = hmac.compare_digest(_NO_DIGEST if found is None else found.proof, digest(token))
    return found if known else None


def _by_names(roll: Roll, names: Names) -> Caller | None:
    for kind, name in names.alternative:
        # A URI's text in a DNS name, say, is not the URI.
        if (found := roll.alternative.get(name)) is not None and kind_of(name) is kind:
            return found
    # One that carries several common names does not say which is meant.
    return roll.common.get(names.common[0]) if len(names.common) == 1 else None
