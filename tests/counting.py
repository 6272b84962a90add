"""A store that counts the work that it is asked for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.store.api import Store
    from topospread.store.model import StoredObject


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

    def scan(self, *arguments: Any, **others: Any) -> Iterator[Sequence[StoredObject]]:
        self.calls["scan"] += 1
        for page in self._store.scan(*arguments, **others):
            self.objects += len(page)
            yield page

    def read_range(self, *arguments: Any) -> Any:
        self.calls["read_range"] += 1
        found, more = self._store.read_range(*arguments)
        self.objects += len(found)
        return found, more

    def read_keys(self, *arguments: Any) -> Any:
        self.calls["read_keys"] += 1
        found = self._store.read_keys(*arguments)
        self.objects += len(found)
        return found

    def read_undo(self, *arguments: Any) -> Any:
        self.calls["read_undo"] += 1
        found = self._store.read_undo(*arguments)
        self.objects += len(found)
        return found
