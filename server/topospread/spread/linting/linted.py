"""A constraint of a workload, with what the rules on it look at."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread.kube.affinity import compile_requirements
from topospread.kube.objects import DO_NOT_SCHEDULE, HONOR
from topospread.kube.selectors import (
    EXISTS,
    NOTHING,
    Requirement,
    Selector,
    SelectorError,
    compile_selector,
    selector_text,
)
from topospread.spread.constraints import effective_selector
from topospread.spread.settings import Rules

if TYPE_CHECKING:
    from collections.abc import Collection, KeysView, Mapping
    from collections.abc import Set as AbstractSet

    from topospread.kube.affinity import CompiledRequirements
    from topospread.kube.objects import LabelSelector, SpreadConstraint
    from topospread.spread.linting.workloads import DomainNumbers, LintedWorkload

_SHOWN: Final = 3
"""Requirements that a text has."""


@dataclass(frozen=True, slots=True)
class LintedConstraint:
    """A constraint of a workload, with what follows from both.

    Attributes:
        selector: with the values that matchLabelKeys have in the template.
        own: the requirements of the workload's own selector, in order; none where it has none.
        counts_own_pods: each of the workload's pods adds itself to its domain.
        may_count_own_pods: so they do with some values of the labels that their controller adds.
        requirements: the pod's node affinity, compiled.
        numbers: of the cluster; None where it is not known.
    """

    workload: LintedWorkload
    index: int
    spec: SpreadConstraint
    selector: Selector
    own: KeysView[Requirement]
    counts_own_pods: bool
    may_count_own_pods: bool
    requirements: CompiledRequirements
    numbers: DomainNumbers | None

    @property
    def is_hard(self) -> bool:
        """Whether it rejects nodes."""
        return self.spec.when_unsatisfiable == DO_NOT_SCHEDULE

    @property
    def honours_affinity(self) -> bool:
        """Whether nodes outside of the pod's node affinity do not count."""
        return self.spec.node_affinity_policy in (None, HONOR)

    @property
    def counts_others(self) -> bool:
        """Whether it counts pods of other workloads for sure.

        The workload's own selector asks for more then, and all else is equal.
        """
        if not self.counts_own_pods or not set(self.selector.requirements) < self.own:
            return False
        return set(self.workload.added_labels).isdisjoint(self.spec.match_label_keys)

    @property
    def unrequired(self) -> str:
        """What the workload's own selector requires and this one does not: the first of it."""
        here = set(self.selector.requirements)
        shown = selector_text(
            Selector(tuple(islice((each for each in self.own if each not in here), _SHOWN)))
        )
        more = len(self.own) - len(here) - _SHOWN
        return f"{shown} and {more} more" if more > 0 else shown

    @property
    def held_at_zero(self) -> str:
        """Why the global minimum stays at 0 whatever the pods do; empty where it need not."""
        if self.numbers is None or not self.numbers.domains or not self.is_hard:
            return ""
        domains, usable = self.numbers.domains, self.numbers.usable
        # Where all have pods, those that cannot be used were filled before they were cordoned.
        if usable < domains and not self.numbers.lowest:
            unusable = domains - usable
            has = "has" if unusable == 1 else "have"
            return f"{unusable} of {domains} domains that count {has} no node for the pod"
        wanted = self.spec.min_domains or 1
        if wanted > domains:
            return f"minDomains is {wanted}, and {domains} count"
        return ""

    @property
    def places(self) -> int | None:
        """Places for pods that it counts; None where it has no end, or nothing is known."""
        if not self.held_at_zero or self.numbers is None:
            return None
        return self.numbers.usable * self.spec.max_skew


def linted_constraints(
    workload: LintedWorkload, broken: AbstractSet[int], numbers: Mapping[int, DomainNumbers]
) -> list[LintedConstraint]:
    """The constraints of a workload but those whose fields are wrong."""
    pod = workload.pod
    requirements = compile_requirements(pod.requirements)
    own = dict.fromkeys(_compiled(workload.selector).requirements).keys()
    made: list[LintedConstraint] = []
    for index, spec in enumerate(pod.constraints):
        if index in broken:
            continue
        try:
            selector = effective_selector(spec, pod.labels, Rules())
        except SelectorError:
            selector = NOTHING
        made.append(
            LintedConstraint(
                workload,
                index,
                spec,
                selector,
                own,
                *own_match(selector, pod.labels, workload.added_labels),
                requirements,
                numbers.get(index),
            )
        )
    return made


def own_match(
    selector: Selector, labels: Mapping[str, str], added: Collection[str]
) -> tuple[bool, bool]:
    """Whether a selector counts the pod that has it: for sure, and at all possibly.

    Args:
        selector: of a constraint.
        labels: of the pod.
        added: labels that its controller adds; their values are not known where the pod lacks them.
    """
    if selector.empty:
        return False, False
    known: list[Requirement] = []
    unknown: list[Requirement] = []
    for each in selector.requirements:
        (unknown if each.key in added and each.key not in labels else known).append(each)
    if unknown:
        selector = Selector(tuple(known))
    matches = selector.matches(labels)
    return matches and all(each.operator == EXISTS for each in unknown), matches


def _compiled(selector: LabelSelector | None) -> Selector:
    """A selector; one that matches nothing where it does not parse."""
    try:
        return compile_selector(selector)
    except SelectorError:
        return NOTHING
