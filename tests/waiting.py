"""Waiting for what happens in other threads, processes and servers."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

PATIENCE: Final = 60.0
"""Seconds after which something is taken to hang."""


def until(reached: Callable[[], T | None], what: str) -> T:
    """Wait until a function returns something true; returns that."""
    deadline = time.monotonic() + PATIENCE
    while not (found := reached()):
        assert time.monotonic() < deadline, f"it did not happen in {PATIENCE:g} s: {what}"
        time.sleep(0.01)
    return found
