"""Domains that node groups could open: those that a scheduler counts once a node is there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from topospread.checkpoints import checkpoint
from topospread.index.overlay import Overlay, apply_overlay
from topospread.kube.objects import HOSTNAME_LABEL
from topospread.service.decisions.cycle import Cycle
from topospread.service.decisions.extension_points import all_constraints
from topospread.service.decisions.pods import needed_groups
from topospread.service.fit.profile import suited
from topospread.service.fit.question import Fit
from topospread.service.simulation.request import NodeGroup, expand_groups
from topospread.spread.filtering import pre_filter, verdict_of
from topospread.spread.verdicts import FITS, Code

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence

    from topospread.index.snapshot import Snapshot
    from topospread.kube.objects import Node
    from topospread.replica.view import View
    from topospread.service.simulation.run import PodBatch
    from topospread.spread.constraints import Constraint, ConstraintSet


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
    groups = _Groups(view, joined, list(dict.fromkeys(constraints.values())), between)
    found: dict[Constraint, set[str]] = {each: set() for each in constraints}
    per_node = {each: groups.are_domains(each.topology_key) for each in constraints}
    # Group by group: the state with a node of one is made once for all pods, and then let go.
    for number, node in enumerate(joined):
        between()
        for constraint, batch in constraints.items():
            checkpoint()
            value = node.labels.get(constraint.topology_key)
            if value is None or per_node[constraint] or value in found[constraint]:
                continue
            if groups.counts(constraint, number) and (
                number < len(growing) or groups.may_grow(batch, number)
            ):
                found[constraint].add(value)
    return {
        each: OpenableDomains(frozenset(values), per_node[each]) for each, values in found.items()
    }


def _one_each(snapshot: Snapshot, templates: Sequence[Node]) -> list[Node]:
    """A node of each template, under names that differ."""
    groups = [NodeGroup(template.name, template, 1) for template in templates]
    expanded = expand_groups(groups, [1] * len(groups), lambda name: snapshot.slot(name) >= 0)
    return [node for nodes in expanded for node in nodes]


_NEW: Final = object()
"""Stands for each value of a topology key that no node has yet."""


class _Groups:
    """A node of each group, and what refuses pods there.

    Judgements are shared: filters beside spreading are asked once for a batch, with all the nodes
    there, as empty nodes do not matter to them; spreading once for all nodes that are alike to it.

    Args:
        view: the state.
        joined: the nodes.
        batches: pods that will be asked about.
        between: called between pods that are tried.
    """

    def __init__(
        self,
        view: View,
        joined: Sequence[Node],
        batches: Sequence[PodBatch],
        between: Callable[[], None],
    ) -> None:
        self._view = view
        self._joined = joined
        self._between = between
        judged = [pod for batch in batches for pod in batch.judged]
        self._counted = needed_groups(judged, view.snapshot)
        self._state = self._with(joined)
        self._slots = [self._state.slot(node.name) for node in joined]
        self._alone: tuple[int, Snapshot] | None = None
        self._passing: dict[PodBatch, Sequence[bool | None]] = {}
        self._skewed: dict[tuple[PodBatch, Hashable], bool] = {}

    def are_domains(self, key: str) -> bool:
        """Whether each new node is a domain of its own."""
        return key == HOSTNAME_LABEL or any(n.labels.get(key) == n.name for n in self._joined)

    def counts(self, constraint: Constraint, number: int) -> bool:
        """Whether a constraint counts what is on a node."""
        mask = self._state.nodes.mask(constraint.eligibility)
        return bool(mask[self._slots[number]])

    def may_grow(self, batch: PodBatch, number: int) -> bool:
        """Whether a group that is no option would be one once what refuses its pods has passed.

        Not where the pods fit on a node of it already, nor where they never will.
        """
        if batch not in self._passing:
            self._between()
            self._passing[batch] = self._judged(batch)
        passes = self._passing[batch][number]
        hard = batch.shape.effective_constraints(batch.rules, self._view.snapshot).constraints.hard
        labels = self._joined[number].labels
        if passes is None or any(each.topology_key not in labels for each in hard.constraints):
            return False
        return passes or self._is_skewed(batch, hard, number)

    def _judged(self, batch: PodBatch) -> Sequence[bool | None]:
        """[nodes] whether filters beside spreading refuse pods for now; None where for good."""
        effective = batch.shape.effective_constraints(batch.rules, self._state)
        if effective.pre_filter.code is Code.ERROR:
            return [None] * len(self._slots)
        there = replace(self._view, snapshot=self._state)
        cycle = Cycle("", batch.shape.pod, batch.rules, effective, there, demand=batch.demand)
        suits = suited(cycle.asked, Fit.ALL)
        refused = ~suits.nodes[self._slots]
        lasting = np.zeros_like(refused)
        if refused.any():
            for rule in suits.rules():
                if rule.code is not Code.UNSCHEDULABLE:
                    lasting |= rule.refused[self._slots]
        pairs = zip(refused.tolist(), lasting.tolist(), strict=True)
        return [None if never else now for now, never in pairs]

    def _is_skewed(self, batch: PodBatch, hard: ConstraintSet, number: int) -> bool:
        """Whether the counts refuse a node that is there alone."""
        alike = batch, tuple([self._role(each, number) for each in hard.constraints])
        if alike not in self._skewed:
            self._between()
            if self._alone is None or self._alone[0] != number:
                self._alone = number, self._with([self._joined[number]])
            state = self._alone[1]
            states = pre_filter(hard.constraints, state)
            verdict = verdict_of(states, state, state.slot(self._joined[number].name))
            self._skewed[alike] = verdict != FITS
        return self._skewed[alike]

    def _role(self, constraint: Constraint, number: int) -> Hashable:
        """Equal for nodes of which one alone is to the constraint as the other would be."""
        key = constraint.topology_key
        value = self._joined[number].labels[key]
        known = value in self._view.snapshot.domains(key).number
        return (value if known else _NEW), self.counts(constraint, number)

    def _with(self, joined: Sequence[Node]) -> Snapshot:
        state, _ = apply_overlay(self._view.snapshot, Overlay(joined=joined), self._counted)
        return state
