"""Nodes that would let a pod in: copies of nodes there are, in each domain that is open."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from topospread.index.overlay import Overlay
from topospread.kube.label_syntax import label_text
from topospread.kube.objects import HOSTNAME_LABEL, ZONE_LABEL
from topospread.kube.selectors import EXISTS, IN
from topospread.kube.taints import means_stay_away
from topospread.kube.volume_migration import ZONE_SEPARATOR
from topospread.service.explaining.copied_nodes import (
    at_place,
    copied,
    free_names,
    is_place,
    is_zone,
    lasting_taints,
)
from topospread.service.explaining.proposals import ProposedChange, Rank
from topospread.service.explaining.topology_keys import has_key
from topospread.service.fit import node_affinity, taint_toleration
from topospread.service.fit.pod_claims import claims_of
from topospread.service.fit.question import Fit
from topospread.service.fit.volume_zone import KEYS as ZONE_KEYS
from topospread_proto.v1 import explanation_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import Node
    from topospread.service.explaining.context import EvaluationContext
    from topospread.spread.topology import Bools

MOST_PLACES: Final = 64
"""Places that are tried, all at once: those with the fewest pods."""

WAYS_TO_ADD: Final = 3
"""Places that are tried alone, of those that take the pod together."""

MOST_IN_TURN: Final = 8
"""Domains that nodes are supposed in, one after the other."""

MOST_NAMED: Final = 3
"""Other domains that would do, in the text."""


_EMPTY: Final = frozenset([""])
"""The value of a label that names no place: nobody can add a node there."""


class AddedNode(NamedTuple):
    """A node that would let the pod in.

    Attributes:
        node: in a domain that is there, under a name that no node has.
        context: the judgement with it.
        like: the name of the node that it is a copy of.
        keys: topology keys whose values matter.
        others: nodes in other places that would do as well.
    """

    node: Node
    context: EvaluationContext
    like: str
    keys: Sequence[str]
    others: Sequence[Node]

    @property
    def where(self) -> str:
        """Its domains, as labels."""
        return ", ".join(_pair(key, self.node.labels[key]) for key in self.keys)

    def in_turn(self, snapshot: Snapshot) -> Sequence[Node]:
        """Nodes like it in the domains of its first key, its own first.

        None without a key, nor where there are many domains.
        """
        if not self.keys:
            return ()
        key = self.keys[0]
        column, own = snapshot.domains(key), self.node.labels[key]
        there = [value for value, nodes in zip(column.values, column.nodes, strict=True) if nodes]
        if len(there) > MOST_IN_TURN:
            return ()
        values = sorted(there, key=lambda each: (each != own, each))
        return [copied(snapshot, self.node, self.node.name, {key: value}) for value in values]


def add_nodes(context: EvaluationContext) -> Iterator[ProposedChange]:
    """Propose one more node, in the open domain with the fewest pods."""
    if _lacks_domains(context):
        return
    added = added_node(context)
    if added is None:
        return
    key = added.keys[0] if added.keys else ""
    labels = added.node.labels
    needed = {each: labels[each] for each in (*added.keys, *_named_keys(context, labels))}
    yield ProposedChange(
        Rank.ADD_NODES,
        added.context,
        [
            pb.SuggestedChange(
                topology_key=key,
                add_nodes=pb.AddNodes(node_count=1, domain=labels.get(key, ""), labels=needed),
            )
        ],
        _text(context, added, needed),
    )


def _lacks_domains(context: EvaluationContext) -> bool:
    """Whether minDomains asks for more than one more hostname, which `add_domains` proposes."""
    return any(
        constraint.is_hostname and constraint.min_domains - state.eligible_domains > 1
        for constraint, state in zip(context.hard, context.states, strict=True)
    )


def _text(context: EvaluationContext, added: AddedNode, needed: Mapping[str, str]) -> str:
    text = "1 more node"
    if added.keys:
        text += f" in {added.where}"
        if added.others and len(added.keys) == 1:
            (key,) = added.keys
            others = dict.fromkeys(each.labels[key] for each in added.others)
            values = [label_text(each) for each in others if each != added.node.labels[key]]
            more = len(values) - MOST_NAMED
            if values:
                text += f" (or {', '.join(values[:MOST_NAMED])}{f' and {more} more' * (more > 0)})"
    besides = [
        _pair(key, needed[key]) + ("" if _is_there(context, key, needed[key]) else " (no node has)")
        for key in needed
        if key not in added.keys
    ]
    scarce = scarce_resources(context)
    requests = context.demand.requests
    besides += [name for name, amount in requests if amount and "/" in name and name not in scarce]
    besides += [larger_text(context, scarce)] if scarce else []
    return f"{text}, with {', '.join(besides)}" if besides else text


def larger_text(context: EvaluationContext, resources: Mapping[str, int]) -> str:
    """That a node has more of something than any that is there, or than any for the pod."""
    usable = "that the pod may use has" if are_elsewhere(context, resources) else "has"
    return f"more {' and '.join(resources)} than any node {usable}"


def are_elsewhere(context: EvaluationContext, resources: Mapping[str, int]) -> bool:
    """Whether nodes that are not for the pod have as much of what those for it lack."""
    nodes, alive = context.snapshot.nodes, context.snapshot.alive
    return any((alive & (nodes.allocatable(n) >= m)).any() for n, m in resources.items())


def _is_there(context: EvaluationContext, key: str, value: str) -> bool:
    column = context.snapshot.domains(key)
    return value in column.number and bool(column.nodes[column.number[value]])


def _pair(key: str, value: str) -> str:
    return f"{label_text(key)}={label_text(value)}"


def added_node(context: EvaluationContext) -> AddedNode | None:
    """A node like one that is there which would let the pod in, if one would."""
    snapshot = context.snapshot
    keys = [each for each in context.constraints.hard.keys if each != HOSTNAME_LABEL]
    if context.suits.refusal is not None or not all(has_key(snapshot, key) for key in keys):
        return None
    zoned = ZONE_LABEL not in keys and has_key(snapshot, ZONE_LABEL)
    counted = snapshot.alive
    for constraint in context.hard:
        if not constraint.is_hostname:
            counted = counted & snapshot.mask(constraint.eligibility)
    # A node in a domain that does not count yet may lower the minimum for all others.
    for where in (counted, snapshot.alive & ~counted):
        nodes = _in_open_places(context, [*keys, ZONE_LABEL] if zoned else keys, where)
        if not nodes:
            continue
        together = context.with_overlay(Overlay(joined=[node for node, _ in nodes]))
        taken = [each for each in nodes if together.fitting[together.snapshot.slot(each[0].name)]]
        for at, (node, like) in enumerate(taken[:WAYS_TO_ADD]):
            alone = context.with_overlay(Overlay(joined=[node]))
            if alone.fits:
                # The zone matters where volumes, affinity or other pods leave only some.
                if zoned and len(taken) < len(nodes) and ZONE_LABEL in node.labels:
                    keys.append(ZONE_LABEL)
                return AddedNode(node, alone, like, keys, [other for other, _ in taken[at + 1 :]])
    return _where_volumes_are(context)


def _where_volumes_are(context: EvaluationContext) -> AddedNode | None:
    """A node where the pod's volumes hold it, and no node is left."""
    labels: dict[str, str] = {}
    for each in claims_of(context.asked):
        volume = context.snapshot.objects.volume(each.claim.volume_name) if each.claim else None
        if volume is None:
            continue
        for term in (volume.affinity.terms or ())[:1] if volume.affinity else ():
            labels |= {e.key: e.values[0] for e in term.match_expressions if e.operator == IN}
        labels |= {
            ZONE_KEYS[key]: value.split(ZONE_SEPARATOR)[0]
            for key, value in volume.labels
            if key in ZONE_KEYS
        }
    snapshot = context.snapshot
    if not all(is_zone(key) or _is_shared(snapshot, key) for key in labels):
        return None
    # Drivers name zones by keys of their own.
    zones = [value for key, value in labels.items() if key.endswith("/zone")]
    like = template_of(context)
    if not labels or like is None:
        return None
    labels = {ZONE_LABEL: zones[0], **labels} if zones else labels
    node = copied(snapshot, like, next(free_names(snapshot)), labels)
    alone = context.with_overlay(Overlay(joined=[node]))
    return AddedNode(node, alone, like.name, [*labels], []) if alone.fits else None


