"""Scans in key order, one short statement a page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.store import values
from topospread.store.api import Key, Kind, StoredObject
from topospread.store.sqlite import clusters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.store.sqlite.connections import Connections

_KINDS = {kind.value: kind for kind in Kind}


def scan(connections: Connections, name: str, page: int) -> Iterator[Sequence[StoredObject]]:
    """Pages of a cluster's objects; each page is of one moment, the next one of a later."""
    with connections.reading() as connection:
        cluster = clusters.load(connection, name)
    if cluster is None:
        return
    last = (0, "", "")
    while True:
        with connections.reading() as connection:
            rows = connection.execute(
                "SELECT kind, namespace, name, value FROM object WHERE cluster = ? "
                "AND (kind, namespace, name) > (?, ?, ?) ORDER BY kind, namespace, name LIMIT ?",
                (cluster.id, *last, page),
            ).fetchall()
        if not rows:
            return
        yield [
            values.unpack(Key(_KINDS[kind], namespace, name), value)
            for kind, namespace, name, value in rows
            if kind in _KINDS
        ]
        last = rows[-1][:3]
