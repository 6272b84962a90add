"""What lint looks at: workloads, the pods that they make, rollouts, and constraints."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread.kube.affinity import compile_requirements
from topospread.kube.objects import DO_NOT_SCHEDULE, HONOR, HOSTNAME_LABEL
from topospread.kube.selectors import (
    EXISTS,
    NOTHING,
    Requirement,
    Selector,
    SelectorError,
    compile_selector,
    selector_text,
)
from topospread.kube.validation import CONSTRAINTS_FIELD
from topospread.spread.constraints import effective_selector
from topospread.spread.settings import RELEASES, Rules
from topospread.wording import have

if TYPE_CHECKING:
    from collections.abc import Collection, KeysView, Mapping
    from collections.abc import Set as AbstractSet

    from topospread.errors import FieldViolation
    from topospread.kube.affinity import CompiledRequirements
    from topospread.kube.objects import LabelSelector, Pod, SpreadConstraint
    from topospread.kube.rollouts import Rollout
    from topospread.kube.versions import KubernetesVersion
    from topospread.spread.linting.capacities import ReplicaCapacity


@dataclass(frozen=True, slots=True)
class Repulsion:
    """What keeps the pods of one template apart: at most one of them to a domain.

    Attributes:
        topology_key: of required anti-affinity; empty where it is host ports, whose domains are
            the nodes.
        ports: the host ports, as "443/TCP"; none where it is anti-affinity.
        is_scoped: pods of another revision do not count.
    """

    topology_key: str
    ports: tuple[str, ...] = ()
    is_scoped: bool = False

    @property
    def noun(self) -> str:
        """What takes one of them."""
        return "node" if self.ports or self.topology_key == HOSTNAME_LABEL else "domain"


@dataclass(frozen=True, slots=True)
class LintedWorkload:
    """A workload, or a pod that nothing controls.

    Attributes:
        pod: what it makes, with the labels of its template, and those of its controller that are
            known.
        replicas: how many; None where the manifest does not say, as an autoscaler sets them.
        selector: its own; None where it has none.
        added_labels: keys of labels that its controller adds, known or not.
        rollout: None where all pods are replaced at once, in place, or not at all.
        has_volume_claims: each replica has volumes of its own.
        repulsions: what keeps its own pods apart.
        unknown_fields: those that Kubernetes does not have, by their paths in the object.
        malformed: values that cannot be read, by their paths in the object; the pod lacks them.
        path: of the pod template in the object; empty for a pod.
        constraints_path: of the list of constraints in the object.
        has_template: the constraints are those of a pod template; otherwise no more is known of
            the pods than that they have them.
        is_partial: a controller adds the containers, and may add more.
        is_single: the constraints are one, which stands in the place of the list.
        labels_known: what labels the pods have; otherwise a controller may add more.
        is_readable: the pod could be read, but for `malformed`.
        unread: why the constraints were not looked at; empty where they were.
        given: the fields of each constraint, where something may add others.
        variable: fields of constraints, by index and name, in whose place something else is put.
        ignored: codes, in small letters, that its annotation silences.
    """

    kind: str
    pod: Pod
    replicas: int | None = 1
    selector: LabelSelector | None = None
    added_labels: tuple[str, ...] = ()
    rollout: Rollout | None = None
    has_volume_claims: bool = False
    repulsions: tuple[Repulsion, ...] = ()
    unknown_fields: tuple[FieldViolation, ...] = ()
    malformed: tuple[FieldViolation, ...] = ()
    path: str = ""
    constraints_path: str = CONSTRAINTS_FIELD
    has_template: bool = True
    is_partial: bool = False
    is_single: bool = False
    labels_known: bool = True
    is_readable: bool = True
    unread: str = ""
    given: tuple[frozenset[str], ...] = ()
    variable: frozenset[tuple[int, str]] = frozenset()
    ignored: frozenset[str] = frozenset()

    @property
    def is_pod(self) -> bool:
        """Whether it is a pod rather than what makes pods."""
        return self.kind == "Pod"

    @property
    def may_be_many(self) -> bool:
        """Whether there may be several of its pods at once."""
        return not self.is_pod and (self.replicas is None or self.replicas > 1)


@dataclass(frozen=True, slots=True)
class DomainNumbers:
    """What is known of the cluster for one constraint.

    Attributes:
        domains: eligible ones: they have a node that counts.
        usable: those of them with such a node that the scheduler's other filters leave.
        lowest: the fewest matching pods that one of them has now.
        capacity: for the workload's pods in these domains; None where it is not known.
    """

    domains: int
    usable: int
    lowest: int = 0
    capacity: ReplicaCapacity | None = None

    @property
    def unusable_text(self) -> str:
        """How many domains count, and have no node that the pod could use."""
        unusable = self.domains - self.usable
        count = f"{unusable} of {self.domains} domains that count"
        return f"{count} {have(unusable)} no node for the pod"


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
        version: of the cluster, one of the known ones; None where it is not known.
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
    version: KubernetesVersion | None

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
            return self.numbers.unusable_text
        wanted = self.spec.min_domains or 1
        if wanted > domains:
            return f"minDomains is {wanted}, and {domains} count"
        return ""

    @property
    def is_outgrown(self) -> bool:
        """Whether more of its replicas run than find a place anew, as a domain became unusable."""
        numbers, replicas = self.numbers, self.workload.replicas
        if numbers is None or replicas is None or not 0 < numbers.usable < numbers.domains:
            return False
        running = 0 if numbers.capacity is None else numbers.capacity.running
        places = numbers.usable * self.spec.max_skew
        return (numbers.lowest > 0 or running > places) and replicas > places

    @property
    def lacks_places(self) -> bool:
        """Whether it has no place for all replicas, whatever runs now."""
        places, replicas = self.places, self.workload.replicas
        return places is not None and replicas is not None and replicas > places

    @property
    def places(self) -> int | None:
        """Places for pods that it counts; None where it has no end, or nothing is known."""
        if not self.held_at_zero or self.numbers is None:
            return None
        return self.numbers.usable * self.spec.max_skew


def linted_constraints(
    workload: LintedWorkload,
    broken: AbstractSet[int],
    numbers: Mapping[int, DomainNumbers],
    version: KubernetesVersion | None,
) -> list[LintedConstraint]:
    """The constraints of a workload but those whose fields are wrong."""
    counts_empty = version is not None and RELEASES[version].counts_empty_selector
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
                *own_match(selector, pod.labels, workload.added_labels, counts_empty=counts_empty),
                requirements,
                numbers.get(index),
                version,
            )
        )
    return made


def own_match(
    selector: Selector,
    labels: Mapping[str, str],
    added: Collection[str],
    *,
    counts_empty: bool = False,
) -> tuple[bool, bool]:
    """Whether a selector counts the pod that has it: for sure, and at all possibly.

    Args:
        selector: of a constraint.
        labels: of the pod.
        added: labels that its controller adds; their values are not known where the pod lacks them.
        counts_empty: an empty one counts all pods; else none.
    """
    if selector.empty:
        return counts_empty, counts_empty
    known: list[Requirement] = []
    unknown: list[Requirement] = []
    for each in selector.requirements:
        (unknown if each.key in added and each.key not in labels else known).append(each)
    if unknown:
        selector = Selector(tuple(known))
    matches = selector.matches(labels)
    return matches and all(each.operator == EXISTS for each in unknown), matches


def _compiled(selector: LabelSelector | None) -> Selector:
    try:
        return compile_selector(selector)
    except SelectorError:
        return NOTHING