def _is_shared(snapshot: Snapshot, key: str) -> bool:
    """Whether nodes have a label, and none has its own name there."""
    names = snapshot.domains(key).values
    return has_key(snapshot, key) and all(snapshot.nodes.slot(name) < 0 for name in names)


def _in_open_places(
    context: EvaluationContext, keys: Sequence[str], where: Bools
) -> Sequence[tuple[Node, str]]:
    """A node for each combination of values that spreading leaves open, the fewest pods first.

    Each comes with the name of the node that it is like. Values are those of some nodes alone.
    """
    snapshot = context.snapshot
    open_nodes, pods = where, np.zeros(snapshot.alive.size, dtype=np.int64)
    for constraint, state, allowed in zip(
        context.hard, context.states, context.allowing, strict=True
    ):
        if not constraint.is_hostname:
            column = snapshot.domains(constraint.topology_key)
            named = column.ids >= 0
            if is_place(constraint.topology_key):
                named = named & ~column.having(_EMPTY)
            open_nodes = open_nodes & allowed & named
            pods = pods + state.counts[column.ids]
    order = snapshot.nodes.order
    alike = _alike(context)
    # Those that are like what the pod needs first, by name; of each place the first of them.
    ranked = order[np.argsort(~alike[order], kind="stable")]
    best = ranked[0] if ranked.size and alike[ranked[0]] else None
    ranked = ranked[open_nodes[ranked]]
    place = np.zeros(snapshot.alive.size, dtype=np.int64)
    for key in keys:
        column = snapshot.domains(key)
        # In the order of the values; those without a zone are a place, too.
        at = np.append(column.rank, -1)[column.ids]
        place = place * (len(column.values) + 1) + at + 1
    _, first = np.unique(place[ranked], return_index=True)
    chosen = ranked[first]
    chosen = chosen[np.argsort(pods[chosen], kind="stable")][:MOST_PLACES]
    like = None if best is None else _node(context, int(best))
    wanted = {} if like is not None else _labels_of_none(context)
    domains = {key: value for key, value in wanted.items() if is_place(key) or key in keys}
    scarce = scarce_resources(context)
    found: list[tuple[Node, str]] = []
    for slot, name in zip(chosen.tolist(), free_names(snapshot), strict=False):
        template = _like(context, _node(context, slot), like, keys)
        template = replace(
            template,
            labels={
                **template.labels,
                **{key: value for key, value in wanted.items() if key not in domains},
            },
            allocatable=tuple(sorted({**dict(template.allocatable), **scarce}.items())),
        )
        found.append((copied(snapshot, template, name, domains), template.name))
    return found


