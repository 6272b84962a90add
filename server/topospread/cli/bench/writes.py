"""Made-up changes: pods come and go while the cluster keeps its size."""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread.app.stores import open_store
from topospread.cli.bench.cluster import Size, pods
from topospread.codec.stored import stored
from topospread.store.api import LogEntry, Put, Remove
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.store.api import Change

_SEED: Final = 7
_FIRST: Final = 900_000
_LIVE: Final = 500
"""Pods that are there before the first of them goes again."""


def churn(size: Size) -> Iterator[Change]:
    """Changes without end: a new pod is bound, and soon an earlier one goes."""
    first = _FIRST
    live: deque[Put] = deque()
    while True:
        for pod in pods(size, random.Random(_SEED), first):
            put = Put(stored(ClusterObject(pod=pod)))
            yield put
            live.append(put)
            if len(live) > _LIVE:
                yield Remove(live.popleft().object.key)
        first += size.pods


def entries(size: Size, count: int, together: int) -> list[list[LogEntry]]:
    """The same as a log holds them: so many changes, a few to a transaction."""
    changes = islice(churn(size), count)
    made = [
        LogEntry(each.object.key, each.object)
        if isinstance(each, Put)
        else LogEntry(each.key, None)
        for each in changes
    ]
    return [made[at : at + together] for at in range(0, count, together)]


@dataclass(frozen=True, slots=True)
class Written:
    """A write that was acknowledged.

    Attributes:
        number: of its revision.
        at: when it was acknowledged, on the monotonic clock, which all processes share.
    """

    number: int
    at: float


class Author:
    """Writes to a store at an even pace; lives in a process of its own."""

    def __init__(self, address: str, size: Size) -> None:
        self._store = open_store(address, {})
        self._changes: dict[str, Iterator[Change]] = {}
        self._size = size

    def close(self) -> None:
        """Release the store."""
        self._store.close()

    def write(self, cluster: str, rate: float, together: int, seconds: float) -> list[Written]:
        """Write for so long.

        Args:
            cluster: where.
            rate: changes a second.
            together: changes in one write.
            seconds: how long.
        """
        changes = self._changes.setdefault(cluster, churn(self._size))
        written = []
        due = begun = time.monotonic()
        while due - begun < seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            applied = self._store.apply(cluster, list(islice(changes, together)))
            written.append(Written(applied.revision.number, time.monotonic()))
            due += together / rate
        return written


def write(
    author: Author, cluster: str, rate: float, together: int, seconds: float
) -> list[Written]:
    """In a child: see Author.write."""
    return author.write(cluster, rate, together, seconds)
