"""Rules on one constraint: its key, and what it allows."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from topospread.kube.affinity import named_values
from topospread.kube.label_syntax import label_key_errors
from topospread.kube.objects import HONOR, HOSTNAME_LABEL, IGNORE, ZONE_LABEL
from topospread.spread.linting.catalog import LintFinding, Severity, rule
from topospread.spread.linting.fields import impossible_key
from topospread.spread.linting.selectors import of_match_label_keys, of_selector, of_wider_selector
from topospread.wording import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.spread.linting.workloads import LintedConstraint

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

WELL_KNOWN: Final = (
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


DEPRECATED_KEY: Final = rule(
    "DEPRECATED_KEY",
    Severity.WARNING,
    "the topology key is deprecated, and nodes may lack it",
    "Use its successor.",
)
MISSPELT_KEY: Final = rule(
    "MISSPELT_KEY",
    Severity.WARNING,
    "the topology key looks like a well-known one",
    "Spell the key as nodes have it.",
)


def _of_key(linted: LintedConstraint) -> Iterator[LintFinding]:
    """What is wrong with the key, as far as it is known without nodes."""
    key = linted.spec.topology_key
    yield from impossible_key(linted)
    if successor := DEPRECATED.get(key):
        yield DEPRECATED_KEY.found(
            linted.index,
            f"{key} is deprecated, and newer nodes lack it: write {successor}",
        )
    elif (meant := meant_key(key)) and not (linted.numbers and linted.numbers.domains):
        yield MISSPELT_KEY.found(linted.index, f"{key} is no well-known label: {meant} is")


def meant_key(key: str) -> str:
    """The well-known key that a key looks like; empty where it looks like none."""
    if key in WELL_KNOWN or label_key_errors(key):
        return ""
    alike = difflib.get_close_matches(key, WELL_KNOWN, 1, _ALIKE)
    return _OFTEN_WRITTEN.get(key.lower()) or (alike[0] if alike else "")


# ------------------------------ numbers, domains that count, and places in them


MIN_DOMAINS_IGNORED: Final = rule(
    "MIN_DOMAINS_IGNORED",
    Severity.WARNING,
    "minDomains does nothing",
    "Leave minDomains out, or set whenUnsatisfiable: DoNotSchedule.",
)
MIN_DOMAINS_OUT_OF_REACH: Final = rule(
    "MIN_DOMAINS_OUT_OF_REACH",
    Severity.WARNING,
    "minDomains is above the domains that there are: each takes at most maxSkew pods",
    "Lower minDomains, or let an autoscaler make the domains.",
)


def _of_min_domains(linted: LintedConstraint) -> Iterator[LintFinding]:
    wanted, key = linted.spec.min_domains, linted.spec.topology_key
    if wanted is None:
        return
    if not linted.is_hard:
        yield MIN_DOMAINS_IGNORED.found(
            linted.index,
            f"minDomains {wanted} does nothing with ScheduleAnyway, and the API server refuses it",
            Severity.ERROR,
        )
        return
    named = named_values(linted.requirements, key)
    if linted.honours_affinity and named is not None and named < wanted:
        yield MIN_DOMAINS_OUT_OF_REACH.found(
            linted.index,
            min_domains_above_named(wanted, named, key),
        )


def min_domains_above_named(wanted: int, named: int, key: str) -> str:
    """The text where the pod's node affinity admits fewer values than minDomains."""
    return (
        f"minDomains {wanted} can never be met: the pod's node affinity admits {named} "
        f"value{'s' * (named != 1)} of {key}"
    )


MAX_SKEW_TOO_LARGE: Final = rule(
    "MAX_SKEW_TOO_LARGE",
    Severity.WARNING,
    "maxSkew is not below the number of replicas: the constraint can refuse nothing",
    "Lower maxSkew; 1 spreads as evenly as it goes.",
)


def _of_max_skew(linted: LintedConstraint) -> Iterator[LintFinding]:
    replicas, max_skew = linted.workload.replicas, linted.spec.max_skew
    if not linted.is_hard or replicas is None or replicas < 2 or linted.workload.is_pod:
        return
    if max_skew >= replicas and linted.counts_own_pods and not linted.counts_others:
        yield MAX_SKEW_TOO_LARGE.found(
            linted.index,
            f"maxSkew {max_skew} is not below the {replicas} replicas: all of them may be in one "
            "domain",
        )


SINGLE_DOMAIN: Final = rule(
    "SINGLE_DOMAIN",
    Severity.WARNING,
    "the pod can go to one domain alone, so nothing is spread",
    "Admit more values of the key, or spread over another key.",
)


def _of_single_domain(linted: LintedConstraint) -> Iterator[LintFinding]:
    workload, key = linted.workload, linted.spec.topology_key
    if not workload.may_be_many or not linted.honours_affinity or workload.kind == "DaemonSet":
        return
    named = named_values(linted.requirements, key)
    if named == 1:
        text = f"the pod's node affinity admits 1 value of {key}: there is nothing to spread"
    elif linted.numbers is not None and linted.numbers.domains == 1:
        text = f"1 domain of {key} counts: there is nothing to spread"
    else:
        return
    yield SINGLE_DOMAIN.found(linted.index, text)


CONSTRAINT_ON_DAEMON_SET: Final = rule(
    "CONSTRAINT_ON_DAEMON_SET",
    Severity.WARNING,
    "a DaemonSet makes each pod for one node: its constraint spreads nothing",
    "Leave the constraint out; a node selector or affinity chooses a DaemonSet's nodes.",
)


