"""Overlays: a snapshot as it would be after hypothetical changes.

The builder and the snapshot that decisions read are not touched. Groups get versions of their own,
so that what is worked out for hypothetical nodes does not push out what is kept for real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Final

from topospread.index.snapshot import PODS
from topospread.kube.affinity import NO_SCHEDULE
from topospread.kube.objects import Taint

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from topospread.index.changes import PodRow
    from topospread.index.groups import Group
    from topospread.index.nodes import NodeTable
    from topospread.index.snapshot import Reservations, Snapshot
    from topospread.kube.objects import Node
    from topospread.spread.topology import GroupKey

DRAIN_TAINT: Final = Taint("ToBeDeletedByClusterAutoscaler", effect=NO_SCHEDULE)
"""cluster-autoscaler's, on a node that it empties and then removes."""


@dataclass(frozen=True, slots=True)
class PodDelta:
    """A pod that is added to the node of its row (+1) or removed from it (−1)."""

    namespace: str
    row: PodRow
    delta: int


@dataclass(frozen=True, slots=True)
class Overlay:
    """Hypothetical changes of a snapshot; names are of nodes.

    Attributes:
        joined: new nodes, under names that no node has.
        changed: nodes that are there, with other labels, taints or amounts.
        gone: nodes that leave with all that is on them; they belong to no domain any more.
        emptied: nodes that stay, with :data:`DRAIN_TAINT` and without what was on them: domains
            that are eligible all the same, unless a constraint honours taints.
        moves: pods; those that leave are gone before nodes are drained, so that drained nodes do
            not lose them; those that come to drained nodes are not there either.
    """

    joined: Sequence[Node] = ()
    changed: Sequence[Node] = ()
    gone: Sequence[str] = ()
    emptied: Sequence[str] = ()
    moves: Sequence[PodDelta] = ()


def apply_overlay(
    snapshot: Snapshot, changes: Overlay, groups: Iterable[GroupKey]
) -> tuple[Snapshot, int]:
    """The snapshot with the changes, and how many pods and reservations drained nodes lost by them.

    Args:
        snapshot: the state; nodes to drain or change are in it, nodes to join are not.
        changes: what to apply.
        groups: the groups that will be looked at, all of them kept; the answer has no others.
    """
    nodes = snapshot.nodes
    drained = [nodes.slot(name) for name in (*changes.gone, *changes.emptied)]
    emptied = drained[len(changes.gone) :]
    usage = snapshot.usage
    evicted = sum(usage.on(slot).get(PODS, 0) for slot in drained)
    left = {nodes.names[slot] for slot in drained}
    removed = sum(
        move.delta < 0 and move.row.requests is not None and move.row.node_name in left
        for move in changes.moves
    )
    if emptied:
        usage = usage.changed(
            {
                (resource, slot): -amount
                for slot in emptied
                for resource, amount in usage.on(slot).items()
            }
        )
    state = replace(
        snapshot,
        nodes=_nodes(snapshot, changes),
        groups=_groups(snapshot, groups, emptied),
        reservations=_reservations(snapshot, left),
        usage=usage,
        # What pods hold on nodes that are gone would be looked at by its slots.
        holdings=snapshot.holdings.emptied(drained),
        nominated={
            pod: row for pod, row in snapshot.nominated.items() if row.node_name not in left
        },
        slots=max(snapshot.slots, nodes.capacity) + len(changes.joined),
    )
    moves = sorted(
        (move for move in changes.moves if move.row.node_name not in left),
        key=lambda move: move.namespace,
    )
    for namespace, here in groupby(moves, key=lambda move: move.namespace):
        state = state.adjusted(namespace, [(m.row, m.delta) for m in here], state.groups)
    # Those that were removed may have left the snapshot meanwhile.
    return state, max(0, evicted - removed)


def _nodes(snapshot: Snapshot, changes: Overlay) -> NodeTable:
    nodes = snapshot.nodes
    written: dict[int, Node | None] = {nodes.slot(node.name): node for node in changes.changed}
    written |= {nodes.slot(name): None for name in changes.gone}
    for name in changes.emptied:
        slot = nodes.slot(name)
        node = nodes.node(slot)
        assert node is not None, "nodes to drain are there"
        written[slot] = replace(node, taints=(*node.taints, DRAIN_TAINT))
    # Slots below may hold pods of nodes that are not known.
    first = max(snapshot.slots, nodes.capacity)
    written |= dict(enumerate(changes.joined, first))
    if not written:
        return nodes
    capacity = first + len(changes.joined) if changes.joined else nodes.capacity
    return nodes.changed(written, capacity)


def _groups(
    snapshot: Snapshot, groups: Iterable[GroupKey], emptied: Sequence[int]
) -> Mapping[GroupKey, Group]:
    made: dict[GroupKey, Group] = {}
    for key in groups:
        group = snapshot.groups[key]
        counts = group.counts(snapshot.nodes.capacity)
        made[key] = group.changed({slot: -int(counts[slot]) for slot in emptied if counts[slot]})
    return made


def _reservations(snapshot: Snapshot, drained: set[str]) -> Reservations:
    held = snapshot.reservations
    if not held or not drained:
        return held
    return held.changed({pod: None for pod, row in held if row.node_name in drained})
