"""A port that several processes listen on (SO_REUSEPORT: the kernel deals out the connections)."""

from __future__ import annotations

import socket
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

from topospread.config.values import Address
from topospread.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def reserve_port(address: Address, flag: str = "--listen") -> Iterator[Address]:
    """Reserve a port for processes that will listen on it; port 0 becomes a free one.

    Args:
        address: with the port.
        flag: what it was configured by, for errors.

    The sockets are bound and never listen, so they get no connections.

    Raises:
        ConfigError: another process listens there, or it is not an address of this host.
    """
    if not hasattr(socket, "SO_REUSEPORT"):
        raise ConfigError("--workers: on this system processes cannot share a port; use 1 worker")
    # A process that shares the port already is not one of ours.
    check_free(address, flag)
    with ExitStack() as held:
        port = address.port
        with _refused(address, flag):
            for family, host in _bindable_addresses(address):
                port = _bound(held, family, host, port)
        yield Address(address.host, port)


def check_free(address: Address, flag: str = "--listen") -> None:
    """Check that one process may listen there; gRPC would log lines of its own about the error.

    Raises:
        ConfigError: another process listens there, or it is not an address of this host.
    """
    with ExitStack() as tried, _refused(address, flag):
        for family, host in _bindable_addresses(address):
            _bound(tried, family, host, address.port, shared=False)


@contextmanager
def _refused(address: Address, flag: str) -> Iterator[None]:
    try:
        yield
    except OSError as cause:
        raise ConfigError(
            f"{flag}: cannot listen on {address}: it is taken, or not an address of this host"
        ) from cause


def _bindable_addresses(address: Address) -> list[tuple[int, str]]:
    """The address families and numbers that a host stands for and that this machine has."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    places = []
    refused: OSError | None = None
    for family, _, _, _, (host, *_) in found:
        try:
            with ExitStack() as tried:
                _bound(tried, family, str(host), 0)
            places.append((int(family), str(host)))
        except OSError as error:
            refused = error
    if not places and refused is not None:
        raise refused
    return places


def _bound(opened: ExitStack, family: int, host: str, port: int, *, shared: bool = True) -> int:
    """Bind a socket that stays open as long as the stack; returns the port."""
    holder = opened.enter_context(socket.socket(family, socket.SOCK_STREAM))
    # Connections of a former process that linger are no reason to refuse.
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    if family == socket.AF_INET6:
        holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    holder.bind((host, port))
    bound: int = holder.getsockname()[1]
    return bound
