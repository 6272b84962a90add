"""The token that a caller shows with each call: given, or read from a file that may change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from topospread_client._errors import BadConnection

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
            seen = self._look()
            if seen != self._seen:
                shown = self._read(self._path)
                # What changed meanwhile may be half of a token.
                if not self._seen or seen == self._look():
                    self._shown, self._seen = shown, seen
        except (OSError, BadConnection):
            # While a file is exchanged or written, the former token still is the best there is.
            if not self._seen:
                self._read(self._path)
                raise
        return self._shown

    def _look(self) -> tuple[int, ...]:
        """What tells one version of the file from another."""
        now = os.stat(self._path or "")
        return now.st_ino, now.st_size, now.st_mtime_ns

    @staticmethod
    def _read(path: str | PathLike[str]) -> Shown:
        try:
            return _header(Path(path).read_text("ascii"), str(path))
        except OSError as error:
            raise BadConnection(
                f"the token file {path} cannot be read: {error.strerror}"
            ) from error
        except UnicodeDecodeError:
            raise BadConnection(f"the token file {path} holds no token") from None


def _header(token: str, what: str) -> Shown:
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadConnection(f"{what} is no token: it must be one word of ASCII characters")
    return ((_KEY, f"Bearer {token}"),)
