"""Rules on one constraint: its key, its selector, and what it allows."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from topospread.kube.affinity import named_values
from topospread.kube.objects import HONOR, HOSTNAME_LABEL, IGNORE, ZONE_LABEL
from topospread.kube.selectors import Selector, selector_text
from topospread.spread.findings import FindingCode
from topospread.spread.linting.catalog import LintFinding, Severity, found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.spread.linting.linted import LintedConstraint

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


def findings_of_key(linted: LintedConstraint) -> Iterator[LintFinding]:
    """What is wrong with the key, as far as it is known without nodes."""
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


# ------------------------------ the selector: which pods are counted


def findings_of_selector(linted: LintedConstraint) -> Iterator[LintFinding]:
    """What is wrong with the pods that a constraint counts."""
    selecting = selector_finding(linted.selector, matches_itself=linted.may_count_own_pods)
    if selecting is not None:
        yield found(selecting[0], linted.index, selecting[1])
    yield from _of_wider_selector(linted)
    yield from _of_match_label_keys(linted)


def selector_finding(selector: Selector, *, matches_itself: bool) -> tuple[FindingCode, str] | None:
    """What is wrong with a constraint's selector.

    Args:
        selector: of the constraint.
        matches_itself: whether it matches the labels of the pod that has the constraint, or may.
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
    if linted.counts_others:
        yield found(
            FindingCode.WIDER_SELECTOR,
            linted.index,
            f"the labelSelector {selector_text(linted.selector)} lacks {linted.unrequired} of the "
            "workload's own: pods of others are counted, too",
        )


def _of_match_label_keys(linted: LintedConstraint) -> Iterator[LintFinding]:
    workload, added = linted.workload, linted.workload.added_labels
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


# ------------------------------ numbers, domains that count, and places in them


def findings_of_domains(linted: LintedConstraint) -> Iterator[LintFinding]:
    """What is wrong with the domains that a constraint allows."""
    yield from _of_min_domains(linted)
    yield from _of_max_skew(linted)
    yield from _of_single_domain(linted)
    yield from _of_unusable_nodes(linted)
    yield from _of_places(linted)
    yield from _of_volumes(linted)


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
    named = named_values(linted.requirements, key)
    if linted.honours_affinity and named is not None and named < wanted:
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
    if max_skew >= replicas and linted.counts_own_pods and not linted.counts_others:
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
    if not workload.may_be_many or not linted.honours_affinity:
        return
    named = named_values(linted.requirements, key)
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
    has, they = ("has", "it has") if unusable == 1 else ("have", "the emptiest of them has")
    pods = f"{max_skew} pod{'s' * (max_skew != 1)}"
    return (
        f"{unusable} of {domains} domains that count {has} no node that the pod can use: the "
        f"others take at most {pods} more than {they}"
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
