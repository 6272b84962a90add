"""Pod classes: the pods of a namespace that decisions cannot tell apart, and how many there are.

A StatefulSet gives each pod a label of its own, so a namespace may have as many classes as pods,
while a fold changes a few. The next version of a namespace copies the parts that change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from typing_extensions import override

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topospread.index.labels import Pairs

_PART_BITS: Final = 8
"""A part has the classes of 256 numbers: 50,000 classes have 200 parts."""


@dataclass(frozen=True, slots=True, eq=False)
class PodClass:
    """One class, the same object for as long as there is a pod of it.

    Attributes:
        number: its index in the pod table's column; reused when the last pod is gone.
        namespace: of its pods.
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
        """The number of classes."""
        return self._size

    @override
    def __iter__(self) -> Iterator[PodClass]:
        """All classes."""
        for part in self._parts.values():
            yield from part

    @override
    def __getitem__(self, pod_class: PodClass) -> PodCounts:
        """The counts of a class."""
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


class PodClasses:
    """The classes of the pods that are there; for one builder and thread."""

    def __init__(self) -> None:
        self._by_template: dict[str, dict[bytes, PodClass]] = {}
        self._by_number: list[PodClass | None] = []
        self._free: list[int] = []

    @property
    def numbered(self) -> Sequence[PodClass | None]:
        """The classes by number; None where a number is free."""
        return self._by_number

    def intern(self, namespace: str, template: bytes, labels: Pairs) -> PodClass:
        """The class with this content; made when it is new."""
        known = self._by_template.setdefault(namespace, {})
        pod_class = known.get(template)
        if pod_class is None:
            number = self._free.pop() if self._free else len(self._by_number)
            pod_class = known[template] = PodClass(number, namespace, template, labels)
            if number == len(self._by_number):
                self._by_number.append(pod_class)
            else:
                self._by_number[number] = pod_class
        return pod_class

    def by_number(self, number: int) -> PodClass:
        """The class with this number."""
        pod_class = self._by_number[number]
        assert pod_class is not None, "a pod refers to a class that was released"
        return pod_class

    def changed(
        self, namespaces: Mapping[str, NamespaceClasses], deltas: Mapping[int, list[int]]
    ) -> Mapping[str, NamespaceClasses]:
        """The next version of all namespaces; classes that no pod has any more are forgotten.

        Args:
            namespaces: the version before.
            deltas: by number of a class, what is added to its counts: [bound, pending].
        """
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
        self._by_number[pod_class.number] = None
        self._free.append(pod_class.number)
