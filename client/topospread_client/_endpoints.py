"""Where the servers of a target listen, as gRPC would find them."""

from __future__ import annotations

import os
import socket
import threading
from typing import Final, NamedTuple

_MAX_PORT: Final = 65535
_PORT_DIGITS: Final = len(str(_MAX_PORT))


class Endpoint(NamedTuple):
    """Where one server of an address listens.

    Attributes:
        host: a name or an IP address; the path of a Unix socket.
        port: None of a Unix socket.
    """

    host: str
    port: int | None

    @property
    def text(self) -> str:
        if self.port is None:
            return self.host
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def endpoints(address: str) -> list[Endpoint]:
    """Where the servers of a target listen; none where only gRPC can tell."""
    scheme, colon, rest = address.partition(":")
    if colon and scheme == "unix":
        return [Endpoint(rest.removeprefix("//"), None)]
    if colon and scheme == "unix-abstract":
        return [Endpoint(f"\0{rest}", None)]
    if "://" in address and scheme not in {"dns", "ipv4", "ipv6"}:
        return []
    if colon and scheme in {"dns", "ipv4", "ipv6"} and not rest.isdigit():
        address = rest.rpartition("/")[2]
    each = address.split(",") if scheme in {"ipv4", "ipv6"} else [address]
    return [_endpoint(one) for one in each]


def is_port(text: str) -> bool:
    """Whether a text is the number of a port."""
    digits = text.isascii() and text.isdigit() and len(text) <= _PORT_DIGITS
    return digits and int(text) <= _MAX_PORT


def _endpoint(text: str) -> Endpoint:
    host, _, port = text.rpartition(":")
    if not is_port(port) or (":" in host and not host.endswith("]")):
        host, port = text, "443"  # gRPC's default
    return Endpoint(host.strip("[]"), int(port))


def has_proxy(endpoint: Endpoint) -> bool:
    """Whether gRPC may reach an endpoint by an HTTP proxy, which it looks up in the environment."""
    if endpoint.port is None or not any(
        os.environ.get(name) for name in ("grpc_proxy", "https_proxy", "http_proxy")
    ):
        return False
    direct = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or ""  # noqa: SIM112 # gRPC's
    suffixes = [each.strip() for each in direct.split(",") if each.strip()]
    return not any(endpoint.host.endswith(suffix) for suffix in suffixes)


def resolve(host: str, port: int, timeout: float) -> list[tuple[str, int]]:
    """Addresses of a host; in a thread, because resolvers take their time and cannot be ended."""
    found: list[tuple[str, int]] = []
    failed: list[OSError] = []

    def resolve() -> None:
        try:
            infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            found.extend((str(info[4][0]), port) for info in infos)
        except (OSError, UnicodeError) as error:
            failed.append(error if isinstance(error, OSError) else OSError("not a host name"))

    thread = threading.Thread(target=resolve, name="topospread-resolve", daemon=True)
    thread.start()
    thread.join(timeout)
    if failed:
        raise failed[0]
    if not found:
        raise TimeoutError
    return found
