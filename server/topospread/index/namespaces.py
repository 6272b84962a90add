"""The namespaces of one version by their labels: each selector finds its own at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.cache import BUDGETS, Cache
from topospread.checkpoints import checkpoint
from topospread.kube.namespaces import NamespaceNumbers, NamespaceSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from topospread.kube.selectors import Requirement, Selector
    from topospread.kube.volumes import Namespace
    from topospread.spread.topology import Bools

MOST_GONE: Final = 1000
"""Numbers of namespaces that are gone, beside as many as there are, until all have new ones."""

_OTHER: Final = "\0"
"""Stands for the values that a requirement does not name; no label has it."""


class SelectedNamespaces:
    """Which namespaces of one version selectors match, found once for equal ones."""

    def __init__(
        self, namespaces: Sequence[Namespace] = (), numbers: NamespaceNumbers | None = None
    ) -> None:
        self._namespaces = namespaces
        self._numbers = NamespaceNumbers() if numbers is None else numbers
        self._by_label: _ByLabel | None = None
        self._found: Cache[Selector, NamespaceSet] = Cache(BUDGETS["namespaces"])

    def changed(self, namespaces: Sequence[Namespace]) -> SelectedNamespaces:
        """The next version; sets that are equal in both are the same."""
        numbers = self._numbers
        if len(numbers) > MOST_GONE + 2 * len(namespaces):
            numbers = NamespaceNumbers()
        for each in namespaces:
            numbers.add(each.name)
        return SelectedNamespaces(namespaces, numbers)

    def matching(self, selector: Selector) -> NamespaceSet:
        """The namespaces that a selector matches."""
        found = self._found.get(selector)
        if found is None:
            if self._by_label is None:
                self._by_label = _ByLabel(self._namespaces, self._numbers)
            found = self._by_label.matching(selector)
            self._found.put(selector, found, 300 + selector.nbytes + found.nbytes)
        return found


class _ByLabel:
    """Numbers of namespaces by key and value of their labels."""

    def __init__(self, namespaces: Iterable[Namespace], numbers: NamespaceNumbers) -> None:
        self._numbers = numbers
        self._there = np.zeros(len(numbers), dtype=np.bool_)
        self._with_key: dict[str, list[int]] = {}
        self._with_pair: dict[tuple[str, str], list[int]] = {}
        for each in namespaces:
            number = numbers.number(each.name)
            self._there[number] = True
            for pair in each.labels:
                self._with_key.setdefault(pair[0], []).append(number)
                self._with_pair.setdefault(pair, []).append(number)

    def matching(self, selector: Selector) -> NamespaceSet:
        """The namespaces that a selector matches."""
        if selector.nothing:
            return NamespaceSet()
        found = self._there.copy()
        for requirement in selector.requirements:
            checkpoint()
            found &= self._accepted(requirement)
        bits = np.packbits(found, bitorder="little").tobytes()
        return NamespaceSet(frozenset(), int.from_bytes(bits, "little"), self._numbers)

    def _accepted(self, requirement: Requirement) -> Bools:
        """[numbers] whether the label, or that there is none, fulfils a requirement.

        Only the values that it names differ from others.
        """
        found: Bools = np.full(self._there.size, requirement.accepts(None), dtype=np.bool_)
        found[self._with_key.get(requirement.key, [])] = requirement.accepts(_OTHER)
        for value in requirement.values:
            held = self._with_pair.get((requirement.key, value))
            if held is not None:
                found[held] = requirement.accepts(value)
        return found
