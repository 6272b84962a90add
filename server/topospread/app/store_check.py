"""Checks a store: all that servers would read, and that it agrees with the log."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.bounded import USUAL
from topospread.codec.rows import ChangeDecoder
from topospread.errors import ClusterNotFound, CorruptValue, RevisionCompacted, TopospreadError
from topospread.replica.view import Token
from topospread.store.backups import read_contents
from topospread.store.model import Kind, Revision
from topospread.store.values import FORMAT, name_of, observed_version

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topospread.store.api import MaintainedStore
    from topospread.store.backups import ClusterContents
    from topospread.store.model import Key, StoredObject, Transaction

MOST: Final = 100
"""Problems of one cluster that are named; the rest is counted."""


@dataclass(frozen=True, slots=True)
class ClusterCheck:
    """What a check found in a cluster.

    Attributes:
        name: of the cluster.
        revision: that it was checked at, as the API writes revisions; empty when it cannot be read.
        node_count, pod_count, workload_count, reservation_count: objects of these kinds.
        transaction_count: transactions that the log holds.
        problems: what is wrong, and what to do.
    """

    name: str
    revision: str = ""
    node_count: int = 0
    pod_count: int = 0
    workload_count: int = 0
    reservation_count: int = 0
    transaction_count: int = 0
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StoreCheck:
    """What a check found in a store.

    Attributes:
        store: its address, without secrets.
        format_version: of what it stores.
        clusters: by name.
        problems: of the store itself.
    """

    store: str
    format_version: int
    clusters: tuple[ClusterCheck, ...]
    problems: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems and not any(each.problems for each in self.clusters)


def check_store(store: MaintainedStore, clusters: Sequence[str] = ()) -> StoreCheck:
    """Read all of a store, while servers go on; nothing is written.

    Args:
        store: to read.
        clusters: their names; empty for all.

    Raises:
        StoreUnavailable: it is out of reach.
    """
    problems = tuple(store.damage())
    checked: list[ClusterCheck] = []
    for name in clusters or store.clusters():
        try:
            checked.append(_check(store, name))
        except ClusterNotFound as error:
            if clusters:
                checked.append(ClusterCheck(name, problems=(str(error),)))
        except TopospreadError as error:
            store.ping()  # of a store that is out of reach nothing is known
            checked.append(ClusterCheck(name, problems=(str(error),)))
    return StoreCheck(store.address, FORMAT, tuple(checked), problems)


def _check(store: MaintainedStore, name: str) -> ClusterCheck:
    contents = read_contents(store, name)
    counts = Counter(key.kind for key in contents.objects)
    problems = list(_values(contents))
    transactions = 0
    try:
        transactions, of_log = _log(store, name, contents)
        problems += of_log
    except TopospreadError as error:
        store.ping()
        problems.append(str(error))
    shown = problems[:MOST]
    if len(problems) > MOST:
        shown.append(f"and {len(problems) - MOST} more")
    nodes, pods, reservations = (counts[each] for each in (Kind.NODE, Kind.POD, Kind.RESERVATION))
    others = nodes + pods + reservations + counts[Kind.PROGRESS]
    return ClusterCheck(
        name,
        Token(contents.identity, contents.revision).encode(),
        nodes,
        pods,
        counts.total() - others,
        reservations,
        transactions,
        tuple(shown),
    )


def _values(contents: ClusterContents) -> Iterator[str]:
    """Values that servers leave out."""
    decoder = ChangeDecoder(USUAL["rows"])
    for key in contents.unreadable:
        yield _unreadable(key, "it has no readable header")
    for key, stored in contents.objects.items():
        try:
            if key.kind is not Kind.PROGRESS:
                decoder.change(key, stored)
            elif observed_version(stored) is None:
                raise CorruptValue("it names no kind and version")
        except CorruptValue as cause:
            yield _unreadable(key, str(cause))


def _unreadable(key: Key, why: str) -> str:
    return f"{name_of(key)} cannot be read: {why}: apply the object again"


def _log(store: MaintainedStore, name: str, contents: ClusterContents) -> tuple[int, list[str]]:
    """Number of transactions of the log, and where it contradicts itself or the objects."""
    last: dict[Key, StoredObject | None] = {}
    count, at = 0, _begin(store, name, contents)
    end = contents.revision
    while at.number < end.number:
        try:
            found = _next(store, name, contents, at)
        except RevisionCompacted as trimmed:
            # Others wrote meanwhile, and the log begins later now.
            if trimmed.oldest is None or trimmed.oldest[0] <= at.number:
                raise
            at, count = Revision(*trimmed.oldest), 0
            last.clear()
            continue
        for each in found:
            if each.revision.number != at.number + 1 or each.previous_tag != at.tag:
                gap = f"the log lacks what came between revisions {at.number} and"
                return count, [f"{gap} {each.revision.number}: {_RESTORE}"]
            if each.revision.number > end.number:
                break
            at = each.revision
            count += 1
            last.update((entry.key, entry.object) for entry in each.entries)
    if at.number > end.number:
        return count, []
    if at != end:
        return count, [f"the log ends with another transaction than is noted: {_RESTORE}"]
    return count, list(_contradictions(contents.objects, last))


_RESTORE: Final = "restore the cluster from a backup, or delete it and load it again"


def _begin(store: MaintainedStore, name: str, contents: ClusterContents) -> Revision:
    """The oldest revision that the log reaches."""
    try:
        store.follow(name, contents.identity, Revision(), wait=0, limit=1)
    except RevisionCompacted as trimmed:
        if trimmed.oldest is not None:
            return Revision(*trimmed.oldest)
        raise
    return Revision()


def _next(
    store: MaintainedStore, name: str, contents: ClusterContents, at: Revision
) -> Sequence[Transaction]:
    found = store.follow(name, contents.identity, at, wait=0)
    if not found:
        raise CorruptValue(
            f"the log ends at revision {at.number}, before its noted end: {_RESTORE}"
        )
    return found


def _contradictions(
    objects: Mapping[Key, StoredObject], last: Mapping[Key, StoredObject | None]
) -> Iterator[str]:
    """Objects that are not what the log says of them at last."""
    for key, logged in last.items():
        stored = objects.get(key)
        if logged is None and stored is not None:
            yield f"{name_of(key)} is there, though the log says that it was deleted: {_AGAIN}"
        elif logged is not None and logged.digest and stored is None:
            yield f"{name_of(key)} is gone, though the log has no deletion of it: {_AGAIN}"
        elif logged is not None and logged.digest and stored != logged:
            yield f"{name_of(key)} is another than the log says: {_AGAIN}"


_AGAIN: Final = "apply or delete the object again"
