"""Certificates of servers and callers, issued into the files of one server."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, Any

import grpc
import trustme

if TYPE_CHECKING:
    from pathlib import Path

Shown = tuple[bytes, bytes] | tuple[None, None]
"""Key and certificate chain of a caller, or nothing."""

NOTHING: Shown = (None, None)


class Mint:
    """Issues certificates into the files of one server.

    Attributes:
        tls: settings that name the server's own certificate.
        flags: the same, and that callers must show one.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        names = ("cert", "key", "ca")
        self.cert, self.key, self.ca = (str(folder / f"{name}.pem") for name in names)
        self.tls = {"tls_cert": self.cert, "tls_key": self.key}
        self.flags = {**self.tls, "client_ca": self.ca}
        self.authority = self.renew()

    def renew(self) -> trustme.CA:
        """Another authority, with certificates of its own; returns it."""
        self.authority = trustme.CA()
        issued = self.authority.issue_cert("127.0.0.1")
        self.put("key.pem", issued.private_key_pem.bytes())
        self.put("cert.pem", b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        self.put("ca.pem", self.authority.cert_pem.bytes())
        return self.authority

    def put(self, name: str, content: bytes) -> None:
        """Exchange a file in one step."""
        beside = self._folder / "new"
        beside.write_bytes(content)
        beside.rename(self._folder / name)

    def client(
        self, *names: str, authority: trustme.CA | None = None, **more: Any
    ) -> tuple[bytes, bytes]:
        """Key and certificate of a caller."""
        issued = (authority or self.authority).issue_cert(*names or ("me.example.org",), **more)
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        return issued.private_key_pem.bytes(), chain

    def credentials(
        self, shown: Shown = NOTHING, *, trusted: trustme.CA | None = None
    ) -> grpc.ChannelCredentials:
        """What a caller has who trusts this authority, or another one."""
        return grpc.ssl_channel_credentials((trusted or self.authority).cert_pem.bytes(), *shown)

    def context(
        self, shown: Shown = NOTHING, *, trusted: trustme.CA | None = None
    ) -> ssl.SSLContext:
        """The same for HTTP."""
        context = ssl.create_default_context()
        (trusted or self.authority).configure_trust(context)
        key, chain = shown
        if key is not None and chain is not None:
            file = self._folder / "shown.pem"
            file.write_bytes(key + chain)
            context.load_cert_chain(file)
        return context
