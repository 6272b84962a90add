"""Domains that node groups could open: those that a scheduler counts once a node is there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from topospread.checkpoints import checkpoint
from topospread.index.overlay import Overlay, apply_overlay
from topospread.kube.objects import HOSTNAME_LABEL
from topospread.service.decisions.cycle import Cycle
from topospread.service.decisions.extension_points import all_constraints
from topospread.service.decisions.pods import needed_groups
from topospread.service.decisions.request import NodeSelection
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit
from topospread.service.placement.place import choose
from topospread.service.simulation.request import NodeGroup, expand_groups
from topospread.spread.verdicts import Code

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import Node
    from topospread.replica.view import View
    from topospread.service.simulation.run import PodBatch
    from topospread.spread.constraints import Constraint


@dataclass(frozen=True, slots=True)
class OpenableDomains:
    """What node groups could add to the domains of one constraint.

    Attributes:
        values: of the topology key, where pods of the constraint may use a node of a group.
        per_node: each new node is a domain of its own, so that there is always one more to open.
    """

    values: frozenset[str]
    per_node: bool


def constraints_of(batches: Iterable[PodBatch], snapshot: Snapshot) -> dict[Constraint, PodBatch]:
    """The constraints of pods, each once, with the first batch that has it; hard ones first."""
    found: dict[Constraint, PodBatch] = {}
    for batch in batches:
        effective = batch.shape.effective_constraints(batch.rules, snapshot)
        for constraint in all_constraints(effective.constraints):
            found.setdefault(constraint, batch)
    return found


def openable_domains(
    view: View,
    constraints: Mapping[Constraint, PodBatch],
    growing: Sequence[Node],
    others: Sequence[Node],
    between: Callable[[], None],
) -> dict[Constraint, OpenableDomains]:
    """The domains that groups could open, for each constraint.

    A group that is no option may be at its largest, or of no use for the pods now. The autoscaler
    does not say which, so it is found out: where a pod fits on a node of it, it cannot grow.

    Args:
        view: the state.
        constraints: each with pods that have it.
        growing: templates of the groups that are options.
        others: templates of the groups that are not.
        between: called between pods that are tried.
    """
    joined = _one_each(view.snapshot, (*growing, *others))
    state, _ = apply_overlay(view.snapshot, Overlay(joined=joined), ())
    slots = [state.slot(node.name) for node in joined]
    found: dict[Constraint, OpenableDomains] = {}
    for constraint, batch in constraints.items():
        key = constraint.topology_key
        per_node = key == HOSTNAME_LABEL or any(n.labels.get(key) == n.name for n in joined)
        known: set[str] = set()
        if not per_node:
            usable = state.nodes.mask(constraint.eligibility)
            for number, node in enumerate(joined):
                checkpoint()
                value = node.labels.get(key)
                if value is None or value in known or not usable[slots[number]]:
                    continue
                if number < len(growing) or _may_grow(view, node, batch, between):
                    known.add(value)
        found[constraint] = OpenableDomains(frozenset(known), per_node)
    return found


def _one_each(snapshot: Snapshot, templates: Sequence[Node]) -> list[Node]:
    """A node of each template, under names that differ."""
    groups = [NodeGroup(template.name, template, 1) for template in templates]
    expanded = expand_groups(groups, [1] * len(groups), lambda name: snapshot.slot(name) >= 0)
    return [node for nodes in expanded for node in nodes]


def _may_grow(view: View, node: Node, batch: PodBatch, between: Callable[[], None]) -> bool:
    """Whether a group that is no option would be one as soon as what refuses its pods has passed.

    Not where the pods fit on a node of it already, nor where they never will.
    """
    between()
    groups = needed_groups(batch.judged, view.snapshot)
    state, _ = apply_overlay(view.snapshot, Overlay(joined=[node]), groups)
    there = replace(view, snapshot=state)
    effective = batch.shape.effective_constraints(batch.rules, state)
    cycle = Cycle("", batch.shape.pod, batch.rules, effective, there, demand=batch.demand)
    suits = suited(cycle.asked, Fit.ALL)
    chosen = choose(cycle, suits, choice=NodeSelection(names=(node.name,)))
    return not isinstance(chosen, str) and chosen.status.code is Code.UNSCHEDULABLE
