"""Pods that would be made anew when their node is drained, from what the store holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.codec.parsing import kept
from topospread.codec.stored import object_from_stored
from topospread.generated.internal.v1 import stored_pb2
from topospread.kube.objects import TERMINAL_PHASES

if TYPE_CHECKING:
    from collections.abc import Collection

    from topospread.store.api import StoredObject

STAYS_BEHIND: Final = frozenset({"DaemonSet", "Node"})
"""Controllers whose pods are not made anew elsewhere: a DaemonSet's, and static pods' mirrors."""


def replacement(stored: StoredObject, drained: Collection[str]) -> bytes | None:
    """The v1.Pod that would replace a stored pod, without its node and status.

    None for one that is on no drained node, has ended or is about to, or belongs to its node.

    Args:
        stored: a pod.
        drained: names of nodes.

    Raises:
        CorruptValue: the payload cannot be read.
    """
    listed = kept(stored_pb2.ListedPod, stored.payload)
    meta = listed.metadata
    if listed.spec.node_name not in drained or meta.HasField("deletion_timestamp"):
        return None
    owners = {owner.kind for owner in meta.owner_references if owner.controller}
    if listed.status.phase in TERMINAL_PHASES or owners & STAYS_BEHIND:
        return None
    pod = object_from_stored(stored).pod
    pod.spec.node_name = ""
    pod.ClearField("status")
    return pod.SerializeToString()
