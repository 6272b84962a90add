"""The token that a caller shows with each call: given, or read from a file that may change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from topospread_client.errors import BadConnection

if TYPE_CHECKING:
    from os import PathLike

_KEY: Final = "authorization"

Shown = tuple[tuple[str, str], ...]
"""Metadata of a call."""


class Token:
    """What to show; nothing when there is no token.

    Args:
        token: the token itself.
        path: of a file that holds it; read again when it changes, so that tokens may be exchanged.

    Raises:
        BadConnection: both are given, the file cannot be read, or what there is is no token.
    """

    def __init__(self, token: str | None = None, path: str | PathLike[str] | None = None) -> None:
        if token is not None and path is not None:
            raise BadConnection("a token and a token file are given: give one of them")
        self._path = path
        self._seen: tuple[int, ...] = ()
        self._shown: Shown = () if token is None else _header(token, "the token")
        self.metadata()

    def metadata(self) -> Shown:
        """Metadata for a call that begins now."""
        if self._path is None:
            return self._shown
        try:
            now = os.stat(self._path)
            seen = (now.st_ino, now.st_size, now.st_mtime_ns)
            if seen != self._seen:
                self._shown = _header(Path(self._path).read_text("ascii"), str(self._path))
                self._seen = seen
        except OSError as error:
            # While a file is exchanged, the former token still is the best there is.
            if not self._seen:
                raise BadConnection(
                    f"the token file {self._path} cannot be read: {error.strerror}"
                ) from error
        except UnicodeDecodeError:
            raise BadConnection(f"the token file {self._path} holds no token") from None
        return self._shown


def _header(token: str, what: str) -> Shown:
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadConnection(f"{what} is no token: it must be one word of ASCII characters")
    return ((_KEY, f"Bearer {token}"),)
