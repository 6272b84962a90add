"""Required terms of inter-pod affinity and anti-affinity, compiled.

Sources: the scheduler's ``framework.AffinityTerm`` and what the API server does to matchLabelKeys
and mismatchLabelKeys when it stores a pod (KEP-3633).
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from typing_extensions import override

from topospread.kube.selectors import IN, NOT_IN, NOTHING, Requirement, Selector

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


@dataclass(frozen=True, slots=True)
class AffinityTerm:
    """Pods that a pod requires, or keeps away, in one domain of a topology key.

    Attributes:
        selector: of the other pods; the nil one matches none.
        namespaces: of the other pods, sorted; empty only beside a namespace_selector.
        namespace_selector: the namespaces that it matches count, too; None: no others.
        topology_key: the node label whose values are the domains.
    """

    selector: Selector
    namespaces: tuple[str, ...]
    topology_key: str
    namespace_selector: Selector | None = None
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        """Hash once: terms are looked up for each change of a pod that has them."""
        parts = (self.selector, self.namespaces, self.topology_key, self.namespace_selector)
        object.__setattr__(self, "_hash", hash(parts))

    @override
    def __hash__(self) -> int:
        return self._hash

    @property
    def nbytes(self) -> int:
        """Bytes, about."""
        size = 200 + self.selector.nbytes + len(self.topology_key)
        size += sum([60 + len(name) for name in self.namespaces])
        return size + (0 if self.namespace_selector is None else self.namespace_selector.nbytes)

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether pods of a namespace, which has these labels, are looked at."""
        if self.names(namespace):
            return True
        return self.namespace_selector is not None and self.namespace_selector.matches(labels)

    def may_cover(self, namespace: str) -> bool:
        """Whether pods of a namespace are looked at, or are if it has certain labels."""
        return self.namespace_selector is not None or self.names(namespace)

    def names(self, namespace: str) -> bool:
        """Whether a namespace is one of those that are named."""
        position = bisect_left(self.namespaces, namespace)
        return position < len(self.namespaces) and self.namespaces[position] == namespace

    def matches(
        self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]
    ) -> bool:
        """Whether a pod of a namespace is one of those pods."""
        return self.covers(namespace, namespace_labels) and self.selector.matches(labels)


UNTOLD: Final = AffinityTerm(NOTHING, (), "")
"""A term of which a store kept once that there is one, and no more."""


def affinity_term(
    namespace: str,
    topology_key: str,
    selector: Selector,
    namespaces: Iterable[str] = (),
    namespace_selector: Selector | None = None,
) -> AffinityTerm:
    """A term of a pod; one without namespaces and namespace selector is about the pod's own."""
    named = tuple(sorted(set(namespaces)))
    if not named and namespace_selector is None:
        named = (namespace,)
    return AffinityTerm(selector, named, topology_key, namespace_selector)


def with_label_keys(
    selector: Selector,
    labels: Mapping[str, str],
    match_label_keys: Iterable[str],
    mismatch_label_keys: Iterable[str],
) -> Selector:
    """The selector as it is stored: with the pod's values of some labels; other keys add none."""
    added = [Requirement(key, IN, (labels[key],)) for key in match_label_keys if key in labels]
    added += [
        Requirement(key, NOT_IN, (labels[key],)) for key in mismatch_label_keys if key in labels
    ]
    return selector.and_requirements(Selector(tuple(added)))
