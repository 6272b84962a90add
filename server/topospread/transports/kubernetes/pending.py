"""Changes on their way from watches to the state."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from topospread.transports.kubernetes.facts import Absence, Fact

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.api import Key, Kind

Change = Fact | Absence

MOST: Final = 10_000
"""Objects that wait at most; past it watches are read no further, and the API server waits."""


class Pending:
    """The last change of each object, in the order in which objects first changed.

    Many watches add, one thread takes. What was taken counts as waiting until it is done.
    """

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._turn = threading.Condition()
        self._changes: OrderedDict[Key, tuple[float, Change]] = OrderedDict()
        self._taken: dict[Kind, float] = {}
        self._open = True

    def add(self, change: Change) -> None:
        """Add a change, when there is room; replaces an older one of the same object."""
        with self._turn:
            while self._open and len(self._changes) >= self._most:
                self._turn.wait()
            since, _ = self._changes.get(change.key, (time.monotonic(), change))
            self._changes[change.key] = (since, change)
            self._turn.notify_all()

    def take(self, most: int) -> Sequence[Change]:
        """The oldest changes, at least one; none only when it is closed."""
        with self._turn:
            while self._open and not self._changes:
                self._turn.wait()
            taken: list[Change] = []
            while self._open and self._changes and len(taken) < most:
                key, (since, change) = self._changes.popitem(last=False)
                self._taken.setdefault(key.kind, since)
                taken.append(change)
            self._turn.notify_all()
            return taken

    def done(self) -> None:
        """What was taken is written, or given up."""
        with self._turn:
            self._taken.clear()
            self._turn.notify_all()

    def drop(self, kind: Kind) -> None:
        """Forget what waits of a kind, and wait for what was taken: a list says it all."""
        with self._turn:
            for key in [key for key in self._changes if key.kind is kind]:
                del self._changes[key]
            self._turn.notify_all()
            while self._open and kind in self._taken:
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
            self._open = False
            self._turn.notify_all()
