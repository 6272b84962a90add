"""How far the API server was read, as the store keeps it: an object for each kind.

Its resourceVersion is the one that a feed has read up to, so that a write keeps the highest by the
rules that hold for any object, and its log entry comes in the transaction of what was read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from topospread.store.api import Key, Kind, Put, StoredObject
from topospread.store.values import DIGEST_BYTES

if TYPE_CHECKING:
    from collections.abc import Mapping

# No decision looks at it: all digests are equal.
_DIGEST: Final = bytes(DIGEST_BYTES)

OBSERVABLE: Final[tuple[Kind, ...]] = tuple(
    kind for kind in Kind if kind not in (Kind.RESERVATION, Kind.PROGRESS)
)
"""Kinds that an API server has."""

VERSION: Final = re.compile(r"0|[1-9][0-9]{0,254}")
"""What can be compared with others: numbers as decimal strings."""

_KINDS: Final = {str(kind.value): kind for kind in OBSERVABLE}

Observed = tuple[tuple[Kind, str], ...]
"""The resourceVersion that was read up to, of each kind of which somebody told; by kind."""


def progress(observed: Mapping[Kind, str]) -> list[Put]:
    """The changes that note how far each kind was read."""
    return [
        Put(StoredObject(Key(Kind.PROGRESS, "", str(kind.value)), b"", _DIGEST, version))
        for kind, version in observed.items()
    ]


def noted(stored: StoredObject) -> tuple[Kind, str] | None:
    """What a stored object of Kind.PROGRESS says; None when it says nothing that is known here."""
    kind = _KINDS.get(stored.key.name)
    if kind is None or not stored.digest or not stored.resource_version:
        return None
    return kind, stored.resource_version
