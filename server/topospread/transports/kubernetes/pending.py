"""Changes on their way from watches to the state."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, OrderedDict
from typing import TYPE_CHECKING, Final

from topospread.transports.kubernetes.facts import Absence, Fact

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.store.api import Key, Kind

Change = Fact | Absence

MOST: Final = 10_000
"""Objects that wait at most; past it watches are read no further, and the API server waits."""

PROGRESS_SECONDS: Final = 1.0
"""Between two notes of how far was read when nothing changes: a large cluster's heartbeats come
every few milliseconds, and each note is a write.
"""


class Pending:
    """The last change of each object, in the order in which objects first changed.

    Many watches add, one thread takes. What was taken counts as waiting until it is done. Beside
    the changes it is kept how far each kind was read, which also tells of events that change
    nothing: heartbeats, bookmarks.

    Args:
        most: objects that may wait.
        progress_seconds: between two takes because of what was read alone.
    """

    def __init__(self, most: int = MOST, progress_seconds: float = PROGRESS_SECONDS) -> None:
        self._most = most
        self._progress_seconds = progress_seconds
        self._turn = threading.Condition()
        self._changes: OrderedDict[Key, tuple[float, Change]] = OrderedDict()
        self._waiting: Counter[Kind] = Counter()
        self._taken: dict[Kind, float] = {}
        # By kind, what nobody was told yet; and the kinds of which somebody is being told.
        self._read: dict[Kind, str] = {}
        self._telling: set[Kind] = set()
        self._told_at = -math.inf
        self.open = True

    def add(self, change: Change) -> None:
        """Add a change, when there is room; replaces an older one of the same object."""
        with self._turn:
            while self.open and len(self._changes) >= self._most:
                self._turn.wait()
            key = change.key
            self._waiting[key.kind] += key not in self._changes
            since, _ = self._changes.get(key, (time.monotonic(), change))
            self._changes[key] = (since, change)
            self._turn.notify_all()

    def read(self, kind: Kind, version: str) -> None:
        """All changes of a kind up to a version were added."""
        with self._turn:
            self._read[kind] = version
            self._turn.notify_all()

    def take(self, most: int) -> Sequence[Change]:
        """The oldest changes; none when it is closed, or when there is only more that was read."""
        with self._turn:
            while self.open and not self._changes:
                pause = None
                if self._read:
                    pause = self._told_at + self._progress_seconds - time.monotonic()
                    if pause <= 0:
                        break
                self._turn.wait(pause)
            taken: list[Change] = []
            while self.open and self._changes and len(taken) < most:
                key, (since, change) = self._changes.popitem(last=False)
                self._waiting[key.kind] -= 1
                self._taken.setdefault(key.kind, since)
                taken.append(change)
            self._turn.notify_all()
            return taken

    def observed(self) -> Mapping[Kind, str]:
        """How far each kind was read, of those of which all changes were taken; told once."""
        with self._turn:
            told = {kind: at for kind, at in self._read.items() if not self._waiting[kind]}
            for kind in told:
                del self._read[kind]
            if told:
                self._told_at = time.monotonic()
            self._telling |= told.keys()
            return told

    def done(self) -> None:
        """What was taken is written, or given up."""
        with self._turn:
            self._taken.clear()
            self._telling.clear()
            self._turn.notify_all()

    def drop(self, kind: Kind) -> None:
        """Forget what waits of a kind, and wait for what was taken: a list says it all."""
        with self._turn:
            for key in [key for key in self._changes if key.kind is kind]:
                del self._changes[key]
            self._waiting[kind] = 0
            self._read.pop(kind, None)
            self._turn.notify_all()
            while self.open and (kind in self._taken or kind in self._telling):
                self._turn.wait()

    def age(self, kind: Kind) -> float:
        """Seconds that the oldest change of a kind has waited; 0 when none waits."""
        with self._turn:
            since = [self._taken[kind]] if kind in self._taken else []
            for key, (added, _) in self._changes.items():
                if key.kind is kind:
                    since.append(added)
                    break
            return time.monotonic() - min(since) if since else 0.0

    def close(self) -> None:
        """Let everybody go who waits; nothing is taken any more."""
        with self._turn:
            self.open = False
            self._turn.notify_all()
