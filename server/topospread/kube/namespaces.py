"""Sets of namespaces, as a term of inter-pod affinity names and selects them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable


class NamespaceNumbers:
    """A number for each namespace that was known, which it keeps; one thread adds."""

    def __init__(self) -> None:
        self._of: dict[str, int] = {}

    def __len__(self) -> int:
        """The count of numbers: more than any of them."""
        return len(self._of)

    def number(self, name: str) -> int:
        """The number of a namespace; −1 where it was never known."""
        return self._of.get(name, -1)

    def add(self, name: str) -> None:
        """Give a namespace a number, unless it has one."""
        self._of.setdefault(name, len(self._of))


_NO_NUMBERS: Final = NamespaceNumbers()


@dataclass(frozen=True, slots=True)
class NamespaceSet:
    """Names, and namespaces that were selected, each of which takes a bit; equal by content.

    Attributes:
        named: names, whether there are such namespaces or not.
        selected: bits by number, of names, too, that have one.
        numbers: of the namespaces that are selected; sets that meet have the same.
        everything: all namespaces, also those that come.
    """

    named: frozenset[str] = frozenset()
    selected: int = 0
    numbers: NamespaceNumbers = field(default=_NO_NUMBERS, repr=False)
    everything: bool = False

    def __post_init__(self) -> None:
        """Forget the numbers where nothing is selected: equal sets are equal."""
        if not self.selected:
            object.__setattr__(self, "numbers", _NO_NUMBERS)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return self.everything or bool(self.named or self.selected)

    def __contains__(self, name: str) -> bool:
        if self.everything or name in self.named:
            return True
        if not self.selected:
            return False
        number = self.numbers.number(name)
        return number >= 0 and self.selected >> number & 1 == 1

    def among(self, names: Iterable[str]) -> Iterable[str]:
        """Those of many names that belong to it."""
        if self.everything:
            return names
        if not self.selected:
            return [name for name in names if name in self.named]
        # A shift of all bits for each name would copy them each time.
        bits = self.selected.to_bytes(len(self.numbers) // 8 + 1, "little")
        number = self.numbers.number
        return [
            name
            for name in names
            if ((n := number(name)) >= 0 and bits[n >> 3] >> (n & 7) & 1) or name in self.named
        ]

    def __and__(self, other: NamespaceSet) -> NamespaceSet:
        """The namespaces that are in both."""
        if self.everything or other.everything:
            return self if other.everything else other
        numbers = self.numbers if self.selected else other.numbers
        one, two = self.numbered(numbers), other.numbered(numbers)
        return NamespaceSet(one.named & two.named, one.selected & two.selected, numbers)

    def with_names(self, names: Iterable[str]) -> NamespaceSet:
        """The set with more names."""
        added = replace(self, named=self.named.union(names))
        return added.numbered(self.numbers) if self.selected else added

    def numbered(self, numbers: NamespaceNumbers) -> NamespaceSet:
        """The set with a bit for each name that has a number."""
        known = {name: n for name in self.named if (n := numbers.number(name)) >= 0}
        if not known:
            return self
        bits = self.selected
        for number in known.values():
            bits |= 1 << number
        return NamespaceSet(self.named.difference(known), bits, numbers)

    @override
    def __hash__(self) -> int:
        return hash((self.named, self.selected, self.everything))

    @property
    def names(self) -> frozenset[str] | None:
        """All of them; None where others than those that are named belong to it."""
        return None if self.everything or self.selected else self.named

    @property
    def nbytes(self) -> int:
        """Bytes, about."""
        return 350 + sum([130 + len(name) for name in self.named]) + self.selected.bit_length() // 7


ALL_NAMESPACES: Final = NamespaceSet(everything=True)
NO_NAMESPACES: Final = NamespaceSet()
