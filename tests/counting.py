"""What work costs, counted: calls of a store, lines of Python, bytes."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from topospread.checkpoints import checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from topospread.store.api import Store
    from topospread.store.model import Page, StoredObject


class Counting:
    """A store that counts what it is asked for.

    Attributes:
        calls: by method.
        objects: that it handed out.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()
        self.objects = 0

    def __getattr__(self, name: str) -> Any:
        self.calls[name] += 1
        return getattr(self._store, name)

    def scan(self, *arguments: Any, **others: Any) -> Page:
        self.calls["scan"] += 1
        page = self._store.scan(*arguments, **others)
        self.objects += len(page.objects)
        return page

    def get(self, *arguments: Any) -> Sequence[StoredObject]:
        self.calls["get"] += 1
        found = self._store.get(*arguments)
        self.objects += len(found)
        return found


@dataclass(frozen=True)
class Steps:
    """What a piece of work runs, the same on every machine.

    Attributes:
        lines: of Python; what one does in C counts as one.
        longest: lines between two checkpoints, at the most.
    """

    lines: int
    longest: int


def steps(work: Callable[[], object]) -> Steps:
    """The lines of Python that a piece of work runs."""
    ran = last = longest = 0
    marked = checkpoint.__code__

    def count(frame: Any, event: str, _: object) -> Any:
        nonlocal ran, last, longest
        if event == "line":
            ran += 1
        elif event == "call" and frame.f_code is marked:
            longest, last = max(longest, ran - last), ran
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        work()
    finally:
        sys.settrace(before)
    return Steps(ran, max(longest, ran - last))


def lines(work: Callable[[], object]) -> int:
    """The same without checkpoints."""
    return steps(work).lines


@dataclass(frozen=True)
class Memory:
    """Bytes that a piece of work takes, at the most, and that are kept when it is done."""

    peak: int
    kept: int


def memory(work: Callable[[], object]) -> Memory:
    """The bytes that a piece of work takes; what it returns is let go."""
    gc.collect()
    tracemalloc.start()
    try:
        work()
        _, peak = tracemalloc.get_traced_memory()
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
        return Memory(peak, kept)
    finally:
        tracemalloc.stop()
