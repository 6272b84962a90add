"""New nodes like those that are there: in the domains of others, or in new ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Final

from topospread.kube.objects import HOSTNAME_LABEL
from topospread.kube.taints import is_condition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import Node, Taint

_PLACES: Final = ("topology.", "failure-domain.")
"""How keys of labels begin that say where a node is; or they end with one of these:"""
_ZONE, _REGION = "/zone", "/region"


def is_zone(key: str) -> bool:
    """Whether a label names a zone or a region, of whichever provider."""
    return key.endswith((_ZONE, _REGION))


def is_place(key: str) -> bool:
    """Whether a label says where a node is."""
    return key.startswith(_PLACES) or is_zone(key)


def copied(
    snapshot: Snapshot, like: Node, name: str, domains: Mapping[str, str] | None = None
) -> Node:
    """A new node like one that is there, neither cordoned nor tainted for its condition.

    Args:
        snapshot: the nodes that are there.
        like: what it is like.
        name: its own.
        domains: those that it joins, by topology key, where they are not those of `like`. It has
            all labels of places of a node there; in a new domain, none of the old one's.
    """
    node = _moved(snapshot, like, domains) if domains else like
    return replace(
        node,
        name=name,
        labels=labels_of_new(node, name),
        taints=lasting_taints(like),
        unschedulable=False,
    )


def labels_of_new(like: Node, name: str) -> dict[str, str]:
    """The labels of a new node like one: those that hold the node's name hold the new one's."""
    labels = {
        key: name if value and value == like.name and not is_zone(key) else value
        for key, value in like.labels.items()
    }
    return labels | {HOSTNAME_LABEL: name}


def at_place(like: Node, there: Node, keys: Collection[str] = ()) -> Node:
    """A node with the labels of places of another, and its domains of these keys."""
    stays = {k: v for k, v in like.labels.items() if not (is_place(k) or k in keys)}
    place = {k: v for k, v in there.labels.items() if is_place(k) or k in keys}
    return replace(like, labels=stays | place)


def _moved(snapshot: Snapshot, like: Node, domains: Mapping[str, str]) -> Node:
    changed = {k: v for k, v in domains.items() if like.labels.get(k) != v}
    if not changed:
        return like
    there = _node_in(snapshot, domains)
    if there is not None:
        return at_place(like, there, domains)
    labels = dict(like.labels)
    for key, value in changed.items():
        old = like.labels.get(key)
        for other, own in like.labels.items():
            if is_place(other) and (own == old or _is_within(other, key)):
                labels[other] = value
    return replace(like, labels=labels | dict(domains))


def _is_within(key: str, other: str) -> bool:
    """Whether a new domain of the other key has new ones of the first: racks and zones of it."""
    return other.endswith(_REGION) or (other.endswith(_ZONE) and not key.endswith(_REGION))


def _node_in(snapshot: Snapshot, domains: Mapping[str, str]) -> Node | None:
    """The first node by name of these domains."""
    nodes = snapshot.alive
    for key, value in domains.items():
        nodes = nodes & snapshot.domains(key).having(frozenset([value]))
    order = snapshot.nodes.order
    slots = order[nodes[order]]
    return snapshot.nodes.node(int(slots[0])) if slots.size else None


def lasting_taints(node: Node) -> tuple[Taint, ...]:
    """A node's taints but for those that say that it starts, fails, is cordoned or goes away."""
    return tuple(taint for taint in node.taints if not is_condition(taint))


def free_names(snapshot: Snapshot, key: str = HOSTNAME_LABEL) -> Iterator[str]:
    """Names that no node has, nor a domain of a key."""
    values, names = snapshot.domains(key).number, snapshot.nodes
    for number in count(1):
        name = f"new-{number}"
        if name not in values and names.slot(name) < 0:
            yield name
