"""One cluster's objects in a dict, read as a store is: for what has a state without a server.

It writes nothing down and starts no thread. The newest changes are kept, so that watches go on and
the pages of a list are of one revision.
"""

from __future__ import annotations

import secrets
import threading
import time
from bisect import bisect_right
from collections import deque
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from topospread.errors import IdentityChanged, RevisionCompacted, RevisionOfOtherHistory
from topospread.store.checks import check_cluster
from topospread.store.model import Applied, Head, Key, Kind, LogEntry, Put, Revision, Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from topospread.store.model import Change, StoredObject

KEPT: Final = 10_000
"""Changes that are kept at least, if there were as many."""

_TAG_BYTES: Final = 8

_place: Final = attrgetter("namespace", "name")


class DictStore:
    """A store to read from, and to feed; see :class:`~topospread.store.api.ReadStore`.

    Args:
        cluster: its name; no other one is there.
        objects: of it, each once.
    """

    def __init__(self, cluster: str, objects: Iterable[StoredObject]) -> None:
        check_cluster(cluster)
        self.cluster: Final = cluster
        self._objects = {each.key: each for each in objects}
        self._identity: Final = secrets.token_hex(16)
        self._revision = Revision(1, secrets.token_hex(_TAG_BYTES))
        self._first = self._revision
        self._kept: deque[tuple[Transaction, Sequence[tuple[Key, StoredObject | None]]]] = deque()
        self._kept_changes = 0
        self._ordered: dict[Kind, list[Key]] = {}
        self._changed = threading.Condition()

    def feed(self, changes: Iterable[Change]) -> None:
        """Put and remove objects, in one step; the last word on each holds, whatever its version.

        What changes nothing makes no revision.
        """
        with self._changed:
            replaced: dict[Key, StoredObject | None] = {}
            for change in changes:
                if isinstance(change, Put):
                    item, key = change.object, change.object.key
                else:
                    item, key = None, change.key
                before = self._objects.get(key)
                if item == before:
                    continue
                replaced.setdefault(key, before)
                if item is None:
                    del self._objects[key]
                else:
                    self._objects[key] = item
                if item is None or before is None:
                    self._ordered.pop(key.kind, None)
            if replaced:
                self._log(replaced)
                self._changed.notify_all()

    def _log(self, replaced: Mapping[Key, StoredObject | None]) -> None:
        entries = tuple([_entry(key, self._objects.get(key), replaced[key]) for key in replaced])
        previous = self._revision
        self._revision = Revision(previous.number + 1, secrets.token_hex(_TAG_BYTES))
        made = Transaction(self._revision, previous.tag, entries)
        self._kept.append((made, tuple(replaced.items())))
        self._kept_changes += len(entries)
        while self._kept_changes - len(self._kept[0][0].entries) >= KEPT:
            oldest, _ = self._kept.popleft()
            self._kept_changes -= len(oldest.entries)
            self._first = oldest.revision

    # ------------------------------ the contract

    def head(self, cluster: str, *, timeout: float | None = None) -> Head:
        """See the contract."""
        del timeout
        check_cluster(cluster)
        if cluster != self.cluster:
            return Head("", Revision(), at=_now())
        return Head(self._identity, self._revision, self._first.number + 1)

    def verify(self, cluster: str, identity: str, revision: Revision) -> None:
        """See the contract."""
        with self._changed:
            self._after(cluster, identity, revision)

    def scan(
        self, cluster: str, page: int = 2000, *, kind: Kind | None = None
    ) -> Iterator[Sequence[StoredObject]]:
        """See the contract."""
        kinds = (kind,) if kind is not None else tuple(Kind)
        with self._changed:
            found = [self._objects[key] for each in kinds for key in self._in_order(cluster, each)]
        for start in range(0, len(found), page):
            yield found[start : start + page]

    def get(self, cluster: str, key: Key) -> StoredObject | None:
        """See the contract."""
        return self._of(cluster).get(key)

    def clusters(self) -> Sequence[str]:
        """See the contract."""
        return [self.cluster]

    def read_range(
        self,
        cluster: str,
        kind: Kind,
        namespace: str,
        after: tuple[str, str],
        limit: int,
        max_bytes: int,
    ) -> tuple[Sequence[StoredObject], bool]:
        """See the contract."""
        found: list[StoredObject] = []
        size = 0
        with self._changed:
            keys = self._in_order(cluster, kind)
            place = (namespace, after[1]) if namespace else after
            first = bisect_right(keys, place, key=_place)
            for key in keys[first : first + limit]:
                if namespace and key.namespace != namespace:
                    return found, False
                found.append(self._objects[key])
                size += len(found[-1].payload)
                if size >= max_bytes:
                    return found, True
        return found, len(found) == limit

    def read_keys(self, cluster: str, keys: Sequence[Key]) -> Sequence[StoredObject]:
        """See the contract."""
        objects = self._of(cluster)
        return [found for key in keys if (found := objects.get(key)) is not None]

    def read_undo(
        self, cluster: str, identity: str, since: Revision, wanted: Callable[[Key], bool]
    ) -> Mapping[Key, StoredObject | None]:
        """See the contract."""
        found: dict[Key, StoredObject | None] = {}
        with self._changed:
            for _, replaced in self._after(cluster, identity, since):
                for key, before in replaced:
                    if key not in found and wanted(key):
                        found[key] = before
        return found

    def follow(
        self, cluster: str, identity: str, after: Revision, *, wait: float, limit: int = 1000
    ) -> Sequence[Transaction]:
        """See the contract."""
        with self._changed:
            if wait > 0 and after == self._revision:
                self._changed.wait(wait)
            found: list[Transaction] = []
            entries = 0
            for made, _ in self._after(cluster, identity, after):
                if entries >= limit:
                    break
                found.append(made)
                entries += len(made.entries)
            return found

    def wake(self, cluster: str) -> None:
        """See the contract."""
        del cluster
        with self._changed:
            self._changed.notify_all()

    def purge(self, cluster: str, *, timeout: float | None = None) -> Applied:
        """Nothing is due: only what a server holds for callers ends by itself."""
        del cluster, timeout
        return Applied(self._revision, self._revision, ())

    def confirm_history(
        self, cluster: str, kinds: Collection[Kind], *, identity: str = "", instead_of: str = ""
    ) -> None:
        """There is only one."""

    def _of(self, cluster: str) -> Mapping[Key, StoredObject]:
        check_cluster(cluster)
        return self._objects if cluster == self.cluster else {}

    def _in_order(self, cluster: str, kind: Kind) -> Sequence[Key]:
        check_cluster(cluster)
        if cluster != self.cluster:
            return ()
        keys = self._ordered.get(kind)
        if keys is None:
            found = [key for key in self._objects if key.kind is kind]
            keys = self._ordered[kind] = sorted(found, key=_place)
        return keys

    def _after(
        self, cluster: str, identity: str, revision: Revision
    ) -> Sequence[tuple[Transaction, Sequence[tuple[Key, StoredObject | None]]]]:
        """What came after a revision; raises as follow()."""
        check_cluster(cluster)
        if cluster != self.cluster or identity != self._identity:
            raise IdentityChanged("the cluster is not the one followed so far")
        if revision == self._revision:
            return ()
        kept, first = list(self._kept), self._first
        passed = revision.number - first.number
        if passed < 0:
            raise RevisionCompacted(
                f"revision {revision.number} is older than what is kept: list again",
                (first.number, first.tag),
            )
        if passed >= len(kept) or kept[passed][0].previous_tag != revision.tag:
            raise RevisionOfOtherHistory(
                f"revision {revision.number} is of another history: list again"
            )
        return kept[passed:]


def _entry(key: Key, now: StoredObject | None, before: StoredObject | None) -> LogEntry:
    if now is None and before is not None:
        return LogEntry(key, None, uid=before.uid, version=before.resource_version)
    return LogEntry(key, now)


def _now() -> int:
    return time.time_ns() // 1_000_000
