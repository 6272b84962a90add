"""Rules by which pods are judged: the arguments of a scheduler profile and the feature gates.

Frozen values, so that they can be part of cache keys. Sources: PodTopologySpreadArgs
(kubescheduler.config.k8s.io/v1) and upstream's feature gates as of 1.36.
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

if TYPE_CHECKING:
    from collections.abc import Mapping

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
    "TaintTolerationComparisonOperators": "taint_comparison_operators",
}
"""Upstream's gate name to the field of :class:`FeatureGates`."""


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """Switches with upstream's meaning; :data:`GATE_NAMES` has upstream's names.

    Attributes:
        min_domains: off, evaluation ignores minDomains (KEP-3022).
        default_spread: off, pods without constraints get none (KEP-1258).
        node_inclusion_policy: off, nodeAffinity is honoured and taints are ignored, whatever a
            constraint has.
        match_label_keys: off, matchLabelKeys are ignored.
        taint_comparison_operators: on, tolerations may use Lt and Gt.
    """

    min_domains: bool = True
    default_spread: bool = True
    node_inclusion_policy: bool = True
    match_label_keys: bool = True
    taint_comparison_operators: bool = False

    def switched(self, gates: Mapping[str, bool]) -> FeatureGates:
        """A copy with some gates set by upstream's names.

        Raises:
            KeyError: a name that is not in :data:`GATE_NAMES`.
        """
        return replace(self, **{GATE_NAMES[name]: on for name, on in gates.items()})


if set(GATE_NAMES.values()) != {f.name for f in fields(FeatureGates)}:
    raise AssertionError("every gate needs an upstream name")


@dataclass(frozen=True, slots=True)
class Profile:
    """A validated scheduler profile.

    Attributes:
        name: the schedulerName that selects it; also the ``profile`` label of metrics.
        defaulting: System or List.
        default_constraints: those of List; empty for System (see :attr:`defaults`).
    """

    name: str = DEFAULT_PROFILE
    defaulting: str = SYSTEM
    default_constraints: tuple[SpreadConstraint, ...] = ()

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
    """A profile together with the gates: everything about a decision that is not state."""

    profile: Profile = Profile()
    gates: FeatureGates = FeatureGates()


@dataclass(frozen=True, slots=True)
class ConfiguredRules:
    """Profiles and feature gates of a configuration file.

    Attributes:
        profiles: by schedulerName, in the file's order; never empty.
        gates: upstream's defaults, changed by the file, changed by the overrides.
        warnings: about accepted settings that are perhaps not intended; a line each.
        settings: of the server, by field name, that the file has; a server reads them at its start.
    """

    profiles: Mapping[str, Profile]
    gates: FeatureGates
    warnings: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)


DEFAULT_RULES: Final = ConfiguredRules({DEFAULT_PROFILE: Profile()}, FeatureGates())
"""kube-scheduler's own defaults."""
