"""A store that counts the work that it is asked for."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

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
