"""Rules on a constraint's topology key."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from topospread.kube.objects import HOSTNAME_LABEL, ZONE_LABEL
from topospread.spread.findings import FindingCode
from topospread.spread.linting.catalog import LintFinding, found

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
