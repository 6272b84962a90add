"""How a server is reached: address, TLS, time-outs, and the retry policy that gRPC carries out."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Final, TypeAlias

import grpc
import grpc.aio

from topospread_client import rpcs
from topospread_client.errors import BadConnection
from topospread_client.token import Token

DEFAULT_TIMEOUT: Final = 10.0
"""Seconds for one call: far above any answer's time, short enough for a person to wait for."""

DEFAULT_BULK_TIMEOUT: Final = 600.0
"""Seconds for a Replace: a large cluster is written in many pieces."""

MAX_MESSAGE_BYTES: Final = 128 * 1024 * 1024
"""Largest answer taken: a page of objects or the names of tens of thousands of nodes."""

_RETRY_POLICY: Final = {
    # gRPC itself allows at most five attempts.
    "maxAttempts": 5,
    "initialBackoff": "0.1s",
    "maxBackoff": "1s",
    "backoffMultiplier": 2,
    # A server that stops answers CANCELLED to calls that reach it in its last millisecond; a call
    # that this side cancels is not repeated.
    "retryableStatusCodes": ["UNAVAILABLE", "CANCELLED"],
}

_FilePath: TypeAlias = str | PathLike[str]


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS options; all files are PEM.

    Attributes:
        ca: certificates that the server's must lead to; None trusts gRPC's built-in roots.
        cert: this client's certificate chain, where the server asks for one; needs `key`.
        key: the private key of `cert`.
        server_name: the name that the server's certificate is checked for; None takes the address'.
    """

    ca: _FilePath | None = None
    cert: _FilePath | None = None
    key: _FilePath | None = None
    server_name: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Read the files.

        Raises:
            BadConnection: a file is missing or not PEM, or one of `cert` and `key` is given alone.
        """
        if (self.cert is None) != (self.key is None):
            given, missing = ("cert", "key") if self.key is None else ("key", "cert")
            raise BadConnection(f"TLS: a {given} is given without its {missing}: give both or none")
        return grpc.ssl_channel_credentials(
            root_certificates=_read_pem(self.ca, "CA certificates"),
            private_key=_read_pem(self.key, "client key"),
            certificate_chain=_read_pem(self.cert, "client certificate"),
        )


@dataclass(frozen=True, slots=True)
class Connection:
    """Where and how to connect.

    Attributes:
        address: ``HOST:PORT`` or any gRPC target (``dns:///…``, ``unix:///…``).
        tls: None speaks plain text.
        insecure: allow plain text to an address that is not this machine's own.
        retries: whether calls are repeated when the server was out of reach: those that change
            nothing, Place, Reserve, Hold and Leave, an Apply whose objects all have a
            resourceVersion, and a Release that names the reservation.
        token: shown with each call, where the server asks who calls.
        token_file: a file with the token instead; read again when it changes.
    """

    address: str
    tls: Tls | None = None
    insecure: bool = False
    retries: bool = True
    token: str | None = field(default=None, repr=False)
    token_file: _FilePath | None = None

    def shown(self) -> Token:
        """What tells the server who calls.

        Raises:
            BadConnection: there is no token where one should be.
        """
        return Token(self.token, self.token_file)

    def open(self) -> grpc.Channel:
        """A channel; it connects at the first call.

        Raises:
            BadConnection: the options cannot be used.
        """
        self._check()
        if self.tls is None:
            return grpc.insecure_channel(self.address, options=self._options())
        return grpc.secure_channel(self.address, self.tls.credentials(), options=self._options())

    def open_aio(self) -> grpc.aio.Channel:
        """The same for asyncio; must be called where an event loop runs."""
        self._check()
        if self.tls is None:
            return grpc.aio.insecure_channel(self.address, options=self._options())
        credentials = self.tls.credentials()
        return grpc.aio.secure_channel(self.address, credentials, options=self._options())

    def _check(self) -> None:
        if not self.address.strip():
            raise BadConnection("the server's address is empty: write HOST:PORT")
        if "://" not in self.address and ":" not in self.address:
            raise BadConnection(f"{self.address} has no port: write HOST:PORT")
        if self.tls is None and not self.insecure and not is_local(self.address):
            raise BadConnection(
                f"{self.address} is not on this machine and no TLS is set up: "
                "give TLS options, or ask for insecure plain text explicitly"
            )

    def _options(self) -> list[tuple[str, str | int]]:
        options: list[tuple[str, str | int]] = [
            ("grpc.primary_user_agent", "topospread-client"),
            ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
            ("grpc.service_config", service_config(retries=self.retries)),
        ]
        if is_local(self.address):
            options.append(("grpc.enable_http_proxy", 0))
        if self.tls is not None and self.tls.server_name is not None:
            options.append(("grpc.ssl_target_name_override", self.tls.server_name))
        return options


def service_config(*, retries: bool) -> str:
    """The gRPC service config: calls that may be made twice are repeated, others are not."""
    if not retries:
        return "{}"
    safe = [{"service": rpc.service, "method": rpc.method} for rpc in rpcs.ALL if rpc.safe]
    return json.dumps({"methodConfig": [{"name": safe, "retryPolicy": _RETRY_POLICY}]})


def is_local(address: str) -> bool:
    """Whether plain text to this address stays on this machine."""
    scheme, colon, rest = address.partition(":")
    if colon and scheme in {"unix", "unix-abstract"}:
        return True
    if colon and scheme in {"dns", "ipv4", "ipv6"} and not rest.isdigit():
        address = rest.rpartition("/")[2]
    host = address.rpartition(":")[0] if _has_port(address) else address
    host = host.strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _has_port(address: str) -> bool:
    return address.rpartition(":")[2].isdigit() and (address.count(":") == 1 or "]:" in address)


def _read_pem(path: _FilePath | None, what: str) -> bytes | None:
    if path is None:
        return None
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise BadConnection(f"TLS: cannot read the {what} {path}: {error.strerror}") from error
    if b"-----BEGIN " not in content:
        raise BadConnection(f"TLS: the {what} {path} is not a PEM file")
    return content
