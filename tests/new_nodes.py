"""The labels that a node which is added to a cluster would have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

Labels = dict[str, str]
HOSTNAME = "kubernetes.io/hostname"


def is_place(key: str) -> bool:
    return key.startswith(("topology.", "failure-domain.")) or key.endswith(("/zone", "/region"))


def labels_of_added(
    like: Labels, like_name: str, name: str, asked: Mapping[str, str], nodes: Sequence[Labels]
) -> Labels:
    """Those of the node that it is like, but for its own names and for where it is.

    Args:
        like: the labels of that node.
        like_name: its name.
        name: the new node's.
        asked: labels that the new node shall have.
        nodes: the labels of all nodes, which show what else the nodes of a domain have.
    """
    made = {
        key: name if value == like_name and not key.endswith(("/zone", "/region")) else value
        for key, value in like.items()
    }
    domains = {key: value for key, value in asked.items() if is_place(key)}
    elsewhere = {key for key, value in domains.items() if like.get(key) != value}
    there = [each for each in nodes if domains.items() <= each.items()]
    if elsewhere and there:
        made = {key: value for key, value in made.items() if not is_place(key)}
        made |= {key: value for key, value in there[0].items() if is_place(key)}
    elif elsewhere:
        # A new zone is in the old region; nothing else of the old one's is there.
        regions = any(key.endswith("/region") for key in elsewhere)
        zones = any(key.endswith("/zone") for key in elsewhere)
        for key, value in like.items():
            of_old = [new for old, new in domains.items() if like.get(old) == value]
            inner = regions or (zones and not key.endswith("/region"))
            if is_place(key) and (of_old or inner):
                made[key] = (of_old or [name])[0]
    return {**made, **asked, HOSTNAME: name}
