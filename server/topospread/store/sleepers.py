"""Threads that wait for news of a cluster, and how others wake them."""

from __future__ import annotations

import selectors
import socket
from contextlib import contextmanager
from threading import Event, Lock
from typing import TYPE_CHECKING, Generic

from typing_extensions import TypeVar, override

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


class LocalSleeper:
    """One waiting thread, which only this process wakes: it costs no open file.

    Attributes:
        at: what the thread has seen of its cluster.
    """

    def __init__(self) -> None:
        self.at: object = None
        self._woken = False
        self._rung = Event()

    def wait(self, seconds: float) -> bool:
        """Wait until rung or the time is over; returns whether it rang."""
        rang = self._rung.wait(max(0.0, seconds))
        self.drain()
        return rang

    def woken(self) -> bool:
        """Whether somebody asked for the wait to end; news alone does not."""
        return self._woken

    def begin(self, at: object, *, woken: bool) -> None:
        """Make ready for another thread."""
        self.drain()
        self.at = at
        self._woken = woken

    def wake(self) -> None:
        """Ask for the wait to end."""
        self._woken = True
        self.ring()

    def ring(self) -> None:
        """End one wait; a ring before the wait begins counts, too."""
        self._rung.set()

    def drain(self) -> None:
        """Forget the rings so far."""
        self._rung.clear()

    def close(self) -> None:
        """Give back what it holds."""


class Sleeper(LocalSleeper):
    """One waiting thread, which can wait for a network connection at the same time.

    So it waits on a socket pair; waking it is one byte that never blocks.
    """

    def __init__(self) -> None:
        super().__init__()
        self._ear, self._bell = socket.socketpair()
        self._ear.setblocking(False)
        self._bell.setblocking(False)
        # Of these two or three sockets; epoll would be one more open file.
        self._selector = selectors.PollSelector()
        self._selector.register(self._ear, selectors.EVENT_READ)

    @override
    def wait(self, seconds: float) -> bool:
        """Wait until rung or the time is over; returns whether it rang."""
        return self._ear in self._ready(seconds)

    def wait_for(self, connection: socket.socket, seconds: float) -> bool:
        """Wait until rung, or the connection has bytes to read, or the time is over.

        Returns:
            Whether the connection has bytes to read.
        """
        self._selector.register(connection, selectors.EVENT_READ)
        try:
            return connection in self._ready(seconds)
        finally:
            self._selector.unregister(connection)

    @override
    def ring(self) -> None:
        try:
            self._bell.send(b"!")
        except OSError:
            # Full: it will wake up anyway. Closed: nobody sleeps there any more.
            return

    @override
    def drain(self) -> None:
        try:
            while self._ear.recv(64):
                pass
        except BlockingIOError:
            return

    @override
    def close(self) -> None:
        self._selector.close()
        self._ear.close()
        self._bell.close()

    def _ready(self, seconds: float) -> list[object]:
        ready: list[object] = [
            chosen.fileobj for chosen, _ in self._selector.select(max(0.0, seconds))
        ]
        if self._ear in ready:
            self.drain()
        return ready


AnySleeper = TypeVar("AnySleeper", bound=LocalSleeper, default=Sleeper)


class Sleepers(Generic[AnySleeper]):
    """All sleepers of one store object, by cluster."""

    def __init__(self, make: Callable[[], AnySleeper]) -> None:
        self._make = make
        self._lock = Lock()
        self._asleep: dict[str, set[AnySleeper]] = {}
        self._missed: set[str] = set()
        self._spare: list[AnySleeper] = []
        self.closed = False

    @contextmanager
    def sleeping(self, cluster: str, at: object = None) -> Iterator[AnySleeper]:
        """Register the calling thread; a wake that found nobody is delivered at once.

        Args:
            cluster: whose news it waits for.
            at: what it has seen of the cluster, for notify_behind().
        """
        with self._lock:
            sleeper = self._spare.pop() if self._spare else self._make()
            sleeper.begin(at, woken=self.closed or cluster in self._missed)
            self._missed.discard(cluster)
            self._asleep.setdefault(cluster, set()).add(sleeper)
        try:
            yield sleeper
        finally:
            with self._lock:
                others = self._asleep[cluster]
                others.discard(sleeper)
                if not others:
                    del self._asleep[cluster]
                if self.closed:
                    sleeper.close()
                else:
                    self._spare.append(sleeper)

    def wake(self, cluster: str) -> None:
        """End the waits for this cluster; with none under way, the next one ends at once."""
        with self._lock:
            if cluster not in self._asleep:
                self._missed.add(cluster)
            for sleeper in self._asleep.get(cluster, ()):
                sleeper.wake()

    def notify(self, cluster: str) -> None:
        """Tell of news: sleepers look, and sleep on when there is nothing for them."""
        with self._lock:
            for sleeper in self._asleep.get(cluster, ()):
                sleeper.ring()

    def notify_behind(self, heads: Mapping[str, object]) -> None:
        """Tell those of news who have seen something else of their cluster than this."""
        with self._lock:
            for cluster, sleepers in self._asleep.items():
                head = heads.get(cluster)
                for sleeper in sleepers:
                    if sleeper.at != head:
                        sleeper.ring()

    def close(self) -> None:
        """End all waits, now and later."""
        with self._lock:
            self.closed = True
            for sleepers in self._asleep.values():
                for sleeper in sleepers:
                    sleeper.wake()
            for sleeper in self._spare:
                sleeper.close()
            self._spare.clear()
