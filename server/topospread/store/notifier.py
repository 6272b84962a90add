"""Notifies threads that wait for news of a cluster."""

from __future__ import annotations

import selectors
import socket
from contextlib import contextmanager
from threading import Event, Lock
from typing import TYPE_CHECKING, Generic

from typing_extensions import TypeVar, override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class Waiter:
    """A waiting thread that only this process wakes: it costs no open file.

    Attributes:
        seen: the state of the cluster that the thread has seen.
    """

    def __init__(self) -> None:
        self.seen: object = None
        self._woken = False
        self._notified = Event()

    def wait(self, seconds: float) -> bool:
        """Wait for a notification or until the time is over; returns whether there was one."""
        notified = self._notified.wait(max(0.0, seconds))
        self.drain()
        return notified

    def woken(self) -> bool:
        """Whether the wait was asked to end; news alone does not do that."""
        return self._woken

    def reset(self, seen: object, *, woken: bool) -> None:
        """Prepare for another thread."""
        self.drain()
        self.seen = seen
        self._woken = woken

    def wake(self) -> None:
        """Ask for the wait to end."""
        self._woken = True
        self.notify()

    def notify(self) -> None:
        """End one wait; a notification before the wait begins counts, too."""
        self._notified.set()

    def drain(self) -> None:
        """Forget the notifications so far."""
        self._notified.clear()

    def close(self) -> None:
        """Release resources."""


class SocketWaiter(Waiter):
    """A waiting thread that can wait for a network connection at the same time.

    It waits on a socket pair; waking it is one byte that never blocks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        # Of these two or three sockets; epoll would be one more open file.
        self._selector = selectors.PollSelector()
        self._selector.register(self._reader, selectors.EVENT_READ)

    @override
    def wait(self, seconds: float) -> bool:
        """Wait for a notification or until the time is over; returns whether there was one."""
        return self._reader in self._ready(seconds)

    def wait_for(self, connection: socket.socket, seconds: float) -> bool:
        """Wait for a notification, for bytes to read on a connection, or until the time is over.

        Returns:
            Whether the connection has bytes to read.
        """
        self._selector.register(connection, selectors.EVENT_READ)
        try:
            return connection in self._ready(seconds)
        finally:
            self._selector.unregister(connection)

    @override
    def notify(self) -> None:
        try:
            self._writer.send(b"!")
        except OSError:
            # Full: it will wake up anyway. Closed: no thread waits there any more.
            return

    @override
    def drain(self) -> None:
        try:
            while self._reader.recv(64):
                pass
        except BlockingIOError:
            return

    @override
    def close(self) -> None:
        self._selector.close()
        self._reader.close()
        self._writer.close()

    def _ready(self, seconds: float) -> list[object]:
        ready: list[object] = [
            chosen.fileobj for chosen, _ in self._selector.select(max(0.0, seconds))
        ]
        if self._reader in ready:
            self.drain()
        return ready


WaiterT = TypeVar("WaiterT", bound=Waiter, default=SocketWaiter)


class Notifier(Generic[WaiterT]):
    """The waiters of one store object, by cluster."""

    def __init__(self, make: Callable[[], WaiterT]) -> None:
        self._make = make
        self._lock = Lock()
        self._waiting: dict[str, set[WaiterT]] = {}
        self._missed: set[str] = set()
        self._spare: list[WaiterT] = []
        self.closed = False

    @contextmanager
    def waiting(self, cluster: str, seen: object = None) -> Iterator[WaiterT]:
        """Register the calling thread; a wake() that found no waiter is delivered at once.

        Args:
            cluster: whose news it waits for.
            seen: the state of the cluster that it has seen, for notify_behind().
        """
        with self._lock:
            waiter = self._spare.pop() if self._spare else self._make()
            waiter.reset(seen, woken=self.closed or cluster in self._missed)
            self._missed.discard(cluster)
            self._waiting.setdefault(cluster, set()).add(waiter)
        try:
            yield waiter
        finally:
            with self._lock:
                others = self._waiting[cluster]
                others.discard(waiter)
                if not others:
                    del self._waiting[cluster]
                if self.closed:
                    waiter.close()
                else:
                    self._spare.append(waiter)

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

    def notify_behind(self, heads: Mapping[str, object]) -> None:
        """Notify the waiters that have seen another state of their cluster than its head."""
        with self._lock:
            for cluster, waiters in self._waiting.items():
                head = heads.get(cluster)
                for waiter in waiters:
                    if waiter.seen != head:
                        waiter.notify()

    def close(self) -> None:
        """End all waits, now and later."""
        with self._lock:
            self.closed = True
            for waiters in self._waiting.values():
                for waiter in waiters:
                    waiter.wake()
            for waiter in self._spare:
                waiter.close()
            self._spare.clear()
