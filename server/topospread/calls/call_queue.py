"""A bounded queue in which callers take turns."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from collections.abc import Container, Hashable

_T = TypeVar("_T")


class CallQueue(Generic[_T]):
    """Calls that wait to be carried out: each caller's in order, the callers in turn.

    So a caller with a thousand calls in the queue delays another's by one call, not by a thousand.
    Where there is no room, the newest call of the caller with the most has to go.
    It has no lock: whoever shares one between threads brings it.

    Attributes:
        bound: calls at most.
        length: calls in it.
    """

    def __init__(self, bound: int) -> None:
        self.bound = bound
        # The caller whose turn it is comes first, with its calls from the oldest on.
        self._callers: OrderedDict[Hashable, OrderedDict[_T, None]] = OrderedDict()
        self.length = 0

    def __len__(self) -> int:
        return self.length

    def put(self, caller: Hashable, call: _T, more: int = 0) -> _T | None:
        """Add a call; returns the one that there is no room for, which may be this one.

        There is room for `more` calls beyond the bound just now.
        """
        own = self._callers.get(caller)
        refused = None
        if self.length < self.bound + more:
            self.length += 1
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
        return self.length < self.bound or self._may_replace(self._callers.get(caller))

    def _may_replace(self, own: OrderedDict[_T, None] | None) -> bool:
        """Whether a caller has less than its share of a full queue."""
        callers = len(self._callers) + (own is None)
        return (len(own) if own else 0) < self.bound // callers

    def is_idle(self, full: Container[Hashable] = ()) -> bool:
        """Whether there are no calls but those of callers that have all that they may have."""
        return all(caller in full for caller in self._callers)

    def pop(self, full: Container[Hashable] = ()) -> _T | None:
        """Take the next call of a caller that is not full; None when there is none."""
        caller = next((each for each in self._callers if each not in full), None)
        if caller is None:
            return None
        self.length -= 1
        calls = self._callers.pop(caller)
        call = calls.popitem(last=False)[0]
        if calls:
            self._callers[caller] = calls
        return call

    def remove(self, caller: Hashable, call: _T) -> bool:
        """Take out a call that is not to be carried out; returns whether it was in the queue."""
        calls = self._callers.get(caller)
        if calls is None or call not in calls:
            return False
        del calls[call]
        if not calls:
            del self._callers[caller]
        self.length -= 1
        return True
