"""Gives memory back to the system when those who took it have gone.

glibc keeps what was freed. It makes many arenas, of which it gives back only the ends; and it takes
ever larger blocks from them once a large one was freed. So there are few arenas here, large blocks
always come from the system and go back to it at once, and the rest is trimmed when much of it is
free.
"""

from __future__ import annotations

import ctypes
import threading
import time
from typing import Final

ARENAS: Final = 2

LARGE: Final = 1 << 20
"""Bytes of a block that is taken from the system by itself: a message of a size that matters."""

SECONDS: Final = 5.0
"""Between two looks at how much is free."""

FREED: Final = 16 << 20
"""Bytes more that are free than after the last time, when arenas are trimmed."""

_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8


def give_memory_back() -> None:
    """Set up glibc's allocator, and trim from now on; elsewhere nothing happens.

    For a process that serves until it ends: the thread ends with it.
    """
    libc = _glibc()
    if libc is not None:
        libc.mallopt(_M_ARENA_MAX, ARENAS)
        libc.mallopt(_M_MMAP_THRESHOLD, LARGE)
        threading.Thread(target=_trim, args=(libc,), name="trimming", daemon=True).start()


def _trim(libc: ctypes.CDLL) -> None:
    libc.mallinfo2.restype = _MallocInfo
    kept = 0
    while True:
        time.sleep(SECONDS)
        free: int = libc.mallinfo2().fordblks
        if free > kept + FREED:
            libc.malloc_trim(0)
            # What lies between blocks in use counts as free, also when its pages were given back.
            free = libc.mallinfo2().fordblks
            kept = free
        kept = min(kept, free)


class _MallocInfo(ctypes.Structure):
    """``struct mallinfo2``; fordblks is what is free in all arenas."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )


def _glibc() -> ctypes.CDLL | None:
    libc = ctypes.CDLL(None)
    needed = ("mallopt", "malloc_trim", "mallinfo2")
    return libc if all(hasattr(libc, name) for name in needed) else None
