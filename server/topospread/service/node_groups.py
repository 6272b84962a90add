"""Nodes that would join, made from a template as an autoscaler makes them from a node group."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from topospread.checkpoints import checkpoint
from topospread.kube.objects import HOSTNAME_LABEL, Node

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

UNNAMED: Final = "node"


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Equal nodes that may join.

    Attributes:
        name: tells groups apart in answers.
        template: what each is like; its name begins the nodes' names.
        count: how many; None: as many as may be, where the fewest are looked for.
        variants: labels that the nodes take in turn, one mapping a zone; none when they are alike.
    """

    name: str
    template: Node
    count: int | None
    variants: Sequence[Mapping[str, str]] = ()


def made(group: NodeGroup, count: int, is_taken: Callable[[str], bool]) -> list[Node]:
    """The first nodes of a group.

    Each has a name of its own and that as its hostname label, whatever the template's: two nodes
    never share a host.

    Args:
        group: like what.
        count: how many.
        is_taken: whether a node of this name exists already.
    """
    begin = group.template.name or group.name or UNNAMED
    found: list[Node] = []
    number = 0
    while len(found) < count:
        checkpoint()
        name = f"{begin}-{number}"
        number += 1
        if is_taken(name):
            continue
        varied = group.variants[len(found) % len(group.variants)] if group.variants else {}
        labels = {**group.template.labels, **varied, HOSTNAME_LABEL: name}
        found.append(replace(group.template, name=name, labels=labels))
    return found


def joined(
    groups: Sequence[NodeGroup], counts: Sequence[int], is_known: Callable[[str], bool]
) -> list[list[Node]]:
    """For each group its nodes, all under names that differ.

    Args:
        groups: the node groups.
        counts: how many of each.
        is_known: whether the state has a node of this name.
    """
    names: set[str] = set()
    nodes: list[list[Node]] = []
    for group, count in zip(groups, counts, strict=True):
        here = made(group, count, lambda name: name in names or is_known(name))
        names.update(node.name for node in here)
        nodes.append(here)
    return nodes
