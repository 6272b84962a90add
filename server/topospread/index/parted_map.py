"""An immutable map whose next version costs as much as its change."""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, Final, Generic, Self, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_PARTS: Final = 256
"""Of some hundred thousand entries a change then copies some hundred for each that it changes."""


class PartedMap(Generic[K, V]):
    """A map in parts; a version shares with the one before all parts that did not change."""

    __slots__ = ("_parts", "size")

    def __init__(self, parts: tuple[dict[K, V], ...] = ({},) * _PARTS, size: int = 0) -> None:
        self._parts = parts
        self.size = size

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[tuple[K, V]]:
        """All keys with their values, in no order."""
        for part in self._parts:
            yield from part.items()

    def values(self) -> Iterator[V]:
        """All values, in no order."""
        for part in self._parts:
            yield from part.values()

    def get(self, key: K) -> V | None:
        """The value of a key; None where there is none."""
        return self._parts[hash(key) % _PARTS].get(key)

    def changed(self, rows: Mapping[K, V | None]) -> Self:
        """The next version, this one where nothing changes; None takes a key out."""
        if not rows:
            return self
        parts = list(self._parts)
        copied: set[int] = set()
        size = self.size
        for key, value in rows.items():
            number = hash(key) % _PARTS
            if number not in copied:
                copied.add(number)
                parts[number] = dict(parts[number])
            part = parts[number]
            size -= key in part
            if value is None:
                part.pop(key, None)
            else:
                # The newer key, too: it may be an object that its value has as well.
                part.pop(key, None)
                part[key] = value
                size += 1
        return type(self)(tuple(parts), size)

    def differences(self, before: PartedMap[K, V]) -> Iterator[tuple[K, V | None, V | None]]:
        """The keys whose values are not the same object: with the value before, and now.

        Costs as much as the parts that differ.
        """
        for part, other in zip(self._parts, before._parts, strict=True):
            if part is other:
                continue
            for key, value in part.items():
                was = other.get(key)
                if was is not value:
                    yield key, was, value
            for key, was in other.items():
                if key not in part:
                    yield key, was, None
