"""A replica that follows the whole day, compared with one that begins anew.

It lives in a process of its own. A recorder beside it follows the log from revision 0.
"""

from __future__ import annotations

import os
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.cluster import HASH, HOSTNAME, ZONE
from bench.stores import LogGap, LogRecorder
from topospread.app.stores import open_store
from topospread.index.snapshot import PODS
from topospread.kube.selectors import selector_from_pairs, selector_text
from topospread.replica.replicas import Replicas, seconds_from_now
from topospread.replica.state import ReplicaOptions
from topospread.replica.view import Consistency, Freshness
from topospread.spread.topology import Eligibility, GroupKey

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from bench.soak.templates import Template
    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import Workload
    from topospread.replica.view import View
    from topospread.store.model import Transaction


SHOWN: Final = 5

_LOAD_SECONDS: Final = 300.0
_LOOK: Final = 0.01
_NEWEST: Final = Consistency(Freshness.FULLY_CONSISTENT)

RESOURCES: Final = (PODS, "cpu", "memory")
_MOST: Final = 200
"""Letters of a value that are shown."""


@dataclass(frozen=True, slots=True)
class IndexComparison:
    """An index that followed, beside one that was made anew.

    Attributes:
        groups: whose counts were compared.
        unlike: the first few differences; none if all is well.
    """

    revision: int
    nodes: int
    pods: int
    label_sets: int
    groups: int
    differing: list[str]


@dataclass(frozen=True, slots=True)
class LogSummary:
    """The log from its beginning.

    Attributes:
        head: number of the newest revision.
        gap: what is missing; empty if all is well.
    """

    revisions: int
    head: int
    changes: int
    gap: str


class ReferenceReplica:
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
        self._recorder = LogRecorder(self._store, cluster, self._count)

    def close(self) -> None:
        """Stop following."""
        self._opened.close()

    def catch_up(self) -> None:
        """Wait until the store's present state is recorded, or never will be."""
        head = self._store.head(self._cluster).revision.number
        ends = time.monotonic() + _LOAD_SECONDS
        recorder = self._recorder
        while recorder.recorded < head and recorder.going_on and time.monotonic() < ends:
            time.sleep(_LOOK)

    def compare(self, about: Iterable[Template]) -> IndexComparison:
        """Compare the whole states, while nothing changes.

        Args:
            about: whose counts to compare, beside those of the templates of earlier calls.
        """
        ours = self._newest(self._replicas, _groups(about))
        groups = list(ours.snapshot.groups)
        with closing(Replicas(self._store, ReplicaOptions())) as fresh:
            theirs = self._newest(fresh, groups)
        if ours.revision == theirs.revision:
            found = differences(ours.snapshot, theirs.snapshot, groups, (ZONE, HOSTNAME))
            differing = list(islice(found, SHOWN))
        else:
            differing = [f"revision {ours.revision.number} was followed by others meanwhile"]
        return IndexComparison(
            ours.revision.number,
            ours.snapshot.node_count,
            ours.snapshot.pods,
            ours.snapshot.label_sets,
            len(groups),
            differing,
        )

    def finish(self) -> LogSummary:
        """The log up to its present end."""
        head = self._store.head(self._cluster).revision.number
        try:
            revisions, gap = self._recorder.finish(), ""
        except LogGap as found:
            revisions, gap = 0, str(found)
        return LogSummary(revisions, head, self._changes, gap)

    def _newest(self, replicas: Replicas, groups: Iterable[GroupKey]) -> View:
        """The state that the store has now, with counts for some groups."""
        deadline = seconds_from_now(_LOAD_SECONDS)
        replica, _ = replicas.resolve(self._cluster, _NEWEST, deadline)
        return replica.ensure_counted(groups)

    def _count(self, transaction: Transaction) -> None:
        self._changes += len(transaction.entries)


def _groups(about: Iterable[Template]) -> Iterator[GroupKey]:
    """All revisions of each application, and this one alone."""
    for template in about:
        pairs = sorted(template.labels.items())
        yield GroupKey(template.namespace, selector_from_pairs(pairs))
        yield GroupKey(template.namespace, selector_from_pairs([p for p in pairs if p[0] != HASH]))


