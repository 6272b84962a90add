"""The keys under which what selects pods is found by a pod that it may select.

Groups and the anti-affinity terms of pods that run name namespaces and labels. A key for each
namespace with each value of a label would take a product of two lists that a caller chooses: what
names many of both has few keys, and is looked at for more pods than it selects.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.kube.selectors import IN

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from topospread.kube.selectors import Requirement, Selector

MOST_KEYS: Final = 32
"""Keys of one selector with its namespaces: most have one."""

_MOST_REQUIREMENTS: Final = 8
"""Requirements that are compared for what selects least."""

SelectorKey = tuple[str | None, tuple[str, str] | None]
"""A namespace, None for any; and a label, None for any."""


def keys_of(namespaces: Collection[str] | None, selector: Selector) -> list[SelectorKey]:
    """The keys of a selector, at most MOST_KEYS.

    Args:
        namespaces: of the pods; None for all.
        selector: of the pods.
    """
    narrow = narrowing(selector)
    pairs: list[tuple[str, str] | None] = [None]
    if narrow and len(narrow[0].values) <= MOST_KEYS:
        pairs = [(narrow[0].key, value) for value in narrow[0].values]
    if namespaces is not None and len(namespaces) * len(pairs) <= MOST_KEYS:
        return [(name, pair) for name in namespaces for pair in pairs]
    return [(None, pair) for pair in pairs]


def keys_for(namespace: str, labels: Mapping[str, str]) -> Iterator[SelectorKey]:
    """The keys of whatever may select a pod."""
    for name in (namespace, None):
        yield name, None
        for pair in labels.items():
            yield name, pair


def narrowing(selector: Selector) -> list[Requirement]:
    """Requirements of which a pod has one of the values if it is selected, fewest values first."""
    found = [each for each in selector.requirements if each.operator == IN]
    return sorted(found, key=lambda each: len(each.values))[:_MOST_REQUIREMENTS]
