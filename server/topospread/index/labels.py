"""Interned label sets, and which groups count them.

Pods of one template share one label set, so a selector is matched once a set, not once a pod. Both
directions are indexed: a new label set finds the groups that match it through one required pair of
each selector; a new group finds the label sets that match it through the posting list of its rarest
required pair.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from topospread.kube.selectors import Selector
    from topospread.spread.topology import GroupKey

_K = TypeVar("_K")
_V = TypeVar("_V")

Pairs = tuple[tuple[str, str], ...]

_NO_SETS: frozenset[LabelSet] = frozenset()


@dataclass(slots=True, eq=False)
class LabelSet:
    """One distinct set of labels in one namespace.

    Attributes:
        number: its index in the pod table's column; reused when the last pod is gone.
        pods: how many counted pods have it.
        groups: the groups whose selectors match it.
    """

    number: int
    namespace: str
    pairs: Pairs
    labels: dict[str, str]
    pods: int = 0
    groups: list[GroupKey] = field(default_factory=list)


class LabelSets:
    """The label sets of counted pods, and the groups that are kept; for one builder and thread."""

    def __init__(self) -> None:
        self._by_content: dict[tuple[str, Pairs], LabelSet] = {}
        self._by_number: list[LabelSet | None] = []
        self._free: list[int] = []
        # (namespace, key, value) to the label sets that have the pair; (namespace,) to all of a
        # namespace.
        self._postings: dict[tuple[str, ...], set[LabelSet]] = {}
        # (namespace, key, value) to the groups that require the pair; (namespace,) to those that
        # require none.
        self._watching: dict[tuple[str, ...], set[GroupKey]] = {}

    def __len__(self) -> int:
        """The count of numbers in use or free: the length that a table over numbers needs."""
        return len(self._by_number)

    @property
    def live(self) -> int:
        """The number of label sets."""
        return len(self._by_content)

    def intern(self, namespace: str, pairs: Pairs) -> LabelSet:
        """The label set with this content; made when it is new."""
        known = self._by_content.get((namespace, pairs))
        if known is not None:
            return known
        number = self._free.pop() if self._free else len(self._by_number)
        made = LabelSet(number, namespace, pairs, dict(pairs))
        if number == len(self._by_number):
            self._by_number.append(made)
        else:
            self._by_number[number] = made
        self._by_content[(namespace, pairs)] = made
        for posting in self._posting_keys(made):
            self._postings.setdefault(posting, set()).add(made)
        made.groups = [g for g in self._candidates(made) if g.selector.matches(made.labels)]
        return made

    def release(self, labels: LabelSet) -> None:
        """Forget a label set that no counted pod has any more."""
        del self._by_content[(labels.namespace, labels.pairs)]
        self._by_number[labels.number] = None
        self._free.append(labels.number)
        for posting in self._posting_keys(labels):
            _discard(self._postings, posting, labels)

    def by_number(self, number: int) -> LabelSet:
        """The label set with this number."""
        labels = self._by_number[number]
        assert labels is not None, "a counted pod refers to a label set that was released"
        return labels

    def watch(self, group: GroupKey) -> list[LabelSet]:
        """Begin to keep a group; returns the label sets that match it."""
        for key in _watch_keys(group):
            self._watching.setdefault(key, set()).add(group)
        matching = list(self.matching(group.namespace, group.selector))
        for labels in matching:
            labels.groups.append(group)
        return matching

    def unwatch(self, group: GroupKey) -> None:
        """Stop keeping a group."""
        for key in _watch_keys(group):
            _discard(self._watching, key, group)
        for labels in self.matching(group.namespace, group.selector):
            labels.groups.remove(group)

    def matching(self, namespace: str, selector: Selector) -> Iterator[LabelSet]:
        """The label sets of a namespace that a selector matches."""
        pool = self._postings.get((namespace,), _NO_SETS)
        for requirement in selector.requirements:
            if requirement.operator != "In":
                continue
            found = [
                self._postings.get((namespace, requirement.key, v), _NO_SETS)
                for v in requirement.values
            ]
            if sum(map(len, found)) < len(pool):
                pool = found[0] if len(found) == 1 else set().union(*found)
        return (labels for labels in pool if selector.matches(labels.labels))

    def _candidates(self, labels: LabelSet) -> Iterator[GroupKey]:
        yield from self._watching.get((labels.namespace,), ())
        for key, value in labels.pairs:
            yield from self._watching.get((labels.namespace, key, value), ())

    @staticmethod
    def _posting_keys(labels: LabelSet) -> Iterator[tuple[str, ...]]:
        yield (labels.namespace,)
        for key, value in labels.pairs:
            yield (labels.namespace, key, value)


def _watch_keys(group: GroupKey) -> Iterable[tuple[str, ...]]:
    """The keys under which new label sets find a group: one In requirement, or the namespace."""
    for requirement in group.selector.requirements:
        if requirement.operator == "In":
            return [(group.namespace, requirement.key, value) for value in requirement.values]
    return [(group.namespace,)]


def _discard(index: dict[_K, set[_V]], key: _K, member: _V) -> None:
    """Remove a member and its set when that is empty, so that nothing grows for ever."""
    members = index[key]
    members.discard(member)
    if not members:
        del index[key]
