"""PEM files of TLS listeners: read, checked, and made a context of current practice.

gRPC has a TLS library of its own, whose defaults are the same: TLS 1.2 and 1.3, forward secrecy and
authenticated encryption only.
"""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Final

from topospread.config.loading import read_config
from topospread.errors import ConfigError

CIPHERS: Final = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Of TLS 1.2; those of TLS 1.3 are all good."""


@dataclass(frozen=True, slots=True)
class PemFiles:
    """The files of a listener.

    Attributes:
        cert: the server's certificate chain.
        key: its private key.
        client_ca: clients must show a certificate signed by one of these; empty: none is asked for.
    """

    cert: str
    key: str
    client_ca: str = ""

    def paths(self) -> tuple[str, ...]:
        """The paths of the files that are configured."""
        return tuple(path for path in (self.cert, self.key, self.client_ca) if path)

    def context(self) -> ssl.SSLContext:
        """A context for a server.

        Raises:
            ConfigError: one of the files cannot be read, or is not what it should be.
        """
        for path in self.paths():
            read_config(path)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_ciphers(CIPHERS)
        # A resumed session would pass by certificates that have changed since it began.
        context.options |= ssl.OP_NO_TICKET | ssl.OP_NO_RENEGOTIATION
        context.num_tickets = 0
        try:
            # Without a password OpenSSL would ask for that of an encrypted key at the terminal.
            context.load_cert_chain(self.cert, self.key, password="")
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"--tls-cert, --tls-key: {self.cert} and {self.key} are no PEM certificate and key"
                " that belong together, the key not encrypted"
            ) from error
        if self.client_ca:
            try:
                context.load_verify_locations(self.client_ca)
            except (OSError, ssl.SSLError) as error:
                raise ConfigError(
                    f"--client-ca: {self.client_ca} has no PEM certificates"
                ) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def read(self) -> Pem:
        """Read and check the files.

        Raises:
            ConfigError: one of them cannot be used, or changes while it is read.
        """
        before = self._texts()
        self.context()
        if before != self._texts():
            raise ConfigError(f"{self.cert}: it changes while it is read")
        return Pem(*(text.encode() for text in before))

    def _texts(self) -> list[str]:
        return [read_config(path) if path else "" for path in (self.cert, self.key, self.client_ca)]


@dataclass(frozen=True, slots=True)
class Pem:
    """The PEM texts of a listener; the CAs are empty when clients need no certificate."""

    cert: bytes
    key: bytes = field(repr=False)
    client_ca: bytes
