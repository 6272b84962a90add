"""Notifies threads that wait for news of a cluster."""

from __future__ import annotations

import selectors
import socket
from collections import defaultdict
from contextlib import closing, contextmanager, suppress
from itertools import chain
from threading import Event, Lock
from typing import TYPE_CHECKING, Generic

from typing_extensions import TypeVar, override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Waiter:
    """A waiting thread that only this process notifies: it costs no open file."""

    def __init__(self) -> None:
        self._woken = False
        self._notified = Event()

    def wait(self, seconds: float) -> bool:
        """Wait for a notification or until the time is over; returns whether there was one."""
        notified = self._notified.wait(max(0.0, seconds))
        self._notified.clear()
        return notified

    def woken(self) -> bool:
        """Whether the wait was asked to end; news alone does not do that."""
        return self._woken

    def wake(self) -> None:
        """Ask for the wait to end."""
        self._woken = True
        self.notify()

    def notify(self) -> None:
        """End one wait; a notification before the wait begins counts, too."""
        self._notified.set()

    def close(self) -> None:
        """Release resources."""


class SocketWaiter(Waiter):
    """A waiting thread that waits for a network connection at the same time.

    It waits on a socket pair; a notification is one byte that never blocks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def wait_for(self, connection: socket.socket, seconds: float) -> bool:
        """Wait for a notification, for bytes to read on a connection, or until the time is over.

        Returns:
            Whether the connection has bytes to read.
        """
        # Not epoll, which would be one more open file.
        with selectors.PollSelector() as selector:
            selector.register(self._reader, selectors.EVENT_READ)
            selector.register(connection, selectors.EVENT_READ)
            ready = [key.fileobj for key, _ in selector.select(max(0.0, seconds))]
        with suppress(BlockingIOError):
            while self._reader.recv(64):
                pass
        return connection in ready

    @override
    def notify(self) -> None:
        with suppress(BlockingIOError):  # Full: it is notified anyway.
            self._writer.send(b"!")

    @override
    def close(self) -> None:
        self._reader.close()
        self._writer.close()


WaiterT = TypeVar("WaiterT", bound=Waiter, default=SocketWaiter)


class Notifier(Generic[WaiterT]):
    """The waiters of one store object, by cluster."""

    def __init__(self, make: Callable[[], WaiterT]) -> None:
        self._make = make
        self._lock = Lock()
        self._waiting: defaultdict[str, set[WaiterT]] = defaultdict(set)
        self._missed: set[str] = set()
        self._closed = False

    @contextmanager
    def waiting(self, cluster: str) -> Iterator[WaiterT]:
        """Register the calling thread; a wake() that found no waiter is delivered at once."""
        with closing(self._make()) as waiter:
            with self._lock:
                self._waiting[cluster].add(waiter)
                if self._closed or cluster in self._missed:
                    waiter.wake()
                self._missed.discard(cluster)
            try:
                yield waiter
            finally:
                with self._lock:
                    self._waiting[cluster].discard(waiter)
                    if not self._waiting[cluster]:
                        del self._waiting[cluster]

    def wake(self, cluster: str) -> None:
        """End the waits for this cluster; with none under way, the next one ends at once."""
        with self._lock:
            if cluster not in self._waiting:
                self._missed.add(cluster)
            for waiter in self._waiting.get(cluster, ()):
                waiter.wake()

    def notify(self, cluster: str) -> None:
        """Let waiters look for news; they wait on when there is nothing for them."""
        with self._lock:
            for waiter in self._waiting.get(cluster, ()):
                waiter.notify()

    def notify_all(self) -> None:
        """Let all waiters look for news."""
        with self._lock:
            for waiter in chain.from_iterable(self._waiting.values()):
                waiter.notify()

    def close(self) -> None:
        """End all waits, now and later."""
        with self._lock:
            self._closed = True
            for waiter in chain.from_iterable(self._waiting.values()):
                waiter.wake()
