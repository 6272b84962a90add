"""A lock that no interrupt leaves held."""

from __future__ import annotations

from _thread import RLock  # the class; threading.RLock is a function
from contextlib import suppress


class InterruptibleRLock(RLock):  # type: ignore[misc] # final in the stubs alone
    """A reentrant lock, for `with` in threads that a KeyboardInterrupt may come to.

    Since Python 3.14 one may come between a lock's `__enter__` and the block behind it, whose end
    would release the lock. Here it comes before that, and releases it, or within the block.
    """

    __slots__ = ()

    # The stubs give it acquire's arguments, and @override is newer than the oldest Python.
    def __enter__(self) -> bool:  # type: ignore[override, explicit-override]
        try:
            return self.acquire()
        except BaseException:
            with suppress(RuntimeError):  # it came before the lock was taken
                self.release()
            raise
