"""One cluster's objects in a dict, read as a store is: for what has a state without a server.

It writes nothing down and starts no thread. The newest changes are kept, so that watches go on.
"""

from __future__ import annotations

import secrets
import threading
from bisect import bisect_right
from collections import deque
from itertools import islice, takewhile
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from topospread.store import rules
from topospread.store.checks import check_cluster
from topospread.store.model import Head, Key, Kind, Lease, LogEntry, Put, Revision, Transaction

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread.store.model import Change, Page, StoredObject

KEPT: Final = 10_000
"""Changes that are kept where nothing is said."""

_TAG_BYTES: Final = 8

_place: Final = attrgetter("namespace", "name")


class DictStore:
    """A store to read from, and to feed; see :class:`~topospread.store.api.Reader`.

    Args:
        cluster: its name; no other one is there.
        objects: of it, each once.
        kept: changes that are kept at least, if there were as many.
    """

    def __init__(self, cluster: str, objects: Iterable[StoredObject], *, kept: int = KEPT) -> None:
        check_cluster(cluster)
        self.cluster: Final = cluster
        self._objects = {each.key: each for each in objects}
        self._identity: Final = secrets.token_hex(16)
        self._revision = Revision(1, secrets.token_hex(_TAG_BYTES))
        self._first = self._revision
        self._kept: deque[Transaction] = deque()
        self._kept_changes = 0
        self._limit = kept
        self._ordered: dict[Kind, list[Key]] = {}
        self._woken = False
        self._changed = threading.Condition()

    def feed(self, changes: Iterable[Change]) -> None:
        """Put and remove objects, in one step; the last word on each holds, whatever its version.

        What changes nothing makes no revision.
        """
        with self._changed:
            replaced: dict[Key, StoredObject | None] = {}
            for change in changes:
                key = change.key
                item = change.object if isinstance(change, Put) else None
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
        self._kept.append(Transaction(self._revision, previous.tag, entries))
        self._kept_changes += len(entries)
        while self._kept_changes - len(self._kept[0].entries) >= self._limit:
            oldest = self._kept.popleft()
            self._kept_changes -= len(oldest.entries)
            self._first = oldest.revision

    # ------------------------------ the contract

    def head(self, cluster: str, *, timeout: float | None = None) -> Head:
        del timeout
        check_cluster(cluster)
        if cluster != self.cluster:
            return Head("", Revision())
        return Head(self._identity, self._revision, complete=True)

    def scan(
        self,
        cluster: str,
        kind: Kind,
        *,
        namespace: str = "",
        after: tuple[str, str] = ("", ""),
        limit: int = 1000,
        max_bytes: int = 4 << 20,
    ) -> Page:
        with self._changed:
            keys = self._in_order(cluster, kind)
            place = (namespace, after[1]) if namespace else after
            first = bisect_right(keys, place, key=_place)
            there = takewhile(
                lambda key: namespace in ("", key.namespace), islice(keys, first, first + limit)
            )
            return rules.page_of((self._objects[key] for key in there), limit, max_bytes)

    def get(self, cluster: str, keys: Sequence[Key]) -> Sequence[StoredObject]:
        check_cluster(cluster)
        objects = self._objects if cluster == self.cluster else {}
        return [found for key in keys if (found := objects.get(key)) is not None]

    def clusters(self) -> Sequence[str]:
        return [self.cluster]

    def follow(
        self, cluster: str, identity: str, after: Revision, *, wait: float, limit: int = 1000
    ) -> Sequence[Transaction]:
        with self._changed:
            if wait > 0 and after == self._revision:
                self._changed.wait_for(lambda: self._woken or after != self._revision, wait)
                self._woken = False
            return rules.first_of(self._after(cluster, identity, after), limit)

    def lease(self, cluster: str, *, timeout: float | None = None) -> Lease:
        del timeout
        check_cluster(cluster)
        return Lease("", 0, 0)  # nobody syncs it

    def wake(self, cluster: str) -> None:
        del cluster
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def _in_order(self, cluster: str, kind: Kind) -> Sequence[Key]:
        check_cluster(cluster)
        if cluster != self.cluster:
            return ()
        keys = self._ordered.get(kind)
        if keys is None:
            found = [key for key in self._objects if key.kind is kind]
            keys = self._ordered[kind] = sorted(found, key=_place)
        return keys

    def _after(self, cluster: str, identity: str, revision: Revision) -> Sequence[Transaction]:
        """What came after a revision; raises as follow()."""
        check_cluster(cluster)
        if cluster != self.cluster or identity != self._identity:
            raise rules.other_identity("" if cluster != self.cluster else self._identity)
        if revision == self._revision:
            return ()
        kept, first = list(self._kept), self._first
        passed = revision.number - first.number
        if passed < 0:
            raise rules.trimmed_past(revision.number, (first.number, first.tag))
        if passed >= len(kept) or kept[passed].previous_tag != revision.tag:
            raise rules.other_history(revision.number)
        return kept[passed:]


def _entry(key: Key, now: StoredObject | None, before: StoredObject | None) -> LogEntry:
    if now is None and before is not None:
        return LogEntry(key, None, uid=before.uid, version=before.resource_version)
    return LogEntry(key, now)
