"""The topology key that a key on no node may stand for."""

from __future__ import annotations

import difflib
from functools import lru_cache
from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread.spread.linting.rules import DEPRECATED, WELL_KNOWN, meant_key

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.index.snapshot import Snapshot

MOST_NODES: Final = 200
"""Nodes whose label keys are looked at."""

MOST_KEYS: Final = 200
"""Label keys that one is compared with."""

ALIKE: Final = 0.75
"""How alike prefixes, and names, are of which one is taken for the other misspelt."""


def meant_on(snapshot: Snapshot, key: str) -> str:
    """The key that nodes have, or a well-known one, that a key on no node looks like; or empty.

    Also the one that nodes have from before the key took its place.
    """
    if has_key(snapshot, key):
        return ""
    return _meant_among(key.strip(), tuple(islice(dict.fromkeys(_label_keys(snapshot)), MOST_KEYS)))


@lru_cache(maxsize=256)
def _meant_among(key: str, there: tuple[str, ...]) -> str:
    known = meant_key(key) or DEPRECATED.get(key, "")
    for each in (key, known):
        if each in there:
            return each
    before = [each for each in there if DEPRECATED.get(each) == key]
    if before:
        return before[0]
    ending = [each for each in there if each.endswith(f"/{key}")]
    if len(ending) == 1:
        return ending[0]
    if known or key in WELL_KNOWN:
        return known
    return next((each for each in there if _are_alike(key, each)), "")


def _are_alike(key: str, other: str) -> bool:
    """Whether both parts are: most keys share a prefix, and are no spellings of each other."""
    parts = zip(key.rpartition("/"), other.rpartition("/"), strict=True)
    return all(difflib.SequenceMatcher(None, *pair).ratio() >= ALIKE for pair in parts)


def has_key(snapshot: Snapshot, key: str) -> bool:
    """Whether any node has the label."""
    return bool((snapshot.domains(key).ids >= 0).any())


def _label_keys(snapshot: Snapshot) -> Iterator[str]:
    for slot in snapshot.nodes.order[:MOST_NODES].tolist():
        node = snapshot.nodes.node(slot)
        if node is not None:
            yield from node.labels
