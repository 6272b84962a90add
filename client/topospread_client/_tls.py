"""TLS files: read, checked, and read again when they have changed."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import TypeAlias

import grpc

from topospread_client._errors import BadConnection

FilePath: TypeAlias = str | PathLike[str]

_Seen: TypeAlias = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS options; all files are PEM, and are read again when they change.

    Attributes:
        ca: certificates that the server's must lead to; None trusts gRPC's built-in roots.
        cert: this client's certificate chain, where the server asks for one; needs `key`.
        key: the private key of `cert`.
        server_name: the name that the server's certificate is checked for; None takes the address'.
    """

    ca: FilePath | None = None
    cert: FilePath | None = None
    key: FilePath | None = None
    server_name: str | None = None

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

    def seen(self) -> _Seen:
        """What tells one version of the files from another.

        Raises:
            OSError: one of them is not there.
        """
        files = (os.stat(path) for path in (self.ca, self.cert, self.key) if path is not None)
        return tuple((file.st_ino, file.st_size, file.st_mtime_ns) for file in files)

    def _check(self) -> None:
        """See that they belong together: gRPC would take them as they are, and not connect."""
        import ssl  # costs half of this package's import, and is needed for this alone

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
    """Credentials from files that may be exchanged.

    Raises:
        BadConnection: see :meth:`Tls.credentials`.
    """

    def __init__(self, tls: Tls) -> None:
        self._tls = tls
        self._seen: _Seen = ()
        with suppress(OSError):  # said better by the next line
            self._seen = tls.seen()
        self.first = tls.credentials()

    def changed(self) -> grpc.ChannelCredentials | None:
        """New credentials if the files are others now; None as long as they cannot be used."""
        try:
            before = self._tls.seen()
            if before == self._seen:
                return None
            credentials = self._tls.credentials()
            if before != self._tls.seen():
                return None
        except (OSError, BadConnection):
            # They are just being written: the former ones still are the best there are.
            return None
        self._seen = before
        return credentials


def _reason(error: OSError) -> str:
    """OpenSSL's, or the system's."""
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
