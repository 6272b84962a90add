"""What a cluster holds at one moment, and the changes that make it anew from that."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from topospread.errors import ClusterNotFound, IdentityChanged
from topospread.store.api import Follower, Reader
from topospread.store.model import MAX_APPLY_BYTES, MAX_LIFETIME, Kind, Put

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.store.model import Change, Key, Revision, StoredObject

BATCH: Final = 250
"""Objects that are written at once: Redis serves others between two batches."""


@dataclass(frozen=True, slots=True)
class ClusterContents:
    """The objects of a cluster at one revision.

    Attributes:
        identity: of its history.
        revision: of all objects.
        objects: by key, in the order of their keys, as far as they can be read.
        unreadable: keys of the others.
    """

    identity: str
    revision: Revision
    objects: Mapping[Key, StoredObject]
    unreadable: Sequence[Key]


class _Source(Reader, Follower, Protocol):
    """The part of the store that is read."""


def read_contents(store: _Source, cluster: str) -> ClusterContents:
    """Read a cluster while others write it: the log tells what came during the scan.

    Raises:
        ClusterNotFound: no such cluster.
        IdentityChanged: it was deleted or restored meanwhile.
        RevisionUnavailable: more was written meanwhile than the log holds, or a failover lost it.
    """
    head = store.head(cluster)
    if not head.identity:
        raise ClusterNotFound(cluster)
    found: dict[Key, StoredObject] = {}
    for page in store.scan(cluster):
        found.update((each.key, each) for each in page)
    target = store.head(cluster)
    if target.identity != head.identity:
        raise IdentityChanged(f"cluster {cluster} was deleted or restored while it was read")
    revision = head.revision
    while revision.number < target.revision.number:
        for transaction in store.follow(cluster, head.identity, revision, wait=0):
            revision = transaction.revision
            for entry in transaction.entries:
                if entry.object is None:
                    found.pop(entry.key, None)
                else:
                    found[entry.key] = entry.object
    ordered = sorted(found.values(), key=lambda each: order(each.key))
    return ClusterContents(
        head.identity,
        revision,
        {each.key: each for each in ordered if each.digest},
        [each.key for each in ordered if not each.digest],
    )


def order(key: Key) -> tuple[int, str, str]:
    """The order of keys in a backup."""
    return key.kind, key.namespace, key.name


def batches(objects: Iterable[StoredObject], now: int) -> Iterator[Sequence[Change]]:
    """Writes of objects, as many at once as a store takes.

    Reservations keep the time at which they end; those that ended by now are left out.

    Args:
        objects: in the order of a backup.
        now: milliseconds since 1970.
    """
    batch: list[Change] = []
    size, kind = 0, Kind.NODE
    for each in objects:
        lifetime = None
        if each.key.kind is Kind.RESERVATION and each.expires_at:
            if each.expires_at <= now:
                continue
            lifetime = min(each.expires_at - now, MAX_LIFETIME)
        full = len(batch) == BATCH or size + len(each.payload) > MAX_APPLY_BYTES
        # A reservation and its pod are never written together.
        if batch and (full or each.key.kind is not kind):
            yield batch
            batch, size = [], 0
        batch.append(Put(each, lifetime=lifetime))
        size += len(each.payload)
        kind = each.key.kind
    if batch:
        yield batch