def catch_up(replica: ReferenceReplica) -> None:
    """Run ReferenceReplica.catch_up in a child."""
    replica.catch_up()


def compare(replica: ReferenceReplica, about: Iterable[Template]) -> IndexComparison:
    """Run ReferenceReplica.compare in a child."""
    return replica.compare(about)


def finish(replica: ReferenceReplica) -> LogSummary:
    """Run ReferenceReplica.finish in a child."""
    return replica.finish()


def differences(
    one: Snapshot, other: Snapshot, groups: Iterable[GroupKey], keys: Sequence[str]
) -> Iterator[str]:
    """The differences between two snapshots, a line each.

    Args:
        one: a state; it counts the groups.
        other: the same state, come about in another way; it counts the groups, too.
        groups: to compare the counts of, by node and by domain.
        keys: the topology keys to compare domains of.
    """
    if one.nodes.sorted_names != other.nodes.sorted_names:
        yield f"nodes: {one.node_count} are not those of {other.node_count}"
        return
    for name in one.nodes.sorted_names:
        if one.nodes.node(one.slot(name)) != other.nodes.node(other.slot(name)):
            yield f"node {name}: not the same"
        ours, theirs = (each.holdings.on(each.slot(name)) for each in (one, other))
        if ours != theirs:
            yield f"held on node {name}: {_short(ours)} and {_short(theirs)}"
    whole: Sequence[tuple[str, object, object]] = (
        ("pods", one.pods, other.pods),
        ("label sets", one.label_sets, other.label_sets),
        ("reservations", dict(one.reservations), dict(other.reservations)),
        ("nominated pods", one.nominated, other.nominated),
        ("workloads", _workloads(one), _workloads(other)),
    )
    for what, own, its in whole:
        if own != its:
            yield f"{what}: {_short(own)} and {_short(its)}"
    for resource in RESOURCES:
        taken = _taken(one, resource), _taken(other, resource)
        yield from _by_node(f"{resource} that are taken", one, *taken)
    for group in groups:
        yield from _group(one, other, group, keys)


def _group(one: Snapshot, other: Snapshot, group: GroupKey, keys: Sequence[str]) -> Iterator[str]:
    what = f"{group.namespace}/{selector_text(group.selector)}"
    yield from _by_node(what, one, _on_nodes(one, group), _on_nodes(other, group))
    for key in keys:
        own, its = _in_domains(one, group, key), _in_domains(other, group, key)
        if own != its:
            yield f"{what} by {key}: {_short(own)} and {_short(its)}"


def _by_node(what: str, one: Snapshot, own: list[int], its: list[int]) -> Iterator[str]:
    differing = [
        at for at, (ours, theirs) in enumerate(zip(own, its, strict=True)) if ours != theirs
    ]
    if differing:
        at = differing[0]
        name = one.nodes.sorted_names[at]
        yield f"{what}: on {len(differing)} nodes, such as {name}: {own[at]} and {its[at]}"


def _on_nodes(snapshot: Snapshot, group: GroupKey) -> list[int]:
    """Matching pods, in the order of the node names."""
    counts: list[int] = snapshot.node_counts(group)[snapshot.nodes.order].tolist()
    return counts


def _taken(snapshot: Snapshot, resource: str) -> list[int]:
    """The used amounts of a resource, in the order of the node names."""
    taken = snapshot.usage.taken(resource, snapshot.nodes.capacity)
    amounts: list[int] = taken[snapshot.nodes.order].tolist()
    return amounts


def _in_domains(snapshot: Snapshot, group: GroupKey, key: str) -> dict[str, int]:
    """Matching pods in each domain that has a node."""
    every = Eligibility(keys=(key,))
    counts, values = snapshot.domain_counts(group, every, key), snapshot.domains(key).values
    present = np.flatnonzero(snapshot.membership(every, key).present).tolist()
    return {values[domain]: int(counts[domain]) for domain in present}


def _workloads(snapshot: Snapshot) -> dict[str, Mapping[tuple[str, str], Workload]]:
    return {name: each.objects for name, each in snapshot.workloads.items()}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
