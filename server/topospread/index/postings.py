"""Label sets by namespace and label, so that a selector is matched with few of them.

A label that one set alone has, as the pods of a StatefulSet do, takes an entry and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Final

from topospread.index.selector_keys import narrowing

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from topospread.kube.selectors import Requirement
    from topospread.spread.topology import GroupKey


Pairs = tuple[tuple[str, str], ...]


@dataclass(slots=True, eq=False)
class LabelSet:
    """One distinct set of labels in one namespace, of pods that terminate or of others.

    Attributes:
        number: its index in the pod table's column; reused when the last pod is gone.
        terminating: whether its pods are bound and terminate.
        pods: how many pods have it.
        groups: the groups that count its pods.
    """

    number: int
    namespace: str
    pairs: Pairs
    labels: dict[str, str]
    terminating: bool = False
    pods: int = 0
    groups: list[GroupKey] = field(default_factory=list)


Sets = set[LabelSet]

_NO_SETS: Final[frozenset[LabelSet]] = frozenset()


class Postings:
    """The label sets that are there; for one builder and thread."""

    def __init__(self) -> None:
        self._by_namespace: dict[str, Sets] = {}
        # The one that has a label, or those that do by namespace.
        self._by_pair: dict[tuple[str, str], LabelSet | dict[str, Sets]] = {}

    def add(self, labels: LabelSet) -> None:
        """Add a label set that is not there."""
        self._by_namespace.setdefault(labels.namespace, set()).add(labels)
        for pair in labels.pairs:
            known = self._by_pair.setdefault(pair, labels)
            if known is labels:
                continue
            if not isinstance(known, dict):
                known = self._by_pair[pair] = {known.namespace: {known}}
            known.setdefault(labels.namespace, set()).add(labels)

    def remove(self, labels: LabelSet) -> None:
        """Remove a label set that is there; nothing is left of it."""
        _discard(self._by_namespace, labels.namespace, labels)
        for pair in labels.pairs:
            known = self._by_pair[pair]
            if isinstance(known, dict):
                _discard(known, labels.namespace, labels)
            if not isinstance(known, dict) or not known:
                del self._by_pair[pair]

    def near(self, group: GroupKey) -> Iterable[LabelSet]:
        """The label sets of a group's namespaces among which are all that its selector matches.

        However many namespaces and values it has, not more are looked at than there are.
        """
        narrow, named = narrowing(group.selector), group.named_namespaces
        if named is not None and (len(named) == 1 or not narrow):
            return chain.from_iterable(self._of_namespace(name, narrow) for name in named)
        if not narrow:
            names = group.namespaces.among(self._by_namespace)
            return chain.from_iterable(map(self._by_namespace.__getitem__, names))
        if named is not None and len(named) < len(narrow[0].values):
            return chain.from_iterable(self._of_namespace(name, narrow) for name in named)
        return self._of_values(group, narrow[0])

    def _of_namespace(self, namespace: str, narrow: Iterable[Requirement]) -> Iterable[LabelSet]:
        pool: Sets | list[LabelSet] | frozenset[LabelSet]
        pool = self._by_namespace.get(namespace, _NO_SETS)
        for requirement in narrow:
            if len(requirement.values) >= len(pool):
                break
            found = [self._with(namespace, (requirement.key, v)) for v in requirement.values]
            if sum(map(len, found)) < len(pool):
                pool = list(chain.from_iterable(found))
        return pool

    def _with(self, namespace: str, pair: tuple[str, str]) -> Sets | tuple[LabelSet, ...]:
        known = self._by_pair.get(pair)
        if known is None:
            return ()
        if isinstance(known, dict):
            return known.get(namespace, ())
        return (known,) if known.namespace == namespace else ()

    def _of_values(self, group: GroupKey, requirement: Requirement) -> Iterator[LabelSet]:
        for value in requirement.values:
            known = self._by_pair.get((requirement.key, value), {})
            if not isinstance(known, dict):
                known = {known.namespace: {known}}
            for name in group.namespaces.among(known):
                yield from known[name]


def _discard(sets: dict[str, Sets], name: str, labels: LabelSet) -> None:
    """Remove a member and its set when that is empty, so that nothing grows for ever."""
    members = sets[name]
    members.discard(labels)
    if not members:
        del sets[name]
