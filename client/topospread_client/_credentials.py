"""Credentials of callers: TLS files and tokens, which are read again when they change."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Final, TypeAlias

import grpc

from topospread_client._errors import BadConnection

if TYPE_CHECKING:
    from collections.abc import Mapping

FilePath: TypeAlias = str | PathLike[str]

PATH_TYPES: Final = (str, PathLike, NoneType)
TEXT_TYPES: Final = (str, NoneType)

_FileVersions: TypeAlias = tuple[tuple[int, int, int], ...]


def check_types(options: object, kinds: Mapping[str, tuple[type, ...]]) -> None:
    """Check the types of options by their names; values are not shown, one may be a token.

    Raises:
        BadConnection: an option of another type, or a text with control characters.
    """
    for name, allowed in kinds.items():
        value = getattr(options, name)
        # Python takes booleans for numbers.
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            words = " or ".join(kind.__name__ for kind in allowed if kind is not NoneType)
            raise BadConnection(f"{name}: expected {words}, got {type(value).__name__}")
        if isinstance(value, str) and ("\0" in value or not _encodable(value)):
            raise BadConnection(f"{name}: this text has characters that cannot be sent")


def _encodable(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


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
        kinds = {**dict.fromkeys(("ca", "cert", "key"), PATH_TYPES), "server_name": TEXT_TYPES}
        check_types(self, kinds)

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files.

        Raises:
            BadConnection: a file is missing or not PEM, certificate and key do not belong together,
                or one of them is given alone.
        """
        if (self.cert is None) != (self.key is None):
            given, missing = ("cert", "key") if self.key is None else ("key", "cert")
            raise BadConnection(f"TLS: a {given} is given without its {missing}: give both or none")
        ca = _read_pem(self.ca, "CA certificates")
        key = _read_pem(self.key, "client key")
        cert = _read_pem(self.cert, "client certificate")
        self._check()
        return grpc.ssl_channel_credentials(
            root_certificates=ca, private_key=key, certificate_chain=cert
        )

    def file_versions(self) -> _FileVersions:
        """Inode, size and time of each file, which differ when it has changed.

        Raises:
            OSError: a file is missing.
        """
        files = (os.stat(path) for path in (self.ca, self.cert, self.key) if path is not None)
        return tuple((file.st_ino, file.st_size, file.st_mtime_ns) for file in files)

    def _check(self) -> None:
        """Check that the files belong together: gRPC would take them, and fail to connect."""
        import ssl  # takes half of this package's import, and is needed here only

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.cert is not None and self.key is not None:
            try:
                # Without a password OpenSSL would ask for that of an encrypted key at the terminal.
                context.load_cert_chain(self.cert, self.key, password="")
            except (OSError, ssl.SSLError) as error:
                raise BadConnection(
                    f"TLS: {self.cert} and {self.key} are no PEM certificate and key that belong"
                    f" together, the key not encrypted: {_reason(error)}"
                ) from error
        if self.ca is not None:
            try:
                context.load_verify_locations(self.ca)
            except (OSError, ssl.SSLError) as error:
                raise BadConnection(
                    f"TLS: {self.ca} has no PEM certificates: {_reason(error)}"
                ) from error


class TlsFiles:
    """Credentials from files that may be replaced.

    Raises:
        BadConnection: see :meth:`Tls.credentials`.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._versions: _FileVersions = ()
        with suppress(OSError):  # the next line has a better message
            self._versions = tls.file_versions()
        self.first = tls.credentials()

    def changed(self) -> grpc.ChannelCredentials | None:
        """New credentials if the files have changed and can be used; None otherwise."""
        try:
            before = self._tls.file_versions()
            if before == self._versions:
                return None
            credentials = self._tls.credentials()
            if before != self._tls.file_versions():
                return None
        except (OSError, BadConnection):
            # The files are being written: the former credentials stay in use.
            return None
        self._versions = before
        return credentials


def _reason(error: OSError) -> str:
    """Message of OpenSSL, or of the system."""
    return str(getattr(error, "reason", None) or error.strerror or error)


def _read_pem(path: FilePath | None, what: str) -> bytes | None:
    if path is None:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BadConnection(f"TLS: cannot read the {what} {path}: {error.strerror}") from error
    if b"-----BEGIN " not in content or content.count(b"-----BEGIN ") != content.count(
        b"-----END "
    ):
        raise BadConnection(f"TLS: the {what} {path} is not a PEM file")
    return content


_KEY: Final = "authorization"

TokenMetadata = tuple[tuple[str, str], ...]
"""Metadata of a call that carries the token."""


class TokenProvider:
    """Token of the caller as metadata; empty when there is no token.

    Args:
        token: the token itself.
        path: of a file that holds it; read again when it changes, so that tokens may be rotated.

    Raises:
        BadConnection: both are given, the file cannot be read, or the content is no token.
    """

    def __init__(self, token: str | None = None, path: str | PathLike[str] | None = None) -> None:
        if token is not None and path is not None:
            raise BadConnection("a token and a token file are given: give one of them")
        self._path = path
        self._version: tuple[int, ...] = ()
        self._metadata: TokenMetadata = () if token is None else _header(token, "the token")
        self.metadata()

    def metadata(self) -> TokenMetadata:
        """Metadata for a call that begins now."""
        if self._path is None:
            return self._metadata
        try:
            version = self._file_version()
            if version != self._version:
                metadata = self._read(self._path)
                # A file that changes meanwhile may hold half of a token.
                if not self._version or version == self._file_version():
                    self._metadata, self._version = metadata, version
        except (OSError, BadConnection):
            # While the file is replaced or written, the former token stays in use.
            if not self._version:
                self._read(self._path)
                raise
        return self._metadata

    def _file_version(self) -> tuple[int, ...]:
        """Inode, size and time of the file."""
        now = os.stat(self._path or "")
        return now.st_ino, now.st_size, now.st_mtime_ns

    @staticmethod
    def _read(path: str | PathLike[str]) -> TokenMetadata:
        try:
            return _header(Path(path).read_text("ascii"), str(path))
        except OSError as error:
            raise BadConnection(
                f"the token file {path} cannot be read: {error.strerror}"
            ) from error
        except UnicodeDecodeError:
            raise BadConnection(f"the token file {path} holds no token") from None


def _header(token: str, what: str) -> TokenMetadata:
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadConnection(f"{what} is no token: it must be one word of ASCII characters")
    return ((_KEY, f"Bearer {token}"),)