def scarce_resources(context: EvaluationContext) -> Mapping[str, int]:
    """What the pod requests and no node that is for it has as much of."""
    if context.fit is not Fit.ALL:
        return {}
    nodes = context.snapshot.nodes
    return {
        name: amount
        for name, amount in context.demand.requests
        if not (context.meant_nodes & (nodes.allocatable(name) >= amount)).any()
    }


def _alike(context: EvaluationContext) -> Bools:
    """[slots] nodes that the pod could go to by affinity, taints and size, were they empty."""
    nodes = context.snapshot.alive
    for plugin in (node_affinity.NAME, taint_toleration.NAME):
        nodes = nodes & ~context.refused_by_plugin(plugin)
    if context.fit is Fit.ALL:
        scarce = scarce_resources(context)
        for name, amount in context.demand.requests:
            if name not in scarce:
                nodes = nodes & (context.snapshot.nodes.allocatable(name) >= amount)
    found: Bools = nodes
    return found


def _labels_of_none(context: EvaluationContext) -> Mapping[str, str]:
    """Labels that the node selector and the first term ask for, where no node has them all."""
    refused = context.refused_by_plugin(node_affinity.NAME)
    requirements = context.constraints.requirements
    if (context.snapshot.alive & ~refused).any():
        return {}
    wanted = dict(requirements.node_selector)
    for term in (requirements.terms or ())[:1]:
        wanted |= {each.key: each.values[0] for each in term.labels if each.operator == IN}
    return wanted


def _like(context: EvaluationContext, there: Node, like: Node | None, keys: Sequence[str]) -> Node:
    """What a node of a place would be like: one that is there, or else the other one, moved."""
    offered = dict(there.allocatable)
    suits = context.constraints.requirements.matches(there.name, there.labels)
    suits = suits and context.tolerations.tolerate(lasting_taints(there))
    if context.fit is Fit.ALL:
        offered |= scarce_resources(context)
        suits = suits and all(offered.get(name, 0) >= n for name, n in context.demand.requests)
    if suits:
        return there
    if like is None:  # none there is for ordinary pods: an ordinary one
        return replace(there, taints=tuple(t for t in there.taints if not means_stay_away(t)))
    return at_place(like, there, keys)


def _node(context: EvaluationContext, slot: int) -> Node:
    node = context.snapshot.nodes.node(slot)
    assert node is not None, "slots in the order of the nodes have one"
    return node


def _named_keys(context: EvaluationContext, labels: Mapping[str, str]) -> Iterator[str]:
    """The keys of labels that the pod's node selector or affinity asks for."""
    requirements = context.constraints.requirements
    named = [key for key, _ in requirements.node_selector]
    named += [
        label.key
        for term in requirements.terms or ()
        for label in term.labels
        if label.operator in (IN, EXISTS)
    ]
    for key in dict.fromkeys(named):
        if key in labels and key != HOSTNAME_LABEL:
            yield key


def template_of(context: EvaluationContext, *preferred: Bools) -> Node | None:
    """The node to copy: the first of these masks; else one that the pod could use if empty."""
    order = context.snapshot.nodes.order
    for mask in (*preferred, _alike(context), context.snapshot.alive):
        slots = order[mask[order]]
        if slots.size:
            return _node(context, int(slots[0]))
    return None
