"""Authentication: bearer tokens, the registry of callers, and the caller of a call.

A caller is known by its bearer token, or by the names in its certificate.

A token is ``tsp_ID_SECRET``. The identifier finds its entry; the secret has 256 random bits, so
that a plain SHA-256 of the whole may be stored: nothing to guess that a slow hash would protect.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from topospread.access.certificates import type_of
from topospread.errors import Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from topospread.access.callers import Caller
    from topospread.access.certificates import CertificateNames


PREFIX: Final = "tsp"
_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32

_SCHEME: Final = "bearer "
_NO_DIGEST: Final = bytes(32)


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made.

    Attributes:
        text: what its holder sends; it is stored nowhere.
        id: what finds its entry; no secret.
        sha256: its hash, 64 hexadecimal digits.
    """

    text: str
    id: str
    sha256: str

    @override
    def __repr__(self) -> str:
        return f"NewToken(id={self.id!r})"


def new_token() -> NewToken:
    """Make a random token."""
    identifier = secrets.token_hex(_ID_BYTES)
    text = f"{PREFIX}_{identifier}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    return NewToken(text, identifier, digest(text).hex())


def digest(token: str) -> bytes:
    """The stored hash of a token; the token may hold any character."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def identifier(token: str) -> str:
    """The part that finds the entry; empty when the text has another form."""
    prefix, _, rest = token.partition("_")
    found, separator, _ = rest.partition("_")
    return found if prefix == PREFIX and separator else ""


@dataclass(frozen=True, slots=True)
class CallerRegistry:
    """All known callers. Immutable: a changed access file makes another registry.

    Attributes:
        tokens: by identifier.
        common: by the common name of a certificate.
        alternative: by one of its alternative names.
    """

    tokens: Mapping[str, Caller]
    common: Mapping[str, Caller]
    alternative: Mapping[str, Caller]
    _by_credential: dict[bytes, list[Caller]] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the index of :meth:`contains`."""
        by_credential: dict[bytes, list[Caller]] = {}
        for callers in (self.tokens, self.common, self.alternative):
            for caller in callers.values():
                by_credential.setdefault(caller.credential, []).append(caller)
        object.__setattr__(self, "_by_credential", by_credential)

    def contains(self, caller: Caller) -> bool:
        """Whether a caller still has the same credential and roles."""
        return caller in self._by_credential.get(caller.credential, ())


class Authenticator:
    """Finds the caller of a call."""

    def __init__(
        self, registry: Callable[[], CallerRegistry], clock: Callable[[], float] = time.time
    ) -> None:
        self._registry = registry
        self._clock = clock

    def caller(self, authorization: Sequence[str], names: Callable[[], CertificateNames]) -> Caller:
        """The caller of a call.

        Args:
            authorization: all values of that header. With an unknown token a certificate does
                not count.
            names: in the caller's certificate; called when there is no token.

        Raises:
            Unauthenticated: the caller is unknown.
        """
        registry = self._registry()
        if authorization:
            found = _by_token(registry, authorization)
        elif registry.common or registry.alternative:
            found = _by_names(registry, names())
        else:
            found = None
        if found is None or found.expires <= self._clock():
            raise Unauthenticated
        return found

    def is_still_valid(self, caller: Caller) -> bool:
        """Whether an authenticated caller is still known, with the same roles."""
        return caller.expires > self._clock() and self._registry().contains(caller)


def _by_token(registry: CallerRegistry, authorization: Sequence[str]) -> Caller | None:
    value = authorization[0]
    if len(authorization) > 1 or value[: len(_SCHEME)].lower() != _SCHEME:
        return None
    token = value[len(_SCHEME) :].strip()
    found = registry.tokens.get(identifier(token))
    # Compared in constant time, and also when there is nothing to compare with.
    known = hmac.compare_digest(_NO_DIGEST if found is None else found.credential, digest(token))
    return found if known else None


def _by_names(registry: CallerRegistry, names: CertificateNames) -> Caller | None:
    for name_type, name in names.alternative:
        # A URI's text in a DNS name, say, is not the URI.
        if (found := registry.alternative.get(name)) is not None and type_of(name) is name_type:
            return found
    # One that carries several common names does not say which is meant.
    return registry.common.get(names.common[0]) if len(names.common) == 1 else None
