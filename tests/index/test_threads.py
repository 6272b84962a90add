"""Decision threads read snapshots, and have new groups counted, while another thread folds.

No test waits for luck: the folding thread does a fixed number of batches and the others go on until
it is done. What they check holds for every snapshot, whenever they get it.
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.index.changes import ZONE, group
from topospread.index.builder import Builder
from topospread.index.changes import IndexChange, NodeChange, PodChange, PodRow
from topospread.kube.objects import Node
from topospread.spread.topology import Eligibility, Traits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.index.snapshot import Snapshot
    from topospread.spread.topology import GroupKey

NODES = 130
PODS = 400
OWN = 50
BATCHES = 1200
READERS = 3

OF_APP = group(labels={"app": "a"})
# Another way to choose the same pods, so that two groups must always agree.
THE_SAME = group("default", None, ("app", "In", ("a", "nobody")))
ANY = Eligibility()
ZONED = Eligibility(keys=(ZONE,))
BY_ZONE = Traits(keys=(ZONE,))


@pytest.fixture(autouse=True)
def hasty_interpreter() -> Iterator[None]:
    """Threads take turns far more often than usual, so that they meet in the middle of things."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def pod(number: int, node: int) -> PodChange:
    labels = (("app", "a"), ("own", str(number % OWN)))
    return PodChange("default", f"p{number}", PodRow(labels, f"n{node}", True))


def node(number: int, zone: int) -> NodeChange:
    return NodeChange(f"n{number}", Node(f"n{number}", {ZONE: f"z{zone}"}))


def filled() -> Builder:
    """A cluster in which each pod is on some node, and each node in some zone."""
    builder = Builder(max_groups=16)
    builder.fold([node(number, number % 3) for number in range(NODES)])
    builder.fold([pod(number, number % NODES) for number in range(PODS)])
    builder.ensure_counted([OF_APP, THE_SAME])
    return builder


def batches() -> Iterator[list[IndexChange]]:
    """Pods move, nodes are relabelled; neither a pod nor a node is ever missing."""
    for turn in range(BATCHES):
        moves = [pod((turn * 7 + n) % PODS, (turn * 31 + n * 17) % NODES) for n in range(5)]
        relabelled = [node(turn % NODES, turn % 7)] if turn % 4 == 0 else []
        yield [*moves, *relabelled]


def assert_consistent(snapshot: Snapshot) -> None:
    """All counts of one snapshot agree with each other, and no pod is missing."""
    on_slots = snapshot.node_counts(OF_APP)
    assert int(on_slots.sum()) == PODS
    assert np.array_equal(snapshot.node_counts(THE_SAME), on_slots)
    column = snapshot.domains(ZONE)
    summed = np.bincount(column.ids[snapshot.alive], minlength=len(column.values))
    assert snapshot.membership(ZONED, ZONE).nodes.tolist() == summed.tolist()
    by_zone = np.zeros(len(column.values), dtype=np.int64)
    np.add.at(by_zone, column.ids[snapshot.alive], on_slots[snapshot.alive])
    for eligibility in (ANY, ZONED):
        for key in (OF_APP, THE_SAME):
            assert snapshot.domain_counts(key, eligibility, ZONE).tolist() == by_zone.tolist()
    partition = snapshot.partition(BY_ZONE)
    cells = snapshot.cells(OF_APP, partition)
    assert cells.nodes == partition.nodes.tolist()
    for number, members in enumerate(partition.members):
        held, nodes = np.unique(on_slots[members], return_counts=True)
        assert cells.held[number] == held.tolist()
        assert cells.within[number] == np.cumsum(nodes).tolist()


def while_folding(builder: Builder, look: Callable[[int], None]) -> None:
    """Fold all batches while readers look again and again.

    Now and then the folding thread goes on only when every reader has had another look.

    Args:
        builder: what is folded into.
        look: called with the reader's number.
    """
    done = threading.Event()
    looked = [threading.Event() for _ in range(READERS)]

    def read(number: int) -> None:
        try:
            while not done.is_set():
                look(number)
                looked[number].set()
        finally:
            looked[number].set()

    with ThreadPoolExecutor(READERS) as pool:
        readers = [pool.submit(read, number) for number in range(READERS)]
        try:
            for turn, batch in enumerate(batches()):
                builder.fold(batch)
                if turn % 20 == 19:
                    for event in looked:
                        assert event.wait(timeout=60)
                        event.clear()
        finally:
            done.set()
        for reader in readers:
            reader.result()


def test_every_snapshot_is_consistent_in_itself() -> None:
    builder = filled()
    while_folding(builder, lambda _: assert_consistent(builder.snapshot))
    assert_consistent(builder.snapshot)


def test_snapshots_come_in_order_and_old_ones_stay() -> None:
    builder = filled()
    seen: dict[int, tuple[Snapshot, list[int]]] = {}

    def look(reader: int) -> None:
        snapshot = builder.snapshot
        counts = snapshot.domain_counts(OF_APP, ANY, ZONE).tolist()
        before = seen.get(reader)
        if before is not None:
            old, old_counts = before
            assert snapshot.sequence >= old.sequence
            assert old.domain_counts(OF_APP, ANY, ZONE).tolist() == old_counts
        seen[reader] = snapshot, counts

    while_folding(builder, look)
    assert len(seen) == READERS


def test_new_groups_are_counted_in_the_middle_of_folding() -> None:
    builder = filled()
    turns = [0] * READERS

    def look(reader: int) -> None:
        turns[reader] += 1
        own = str((turns[reader] * 13 + reader) % OWN)
        asked = [OF_APP, THE_SAME, group(labels={"own": own})]
        snapshot = builder.snapshot
        if snapshot.missing(asked):
            snapshot = builder.ensure_counted(asked)
        assert pods_of(snapshot, asked[2]) == PODS // OWN
        assert_consistent(snapshot)

    while_folding(builder, look)
    assert len(builder.snapshot.groups) <= 16


def pods_of(snapshot: Snapshot, key: GroupKey) -> int:
    """All pods that a group counts, after the domains have been asked for as well."""
    assert snapshot.domain_counts(key, ZONED, ZONE).sum() == snapshot.node_counts(key).sum()
    return int(snapshot.node_counts(key).sum())
