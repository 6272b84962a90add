"""Rules by which pods are judged: the arguments of a scheduler profile and the feature gates.

Frozen values, so that they can be part of cache keys. Sources: PodTopologySpreadArgs
(kubescheduler.config.k8s.io/v1) and upstream's feature gates. What differs between Kubernetes
versions is :data:`RELEASES`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Final

from topospread.kube.objects import (
    HOSTNAME_LABEL,
    SCHEDULE_ANYWAY,
    ZONE_LABEL,
    SpreadConstraint,
)
from topospread.kube.versions import KubernetesVersion

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

SYSTEM: Final = "System"
LIST: Final = "List"
DEFAULT_PROFILE: Final = "default-scheduler"

SYSTEM_DEFAULTS: Final = (
    SpreadConstraint(max_skew=3, topology_key=HOSTNAME_LABEL, when_unsatisfiable=SCHEDULE_ANYWAY),
    SpreadConstraint(max_skew=5, topology_key=ZONE_LABEL, when_unsatisfiable=SCHEDULE_ANYWAY),
)
"""The built-in defaults (KEP-1258): soft only, so they never reject a node."""

GATE_NAMES: Final[Mapping[str, str]] = {
    "MinDomainsInPodTopologySpread": "min_domains",
    "DefaultPodTopologySpread": "default_spread",
    "NodeInclusionPolicyInPodTopologySpread": "node_inclusion_policy",
    "MatchLabelKeysInPodTopologySpread": "match_label_keys",
    "MatchLabelKeysInPodTopologySpreadSchedulerMerge": "scheduler_merge",
    "TaintTolerationComparisonOperators": "taint_comparison_operators",
    "VolumeLimitScaling": "volume_limit_scaling",
}
"""Upstream's gate name to the field of :class:`FeatureGates`; SchedulerMerge is not upstream's."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """Switches with upstream's meaning; :data:`GATE_NAMES` has upstream's names.

    Attributes:
        min_domains: off, evaluation ignores minDomains (KEP-3022).
        default_spread: off, pods without constraints get none (KEP-1258).
        node_inclusion_policy: off, nodeAffinity is honoured and taints are ignored, whatever a
            constraint has.
        match_label_keys: off, matchLabelKeys are ignored.
        scheduler_merge: off, the scheduler takes selectors as they are stored: the merge of
            matchLabelKeys is the API server's alone. KEP-3243 announces that for GA.
        taint_comparison_operators: on, tolerations may use Lt and Gt.
        volume_limit_scaling: off, nodes need not have the CSI drivers that insist on it (KEP-5030);
            on since 1.37.
    """

    min_domains: bool = True
    default_spread: bool = True
    node_inclusion_policy: bool = True
    match_label_keys: bool = True
    scheduler_merge: bool = True
    taint_comparison_operators: bool = False
    volume_limit_scaling: bool = True

    def switched(self, gates: Mapping[str, bool]) -> FeatureGates:
        """A copy with some gates set by upstream's names.

        Raises:
            KeyError: a name that is not in :data:`GATE_NAMES`.
        """
        return replace(self, **{GATE_NAMES[name]: on for name, on in gates.items()})


if set(GATE_NAMES.values()) != {f.name for f in fields(FeatureGates)}:
    raise AssertionError("every gate needs an upstream name")


@dataclass(frozen=True, slots=True)
class Release:
    """What decides in a Kubernetes version and is another in others.

    Attributes:
        gates: the defaults of feature gates.
        counts_empty_selector: ``labelSelector: {}`` counts all pods of the namespace; else none.
        names_narrow: NodeName is asked first, and narrows the nodes before any is looked at.
    """

    gates: FeatureGates = FeatureGates()
    counts_empty_selector: bool = False
    names_narrow: bool = True


RELEASES: Final[Mapping[KubernetesVersion, Release]] = {
    KubernetesVersion(1, 36): Release(FeatureGates(volume_limit_scaling=False), names_narrow=False),
    KubernetesVersion(1, 37): Release(),
    KubernetesVersion(1, 38): Release(counts_empty_selector=True),
}
"""The versions that are known, oldest first."""

OLDEST: Final = min(RELEASES)
NEWEST: Final = max(RELEASES)

EXACT_FIT: Final = KubernetesVersion(1, 37)
"""The version whose filters beside spreading are followed in full."""

OTHER_FIT: Final = (
    f"what differs in fit before {EXACT_FIT}",
    f"what differs in fit since {EXACT_FIT}",
)
"""What is not looked at in a cluster of another version: of an older one, of a newer one."""

PREEMPTION: Final = "preemption"
"""Begins a gap by which more pods may fit, and none less."""

_GAPS: Final = 2
"""Gaps that a line names."""


def gaps_text(gaps: Iterable[str]) -> str:
    """What is not looked at, in a few words beside advice; empty for what versions differ in."""
    labels = (each.partition(" (")[0] for each in gaps if each not in OTHER_FIT)
    named = dict.fromkeys(each.partition(": ")[0] for each in labels)
    if not named:
        return ""
    more = len(named) - _GAPS
    return f"not looked at: {', '.join([*named][:_GAPS])}" + f" and {more} more" * (more > 0)


def is_bound(gaps: Iterable[str]) -> bool:
    """Whether fewer pods or nodes may fit than was found, beside what versions differ in."""
    return any(each not in OTHER_FIT and not each.startswith(PREEMPTION) for each in gaps)


def known_version(version: KubernetesVersion) -> KubernetesVersion:
    """The known version by whose rules a cluster of a version is judged: the nearest."""
    return min(max(version, OLDEST), NEWEST)


def known_versions() -> str:
    """All known versions, for people."""
    return ", ".join(map(str, RELEASES))


@dataclass(frozen=True, slots=True)
class Profile:
    """A validated scheduler profile.

    Attributes:
        name: the schedulerName that selects it; also the ``profile`` label of metrics.
        defaulting: System or List.
        default_constraints: those of List; empty for System (see :attr:`defaults`).
        foreign: what the profile has refuse nodes otherwise than fit does, in words: plugins and
            extenders that are not kube-scheduler's own, filters that are disabled or configured.
    """

    name: str = DEFAULT_PROFILE
    defaulting: str = SYSTEM
    default_constraints: tuple[SpreadConstraint, ...] = ()
    foreign: tuple[str, ...] = ()

    @property
    def system_defaulted(self) -> bool:
        """Whether the built-in defaults are in force; scoring then requires no topology keys."""
        return self.defaulting == SYSTEM

    @property
    def defaults(self) -> tuple[SpreadConstraint, ...]:
        """The constraints for pods that have none of their own."""
        return SYSTEM_DEFAULTS if self.system_defaulted else self.default_constraints


@dataclass(frozen=True, slots=True)
class Rules:
    """Everything about a decision that is not state: a profile, the gates and the version.

    Attributes:
        version: of :data:`RELEASES`.
        for_manifests: the rules for pods that no API server has stored yet: as if one had, which
            merges matchLabelKeys into the selector, whatever the scheduler does afterwards.
    """

    profile: Profile = Profile()
    gates: FeatureGates = FeatureGates()
    version: KubernetesVersion = NEWEST
    for_manifests: Rules = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Make the rules for manifests once: results are kept by the identity of rules."""
        merged = self
        if not self.gates.scheduler_merge:
            merged = replace(self, gates=replace(self.gates, scheduler_merge=True))
        object.__setattr__(self, "for_manifests", merged)

    @property
    def release(self) -> Release:
        """What decides in the version alone."""
        return RELEASES[self.version]


@dataclass(frozen=True, slots=True)
class ConfiguredRules:
    """Profiles and feature gates of a configuration file.

    Attributes:
        profiles: by schedulerName, in the file's order; never empty.
        gates: by upstream's names, those that the file or the overrides switch.
        warnings: about accepted settings that are perhaps not intended; a line each.
        settings: of the server, by field name, that the file has; a server reads them at its start.
    """

    profiles: Mapping[str, Profile]
    gates: Mapping[str, bool] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)

    def gates_of(self, version: KubernetesVersion) -> FeatureGates:
        """The gates in force in a known version: its defaults, as they are switched."""
        return RELEASES[version].gates.switched(self.gates)


DEFAULT_RULES: Final = ConfiguredRules({DEFAULT_PROFILE: Profile()})
"""kube-scheduler's own defaults."""
