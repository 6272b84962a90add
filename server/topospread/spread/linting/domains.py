"""Rules on what a constraint allows: its numbers, the domains that count, and places in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from topospread.kube.affinity import named_values
from topospread.kube.objects import HONOR, HOSTNAME_LABEL, IGNORE
from topospread.spread.findings import FindingCode
from topospread.spread.linting.catalog import LintFinding, Severity, found

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.spread.linting.linted import LintedConstraint


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
