"""Rules on one constraint: its selector, its key, its numbers, and what it counts."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.kube.affinity import compile_requirements
from topospread.kube.objects import (
    DO_NOT_SCHEDULE,
    HONOR,
    HOSTNAME_LABEL,
    IGNORE,
    ZONE_LABEL,
    SpreadConstraint,
)
from topospread.kube.selectors import (
    IN,
    NOTHING,
    Selector,
    SelectorError,
    compile_selector,
    selector_text,
)
from topospread.spread.findings import FindingCode
from topospread.spread.linting.catalog import LintFinding, Severity, found
from topospread.spread.linting.workloads import LABELS_OF_CONTROLLERS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.kube.affinity import CompiledRequirements, CompiledTerm
    from topospread.kube.objects import LabelSelector
    from topospread.spread.linting.workloads import DomainNumbers, LintedWorkload

REGION_LABEL: Final = "topology.kubernetes.io/region"

DEPRECATED: Final = {
    "failure-domain.beta.kubernetes.io/zone": ZONE_LABEL,
    "failure-domain.beta.kubernetes.io/region": REGION_LABEL,
    "failure-domain.kubernetes.io/zone": ZONE_LABEL,
    "failure-domain.kubernetes.io/region": REGION_LABEL,
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/os": "kubernetes.io/os",
}
"""Keys that Kubernetes gave up, and what took their place."""

_WELL_KNOWN: Final = (
    HOSTNAME_LABEL,
    ZONE_LABEL,
    REGION_LABEL,
    "node.kubernetes.io/instance-type",
    "kubernetes.io/arch",
    "kubernetes.io/os",
)
_OFTEN_WRITTEN: Final = {
    "zone": ZONE_LABEL,
    "region": REGION_LABEL,
    "hostname": HOSTNAME_LABEL,
    "kubernetes.io/zone": ZONE_LABEL,
    "kubernetes.io/region": REGION_LABEL,
    "kubernetes.io/host": HOSTNAME_LABEL,
    "topology.kubernetes.io/hostname": HOSTNAME_LABEL,
}
_ALIKE: Final = 0.92
"""How alike keys are of which one is taken for the other misspelt: two letters of twenty-five."""


@dataclass(frozen=True, slots=True)
class LintedConstraint:
    """A constraint of a workload, with what follows from both.

    Attributes:
        selector: with the values that matchLabelKeys have in the template.
        numbers: of the cluster; None where it is not known.
    """

    workload: LintedWorkload
    index: int
    spec: SpreadConstraint
    selector: Selector
    numbers: DomainNumbers | None

    @property
    def is_hard(self) -> bool:
        """Whether it rejects nodes."""
        return self.spec.when_unsatisfiable == DO_NOT_SCHEDULE

    @property
    def counts_own_pods(self) -> bool:
        """Whether each of the workload's pods adds itself to its domain."""
        return not self.selector.empty and self.selector.matches(self.workload.pod.labels)

    @property
    def unrequired(self) -> Sequence[str]:
        """What the workload's own selector requires and this one does not, where all else is equal.

        It counts pods of others then.
        """
        own = compiled(self.workload.selector)
        if own is None or own.nothing or not self.counts_own_pods:
            return ()
        here, there = set(self.selector.requirements), set(own.requirements)
        if not here < there or set(self.spec.match_label_keys) & set(self._labels_added):
            return ()
        lacking = Selector(tuple(there - here))
        return selector_text(lacking).split(",")

    @property
    def _labels_added(self) -> Sequence[str]:
        return LABELS_OF_CONTROLLERS.get(self.workload.kind, ())

    @property
    def held_at_zero(self) -> str:
        """Why the global minimum stays at 0 whatever the pods do; empty where it need not."""
        if self.numbers is None or not self.numbers.domains or not self.is_hard:
            return ""
        domains, usable = self.numbers.domains, self.numbers.usable
        if usable < domains:
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


def compiled(selector: LabelSelector | None) -> Selector | None:
    """A selector; None where it does not parse."""
    try:
        return compile_selector(selector)
    except SelectorError:
        return None


def findings_of_constraint(linted: LintedConstraint) -> Iterator[LintFinding]:
    """What is wrong with one constraint, but for rollouts."""
    selecting = selector_finding(linted.selector, matches_itself=linted.counts_own_pods)
    if selecting is not None:
        yield found(selecting[0], linted.index, selecting[1])
    yield from _of_wider_selector(linted)
    yield from _of_match_label_keys(linted)
    yield from _of_key(linted)
    yield from _of_min_domains(linted)
    yield from _of_max_skew(linted)
    yield from _of_single_domain(linted)
    yield from _of_unusable_nodes(linted)
    yield from _of_places(linted)
    yield from _of_volumes(linted)


