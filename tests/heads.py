"""A store whose history is another one, or has lost writes, when it is asked for its head again."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.counting import Counting
from topospread.store.model import Revision

if TYPE_CHECKING:
    from collections.abc import Sequence

    from topospread.store.api import Store
    from topospread.store.model import Head, Transaction


def _at(head: Head, further: int, tag: str = "") -> Head:
    revision = head.revision
    return replace(head, revision=Revision(revision.number + further, tag or revision.tag))


CHANGES = pytest.mark.parametrize(
    "change",
    [
        lambda head: replace(head, identity="f" * 32),
        lambda head: replace(_at(head, -1), identity="f" * 32),
        lambda head: _at(head, -1),
        lambda head: _at(head, 0, "f" * 16),
        lambda head: _at(head, 1),
    ],
    ids=["another", "another-shorter", "lost", "lost-and-written", "lost-after-the-head"],
)
"""What has become of a head when it is read once more."""


class Heads(Counting):
    """A store that answers with these heads first, whatever it has."""

    def __init__(self, store: Store, *heads: Head) -> None:
        super().__init__(store)
        self._heads = list(heads)

    def head(self, *arguments: Any, **others: Any) -> Head:
        return self._heads.pop(0) if self._heads else self._store.head(*arguments, **others)

    def follow(self, *arguments: Any, **others: Any) -> Sequence[Transaction]:
        self.calls["follow"] += 1
        assert self.calls["follow"] < 10, "it asks without end"
        return self._store.follow(*arguments, **others)
