"""The pods that may be moved, of which alone more is read than the index knows."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from topospread.codec.frames import framed
from topospread.codec.stored_pods import bound_pod
from topospread.errors import CorruptValue, InvalidRequest
from topospread.kube.objects import TERMINAL_PHASES
from topospread.service.rebalancing.inventory import InventoryPod
from topospread.service.state.members import read_members

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.checkpoints import CooperativeYield
    from topospread.replica.replica import Replica
    from topospread.replica.view import View
    from topospread.service.rebalancing.inventory import ConstraintComponent, NamespaceInventory
    from topospread.store.api import Store


def read_pods(
    store: Store,
    replica: Replica,
    view: View,
    inventories: Mapping[str, NamespaceInventory],
    components: Sequence[ConstraintComponent],
    turn: CooperativeYield,
) -> None:
    """Fill in the members of the pods of some components, as they are at a view's revision.

    Raises:
        Unavailable: see read_members.
    """
    wanted = [shaped for each in components for shaped in each.pod_classes]
    shaped_of = {each: shaped for shaped in wanted for each in shaped.classes}
    if not shaped_of:
        return
    namespaces = {each.namespace for each in components}
    found = read_members(store, replica, view, namespaces, read=shaped_of)
    known = {
        (pod_class.namespace, name): (shaped_of[pod_class], node)
        for pod_class, name, node in found.unchanged
        if node
    }
    shapes = {id(shaped) for shaped in wanted}
    for key, item in found.stored.items():
        turn()
        shaped, node = known.get((key.namespace, key.name), (None, ""))
        if key in found.changed:
            with suppress(CorruptValue, InvalidRequest):
                bound = bound_pod(item.payload, TERMINAL_PHASES)
                if bound.counted:
                    shape_key = framed(item.payload).key
                    shaped, node = inventories[key.namespace].pod_classes.get(shape_key), bound.node
        if shaped is not None and id(shaped) in shapes:
            shaped.members.append(InventoryPod(key.name, item.uid, node, item.payload))