def _of_daemon_set(linted: LintedConstraint) -> Iterator[LintFinding]:
    if linted.workload.kind != "DaemonSet":
        return
    effect = "spreads nothing, and can only keep a pod off its node"
    yield CONSTRAINT_ON_DAEMON_SET.found(
        linted.index,
        "a DaemonSet makes each pod for one node: the constraint "
        + (effect if linted.is_hard else "does nothing"),
    )


UNUSABLE_NODES_COUNTED: Final = rule(
    "UNUSABLE_NODES_COUNTED",
    Severity.WARNING,
    "nodes count that the pod cannot use: their domains keep the global minimum at 0",
    "Set nodeTaintsPolicy: Honor, and leave nodeAffinityPolicy at Honor.",
)


def _of_unusable_nodes(linted: LintedConstraint) -> Iterator[LintFinding]:
    spec, pod = linted.spec, linted.workload.pod
    if not linted.is_hard or not linted.workload.may_be_many or linted.workload.kind == "DaemonSet":
        return
    each = f"the others take at most {spec.max_skew} pod{'s' * (spec.max_skew != 1)} each"
    if linted.numbers is not None:
        domains, usable = linted.numbers.domains, linted.numbers.usable
        if usable < domains:
            text = unusable_domains(domains, usable, spec.max_skew)
            yield UNUSABLE_NODES_COUNTED.found(linted.index, text)
        return
    requirements = pod.requirements
    if spec.node_affinity_policy == IGNORE and (
        requirements.node_selector or requirements.terms is not None
    ):
        yield UNUSABLE_NODES_COUNTED.found(
            linted.index,
            "nodeAffinityPolicy: Ignore counts nodes that the pod's node affinity keeps it from: "
            f"domains of such nodes alone stay at 0 pods, and {each}",
        )
    elif (
        spec.topology_key == HOSTNAME_LABEL
        and spec.node_taints_policy != HONOR
        and not any(not each.key and each.operator == "Exists" for each in pod.tolerations)
    ):
        yield UNUSABLE_NODES_COUNTED.found(
            linted.index,
            "nodeTaintsPolicy is Ignore unless it is set: each tainted node, as of a control "
            f"plane, counts and stays at 0 pods, and {each}",
            Severity.INFO,
        )


def unusable_domains(domains: int, usable: int, max_skew: int) -> str:
    """The text where domains count that have no node which the pod can use."""
    unusable = domains - usable
    has, they = ("has", "it has") if unusable == 1 else ("have", "the emptiest of them has")
    pods = counted(max_skew, "pod")
    return (
        f"{unusable} of {domains} domains that count {has} no node that the pod can use: the "
        f"others take at most {pods} more than {they}"
    )


TOO_FEW_DOMAINS: Final = rule(
    "TOO_FEW_DOMAINS",
    Severity.ERROR,
    "the domains have no place for all replicas",
    "Raise maxSkew, lower minDomains, set nodeTaintsPolicy: Honor, or add domains.",
)


def _of_places(linted: LintedConstraint) -> Iterator[LintFinding]:
    places, replicas = linted.places, linted.workload.replicas
    if not linted.lacks_places or not linted.counts_own_pods:
        return
    is_rolled_out = linted.workload.rollout is not None and linted.is_outgrown
    if linted.numbers is not None and not is_rolled_out:
        yield TOO_FEW_DOMAINS.found(
            linted.index,
            f"{places} of {replicas} replicas find a place: {linted.numbers.usable} domains with "
            f"at most maxSkew {linted.spec.max_skew} each, as {linted.held_at_zero}",
        )


VOLUMES_PIN_PODS: Final = rule(
    "VOLUMES_PIN_PODS",
    Severity.INFO,
    "a volume holds its pod in a domain that a hard constraint may close to it",
    "Set whenUnsatisfiable: ScheduleAnyway, or bind volumes that every domain can reach.",
)


def _of_volumes(linted: LintedConstraint) -> Iterator[LintFinding]:
    if linted.is_hard and linted.workload.has_volume_claims:
        yield VOLUMES_PIN_PODS.found(
            linted.index,
            "each replica has volumes of its own: where these are bound to a domain of "
            f"{linted.spec.topology_key}, a pod whose domain is closed waits",
        )


CONSTRAINT_RULES: Final = (
    _of_key,
    of_selector,
    of_wider_selector,
    of_match_label_keys,
    _of_min_domains,
    _of_max_skew,
    _of_single_domain,
    _of_daemon_set,
    _of_unusable_nodes,
    _of_places,
    _of_volumes,
)

FIELD_RULES: Final = (
    (_of_key, frozenset({"topologyKey"})),
    (of_selector, frozenset({"labelSelector", "matchLabelKeys"})),
    (of_wider_selector, frozenset({"labelSelector", "matchLabelKeys"})),
    (of_match_label_keys, frozenset({"matchLabelKeys"})),
    (_of_min_domains, frozenset({"minDomains", "whenUnsatisfiable"})),
    (
        _of_max_skew,
        frozenset({"maxSkew", "whenUnsatisfiable", "labelSelector", "matchLabelKeys"}),
    ),
    (_of_daemon_set, frozenset({"whenUnsatisfiable"})),
)
"""Those that hold also where another field of the constraint is wrong, each with its own fields."""
