"""Whether two indexes say the same of a cluster, whatever slots its nodes have in them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.index.usage import PODS
from topospread.kube.selectors import selector_text
from topospread.spread.topology import Eligibility

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import Workload
    from topospread.spread.topology import GroupKey

RESOURCES: Final = (PODS, "cpu", "memory")

_MOST: Final = 200
"""Letters of a value that are shown."""


def differences(
    one: Snapshot, other: Snapshot, groups: Iterable[GroupKey], keys: Sequence[str]
) -> Iterator[str]:
    """What one says otherwise than the other, a line each.

    Args:
        one: a state; it counts the groups.
        other: the same state, come about in another way; it counts the groups, too.
        groups: to compare the counts of, by node and by domain.
        keys: the topology keys to compare domains of.
    """
    if one.nodes.sorted_names != other.nodes.sorted_names:
        yield f"nodes: {one.node_count} are not those of {other.node_count}"
        return
    for name in one.nodes.sorted_names:
        if one.nodes.node(one.slot(name)) != other.nodes.node(other.slot(name)):
            yield f"node {name}: not the same"
    whole: Sequence[tuple[str, object, object]] = (
        ("pods", one.pods, other.pods),
        ("label sets", one.label_sets, other.label_sets),
        ("reservations", dict(one.reservations), dict(other.reservations)),
        ("workloads", _workloads(one), _workloads(other)),
    )
    for what, ours, theirs in whole:
        if ours != theirs:
            yield f"{what}: {_short(ours)} and {_short(theirs)}"
    for resource in RESOURCES:
        own, its = _taken(one, resource), _taken(other, resource)
        yield from _by_node(f"{resource} that are taken", one, own, its)
    for group in groups:
        yield from _group(one, other, group, keys)


def _group(one: Snapshot, other: Snapshot, group: GroupKey, keys: Sequence[str]) -> Iterator[str]:
    what = f"{group.namespace}/{selector_text(group.selector)}"
    yield from _by_node(what, one, _on_nodes(one, group), _on_nodes(other, group))
    for key in keys:
        own, its = _in_domains(one, group, key), _in_domains(other, group, key)
        if own != its:
            yield f"{what} by {key}: {_short(own)} and {_short(its)}"


def _by_node(what: str, one: Snapshot, own: list[int], its: list[int]) -> Iterator[str]:
    unlike = [at for at, (ours, theirs) in enumerate(zip(own, its, strict=True)) if ours != theirs]
    if unlike:
        at = unlike[0]
        name = one.nodes.sorted_names[at]
        yield f"{what}: on {len(unlike)} nodes, such as {name}: {own[at]} and {its[at]}"


def _on_nodes(snapshot: Snapshot, group: GroupKey) -> list[int]:
    """Matching pods, in the order of the node names."""
    counts: list[int] = snapshot.node_counts(group)[snapshot.nodes.order].tolist()
    return counts


def _taken(snapshot: Snapshot, resource: str) -> list[int]:
    """What is taken of a resource, in the order of the node names."""
    taken = snapshot.usage.taken(resource, snapshot.nodes.capacity)
    amounts: list[int] = taken[snapshot.nodes.order].tolist()
    return amounts


def _in_domains(snapshot: Snapshot, group: GroupKey, key: str) -> dict[str, int]:
    """Matching pods in each domain that has a node."""
    every = Eligibility(keys=(key,))
    counts, values = snapshot.domain_counts(group, every, key), snapshot.domains(key).values
    present = np.flatnonzero(snapshot.membership(every, key).present).tolist()
    return {values[domain]: int(counts[domain]) for domain in present}


def _workloads(snapshot: Snapshot) -> dict[str, Mapping[tuple[str, str], Workload]]:
    return {name: each.objects for name, each in snapshot.workloads.items()}


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _MOST else f"{text[:_MOST]}…"
