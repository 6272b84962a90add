"""Scans in key order, one short statement a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.errors import StoreUnavailable
from topospread.store import values
from topospread.store.api import Key, Kind, StoredObject
from topospread.store.sqlite import clusters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.store.sqlite.connections import Connections

_KINDS = {kind.value: kind for kind in Kind}


def scan(
    connections: Connections, name: str, page: int, kind: Kind | None
) -> Iterator[Sequence[StoredObject]]:
    """Pages of a cluster's objects, or of those of one kind.

    Each page is of one moment, the next one of a later.
    """
    with connections.reading() as connection:
        opening = connection.opening
        cluster = clusters.load(connection, name)
    if cluster is None:
        return
    # Names are never empty, so that all of a kind come after the first of these.
    last, last_kind = ((0, "", ""), max(_KINDS)) if kind is None else ((kind, "", ""), kind)
    while True:
        with connections.reading() as connection:
            if connection.opening != opening:
                raise StoreUnavailable("the store's file was replaced while it was read: retry")
            rows = connection.execute(
                "SELECT kind, namespace, name, value FROM object WHERE cluster = ? "
                "AND (kind, namespace, name) > (?, ?, ?) AND kind <= ? "
                "ORDER BY kind, namespace, name LIMIT ?",
                (cluster.id, *last, last_kind, page),
            ).fetchall()
        if not rows:
            return
        yield [
            _object(_KINDS[kind], namespace, name, value)
            for kind, namespace, name, value in rows
            if kind in _KINDS
        ]
        last = rows[-1][:3]


def _object(kind: Kind, namespace: object, name: object, value: object) -> StoredObject:
    if isinstance(namespace, str) and isinstance(name, str):
        return values.unpack(Key(kind, namespace, name), clusters.blob(value))
    # Not written by us; the caller counts and skips it.
    return StoredObject(Key(kind, "", repr(name)), clusters.blob(value), b"")
