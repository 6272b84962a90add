"""Bearer tokens: ``tsp_ID_SECRET``.

The identifier finds the entry, the secret has 256 random bits, so that a plain SHA-256 of the whole
keeps it: there is nothing to guess that a slow hash would protect.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Final

from typing_extensions import override

PREFIX: Final = "tsp"
_ID_BYTES: Final = 8
_SECRET_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class NewToken:
    """A token that was just made.

    Attributes:
        text: what its holder sends; it is kept nowhere.
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
    """Make a token that nobody has."""
    identifier = secrets.token_hex(_ID_BYTES)
    text = f"{PREFIX}_{identifier}_{secrets.token_urlsafe(_SECRET_BYTES)}"
    return NewToken(text, identifier, digest(text).hex())


def digest(token: str) -> bytes:
    """The hash that is kept of a token; what was sent may hold any character."""
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def identifier(token: str) -> str:
    """The part that finds the entry; empty when the text is no token of ours."""
    prefix, _, rest = token.partition("_")
    found, separator, _ = rest.partition("_")
    return found if prefix == PREFIX and separator else ""
