"""The queue of changes between the watches and the writer."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final

from topospread.kubernetes.objects import DeletedObject, ObservedObject

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.store.model import Key, Kind

Change = ObservedObject | DeletedObject

MAX_OBJECTS: Final = 10_000
"""Objects that wait at most; past it watches are read no further, and the API server waits."""

PROGRESS_SECONDS: Final = 1.0
"""Between two writes of how far was read when nothing changes: a large cluster's heartbeats come
every few milliseconds, and each would be a write.
"""

GATHER_SECONDS: Final = 0.02
"""From one take to the next: as long as replicas gather what was written. Each event of a burst
would else be a write of its own, which costs more than the event and voids a place that is sought
in its namespace. What comes alone does not wait.
"""


class DeltaQueue:
    """The last change of each object, in the order in which objects first changed.

    Many watches add, one thread takes. What was taken counts as waiting until it is done. The queue
    also has the resourceVersion up to which each kind was read, which advances with events that
    change nothing: heartbeats, bookmarks.

    Args:
        progress_seconds: between two takes because of what was read alone.
        gather_seconds: between two takes of fewer changes than there may be.
    """

    def __init__(
        self,
        max_objects: int = MAX_OBJECTS,
        progress_seconds: float = PROGRESS_SECONDS,
        gather_seconds: float = GATHER_SECONDS,
    ) -> None:
        self._max_objects = max_objects
        self._progress_seconds = progress_seconds
        self._gather_seconds = gather_seconds
        self._took_at = -math.inf
        lock = threading.RLock()
        self._changed = threading.Condition(lock)
        # Is not notified of each change, which would only wake the writer.
        self._gathered = threading.Condition(lock)
        self._wanted = 0
        self._changes: OrderedDict[Key, tuple[float, Change]] = OrderedDict()
        self._waiting: Counter[Kind] = Counter()
        self._taken: dict[Kind, float] = {}
        # By kind, versions not reported yet; and the kinds whose version is being written.
        self._read: dict[Kind, str] = {}
        self._reporting: set[Kind] = set()
        self._reported_at = -math.inf
        self.open = True

    def add(self, change: Change) -> None:
        """Add a change, when there is room; replaces an older one of the same object."""
        with self._changed:
            while self.open and len(self._changes) >= self._max_objects:
                self._changed.wait()
            key = change.key
            self._waiting[key.kind] += key not in self._changes
            since, _ = self._changes.get(key, (time.monotonic(), change))
            self._changes[key] = (since, change)
            self._changed.notify_all()
            if len(self._changes) >= self._wanted:
                self._gathered.notify_all()

    def read(self, kind: Kind, version: str) -> None:
        """All changes of a kind up to a version were added."""
        with self._changed:
            self._read[kind] = version
            self._changed.notify_all()

    def unread(self, kind: Kind) -> None:
        """Forget up to where a kind was read, and wait for what is being reported of it."""
        with self._changed:
            self._read.pop(kind, None)
            while self.open and kind in self._reporting:
                self._changed.wait()

    def take(self, most: int) -> Sequence[Change]:
        """The oldest changes; none when it is closed, or when there is only more that was read."""
        with self._changed:
            while self.open and not self._changes:
                pause = None
                if self._read:
                    pause = self._reported_at + self._progress_seconds - time.monotonic()
                    if pause <= 0:
                        break
                self._changed.wait(pause)
            self._gather(most)
            taken: list[Change] = []
            while self.open and self._changes and len(taken) < most:
                key, (since, change) = self._changes.popitem(last=False)
                self._waiting[key.kind] -= 1
                self._taken.setdefault(key.kind, since)
                taken.append(change)
            self._changed.notify_all()
            return taken

    def _gather(self, most: int) -> None:
        """Let changes come together that follow on what was taken a moment ago."""
        ends = self._took_at + self._gather_seconds
        self._wanted = min(most, self._max_objects)
        while self.open and 0 < len(self._changes) < self._wanted:
            if (left := ends - time.monotonic()) <= 0:
                break
            self._gathered.wait(left)
        self._took_at = time.monotonic()

    def observed(self) -> Mapping[Kind, str]:
        """The version read of each kind of which all changes were taken; each version once."""
        with self._changed:
            reported = {kind: at for kind, at in self._read.items() if not self._waiting[kind]}
            for kind in reported:
                del self._read[kind]
            if reported:
                self._reported_at = time.monotonic()
            self._reporting |= reported.keys()
            return reported

    def done(self) -> None:
        """Note that the changes taken last are written, or given up."""
        with self._changed:
            self._taken.clear()
            self._reporting.clear()
            self._changed.notify_all()

    def drop(self, kind: Kind) -> None:
        """Forget what waits of a kind, and wait for what was taken: a list says it all."""
        with self._changed:
            for key in [key for key in self._changes if key.kind is kind]:
                del self._changes[key]
            self._waiting[kind] = 0
            self._read.pop(kind, None)
            self._changed.notify_all()
            while self.open and (kind in self._taken or kind in self._reporting):
                self._changed.wait()

    def age(self, kind: Kind) -> float:
        """Seconds that the oldest change of a kind has waited; 0 when none waits."""
        with self._changed:
            since = [self._taken[kind]] if kind in self._taken else []
            for key, (added, _) in self._changes.items():
                if key.kind is kind:
                    since.append(added)
                    break
            return time.monotonic() - min(since) if since else 0.0

    def close(self) -> None:
        """Wake all waiting threads; nothing is taken any more."""
        with self._changed:
            self.open = False
            self._changed.notify_all()
            self._gathered.notify_all()