def selector_finding(selector: Selector, *, matches_itself: bool) -> tuple[FindingCode, str] | None:
    """What is wrong with a constraint's selector.

    Args:
        selector: of the constraint.
        matches_itself: whether it matches the labels of the pod that has the constraint.
    """
    if selector.nothing:
        return (
            FindingCode.NIL_SELECTOR,
            "no labelSelector: it matches no pod, not even this one, so nothing is spread",
        )
    if selector.empty:
        return (
            FindingCode.EMPTY_SELECTOR,
            "an empty labelSelector: kube-scheduler counts no pods for it, so nothing is spread",
        )
    if not matches_itself:
        return (
            FindingCode.SELF_MISMATCH,
            (
                f"the pod does not match its own labelSelector {selector_text(selector)}: it "
                "follows other pods, and its own replicas are not spread"
            ),
        )
    return None


def _of_wider_selector(linted: LintedConstraint) -> Iterator[LintFinding]:
    if lacking := linted.unrequired:
        yield found(
            FindingCode.WIDER_SELECTOR,
            linted.index,
            f"the labelSelector {selector_text(linted.selector)} lacks {','.join(lacking)} of the "
            "workload's own: pods of others are counted, too",
        )


def _of_match_label_keys(linted: LintedConstraint) -> Iterator[LintFinding]:
    workload = linted.workload
    added = LABELS_OF_CONTROLLERS.get(workload.kind, ())
    for key in linted.spec.match_label_keys:
        if key in workload.pod.labels or key in added:
            continue
        instead = f"; its controller adds {added[0]}" if added else ""
        yield found(
            FindingCode.LABEL_KEY_MISSING,
            linted.index,
            f"matchLabelKeys: pods of a {workload.kind} have no label {key}, so that key does "
            f"nothing{instead}",
        )


def _of_key(linted: LintedConstraint) -> Iterator[LintFinding]:
    key = linted.spec.topology_key
    if successor := DEPRECATED.get(key):
        yield found(
            FindingCode.DEPRECATED_KEY,
            linted.index,
            f"{key} is deprecated, and newer nodes lack it: write {successor}",
        )
    elif (meant := _meant(key)) and not (linted.numbers and linted.numbers.domains):
        yield found(
            FindingCode.MISSPELT_KEY, linted.index, f"{key} is no well-known label: {meant} is"
        )


def _meant(key: str) -> str:
    """The well-known key that a key looks like; empty where it looks like none."""
    if key in _WELL_KNOWN or not key:
        return ""
    alike = difflib.get_close_matches(key, _WELL_KNOWN, 1, _ALIKE)
    return _OFTEN_WRITTEN.get(key.lower()) or (alike[0] if alike else "")


def _of_min_domains(linted: LintedConstraint) -> Iterator[LintFinding]:
    wanted, key = linted.spec.min_domains, linted.spec.topology_key
    if wanted is None:
        return
    if not linted.is_hard:
        yield found(
            FindingCode.MIN_DOMAINS_IGNORED,
            linted.index,
            f"minDomains {wanted} does nothing with ScheduleAnyway, and the API server refuses it",
            Severity.ERROR,
        )
        return
    named = named_values(compile_requirements(linted.workload.pod.requirements), key)
    if _honours_affinity(linted.spec) and named is not None and named < wanted:
        yield found(
            FindingCode.MIN_DOMAINS_OUT_OF_REACH,
            linted.index,
            min_domains_above_named(wanted, named, key),
        )


def min_domains_above_named(wanted: int, named: int, key: str) -> str:
    """The text where the pod's node affinity admits fewer values than minDomains."""
    return (
        f"minDomains {wanted} can never be met: the pod's node affinity admits {named} "
        f"value{'s' * (named != 1)} of {key}"
    )


def _of_max_skew(linted: LintedConstraint) -> Iterator[LintFinding]:
    replicas, max_skew = linted.workload.replicas, linted.spec.max_skew
    if not linted.is_hard or replicas is None or replicas < 2 or linted.workload.is_pod:
        return
    if max_skew >= replicas and linted.counts_own_pods and not linted.unrequired:
        yield found(
            FindingCode.MAX_SKEW_TOO_LARGE,
            linted.index,
            f"maxSkew {max_skew} is not below the {replicas} replicas: all of them may be in one "
            "domain",
        )


