"""A TCP way to a server of one's own, which carries what it is given as a subclass says."""

from __future__ import annotations

import socket
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self

from typing_extensions import override

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType


class Relay(ABC):
    """Listens from its making to leaving it; each connection has threads of its own.

    Args:
        target: host:port of the server.

    Attributes:
        address: to connect to instead of the server's.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Closing alone does not wake the thread that accepts.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE)

    @abstractmethod
    def _there(self, caller: socket.socket, server: socket.socket) -> None:
        """Carry what the caller says, until one side ends; then see that the other one does."""

    @abstractmethod
    def _back(self, server: socket.socket, caller: socket.socket) -> None:
        """Carry what the server says, likewise."""

    def _run(self, work: Callable[..., None], *arguments: Any) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()
        return thread

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                try:
                    server = socket.create_connection(self._target)
                except OSError:
                    caller.close()
                    continue
                self._run(self._carry_both, caller, server)

    def _carry_both(self, caller: socket.socket, server: socket.socket) -> None:
        with caller, server:
            back = self._run(self._back, server, caller)
            self._there(caller, server)
            back.join(PATIENCE)


class WatchedRelay(Relay):
    """Carries all, and shows it to a subclass first.

    Attributes:
        url: of a Redis behind it.
    """

    def __init__(self, target: str) -> None:
        super().__init__(target)
        self.url = f"redis://{self.address}/0"

    def asked(self, content: bytes) -> None:
        """Look at what the caller says."""

    def answers(self, content: bytes) -> bool:
        """Look at what the server says; returns whether the caller gets it, or else is left."""
        del content
        return True

    @override
    def _there(self, caller: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while content := caller.recv(1 << 16):
                self.asked(content)
                server.sendall(content)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)

    @override
    def _back(self, server: socket.socket, caller: socket.socket) -> None:
        with suppress(OSError):
            while (content := server.recv(1 << 16)) and self.answers(content):
                caller.sendall(content)
        with suppress(OSError):
            caller.shutdown(socket.SHUT_RDWR)
