"""What two servers answer differently, in groups with an example each."""

from __future__ import annotations

import json
import re
from collections import Counter
from itertools import islice, zip_longest
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_REQUEST: Final = 1000
_VALUE: Final = 700
"""Characters of a request and of a value that are shown."""

_MOST: Final = 20
"""Differences of one answer that are told apart."""


class Differences:
    """Differences by group.

    Args:
        explained: reasons of those that are meant, by a regular expression that is found in a
            group's name and the two values, on lines of their own.

    Attributes:
        equal: answers that did not differ.
        different: answers that did.
    """

    def __init__(self, explained: Mapping[str, str]) -> None:
        self.equal = self.different = 0
        self._explained = {re.compile(each, re.DOTALL): each for each in explained}
        self._excused: Counter[str] = Counter(dict.fromkeys(explained, 0))
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def add(self, group: str, values: str = "", request: str = "") -> None:
        """Count a difference; the first of a group that nothing explains is its example."""
        for pattern, name in self._explained.items():
            if pattern.search(f"{group}\n{values}"):
                self._excused[name] += 1
                return
        self._counts[group] += 1
        self._examples.setdefault(group, f"{request[:_REQUEST]}\n{values}".strip())

    def compare(self, subject: str, old: Any, new: Any, request: str = "") -> bool:
        """Compare two answers as JSON has them; whether they are equal."""
        if old == new:
            self.equal += 1
            return True
        self.different += 1
        for where, before, after in islice(differences(old, new), _MOST):
            values = f"old {shortened(before)}\nnew {shortened(after)}"
            self.add(f"{subject}: {where}", values, request)
        return False

    def unexplained(self) -> dict[str, int]:
        """How many differences there are of each group, the largest first."""
        return dict(self._counts.most_common())

    def excused(self) -> dict[str, int]:
        """How many differences each pattern explains."""
        return dict(self._excused)

    def findings(self, *, whole: bool = True) -> list[str]:
        """Groups with an example each, and, of a whole comparison, patterns that explain none."""
        groups = [
            f"{group} ({count})\n{self._examples[group]}"
            for group, count in self._counts.most_common()
        ]
        needless = [name for name, count in self._excused.items() if whole and not count]
        return groups + [f"explained, but no answer differs so: {name}" for name in needless]


def differences(old: Any, new: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path of each value that differs, without positions, and both values."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                below = f"{path}.{key}" if path else str(key)
                yield from differences(old.get(key), new.get(key), below)
    elif isinstance(old, list) and isinstance(new, list):
        for before, after in zip_longest(old, new):
            if before != after:
                yield from differences(before, after, f"{path}[]")
    else:
        yield path or "answer", old, new


def shortened(value: Any) -> str:
    """Return a value as text of a bounded length."""
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE else f"{text[:_VALUE]}…"