def _of_single_domain(linted: LintedConstraint) -> Iterator[LintFinding]:
    workload, key = linted.workload, linted.spec.topology_key
    if workload.kind == "DaemonSet":
        text = "a DaemonSet makes each pod for one node: there is nothing to spread"
        yield found(FindingCode.SINGLE_DOMAIN, linted.index, text)
        return
    if not workload.may_be_many or not _honours_affinity(linted.spec):
        return
    named = named_values(compile_requirements(workload.pod.requirements), key)
    if named == 1:
        text = f"the pod's node affinity admits 1 value of {key}: there is nothing to spread"
    elif linted.numbers is not None and linted.numbers.domains == 1:
        text = f"1 domain of {key} counts: there is nothing to spread"
    else:
        return
    yield found(FindingCode.SINGLE_DOMAIN, linted.index, text)


def _of_unusable_nodes(linted: LintedConstraint) -> Iterator[LintFinding]:
    spec, pod = linted.spec, linted.workload.pod
    if not linted.is_hard or not linted.workload.may_be_many or linted.workload.kind == "DaemonSet":
        return
    each = f"the others take at most {spec.max_skew} pod{'s' * (spec.max_skew != 1)} each"
    if linted.numbers is not None:
        domains, usable = linted.numbers.domains, linted.numbers.usable
        if usable < domains:
            text = unusable_domains(domains, usable, spec.max_skew)
            yield found(FindingCode.UNUSABLE_NODES_COUNTED, linted.index, text)
        return
    requirements = pod.requirements
    if spec.node_affinity_policy == IGNORE and (
        requirements.node_selector or requirements.terms is not None
    ):
        yield found(
            FindingCode.UNUSABLE_NODES_COUNTED,
            linted.index,
            "nodeAffinityPolicy: Ignore counts nodes that the pod's node affinity keeps it from: "
            f"domains of such nodes alone stay at 0 pods, and {each}",
        )
    elif (
        spec.topology_key == HOSTNAME_LABEL
        and spec.node_taints_policy != HONOR
        and not any(not each.key and each.operator == "Exists" for each in pod.tolerations)
    ):
        yield found(
            FindingCode.UNUSABLE_NODES_COUNTED,
            linted.index,
            "nodeTaintsPolicy is Ignore unless it is set: each tainted node, as of a control "
            f"plane, counts and stays at 0 pods, and {each}",
            Severity.INFO,
        )


def unusable_domains(domains: int, usable: int, max_skew: int) -> str:
    """The text where domains count that have no node which the pod can use."""
    unusable = domains - usable
    return (
        f"{unusable} of {domains} domains that count {'has' if unusable == 1 else 'have'} no node "
        f"that the pod can use: the global minimum stays as low as there, and the others take at "
        f"most {max_skew} more each"
    )


def _of_places(linted: LintedConstraint) -> Iterator[LintFinding]:
    places, replicas = linted.places, linted.workload.replicas
    if places is None or replicas is None or not linted.counts_own_pods:
        return
    if linted.numbers is not None and replicas > places:
        yield found(
            FindingCode.TOO_FEW_DOMAINS,
            linted.index,
            f"{places} of {replicas} replicas find a place: {linted.numbers.usable} domains with "
            f"at most maxSkew {linted.spec.max_skew} each, as {linted.held_at_zero}",
        )


def _of_volumes(linted: LintedConstraint) -> Iterator[LintFinding]:
    if linted.is_hard and linted.workload.has_volume_claims:
        yield found(
            FindingCode.VOLUMES_PIN_PODS,
            linted.index,
            "each replica has volumes of its own: where these are bound to a domain of "
            f"{linted.spec.topology_key}, a pod whose domain is closed waits",
        )


def _honours_affinity(spec: SpreadConstraint) -> bool:
    return spec.node_affinity_policy in (None, HONOR)


def linted_constraint(
    workload: LintedWorkload, index: int, numbers: DomainNumbers | None
) -> LintedConstraint:
    """A constraint with its selector, which must parse."""
    spec, labels = workload.pod.constraints[index], workload.pod.labels
    selector = compiled(spec.label_selector) or NOTHING
    pairs = [(key, labels[key]) for key in spec.match_label_keys if key in labels]
    return LintedConstraint(
        workload, index, spec, selector.merged(pairs) if pairs else selector, numbers
    )


def named_values(requirements: CompiledRequirements, key: str) -> int | None:
    """The number of values of a key in a pod's node affinity; None when it names none."""
    if any(pair[0] == key for pair in requirements.node_selector):
        return 1
    if requirements.terms is None:
        return None
    values: set[str] = set()
    for term in requirements.terms:
        here = _values_of(term, key)
        if here is None:
            return None
        values |= here
    return len(values)


def _values_of(term: CompiledTerm, key: str) -> set[str] | None:
    named: list[Sequence[str]] = [
        label.values for label in term.labels if label.key == key and label.operator == IN
    ]
    return set.intersection(*map(set, named)) if named else None
