"""The constraints a pod is judged by: its own, or the cluster's defaults.

Sources: KEP-895 (the API), KEP-3022 (minDomains), KEP-1258 (defaults); facts F1 to F5, F14, F17,
F22 to F26 and F35.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tests.reference import affinity, taints
from tests.reference.defaults import (
    DEFAULTED_SYSTEM,
    deduced_selector,
    default_constraints,
    defaulting_type,
)
from tests.reference.objects import Json, Labels, labels_of, metadata_of, spec_of
from tests.reference.selectors import Requirement, Selector, exact, parse_selector

HARD = "DoNotSchedule"
SOFT = "ScheduleAnyway"

GATES = {
    "nodeInclusionPolicy": "node_inclusion_policy",
    "matchLabelKeys": "match_label_keys",
    "taintTolerationComparisonOperators": "taint_toleration_comparison_operators",
    "minDomains": "min_domains",
    "defaultPodTopologySpread": "default_pod_topology_spread",
    "schedulerMerge": "scheduler_merge",
}


@dataclass(frozen=True)
class Gates:
    """The feature gates, with the states they have in kube-scheduler 1.36 (F35).

    min_domains and default_pod_topology_spread are no gates there any more; KEP-3022 and KEP-1258
    describe what they did: off, minDomains is ignored, and a pod without constraints of its own
    gets none. scheduler_merge is none either: off, the API server alone merges matchLabelKeys, as
    KEP-3243 announces.
    """

    node_inclusion_policy: bool = True
    match_label_keys: bool = True
    taint_toleration_comparison_operators: bool = False
    min_domains: bool = True
    default_pod_topology_spread: bool = True
    scheduler_merge: bool = True

    @classmethod
    def parse(cls, gates: Json | None) -> "Gates":
        """Gates as the recorded cases spell them (GATES); absent ones keep their state.

        Raises:
            ValueError: an unknown gate.
        """
        given = gates or {}
        if unknown := set(given) - set(GATES):
            raise ValueError(f"unknown gates {sorted(unknown)}: use some of {sorted(GATES)}")
        return cls(**{GATES[name]: bool(on) for name, on in given.items()})


@dataclass(frozen=True)
class Constraint:
    """One spread constraint with its selector parsed and its defaults filled in."""

    max_skew: int
    topology_key: str
    selector: Selector
    min_domains: int
    honours_affinity: bool
    honours_taints: bool


@dataclass(frozen=True)
class Question:
    """What is asked: a pod, the plugin's args and gates, and the workloads defaults come from."""

    pod: Json
    args: Json
    gates: Gates
    cluster: Json

    @property
    def own(self) -> list[Json]:
        """The pod's own constraints, as written."""
        own: list[Json] = spec_of(self.pod).get("topologySpreadConstraints") or []
        return own

    @property
    def requires_all_keys(self) -> bool:
        """Whether Score ignores nodes that lack a soft constraint's key: not for System (F26)."""
        return bool(self.own) or defaulting_type(self.args) != DEFAULTED_SYSTEM

    def constraints(self, action: str) -> list[Constraint]:
        """The constraints of one action, HARD or SOFT.

        Any own constraint turns all defaults off, for both actions alike (F22). Constraints of the
        other action are not parsed, so that their errors show elsewhere or never (F5).

        Raises:
            SelectorError: a selector of this action does not parse.
        """
        pod = self.pod
        if self.own:
            return [parse(c, pod, self.gates) for c in self.own if acts(c, action)]
        if not self.gates.default_pod_topology_spread:
            return []
        defaults = [
            parse(c, pod, self.gates) for c in default_constraints(self.args) if acts(c, action)
        ]
        selector = deduced_selector(self.cluster, self.pod)
        if selector.empty:
            return []  # nothing selects this pod, so there is no group to spread (F23)
        # The deduced selector takes the place of whatever matchLabelKeys would have made (F3).
        return [replace(constraint, selector=selector) for constraint in defaults]

    def includes(self, constraint: Constraint, node: Json) -> bool:
        """Whether the constraint's inclusion policies count this node's pods (F17).

        With the gate NodeInclusionPolicyInPodTopologySpread off, the pod's node affinity alone is
        honoured, as KEP-895 says: that is what the defaults of both policies say, too.
        """
        if constraint.honours_affinity and not affinity.accepts(self.pod, node):
            return False
        return not constraint.honours_taints or taints.accepts(
            self.pod,
            node,
            comparison_operators=self.gates.taint_toleration_comparison_operators,
        )


def acts(constraint: Json, action: str) -> bool:
    """Whether the constraint is of this action. An unknown whenUnsatisfiable is of neither."""
    return bool(constraint.get("whenUnsatisfiable") == action)


def parse(constraint: Json, pod: Json, gates: Gates) -> Constraint:
    """One written constraint, with what it leaves out filled in.

    Policies default to affinity Honor and taints Ignore (F17), minDomains to 1 (F14, KEP-3022). An
    explicit policy that is neither Honor nor Ignore acts as Ignore.

    Raises:
        SelectorError: the selector does not parse.
    """
    selector = parse_selector(constraint.get("labelSelector"))
    # A pod without a uid is a manifest: the API server merges when it stores it.
    if gates.match_label_keys and (gates.scheduler_merge or not metadata_of(pod).get("uid")):
        selector = selector.narrowed(keys_of(constraint, labels_of(pod)))
    min_domains = constraint.get("minDomains") if gates.min_domains else None
    affinity_policy = constraint.get("nodeAffinityPolicy") if gates.node_inclusion_policy else None
    taints_policy = constraint.get("nodeTaintsPolicy") if gates.node_inclusion_policy else None
    return Constraint(
        max_skew=constraint.get("maxSkew") or 0,
        topology_key=constraint.get("topologyKey") or "",
        selector=selector,
        min_domains=1 if min_domains is None else min_domains,
        honours_affinity=affinity_policy is None or affinity_policy == "Honor",
        honours_taints=taints_policy == "Honor",
    )


def keys_of(constraint: Json, pod_labels: Labels) -> Iterable[Requirement]:
    """What matchLabelKeys adds: the pod's own value of each key it has a label for (F3).

    Merging again what the API server already merged into the selector changes nothing (F4).
    """
    keys = constraint.get("matchLabelKeys") or []
    return exact({key: pod_labels[key] for key in keys if key in pod_labels}).requirements


def has_all_keys(node_labels: Labels, constraints: Iterable[Constraint]) -> bool:
    """Whether the node carries every constraint's topology key. "" is a value like others (F16)."""
    return all(constraint.topology_key in node_labels for constraint in constraints)
