"""PEM files of a TLS listener."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from topospread.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Credentials:
    """PEM files of a TLS listener; `client_ca` asks callers for certificates."""

    cert: str
    key: str
    client_ca: str = ""

    def load(self) -> grpc.ServerCredentials:
        """Read the files.

        Raises:
            ConfigError: one of them cannot be read, or is not what it should be. gRPC itself would
                only say that it cannot listen.
        """
        pair = (_read("--tls-key", self.key), _read("--tls-cert", self.cert))
        roots = _read("--client-ca", self.client_ca) if self.client_ca else None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        try:
            context.load_cert_chain(self.cert, self.key)
        except (OSError, ssl.SSLError) as cause:
            raise ConfigError(
                f"--tls-cert, --tls-key: {self.cert} and {self.key} are no PEM certificate and key"
                " that belong together"
            ) from cause
        if roots is not None:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ssl.SSLError) as cause:
                raise ConfigError(
                    f"--client-ca: {self.client_ca} has no PEM certificates"
                ) from cause
        return grpc.ssl_server_credentials(
            [pair], root_certificates=roots, require_client_auth=roots is not None
        )


def _read(flag: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as cause:
        reason = cause.strerror or type(cause).__name__
        raise ConfigError(f"{flag}: cannot read {path!r}: {reason}") from cause
