"""Lists of objects, in pages that are all of one revision.

A page reads a stretch of keys as they are now, and takes back what has changed there since the
list's revision: the store keeps what its newest transactions replaced. So a page costs what stands
in its stretch and what was written since the list began, however many objects there are; nothing is
kept between two pages, and any server of the store can answer the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.errors import IdentityChanged, RevisionCompacted, RevisionOfOtherHistory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.replica.view import Token
    from topospread.store.api import Lister
    from topospread.store.model import Key, Kind, StoredObject


PAGE_BYTES: Final = 3 << 20
"""Of the objects of a page as they are stored, if it has more than one. A page that is answered
fits into the 4 MiB that gRPC clients take by default.
"""

READ_OBJECTS: Final = 5000
READ_BYTES: Final = 16 << 20
"""Of the objects that are read for a page, about: a selector may match few of them, or none. The
page ends there, and the next one goes on.
"""

SMALLEST_STRETCH: Final = 100
LARGEST_STRETCH: Final = 1000
"""Objects that are read at once: Redis serves nobody else meanwhile."""

_BEGIN_ANEW: Final = "the list was not read to its end in time: begin it anew, without a page token"

Place = tuple[str, str]
"""A namespace and a name. Strings have the order of their bytes in UTF-8."""


@dataclass(frozen=True, slots=True)
class Listed:
    """The objects that are listed.

    Attributes:
        namespace: empty for all.
        matches: which of them to answer.
        at: the revision.
    """

    cluster: str
    kind: Kind
    namespace: str
    matches: Callable[[StoredObject], bool]
    at: Token


def list_page(
    store: Lister, listed: Listed, after: Place, most: int
) -> tuple[Sequence[StoredObject], Place | None]:
    """Objects of a revision by namespace and name as bytes, and where the next page begins.

    It ends at PAGE_BYTES, and after READ_OBJECTS or READ_BYTES that were read for it.

    Args:
        store: where they are.
        listed: which ones.
        after: where the page begins.
        most: objects at most.

    Returns:
        The objects, and the place after which the next page begins; None when this is the last.

    Raises:
        RevisionUnavailable: the store does not have the revision any more.
    """
    objects: list[StoredObject] = []
    size = read_bytes = 0
    stretch = min(max(most + 1, SMALLEST_STRETCH), LARGEST_STRETCH)
    for read, (place, stored) in enumerate(_at_revision(store, listed, after, stretch)):
        checkpoint()
        if read >= READ_OBJECTS or read_bytes >= READ_BYTES:
            return objects, after
        if stored is not None:
            read_bytes += len(stored.payload)
            # What cannot be read counts as absent.
            if stored.digest and listed.matches(stored):
                size += len(stored.payload)
                if len(objects) == most or (objects and size > PAGE_BYTES):
                    return objects, after
                objects.append(stored)
        after = place
    return objects, None


def stretches(
    store: Lister, cluster: str, kind: Kind, namespace: str
) -> Iterator[Sequence[StoredObject]]:
    """The objects of a kind in their order, each stretch as new as its read or newer.

    Args:
        store: where they are.
        cluster: its name.
        kind: of the objects.
        namespace: empty for all.
    """
    after, more = ("", ""), True
    while more:
        found, more = store.read_range(cluster, kind, namespace, after, LARGEST_STRETCH, PAGE_BYTES)
        if found:
            yield found
            after = _place(found[-1].key)


def _at_revision(
    store: Lister, listed: Listed, after: Place, stretch: int
) -> Iterator[tuple[Place, StoredObject | None]]:
    """The places after one, in order, with what the revision has there: None for nothing.

    They are read in stretches, the next one twice as long, because each one costs a look at all
    that came since the revision.
    """
    more = True
    while more:
        found, more = store.read_range(
            listed.cluster, listed.kind, listed.namespace, after, stretch, PAGE_BYTES
        )
        here: dict[Place, StoredObject | None] = {_place(each.key): each for each in found}
        last = _place(found[-1].key) if found and more else None
        here |= _replaced(store, listed, after, last)
        yield from sorted(here.items(), key=itemgetter(0))
        if last is not None:
            after, stretch = last, min(2 * stretch, LARGEST_STRETCH)


def _replaced(
    store: Lister, listed: Listed, after: Place, last: Place | None
) -> dict[Place, StoredObject | None]:
    """What the objects of a stretch were at the revision that have changed since."""

    def wanted(key: Key) -> bool:
        if key.kind is not listed.kind or (listed.namespace and key.namespace != listed.namespace):
            return False
        return _place(key) > after and (last is None or _place(key) <= last)

    at = listed.at
    try:
        # After the stretch was read, so that all that it has is either older or taken back.
        replaced = store.read_undo(listed.cluster, at.identity, at.revision, wanted)
    except RevisionCompacted as cause:
        raise RevisionCompacted(f"{cause}: {_BEGIN_ANEW}") from cause
    except (IdentityChanged, RevisionOfOtherHistory) as cause:
        raise RevisionOfOtherHistory(
            f"the list is of another store or a deleted cluster: {_BEGIN_ANEW}"
        ) from cause
    return {_place(key): stored for key, stored in replaced.items()}


def _place(key: Key) -> Place:
    return key.namespace, key.name
