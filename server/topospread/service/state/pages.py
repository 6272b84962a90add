"""Pages of lists: which one is asked for, and the token of the next one."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Final

from topospread.errors import FieldViolation, InvalidRequest, PageTokenMismatch
from topospread.replica.view import Token

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PAGE: Final = 500
MAX_PAGE: Final = 5000

Place = tuple[str, str]
"""A namespace and a name. Strings have the order of their bytes in UTF-8."""

_DIGEST_BYTES: Final = 8
_DIGEST: Final = re.compile(f"[0-9a-f]{{{2 * _DIGEST_BYTES}}}")


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page of a list that is requested.

    Attributes:
        size: objects at most, as the caller gave it.
        token: of the last page; empty for the first one.
        arguments: of the list, in bytes; a token is good for the same ones only.
    """

    size: int = 0
    token: str = ""
    arguments: bytes = b""

    @property
    def most(self) -> int:
        """Objects that the page has at most.

        Raises:
            InvalidRequest: a negative size.
        """
        if self.size < 0:
            raise InvalidRequest.of(
                [FieldViolation("pageSize", "must not be negative", bad_value=self.size)]
            )
        return min(self.size or DEFAULT_PAGE, MAX_PAGE)

    def next(self, *words: str) -> str:
        """The token of the next page.

        Args:
            words: where it begins, and what else is to be known there.
        """
        text = "\0".join((self._digest(), *words))
        return base64.urlsafe_b64encode(text.encode()).decode()

    def words(self, count: int) -> Sequence[str]:
        """The words given to :meth:`next` for this page; none for the first one.

        Args:
            count: how many words there are.

        Raises:
            PageTokenMismatch: the token is of a call with other arguments.
            InvalidRequest: it is none of ours.
        """
        if not self.token:
            return ()
        try:
            raw = base64.b64decode(self.token.encode("ascii"), altchars=b"-_", validate=True)
            digest, *words = raw.decode().split("\0")
            if not _DIGEST.fullmatch(digest):
                raise ValueError("no digest")
            if digest != self._digest():
                text = "is of a call with other arguments: send the first page's, or no token"
                raise PageTokenMismatch(f"pageToken: {text}", [self._wrong(text)])
            if len(words) != count:
                raise ValueError("another number of words")
        except (ValueError, binascii.Error) as cause:
            raise self._none_of_ours() from cause
        return words

    def place(self, namespace: str = "") -> tuple[str, Place]:
        """The continuation of a page: the first page's revision, and the last object's key.

        That is what :meth:`next` was given: the revision, a namespace and a name.

        Args:
            namespace: that the list is of; empty for all.

        Raises:
            PageTokenMismatch, InvalidRequest: as :meth:`words`.
        """
        words = self.words(3)
        if not words:
            return "", ("", "")
        revision, *place = words
        try:
            Token.decode(revision)
        except InvalidRequest as cause:
            raise self._none_of_ours() from cause
        if namespace and place[0] != namespace:
            raise self._none_of_ours()
        return revision, (place[0], place[1])

    def _none_of_ours(self) -> InvalidRequest:
        return InvalidRequest.of([self._wrong("must be the token of an earlier page")])

    def _digest(self) -> str:
        return blake2b(self.arguments, digest_size=_DIGEST_BYTES).hexdigest()

    def _wrong(self, text: str) -> FieldViolation:
        return FieldViolation("pageToken", text, bad_value=self.token[:512])
