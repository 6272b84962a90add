"""A state with other nodes than there are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from topospread.index.usage import PODS

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import Node
    from topospread.spread.topology import GroupKey


def with_nodes(
    snapshot: Snapshot, nodes: Mapping[str, Node], groups: Collection[GroupKey]
) -> Snapshot:
    """A state with nodes changed, or added where none has the name; added ones are empty.

    Args:
        snapshot: the state.
        nodes: by name.
        groups: the groups that will be looked at, all of them kept.
    """
    changed: dict[int, Node] = {}
    free = snapshot.nodes.capacity
    for name, node in nodes.items():
        slot = snapshot.nodes.slot(name)
        if slot < 0:
            # Slots past the table may hold pods of nodes that are not known yet.
            while _holds_pods(snapshot, free, groups):
                free += 1
            slot, free = free, free + 1
        changed[slot] = node
    # Versions of their own, so that nothing that follows from imagined nodes is kept with ours.
    own = {group: snapshot.groups[group].changed({}) for group in groups}
    table = snapshot.nodes.changed(changed, free)
    return replace(snapshot, nodes=table, groups={**snapshot.groups, **own})


def _holds_pods(snapshot: Snapshot, slot: int, groups: Collection[GroupKey]) -> bool:
    if snapshot.usage.taken(PODS, slot + 1)[slot]:
        return True
    return any(snapshot.groups[group].counts(slot + 1)[slot] for group in groups)
