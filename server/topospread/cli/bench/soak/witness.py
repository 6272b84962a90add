"""A replica of one's own that follows the whole day, and what it says beside one that begins anew.

It lives in a process of its own. A recorder beside it follows the log from revision 0.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread.app.stores import open_store
from topospread.cli.bench.cluster import HASH, HOSTNAME, ZONE
from topospread.cli.bench.record import Gap, Recorder
from topospread.cli.bench.soak.comparing import differences
from topospread.kube.selectors import selector_from_pairs
from topospread.replica.replica import ReplicaOptions
from topospread.replica.replicas import Consistency, Freshness, Replicas, seconds_from_now
from topospread.spread.topology import GroupKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from topospread.cli.bench.soak.templates import Template
    from topospread.replica.view import View
    from topospread.store.api import Transaction

SHOWN: Final = 5

_LOAD_SECONDS: Final = 300.0
_LOOK: Final = 0.01
_NEWEST: Final = Consistency(Freshness.FULLY_CONSISTENT)


@dataclass(frozen=True, slots=True)
class Compared:
    """An index that followed, beside one that was made anew.

    Attributes:
        groups: whose counts were compared.
        unlike: what they say differently, the first few; nothing if all is well.
    """

    revision: int
    nodes: int
    pods: int
    label_sets: int
    groups: int
    unlike: list[str]


@dataclass(frozen=True, slots=True)
class Recorded:
    """The log from its beginning.

    Attributes:
        head: number of the newest revision.
        gap: what is missing; empty if all is well.
    """

    revisions: int
    head: int
    changes: int
    gap: str


class Witness:
    """Follows a cluster that exists.

    Args:
        address: of the store.
        cluster: its name.
    """

    def __init__(self, address: str, cluster: str) -> None:
        self._cluster = cluster
        self._changes = 0
        self._opened = ExitStack()
        self._store = open_store(address, os.environ)
        self._opened.callback(self._store.close)
        self._replicas = Replicas(self._store, ReplicaOptions())
        self._opened.callback(self._replicas.close)
        self._newest(self._replicas, ())
        self._recorder = Recorder(self._store, cluster, self._count)

    def close(self) -> None:
        """Stop following."""
        self._opened.close()

    def catch_up(self) -> None:
        """Wait until what is in the store now is recorded, or will never be."""
        head = self._store.head(self._cluster).revision.number
        ends = time.monotonic() + _LOAD_SECONDS
        recorder = self._recorder
        while recorder.recorded < head and recorder.going_on and time.monotonic() < ends:
            time.sleep(_LOOK)

    def compare(self, about: Iterable[Template]) -> Compared:
        """Compare all that there is, while nothing changes.

        Args:
            about: whose counts to compare, beside those of the templates of earlier calls.
        """
        ours = self._newest(self._replicas, _groups(about))
        groups = list(ours.snapshot.groups)
        with closing(Replicas(self._store, ReplicaOptions())) as anew:
            theirs = self._newest(anew, groups)
        if ours.revision == theirs.revision:
            found = differences(ours.snapshot, theirs.snapshot, groups, (ZONE, HOSTNAME))
            unlike = list(islice(found, SHOWN))
        else:
            unlike = [f"revision {ours.revision.number} was followed by others meanwhile"]
        return Compared(
            ours.revision.number,
            ours.snapshot.node_count,
            ours.snapshot.pods,
            ours.snapshot.label_sets,
            len(groups),
            unlike,
        )

    def finish(self) -> Recorded:
        """The log up to its present end."""
        head = self._store.head(self._cluster).revision.number
        try:
            revisions, gap = self._recorder.finish(), ""
        except Gap as found:
            revisions, gap = 0, str(found)
        return Recorded(revisions, head, self._changes, gap)

    def _newest(self, replicas: Replicas, groups: Iterable[GroupKey]) -> View:
        """The state that the store has now, with counts for some groups."""
        deadline = seconds_from_now(_LOAD_SECONDS)
        replica, _ = replicas.resolve(self._cluster, _NEWEST, deadline)
        return replica.keep(groups)

    def _count(self, transaction: Transaction) -> None:
        self._changes += len(transaction.entries)


def _groups(about: Iterable[Template]) -> Iterator[GroupKey]:
    """All revisions of each application, and this one alone."""
    for template in about:
        pairs = sorted(template.labels.items())
        yield GroupKey(template.namespace, selector_from_pairs(pairs))
        yield GroupKey(template.namespace, selector_from_pairs([p for p in pairs if p[0] != HASH]))


def catch_up(witness: Witness) -> None:
    """In a child: see Witness.catch_up."""
    witness.catch_up()


def compare(witness: Witness, about: Iterable[Template]) -> Compared:
    """In a child: see Witness.compare."""
    return witness.compare(about)


def finish(witness: Witness) -> Recorded:
    """In a child: see Witness.finish."""
    return witness.finish()
