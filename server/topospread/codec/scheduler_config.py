"""The scheduler's part of the configuration: profiles and feature gates.

A KubeSchedulerConfiguration is read as users have it. Only what bears on PodTopologySpread is
looked at; defaults and checks are kube-scheduler's (pkg/scheduler/apis/config, v1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from topospread.codec.plain import PlainObject
from topospread.codec.spread_args import profile_from_args
from topospread.config.documents import (
    FEATURE_GATES,
    OWN_KIND,
    SCHEDULER_KIND,
    read_documents,
    suggestion,
)
from topospread.config.loading import settings_in
from topospread.errors import ConfigError
from topospread.kube.violations import duplicate, required, violation_text
from topospread.spread.settings import DEFAULT_PROFILE, GATE_NAMES, FeatureGates, Profile

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
PLUGIN: Final = "PodTopologySpread"

_OLD_VERSIONS: Final = tuple(
    f"kubescheduler.config.k8s.io/{old}"
    for old in ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3")
)
# Fields of the two types in 1.36. Others are left alone, as a newer release may have them, unless
# they look like a slip of the pen.
_FIELDS: Final = (
    *("apiVersion", "kind", "parallelism", "leaderElection", "clientConnection"),
    *("enableProfiling", "enableContentionProfiling", "percentageOfNodesToScore"),
    *("podInitialBackoffSeconds", "podMaxBackoffSeconds", "profiles", "extenders"),
    "delayCacheUntilActive",
)
_PROFILE_FIELDS: Final = ("schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig")
_EXTENSION_POINTS: Final = ("multiPoint", "preFilter", "filter", "preScore", "score")


@dataclass(frozen=True, slots=True)
class ConfiguredRules:
    """What a configuration file says of how pods are judged.

    Attributes:
        profiles: by schedulerName, in the file's order; never empty.
        gates: upstream's defaults, changed by the file, changed by the overrides.
        warnings: what is accepted but perhaps not meant; a line each.
    """

    profiles: Mapping[str, Profile]
    gates: FeatureGates
    warnings: tuple[str, ...] = ()


def read_rules(
    text: str, name: str = "configuration", overrides: Mapping[str, bool] | None = None
) -> ConfiguredRules:
    """The rules of a configuration file.

    Args:
        text: its content; empty gives kube-scheduler's defaults.
        name: of the file, for error texts.
        overrides: feature gates by upstream's names that go before the file's.

    Raises:
        ConfigError: all that is wrong, a line each.
    """
    documents = read_documents(text, name)
    problems: list[str] = []
    warnings: list[str] = []
    gates: dict[str, bool] = {}
    if documents.own is not None:
        # A reading while the server runs must not accept what would keep it from starting again.
        dict(settings_in(documents.own, problems))
        if not problems:
            gates.update(PlainObject(documents.own, "", problems).switches(FEATURE_GATES))
    problems += _unknown_gates(gates, FEATURE_GATES)
    problems += _unknown_gates(overrides or {}, "--feature-gates")
    profiles = {DEFAULT_PROFILE: Profile()}
    if documents.scheduler is not None:
        profiles = _profiles(documents.scheduler, problems, warnings)
    if problems:
        raise ConfigError("\n".join(f"{name}: {problem}" for problem in problems))
    configured = FeatureGates().switched({**gates, **(overrides or {})})
    return ConfiguredRules(profiles, configured, tuple(warnings))


def _unknown_gates(gates: Mapping[str, bool], where: str) -> Iterator[str]:
    for name in gates:
        if name not in GATE_NAMES:
            hint = suggestion(name, GATE_NAMES) or f"; known are {', '.join(GATE_NAMES)}"
            yield f"{where}: unknown feature gate {name!r}{hint}"


def _profiles(
    document: Mapping[str, object], problems: list[str], warnings: list[str]
) -> dict[str, Profile]:
    root = PlainObject(document, "", problems)
    version = root.text("apiVersion")
    if version != API_VERSION:
        problems.append(_wrong_version(version))
        return {}
    root.refuse_slips(_FIELDS)
    profiles = root.children("profiles") or [PlainObject({}, "profiles[0]", problems)]
    read: dict[str, Profile] = {}
    for profile in profiles:
        profile.refuse_slips(_PROFILE_FIELDS)
        name = profile.text("schedulerName")
        if not name and len(profiles) == 1 and profile.get("schedulerName") is None:
            # Only a lone profile gets a name by itself.
            name = DEFAULT_PROFILE
        if not name:
            problems.append(violation_text(required(profile.at("schedulerName"), "")))
        elif name in read:
            problems.append(violation_text(duplicate(profile.at("schedulerName"), name)))
        read[name] = _profile(name, profile, problems)
        warnings += _disabled(profile)
    return read


def _wrong_version(version: str) -> str:
    if version in _OLD_VERSIONS:
        return (
            f"{SCHEDULER_KIND}: apiVersion {version} was removed from Kubernetes; change it to"
            f" {API_VERSION}"
        )
    return f"{SCHEDULER_KIND}: apiVersion {version!r} is unknown; write {API_VERSION}"


def _profile(name: str, profile: PlainObject, problems: list[str]) -> Profile:
    configured: dict[str, PlainObject] = {}
    for plugin in profile.children("pluginConfig"):
        plugin_name = plugin.text("name")
        if not plugin_name:
            problems.append(violation_text(required(plugin.at("name"), "")))
        elif plugin_name in configured:
            problems.append(violation_text(duplicate(plugin.at("name"), plugin_name)))
        configured[plugin_name] = plugin
    plugin_config = configured.get(PLUGIN)
    args = plugin_config.child("args") if plugin_config else None
    return Profile(name) if args is None else profile_from_args(name, args, API_VERSION, problems)


def _disabled(profile: PlainObject) -> Iterator[str]:
    """Warns where a profile leaves the plugin out: whoever asks gets its answers all the same."""
    plugins = profile.child("plugins")
    for point in _EXTENSION_POINTS if plugins else ():
        sets = plugins.child(point) if plugins else None
        names = [one.text("name") for one in sets.children("disabled")] if sets else []
        enabled = [one.text("name") for one in sets.children("enabled")] if sets else []
        if (PLUGIN in names or "*" in names) and PLUGIN not in enabled:
            yield (
                f"{profile.at('plugins')}.{point} disables {PLUGIN}, but a pod that is asked"
                f" about is judged by it; the {OWN_KIND} has no switch for it"
            )
