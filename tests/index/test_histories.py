"""However a state came about, the index counts it as one rebuilt from it, and as plain counting."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from bench.soak.reference_replica import differences
from tests.conformance.core import change_of, folded
from tests.index.changes import GROUPS, KEYS, Fold, Hold, Keep, LookBack, Read, Step, batches, steps
from tests.index.comparing import (
    assert_counts,
    assert_group,
    assert_holdings,
    assert_members,
    assert_usage,
    read,
)
from tests.index.counting import Cluster
from tests.reference.histories import History, changed, histories
from topospread.index.builder import Builder

if TYPE_CHECKING:
    from topospread.index.changes import IndexChange
    from topospread.index.snapshot import Snapshot


def play(builder: Builder, steps: list[Step]) -> tuple[Cluster, list[tuple[Snapshot, Cluster]]]:
    """The cluster after all steps, and the held snapshots, each with the cluster at its time."""
    cluster, held = Cluster(), []
    for step in steps:
        match step:
            case Fold(changes):
                builder.fold(changes)
                cluster.change(changes)
            case Keep(groups):
                assert builder.ensure_counted(groups).missing(groups) == []
            case Read():
                read(builder.snapshot)
            case Hold():
                held.append((builder.snapshot, cluster.copy()))
            case LookBack():
                for snapshot, _ in held:
                    read(snapshot)
    return cluster, held


@given(steps)
def test_incremental_counts_are_those_of_a_rebuild(steps: list[Step]) -> None:
    builder, rebuilt = Builder(), Builder()
    cluster, _ = play(builder, steps)
    rebuilt.fold(cluster.changes())
    for one in (builder, rebuilt):
        assert_counts(one.snapshot, cluster)
        assert_counts(one.ensure_counted(GROUPS), cluster)
        assert_members(one, cluster)
    assert builder.snapshot.nodes.id == rebuilt.snapshot.nodes.id


@given(steps)
def test_a_pod_sees_the_state_without_what_is_held_for_it(steps: list[Step]) -> None:
    builder = Builder()
    builder.ensure_counted(GROUPS[::2])
    cluster, _ = play(builder, [*steps, Keep(list(GROUPS))])
    snapshot = builder.snapshot
    for (namespace, name), held in cluster.reservations.items():
        others = cluster.copy()
        del others.reservations[(namespace, name)]
        seen = snapshot.without(namespace, held, GROUPS)
        for group in GROUPS:
            assert_group(seen, others, group)
        assert_usage(seen, others)
        assert_holdings(seen, others)
    assert_counts(snapshot, cluster)


@given(steps, st.integers(1, 4))
def test_counts_stay_right_while_groups_go_and_come_back(steps: list[Step], most: int) -> None:
    builder = Builder(max_groups=most)
    cluster, _ = play(builder, steps)
    assert_counts(builder.snapshot, cluster)
    for group in GROUPS:
        snapshot = builder.ensure_counted([group])
        assert len(snapshot.groups) <= most
        assert_counts(snapshot, cluster)


@given(steps)
def test_a_snapshot_stays_as_it_was(steps: list[Step]) -> None:
    builder = Builder(max_groups=5)
    builder.ensure_counted(GROUPS[:4])
    _, held = play(builder, [*steps, Hold()])
    for snapshot, cluster in held:
        assert_counts(snapshot, cluster)
    for snapshot, cluster in held:  # now that all of them have worked everything out
        assert_counts(snapshot, cluster)


@given(batches, st.lists(st.integers(0, 8)))
def test_the_size_of_batches_does_not_matter(changes: list[IndexChange], cuts: list[int]) -> None:
    at_once, one_by_one, in_pieces = Builder(), Builder(), Builder()
    for builder in (at_once, one_by_one, in_pieces):
        builder.ensure_counted(GROUPS)
    at_once.fold(changes)
    for change in changes:
        one_by_one.fold([change])
    bounds = [0, *sorted(min(cut, len(changes)) for cut in cuts), len(changes)]
    for first, last in pairwise(bounds):
        in_pieces.fold(changes[first:last])
    cluster = Cluster()
    cluster.change(changes)
    for builder in (at_once, one_by_one, in_pieces):
        assert_counts(builder.snapshot, cluster)


@given(histories(max_changes=20))
def test_kubernetes_histories_count_as_a_rebuild(history: History) -> None:
    builder, state = folded(history.start), history.start
    builder.ensure_counted(GROUPS)
    for change in history.changes:
        builder.fold([change_of(change.object, gone=change.gone)])
        state = changed(state, change)
    ours, other = builder.snapshot, folded(state).ensure_counted(GROUPS)
    assert ours.nodes.id == other.nodes.id
    assert list(differences(ours, other, GROUPS, KEYS)) == []
