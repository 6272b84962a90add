"""A store that others write to while it is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.counting import Counting

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.service.world import World


class Busy(Counting):
    """A store that others write to after each read of objects by name and before each of the log.

    Attributes:
        meanwhile: what they write, one step a read; in the end nothing more.
    """

    def __init__(self, made: World, *meanwhile: Callable[[], object]) -> None:
        super().__init__(made.store)
        self.meanwhile = list(meanwhile)

    def get(self, *arguments: Any) -> Any:
        found = super().get(*arguments)
        self._write()
        return found

    def follow(self, *arguments: Any, **others: Any) -> Any:
        self.calls["follow"] += 1
        self._write()
        return self._store.follow(*arguments, **others)

    def _write(self) -> None:
        if self.meanwhile:
            self.meanwhile.pop(0)()
