"""Decodes log entries and stored objects into changes of the index."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from topospread.bounded import USUAL
from topospread.codec.rows import ChangeDecoder
from topospread.errors import CorruptValue
from topospread.replica.timers import ExpiryQueue
from topospread.store.model import Key, Kind, LogEntry, StoredObject
from topospread.store.values import Observed, observed_version

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from topospread.bounded import Budgets
    from topospread.index.changes import IndexChange


LOG: Final = logging.getLogger(__name__)


class Decoder:
    """Decodes for one cluster, and remembers which values could not be read. One thread's.

    Attributes:
        corrupt: keys of values that are left out: they count as absent until they are written anew.
        expiries: reservations by when they are due.
        observed: how far the API server was read, by kind.
    """

    def __init__(self, cluster: str, budgets: Budgets = USUAL) -> None:
        self.corrupt: set[Key] = set()
        self.expiries = ExpiryQueue()
        self.observed: Observed = ()
        self._cluster = cluster
        self._changes = ChangeDecoder(budgets["rows"])

    def objects(self, stored: Iterable[StoredObject]) -> Iterator[IndexChange]:
        """The changes that bring stored objects into an empty index."""
        for item in stored:
            yield from self._one(item.key, item)

    def entries(self, entries: Iterable[LogEntry]) -> Iterator[IndexChange]:
        """The changes of log entries, in order."""
        for entry in entries:
            yield from self._one(entry.key, entry.object)

    def _one(self, key: Key, stored: StoredObject | None) -> Iterator[IndexChange]:
        if key.kind is Kind.PROGRESS:
            found = None if stored is None else observed_version(stored)
            if found is not None:
                self.observed = tuple(sorted((dict(self.observed) | dict([found])).items()))
            return
        if key.kind is Kind.RESERVATION:
            self.expiries.update(key, 0 if stored is None else stored.expires_at)
        try:
            if stored is not None and not stored.digest:
                raise CorruptValue("the stored value has no readable header")
            change = self._changes.change(key, stored)
        except CorruptValue as cause:
            if key not in self.corrupt:
                name = f"{key.kind.name} {key.namespace}/{key.name}"
                LOG.error("cluster %s: %s is left out: %s", self._cluster, name, cause)
                self.corrupt.add(key)
            change = self._changes.change(key, None)
        else:
            self.corrupt.discard(key)
        yield change
