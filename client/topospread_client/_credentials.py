"""Credentials of callers: TLS files and tokens, which are read again when they change."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, fields
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeAlias, TypeVar

import grpc

from topospread_client._errors import BadConnection

if TYPE_CHECKING:
    from collections.abc import Callable

_T = TypeVar("_T")

FilePath: TypeAlias = str | PathLike[str]


def check_types(options: Any) -> None:
    """Refuse wrong types of a dataclass's fields, and texts with control characters: BadConnection.

    Values are not shown: one may be a token.
    """
    for each in fields(options):
        value, names = getattr(options, each.name), str(each.type).split(" | ")
        kinds = tuple(kind for name in names for kind in _KINDS[name])
        # Python takes booleans for numbers.
        if not isinstance(value, kinds) or (isinstance(value, bool) and names != ["bool"]):
            words = " or ".join(kind.__name__ for kind in kinds if kind is not NoneType)
            raise BadConnection(f"{each.name}: expected {words}, got {type(value).__name__}")
        if isinstance(value, str) and not _sendable(value):
            raise BadConnection(f"{each.name}: this text has characters that cannot be sent")


def _sendable(text: str) -> bool:
    try:
        return b"\0" not in text.encode()
    except UnicodeEncodeError:
        return False


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS options; all files are PEM, and are read again when they change.

    Attributes:
        ca: certificates that the server's must lead to; None trusts gRPC's built-in roots.
        cert: this client's certificate chain, where the server asks for one; needs `key`.
        key: the private key of `cert`.
        server_name: the name that the server's certificate is checked for; None takes the address'.

    Raises:
        BadConnection: an option of a wrong type.
    """

    ca: FilePath | None = None
    cert: FilePath | None = None
    key: FilePath | None = None
    server_name: str | None = None

    def __post_init__(self) -> None:
        check_types(self)

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files; BadConnection where they cannot be used, or not together."""
        if (self.cert is None) != (self.key is None):
            given, missing = ("cert", "key") if self.key is None else ("key", "cert")
            raise BadConnection(f"TLS: a {given} is given without its {missing}: give both or none")
        ca, key, cert = map(_pem, (self.ca, self.key, self.cert))
        self._check()
        return grpc.ssl_channel_credentials(ca, key, cert)

    def _check(self) -> None:
        """Check that the files belong together: gRPC would take them, and fail to connect."""
        import ssl  # takes half of this package's import, and is needed here only

        context, wrong = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ""
        try:
            if self.cert is not None and self.key is not None:
                wrong = f"{self.cert} and {self.key} are no PEM certificate and key that belong"
                wrong += " together, the key not encrypted"
                # Without a password OpenSSL would ask for that of an encrypted key at the terminal.
                context.load_cert_chain(self.cert, self.key, password="")
            if self.ca is not None:
                wrong = f"{self.ca} has no PEM certificates"
                context.load_verify_locations(self.ca)
        except OSError as error:
            reason = getattr(error, "reason", None) or error.strerror or error
            raise BadConnection(f"TLS: {wrong}: {reason}") from error


_KINDS: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "bool": (bool,),
    "float": (float, int),
    "FilePath": (str, PathLike),
    "Tls": (Tls,),
    "None": (NoneType,),
}
"""Types of options by what their annotations say."""


def _pem(path: FilePath | None) -> bytes | None:
    if path is None:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BadConnection(f"TLS: cannot read {path}: {error.strerror}") from error
    begun = content.count(b"-----BEGIN ")
    if not begun or begun != content.count(b"-----END "):
        raise BadConnection(f"TLS: {path} is not a PEM file")
    return content


class WatchedFiles(Generic[_T]):
    """What `read` makes of files that may be replaced; a path may be None.

    While they are written, or do not belong together, what was made of the former ones stays.
    """

    def __init__(self, paths: tuple[FilePath | None, ...], read: Callable[[], _T]) -> None:
        self._paths = [path for path in paths if path is not None]
        self._read = read
        self._versions: list[tuple[int, ...]] = []
        with suppress(OSError):  # the next line has a better message
            self._versions = self._present_versions()
        self.value = read()

    def changed(self) -> bool:
        """Whether there is a new value: the files have changed, and can be used."""
        try:
            before = self._present_versions()
            if before == self._versions:
                return False
            value = self._read()
            if before != self._present_versions():
                return False
        except (OSError, BadConnection):
            return False
        self.value, self._versions = value, before
        return True

    def _present_versions(self) -> list[tuple[int, ...]]:
        found = map(os.stat, self._paths)
        return [(file.st_ino, file.st_size, file.st_mtime_ns) for file in found]


Metadata: TypeAlias = tuple[tuple[str, str], ...]


def token_files(token: str | None, path: FilePath | None) -> WatchedFiles[Metadata]:
    """Metadata that carries the token of a caller, or the one in a file; empty without one."""
    if token is not None and path is not None:
        raise BadConnection("a token and a token file are given: give one of them")
    return WatchedFiles((path,), lambda: _token_metadata(token, path))


def _token_metadata(token: str | None, path: FilePath | None) -> Metadata:
    what = "the token"
    if path is not None:
        what = f"the token file {path}"
        try:
            token = Path(path).read_text("ascii", "replace")
        except OSError as error:
            raise BadConnection(f"{what} cannot be read: {error.strerror}") from error
    if token is None:
        return ()
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadConnection(f"{what} is no token: it must be one word of ASCII characters")
    return (("authorization", f"Bearer {token}"),)
