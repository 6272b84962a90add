"""A bounded queue in which callers take turns."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Hashable

_T = TypeVar("_T")


class CallQueue(Generic[_T]):
    """Calls that wait to be carried out: each caller's in order, the callers in turn.

    So a caller with a thousand calls in the queue delays another's by one call, not by a thousand.
    Where there is no room, the newest call of the caller with the most has to go.

    Args:
        bound: calls at most.

    Attributes:
        bound: the same.
    """

    def __init__(self, bound: int) -> None:
        self.bound = bound
        self._changed = threading.Condition(threading.Lock())
        # The caller whose turn it is comes first, with its calls from the oldest on.
        self._callers: OrderedDict[Hashable, OrderedDict[_T, None]] = OrderedDict()
        self._length = 0
        self._closed = False

    def __len__(self) -> int:
        return self._length

    def put(self, caller: Hashable, call: _T) -> _T | None:
        """Add a call; returns the one that there is no room for, which may be this one."""
        with self._changed:
            own = self._callers.get(caller)
            if self._length < self.bound:
                self._length += 1
                self._changed.notify()
                refused = None
            elif not self._may_replace(own):
                return call
            else:
                largest = max(self._callers, key=lambda each: len(self._callers[each]))
                refused = self._callers[largest].popitem()[0]
                if not self._callers[largest]:
                    del self._callers[largest]
            if own is None:
                own = self._callers[caller] = OrderedDict()
            own[call] = None
        return refused

    def may_enter(self, caller: Hashable) -> bool:
        """Whether there is room for a call of this caller, or another's would have to go for it."""
        with self._changed:
            return self._length < self.bound or self._may_replace(self._callers.get(caller))

    def _may_replace(self, own: OrderedDict[_T, None] | None) -> bool:
        """Whether a caller has less than its share of a full queue; under the lock."""
        callers = len(self._callers) + (own is None)
        return (len(own) if own else 0) < self.bound // callers

    def pop(self) -> _T | None:
        """Take the next call; None when there is none."""
        with self._changed:
            return self._next()

    def get(self) -> _T | None:
        """Take the next call, and wait for it; None when the queue is closed and empty."""
        with self._changed:
            while not self._length and not self._closed:
                self._changed.wait()
            return self._next()

    def _next(self) -> _T | None:
        if not self._length:
            return None
        self._length -= 1
        caller, calls = self._callers.popitem(last=False)
        call = calls.popitem(last=False)[0]
        if calls:
            self._callers[caller] = calls
        return call

    def remove(self, caller: Hashable, call: _T) -> bool:
        """Take out a call that is not to be carried out; returns whether it was in the queue."""
        with self._changed:
            calls = self._callers.get(caller)
            if calls is None or call not in calls:
                return False
            del calls[call]
            if not calls:
                del self._callers[caller]
            self._length -= 1
        return True

    def close(self) -> None:
        """Let those who wait go when the queue is empty."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
