"""Label sets and pod classes: pods that a selector, or a decision, cannot tell apart.

Pods of one template share one label set, so a selector is matched once a set, not once a pod. Both
directions are indexed: a new label set finds the groups that match it through one required pair of
each selector; a new group finds the label sets that match it through the posting list of its rarest
required pair.

A StatefulSet gives each pod a label of its own, so a namespace may have as many classes as pods,
while a fold changes a few. The next version of a namespace copies the parts that change.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from typing_extensions import override

from topospread.index.postings import LabelSet, Postings
from topospread.index.selector_keys import keys_for, keys_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topospread.index.postings import Pairs
    from topospread.index.selector_keys import SelectorKey
    from topospread.spread.topology import GroupKey


_T = TypeVar("_T")


class Numbered(Generic[_T]):
    """Values by a number each; numbers of values that are gone are used again."""

    def __init__(self) -> None:
        self._by_number: list[_T | None] = []
        self._free: list[int] = []

    @property
    def numbered(self) -> Sequence[_T | None]:
        """The values by number; None where a number is free."""
        return self._by_number

    def by_number(self, number: int) -> _T:
        """The value with this number."""
        value = self._by_number[number]
        assert value is not None, "a pod refers to what was released"
        return value

    def _new_number(self) -> int:
        if not self._free:
            self._free.append(len(self._by_number))
            self._by_number.append(None)
        return self._free.pop()

    def _release_number(self, number: int) -> None:
        self._by_number[number] = None
        self._free.append(number)


KEY_BYTES: Final = 500
"""Bytes, about, of a key under which a new label set finds a group."""

ENTRY_BYTES: Final = 9
"""Bytes, about, of a group among those of a label set."""


class LabelSets(Numbered[LabelSet]):
    """The label sets of bound pods, and the groups that are kept; for one builder and thread.

    Attributes:
        size: bytes, about, of what is here for groups: each label set names those that count it.
    """

    def __init__(self) -> None:
        super().__init__()
        self._by_content: dict[tuple[str, Pairs], LabelSet] = {}
        self._terminating: dict[tuple[str, Pairs], LabelSet] = {}
        self._postings = Postings()
        self._watching: dict[SelectorKey, set[GroupKey]] = {}
        # Of each group that is kept, the label sets that it counts, and bytes of all of that.
        self._counted: dict[GroupKey, int] = {}
        self.size = 0

    def __len__(self) -> int:
        """The count of numbers in use or free: the length that a table over numbers needs."""
        return len(self._by_number)

    @property
    def live(self) -> int:
        """The number of label sets of counted pods."""
        return len(self._by_content)

    def intern(self, namespace: str, pairs: Pairs, *, terminating: bool = False) -> LabelSet:
        """The label set with this content; made when it is new."""
        by_content = self._terminating if terminating else self._by_content
        known = by_content.get((namespace, pairs))
        if known is not None:
            return known
        number = self._new_number()
        made = LabelSet(number, namespace, pairs, dict(pairs), terminating)
        self._by_number[number] = by_content[(namespace, pairs)] = made
        self._postings.add(made)
        made.groups = [
            group
            for group in self._candidates(made)
            if (group.terminating or not terminating)
            and group.covers(namespace)
            and group.selector.matches(made.labels)
        ]
        for group in made.groups:
            self._counts(group, 1)
        return made

    def release(self, labels: LabelSet) -> None:
        """Forget a label set that no pod has any more."""
        by_content = self._terminating if labels.terminating else self._by_content
        del by_content[(labels.namespace, labels.pairs)]
        self._release_number(labels.number)
        self._postings.remove(labels)
        for group in labels.groups:
            self._counts(group, -1)

    def watch(self, group: GroupKey) -> list[LabelSet]:
        """Begin to keep a group; returns the label sets that it counts."""
        for key in _watch_keys(group):
            self._watching.setdefault(key, set()).add(group)
        counted = list(self.counted_by(group))
        for labels in counted:
            labels.groups.append(group)
        self._counted[group] = len(counted)
        self.size += self.held_by(group)
        return counted

    def held_by(self, group: GroupKey) -> int:
        """Bytes, about, of what is here for a group that is kept."""
        return KEY_BYTES * len(_watch_keys(group)) + ENTRY_BYTES * self._counted[group]

    def unwatch(self, group: GroupKey) -> None:
        """Stop keeping a group."""
        self.size -= self.held_by(group)
        del self._counted[group]
        for key in _watch_keys(group):
            self._watching[key].discard(group)
            if not self._watching[key]:
                del self._watching[key]
        for labels in self.counted_by(group):
            labels.groups.remove(group)

    def counted_by(self, group: GroupKey) -> Iterator[LabelSet]:
        """The label sets whose pods a group counts."""
        for labels in self._postings.near(group):
            counts = group.terminating or not labels.terminating
            if counts and group.selector.matches(labels.labels):
                yield labels

    def _counts(self, group: GroupKey, label_sets: int) -> None:
        """Note that a group that is kept counts more label sets, or less."""
        self._counted[group] += label_sets
        self.size += ENTRY_BYTES * label_sets

    def _candidates(self, labels: LabelSet) -> Iterator[GroupKey]:
        for key in keys_for(labels.namespace, labels.labels):
            yield from self._watching.get(key, ())


def _watch_keys(group: GroupKey) -> Sequence[SelectorKey]:
    """The keys under which new label sets find a group."""
    return keys_of(group.named_namespaces, group.selector)


_PART_BITS: Final = 8
"""A part has the classes of 256 numbers: 50,000 classes have 200 parts."""


@dataclass(frozen=True, slots=True, eq=False)
class PodClass:
    """One class, the same object for as long as there is a pod of it.

    Attributes:
        number: its index in the pod table's column; reused when the last pod is gone.
        template: the encoded fields of a v1.Pod that decisions depend on, with its requests and a
            scheduling gate where any holds it, so without its name, uid, node and status.
        labels: (key, value) pairs sorted by key.
    """

    number: int
    namespace: str
    template: bytes
    labels: Pairs


class PodCounts(NamedTuple):
    """How many pods of a class there are.

    Attributes:
        bound: those that count: bound, not terminating and not in a terminal phase.
        pending: those without a node, not terminating and not in a terminal phase.
    """

    bound: int
    pending: int


_NO_PODS: Final = PodCounts(0, 0)
_ONE_BOUND: Final = PodCounts(1, 0)

_Part = dict[PodClass, PodCounts]


class NamespaceClasses(Mapping[PodClass, PodCounts]):
    """The classes of one namespace with their counts, in no order; immutable."""

    __slots__ = ("_parts", "_size")

    def __init__(self, parts: Mapping[int, _Part] | None = None, size: int = 0) -> None:
        self._parts = {} if parts is None else parts
        self._size = size

    @override
    def __len__(self) -> int:
        return self._size

    @override
    def __iter__(self) -> Iterator[PodClass]:
        for part in self._parts.values():
            yield from part

    @override
    def __getitem__(self, pod_class: PodClass) -> PodCounts:
        return self._parts[pod_class.number >> _PART_BITS][pod_class]

    def count(self, pod_class: PodClass) -> PodCounts:
        """The counts of a class, which may have no pods."""
        part = self._parts.get(pod_class.number >> _PART_BITS)
        return _NO_PODS if part is None else part.get(pod_class, _NO_PODS)

    def differing(self, former: NamespaceClasses) -> Iterator[PodClass]:
        """Classes that have other counts than in a former version, or are in one of them alone."""
        for number in self._parts.keys() | former._parts.keys():
            now, before = self._parts.get(number, {}), former._parts.get(number, {})
            if now is not before:
                yield from [each for each, counts in now.items() if before.get(each) != counts]
                yield from [each for each in before if each not in now]

    def changed(self, counts: Iterable[tuple[PodClass, PodCounts]]) -> NamespaceClasses:
        """The next version; a class without pods goes."""
        parts = dict(self._parts)
        copied: set[int] = set()
        size = self._size
        for pod_class, count in counts:
            number = pod_class.number >> _PART_BITS
            part = parts.get(number, {})
            if number not in copied:
                copied.add(number)
                part = parts[number] = dict(part)
            size -= pod_class in part
            if count == _NO_PODS:
                part.pop(pod_class, None)
            else:
                part[pod_class] = count
                size += 1
        for number in copied:
            if not parts[number]:
                del parts[number]
        return NamespaceClasses(parts, size)


NO_CLASSES: Final = NamespaceClasses()


class PodClasses(Numbered[PodClass]):
    """The classes of the pods that are there; for one builder and thread."""

    def __init__(self) -> None:
        super().__init__()
        self._by_template: dict[str, dict[bytes, PodClass]] = {}

    def intern(self, namespace: str, template: bytes, labels: Pairs) -> PodClass:
        """The class with this content; made when it is new."""
        known = self._by_template.setdefault(namespace, {})
        pod_class = known.get(template)
        if pod_class is None:
            number = self._new_number()
            # Of pods with claims each is a class: they share the namespace's text.
            pod_class = PodClass(number, sys.intern(namespace), template, labels)
            known[template] = self._by_number[number] = pod_class
        return pod_class

    def changed(
        self, namespaces: Mapping[str, NamespaceClasses], deltas: Mapping[int, list[int]]
    ) -> Mapping[str, NamespaceClasses]:
        """The next version of all namespaces; classes that no pod has any more are forgotten."""
        by_namespace: dict[str, list[tuple[PodClass, PodCounts]]] = {}
        for number, (bound, pending) in deltas.items():
            pod_class = self.by_number(number)
            name = pod_class.namespace
            before = namespaces.get(name, NO_CLASSES).count(pod_class)
            after = PodCounts(before.bound + bound, before.pending + pending)
            if after == _NO_PODS:
                self._release(pod_class)
            if after != before:
                # Most classes have one pod where many have few.
                count = _ONE_BOUND if after == _ONE_BOUND else after
                by_namespace.setdefault(name, []).append((pod_class, count))
        if not by_namespace:
            return namespaces
        made = dict(namespaces)
        for name, counts in by_namespace.items():
            made[name] = made.get(name, NO_CLASSES).changed(counts)
            if not made[name]:
                del made[name]
        return made

    def _release(self, pod_class: PodClass) -> None:
        known = self._by_template[pod_class.namespace]
        del known[pod_class.template]
        if not known:
            del self._by_template[pod_class.namespace]
        self._release_number(pod_class.number)
