"""PodTopologySpreadArgs, as a KubeSchedulerConfiguration has them, to a profile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from topospread.kube.objects import LabelSelector, SpreadConstraint
from topospread.kube.validation import validate_args
from topospread.kube.violations import violation_text
from topospread.spread.settings import SYSTEM, Profile

if TYPE_CHECKING:
    from topospread.codec.plain import PlainObject

KIND: Final = "PodTopologySpreadArgs"

_FIELDS: Final = ("apiVersion", "kind", "defaultingType", "defaultConstraints")
_CONSTRAINT_FIELDS: Final = (
    *("maxSkew", "topologyKey", "whenUnsatisfiable", "labelSelector", "minDomains"),
    *("nodeAffinityPolicy", "nodeTaintsPolicy", "matchLabelKeys"),
)


def profile_from_args(
    name: str, args: PlainObject, api_version: str, problems: list[str]
) -> Profile:
    """A profile out of the plugin's arguments, decoded and validated as kube-scheduler does.

    Args:
        name: the profile's schedulerName.
        args: the ``args`` of the plugin's pluginConfig.
        api_version: that of the configuration, which the arguments must share if they name one.
        problems: what is wrong is appended here; the profile is then of no use.
    """
    args.refuse_unknown(_FIELDS)
    for key, expected in (("apiVersion", api_version), ("kind", KIND)):
        if args.text(key) not in {"", expected}:
            problems.append(f"{args.at(key)}: {args.text(key)!r} is not {expected}")
    defaulting = args.text("defaultingType") or SYSTEM
    before = len(problems)
    constraints = tuple(map(_constraint, args.children("defaultConstraints")))
    if len(problems) == before:
        problems += [
            f"{args.at('')}{violation_text(violation)}"
            for violation in validate_args(defaulting, constraints)
        ]
    return Profile(name, defaulting, constraints)


def _constraint(written: PlainObject) -> SpreadConstraint:
    written.refuse_unknown(_CONSTRAINT_FIELDS)
    return SpreadConstraint(
        max_skew=written.int32("maxSkew"),
        topology_key=written.text("topologyKey"),
        when_unsatisfiable=written.text("whenUnsatisfiable"),
        # Validation refuses every selector that is not null, whatever it holds.
        label_selector=None if written.child("labelSelector") is None else LabelSelector(),
        min_domains=written.optional_int32("minDomains"),
        node_affinity_policy=written.optional_text("nodeAffinityPolicy"),
        node_taints_policy=written.optional_text("nodeTaintsPolicy"),
        match_label_keys=written.texts("matchLabelKeys"),
    )
