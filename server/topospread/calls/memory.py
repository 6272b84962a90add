"""What the server keeps for callers: bounded by bytes for each owner, and by time.

:class:`MemoryGuard` counts the bytes, :class:`Sweeper` ends the calls whose peers keep it waiting.
"""

from __future__ import annotations

import logging
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self, TypeVar

from topospread.errors import DeadlineExceeded, QueueFull, ShuttingDown, TooLarge, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from topospread.errors import TopospreadError

    End = Callable[[TopospreadError], object]
    """Ends a call, from a thread that does not carry it out."""

_T = TypeVar("_T")

LOG: Final = logging.getLogger(__name__)

SETTING: Final = "--max-held-bytes"

STREAMS: Final = object()
"""All streams of answers, as one owner of what is kept for them."""

CHECK_SECONDS: Final = 0.25
"""Seconds between two looks at what waits for callers."""

READ_SECONDS: Final = 30.0
"""In which a request must have come as a whole."""

WANTED_SECONDS: Final = 1.0
"""The same while other calls wait for the thread that waits for it, or many are being read; and for
answers while many wait to be taken."""

MANY_READ: Final = 16
"""Requests that are being read at once, past which the older ones are ended: what has come of each
is in memory, up to the largest request."""

PENDING_SECONDS: Final = 30.0
"""In which a caller must have taken an answer, or sent the next message of a stream."""

MAX_PENDING: Final = 8192
"""Calls whose answers are not taken yet, however small these are."""

MANY_PENDING: Final = MAX_PENDING // 2
"""The same, past which the older ones are ended, so that a few callers do not keep all others out
for longer than that takes."""

GRACE_SECONDS: Final = 0.7
"""Seconds that a stream whose caller is not valid any more has to end by itself, saying why."""


class Held:
    """Bytes that are kept for owners; a context manager that gives them back."""

    __slots__ = ("_guard", "owners", "size")

    def __init__(self, guard: MemoryGuard, owners: Sequence[Hashable]) -> None:
        self._guard = guard
        self.owners = owners
        self.size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.release()

    def resize(self, size: int) -> None:
        """Keep so many bytes from now on.

        Raises:
            LimitExceeded: there is no room for them; what was held stays.
        """
        self._guard.resize(self, size)

    def add(self, size: int) -> None:
        """Keep so many bytes more; raises as :meth:`resize`."""
        self.resize(self.size + size)

    def release(self) -> None:
        """Keep no more."""
        if self.size:
            self.resize(0)


