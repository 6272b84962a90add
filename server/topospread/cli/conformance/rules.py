"""By which rules a recorded case was judged → the settings of a request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from topospread_client import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

_GATES: Final = {
    "nodeInclusionPolicy": "NodeInclusionPolicyInPodTopologySpread",
    "matchLabelKeys": "MatchLabelKeysInPodTopologySpread",
    "taintTolerationComparisonOperators": "TaintTolerationComparisonOperators",
    "minDomains": "MinDomainsInPodTopologySpread",
    "defaultPodTopologySpread": "DefaultPodTopologySpread",
}


def settings_of(record: Mapping[str, Any]) -> Settings:
    """The args and gates of a record; what it does not say is the server's default.

    Raises:
        ManifestError: args that are no PodTopologySpreadArgs (when the request is made).
    """
    gates = {_GATES.get(name, name): on for name, on in (record.get("gates") or {}).items()}
    return Settings(args=record.get("args") or {}, feature_gates=gates)
