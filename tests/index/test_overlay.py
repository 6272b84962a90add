"""An overlay is counted as if the changes had happened; the real state stays."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.index.changes import ELIGIBILITIES, GROUPS, KEYS, batches, nodes, rows
from tests.index.comparing import (
    assert_counts,
    assert_group,
    assert_holdings,
    assert_usage,
    nodes_by_domain,
)
from tests.index.counting import Cluster
from topospread.index.builder import Builder
from topospread.index.changes import ReservationRow
from topospread.index.overlay import DRAIN_TAINT, Overlay, PodDelta, apply_overlay
from topospread.index.snapshot import NO_RESERVATIONS

if TYPE_CHECKING:
    from hypothesis.strategies import DataObject

    from topospread.index.changes import PodRow
    from topospread.kube.objects import Node


@settings(max_examples=60)
@given(batches, batches, st.lists(nodes, max_size=3), st.data())
def test_overlay_is_counted_as_if_it_had_happened(first, second, joined, data: DataObject):
    builder, cluster = Builder(), Cluster()
    for changes in (first, second):
        builder.fold(changes)
        cluster.change(changes)
    before = builder.ensure_counted(GROUPS)
    changes = draw(data, cluster, [replace(n, name=f"new-{i}") for i, n in enumerate(joined)])
    after, evicted = apply_overlay(before, changes, GROUPS)

    drained = {*changes.gone, *changes.emptied}
    removed = Cluster()
    removed.nodes = cluster.nodes
    removed.pods = {
        ("", str(n)): move.row for n, move in enumerate(changes.moves) if move.delta < 0
    }
    lost = sum(
        pods - removed.taken("pods").get(name, 0)
        for name, pods in cluster.taken("pods").items()
        if name in drained
    )
    assert evicted == lost
    imagined = happened(cluster, changes)
    assert_usage(after, imagined)
    assert_holdings(after, imagined)
    left = {*changes.gone, *changes.emptied}
    assert dict(after.nominated) == {
        pod: row for pod, row in before.nominated.items() if row.node_name not in left
    }
    for eligibility in ELIGIBILITIES:
        for key in KEYS:
            assert nodes_by_domain(after, eligibility, key) == imagined.nodes_by_domain(
                eligibility, key
            )
    for group in GROUPS:
        assert_group(after, imagined, group)
    assert dict(after.reservations) == {
        f"{namespace}/{name}": row for (namespace, name), row in imagined.reservations.items()
    }
    assert_counts(before, cluster)
    assert builder.snapshot is before


def draw(data: DataObject, cluster: Cluster, joined: list[Node]) -> Overlay:
    """Some possible changes of the cluster."""
    drained = data.draw(st.lists(st.sampled_from([*cluster.nodes, ""]), unique=True))
    drained = [name for name in drained if name]
    stay = data.draw(st.integers(0, len(drained)))
    pods = data.draw(st.lists(st.sampled_from([*cluster.pods.items(), None]), unique_by=str))
    removed = [PodDelta(pod[0][0], pod[1], -1) for pod in pods if pod is not None]
    added: list[PodRow] = data.draw(st.lists(rows, max_size=3))
    moves = [*removed, *(PodDelta("default", row, +1) for row in added)]
    others = data.draw(st.lists(nodes, max_size=2, unique_by=lambda node: node.name))
    changed = [n for n in others if n.name in cluster.nodes and n.name not in drained]
    return Overlay(joined, changed, drained[stay:], drained[:stay], moves)


def happened(cluster: Cluster, changes: Overlay) -> Cluster:
    """The cluster with the changes made, counted without an index."""
    after = cluster.copy()
    drained = {*changes.gone, *changes.emptied}
    for move in changes.moves:
        if move.delta < 0:
            at = next(
                k for k, row in after.pods.items() if (k[0], row) == (move.namespace, move.row)
            )
            del after.pods[at]
    after.pods = {k: row for k, row in after.pods.items() if row.node_name not in drained}
    after.reservations = {
        k: row for k, row in after.reservations.items() if row.node_name not in drained
    }
    for number, move in enumerate(changes.moves):
        if move.delta > 0 and move.row.node_name not in drained:
            after.pods[move.namespace, f"added-{number}"] = move.row
    for name in changes.gone:
        del after.nodes[name]
    for name in changes.emptied:
        node = after.nodes[name]
        after.nodes[name] = replace(node, taints=(*node.taints, DRAIN_TAINT))
    after.nodes |= {node.name: node for node in (*changes.joined, *changes.changed)}
    return after


def row(uid: str = "u1", node: str = "n1") -> ReservationRow:
    return ReservationRow(uid, (("app", "a"),), node)


@pytest.mark.parametrize(
    ("held_for", "asked", "own"),
    [("u1", "u1", True), ("u1", "", True), ("", "u1", True), ("u1", "u2", False)],
)
def test_reservation_is_the_pods_own_if_the_uid_is_equal_or_unknown(held_for, asked, own):
    reservations = NO_RESERVATIONS.changed({"default/web": row(held_for)})

    assert (reservations.of("default", "web", asked) is not None) == own
    assert reservations.of("default", "other", asked) is None
    assert reservations.of("other", "web", asked) is None


def test_a_version_stays_as_it_was():
    names = [f"default/p{number}" for number in range(1000)]
    first = NO_RESERVATIONS.changed({name: row() for name in names})
    second = first.changed({names[0]: None, names[1]: row(node="n2"), "default/none": None})

    assert (len(NO_RESERVATIONS), len(first), len(second)) == (0, 1000, 999)
    assert {found.node_name for _, found in first} == {"n1"}
    assert first.get(names[0]) == row()
    assert second.get(names[0]) is None
    assert second.get(names[1]) == row(node="n2")