class MemoryGuard:
    """The bytes that are kept for callers: answers that they have not taken, lists they send.

    Args:
        most: bytes for all callers; one may have half of them, and so may all streams of answers
            together, so that watches that nobody reads leave room for writes.

    Attributes:
        total: bytes that are kept now.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._owners: dict[Hashable, int] = {}
        self.total = 0

    def hold(self, owner: Hashable, size: int = 0, *, streaming: bool = False) -> Held:
        """Keep bytes for an owner, a credential or else a connection; for a stream of answers too.

        Raises:
            LimitExceeded: there is no room for them.
        """
        held = Held(self, (owner, STREAMS) if streaming else (owner,))
        if size:
            held.resize(size)
        return held

    def resize(self, held: Held, size: int) -> None:
        """Keep so many bytes for an owner from now on: see :meth:`Held.resize`."""
        more, share = size - held.size, self._most // 2
        if more > 0 and size > share:
            raise TooLarge(f"more than {share} bytes in one call ({SETTING})", SETTING, share)
        with self._lock:
            kept = {owner: self._owners.get(owner, 0) + more for owner in held.owners}
            for owner, own in kept.items():
                if more > 0 and own > share:
                    whose = "all streams" if owner is STREAMS else "this caller's calls"
                    raise _full(f"{whose}: more than {share}")
            if more > 0 and self.total + more > self._most:
                raise _full("all calls: more")
            self.total += more
            held.size = size
            self._owners.update(kept)
            for owner in held.owners:
                if not kept[owner]:
                    del self._owners[owner]


def _full(whose: str) -> QueueFull:
    return QueueFull(f"too much is kept for {whose} bytes ({SETTING}): try again later")


class Sweeper:
    """Ends what waits for its caller for too long: one thread, four times a second.

    Attributes:
        reading: since when requests are being read, how they are ended, and whether others wait
            for the threads that wait for them; the oldest first.
        pending: since when callers have kept answers or a stream waiting, and how their calls are
            ended; the oldest first.
        streams: whether the callers of open streams are valid, and how the streams are ended, also
            while they are idle.
        stopping: the server stops, and waits no longer for requests.
        also: is called each time, with the monotonic clock's time.
    """

    def __init__(self) -> None:
        self.reading: dict[object, tuple[float, End, Callable[[], bool]]] = {}
        self.pending: dict[object, tuple[float, End]] = {}
        self.streams: dict[object, tuple[Callable[[], bool], End]] = {}
        self.stopping = False
        self.also: list[Callable[[float], None]] = []
        self._invalid: dict[object, float] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()

    def read(self, end: End, wanted: Callable[[], bool]) -> AbstractContextManager[None]:
        """Around the wait of a thread, which other calls may want, for a request."""
        return _entry(self.reading, (time.monotonic(), end, wanted))

    def wait(self, end: End) -> AbstractContextManager[None]:
        """Around a wait for the caller of a stream, to send or to take a message."""
        return _entry(self.pending, (time.monotonic(), end))

    def _run(self) -> None:
        while not self._closing.wait(CHECK_SECONDS):
            try:
                self.sweep(time.monotonic())
            except Exception:
                LOG.exception("calls cannot be looked through")

    def sweep(self, now: float) -> None:
        """End what has waited for too long by now, on the monotonic clock."""
        for left, key, (began, ending, wanted) in _counted_down(self.reading):
            hurry = left > MANY_READ or self.stopping or wanted()
            seconds = WANTED_SECONDS if hurry else READ_SECONDS
            if began < now - seconds:
                late = QueueFull(f"the request did not come within {seconds:g} s: try again")
                self._end(self.reading, key, ending, ShuttingDown() if self.stopping else late)
        for left, key, (began, end) in _counted_down(self.pending):
            seconds = WANTED_SECONDS if left > MANY_PENDING else PENDING_SECONDS
            if began > now - seconds:
                break
            text = f"the caller kept the server waiting for {seconds:g} s"
            self._end(self.pending, key, end, DeadlineExceeded(text))
        streams = self.streams.copy()
        self._invalid = {
            key: self._invalid.get(key, now)
            for key, (valid, _) in streams.items()
            if not _holds(valid)
        }
        for key, since in self._invalid.items():
            if now - since >= GRACE_SECONDS:
                self._end(self.streams, key, streams[key][1], Unauthenticated())
        for look in self.also:
            look(now)

    @staticmethod
    def _end(
        entries: Mapping[object, object], key: object, end: End, error: TopospreadError
    ) -> None:
        if key not in entries:
            return
        try:
            end(error)
        except Exception:
            LOG.exception("a call cannot be ended")


def _counted_down(entries: dict[object, _T]) -> Iterator[tuple[int, object, _T]]:
    """The entries that there are now, the oldest first, each with how many it and the newer are."""
    now = entries.copy()
    for left, (key, value) in zip(range(len(now), 0, -1), now.items(), strict=True):
        yield left, key, value


@contextmanager
def _entry(entries: dict[object, _T], value: _T) -> Iterator[None]:
    key = object()
    entries[key] = value
    try:
        yield
    finally:
        entries.pop(key, None)


def _holds(valid: Callable[[], bool]) -> bool:
    """Whether a caller is valid; one that cannot be checked is not."""
    try:
        return valid()
    except Exception:
        LOG.exception("a stream's caller cannot be checked")
        return False
