"""Reads the scheduler's part of the configuration: profiles and feature gates.

A KubeSchedulerConfiguration is read as users have it. Only what bears on PodTopologySpread is
looked at; defaults and checks are kube-scheduler's (pkg/scheduler/apis/config, v1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from topospread.codec.pods import constraint_from_proto
from topospread.config.documents import (
    FEATURE_GATES,
    OWN_KIND,
    SCHEDULER_KIND,
    closest,
    read_documents,
    suggestion,
)
from topospread.config.loading import settings_in
from topospread.errors import ConfigError, InvalidRequest
from topospread.kube.objects import LabelSelector, SpreadConstraint
from topospread.kube.validation import validate_args
from topospread.kube.versions import parse_version
from topospread.kube.violations import duplicate, required, violation_text, violations_text
from topospread.spread.settings import (
    DEFAULT_PROFILE,
    GATE_NAMES,
    NEWEST,
    SYSTEM,
    ConfiguredRules,
    Profile,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from topospread.kube.versions import KubernetesVersion
    from topospread_proto.v1.common_pb2 import PodTopologySpreadArgs


API_VERSION: Final = "kubescheduler.config.k8s.io/v1"
PLUGIN: Final = "PodTopologySpread"

_OLD_VERSIONS: Final = tuple(
    f"kubescheduler.config.k8s.io/{old}"
    for old in ("v1alpha1", "v1alpha2", "v1beta1", "v1beta2", "v1beta3")
)
# Fields of the two types in 1.36. Others are left alone, as a newer release may have them, unless
# they look like typing errors.
_FIELDS: Final = (
    "apiVersion",
    "kind",
    "parallelism",
    "leaderElection",
    "clientConnection",
    "enableProfiling",
    "enableContentionProfiling",
    "percentageOfNodesToScore",
    "podInitialBackoffSeconds",
    "podMaxBackoffSeconds",
    "profiles",
    "extenders",
    "delayCacheUntilActive",
)
_PROFILE_FIELDS: Final = ("schedulerName", "percentageOfNodesToScore", "plugins", "pluginConfig")
_REFUSING_POINTS: Final = ("preEnqueue", "preFilter", "filter", "reserve", "permit", "multiPoint")
_IN_TREE: Final = frozenset(
    {
        "DefaultBinder",
        "DefaultPreemption",
        "DynamicResources",
        "GangScheduling",
        "ImageLocality",
        "InterPodAffinity",
        "NodeAffinity",
        "NodeDeclaredFeatures",
        "NodeName",
        "NodePorts",
        "NodeResourcesBalancedAllocation",
        "NodeResourcesFit",
        "NodeUnschedulable",
        "NodeVolumeLimits",
        "PodTopologySpread",
        "PrioritySort",
        "SchedulingGates",
        "TaintToleration",
        "VolumeBinding",
        "VolumeRestrictions",
        "VolumeZone",
    }
)
"""kube-scheduler's own plugins; others that a profile enables are not looked at."""
FILTERS: Final = (
    "NodeName",
    "NodeUnschedulable",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "VolumeRestrictions",
    "NodeVolumeLimits",
    "VolumeBinding",
    "VolumeZone",
    "InterPodAffinity",
    "DynamicResources",
    "NodeDeclaredFeatures",
)
"""Those that fit asks beside PodTopologySpread, whatever a profile says of them."""
_DECIDING_ARGS: Final[Mapping[str, tuple[str, ...]]] = {
    "NodeAffinity": ("addedAffinity",),
    "NodeResourcesFit": ("ignoredResources", "ignoredResourceGroups"),
}
"""Arguments of these that decide and are not followed."""
_EXTENSION_POINTS: Final = ("multiPoint", "preFilter", "filter", "preScore", "score")

ARGS_KIND: Final = "PodTopologySpreadArgs"

_ARGS_FIELDS: Final = ("apiVersion", "kind", "defaultingType", "defaultConstraints")
_CONSTRAINT_FIELDS: Final = (
    "maxSkew",
    "topologyKey",
    "whenUnsatisfiable",
    "labelSelector",
    "minDomains",
    "nodeAffinityPolicy",
    "nodeTaintsPolicy",
    "matchLabelKeys",
)

INT32: Final = range(-(2**31), 2**31)


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
    settings: dict[str, object] = {}
    if documents.own is not None:
        # A reading while the server runs must not accept what would keep it from starting again.
        settings |= settings_in(documents.own, problems)
        if not problems:
            gates.update(StrictMapping(documents.own, "", problems).switches(FEATURE_GATES))
    problems += _unknown_gates(gates, FEATURE_GATES)
    problems += _unknown_gates(overrides or {}, "--feature-gates")
    profiles = {DEFAULT_PROFILE: Profile()}
    if documents.scheduler is not None:
        profiles = _profiles(documents.scheduler, problems, warnings)
    if problems:
        raise ConfigError("\n".join(f"{name}: {problem}" for problem in dict.fromkeys(problems)))
    return ConfiguredRules(profiles, {**gates, **(overrides or {})}, tuple(warnings), settings)


def configured_version(text: str, where: str = "--kubernetes-version") -> KubernetesVersion:
    """The Kubernetes version that is configured; the newest known where none is.

    Raises:
        ConfigError: it is no version; one that is not known may be configured.
    """
    if not text:
        return NEWEST
    version = parse_version(text)
    if version is None:
        raise ConfigError(f"{where}: {text[:64]!r} is no version of Kubernetes, such as {NEWEST}")
    return version


def _unknown_gates(gates: Mapping[str, bool], where: str) -> Iterator[str]:
    for name in gates:
        if name not in GATE_NAMES:
            hint = suggestion(name, GATE_NAMES) or f"; known are {', '.join(GATE_NAMES)}"
            yield f"{where}: unknown feature gate {name!r}{hint}"


def _profiles(
    document: Mapping[str, object], problems: list[str], warnings: list[str]
) -> dict[str, Profile]:
    root = StrictMapping(document, "", problems)
    version = root.text("apiVersion")
    if version != API_VERSION:
        problems.append(_wrong_version(version))
        return {}
    root.reject_typos(_FIELDS)
    profiles = root.children("profiles") or [StrictMapping({}, "profiles[0]", problems)]
    read: dict[str, Profile] = {}
    extenders = [
        f"extender {each.text('urlPrefix')}"
        for each in root.children("extenders")
        if each.text("filterVerb")
    ]
    for profile in profiles:
        profile.reject_typos(_PROFILE_FIELDS)
        name = profile.text("schedulerName")
        if not name and len(profiles) == 1 and profile.get("schedulerName") is None:
            # Only a lone profile gets a name by itself.
            name = DEFAULT_PROFILE
        if not name:
            problems.append(violation_text(required(profile.at("schedulerName"), "")))
        elif name in read:
            problems.append(violation_text(duplicate(profile.at("schedulerName"), name)))
        read[name] = _profile(name, profile, problems)
        foreign = (*_out_of_tree(profile), *_without(profile), *read[name].foreign, *extenders)
        read[name] = replace(read[name], foreign=foreign)
        warnings += _disabled(profile)
    return read


def _wrong_version(version: str) -> str:
    if version in _OLD_VERSIONS:
        return (
            f"{SCHEDULER_KIND}: apiVersion {version} was removed from Kubernetes; change it to"
            f" {API_VERSION}"
        )
    return f"{SCHEDULER_KIND}: apiVersion {version!r} is unknown; write {API_VERSION}"


def _profile(name: str, profile: StrictMapping, problems: list[str]) -> Profile:
    configured: dict[str, StrictMapping] = {}
    for plugin in profile.children("pluginConfig"):
        plugin_name = plugin.text("name")
        if not plugin_name:
            problems.append(violation_text(required(plugin.at("name"), "")))
        elif plugin_name in configured:
            problems.append(violation_text(duplicate(plugin.at("name"), plugin_name)))
        configured[plugin_name] = plugin
    plugin_config = configured.get(PLUGIN)
    args = plugin_config.child("args") if plugin_config else None
    read = Profile(name)
    if args is not None:
        read = profile_from_args(name, args, API_VERSION, problems)
    return replace(read, foreign=tuple(_arguments(configured)))


def _arguments(configured: Mapping[str, StrictMapping]) -> Iterator[str]:
    """The arguments of other filters that decide which nodes they refuse."""
    for name, fields in _DECIDING_ARGS.items():
        args = configured[name].child("args") if name in configured else None
        for each in fields:
            if args is not None and args.get(each):
                yield f"plugin {name}: {each}"


def _out_of_tree(profile: StrictMapping) -> Sequence[str]:
    """The plugins that may refuse a node, without kube-scheduler's own."""
    plugins = profile.child("plugins")
    found: dict[str, None] = {}
    for point in _REFUSING_POINTS if plugins else ():
        sets = plugins.child(point) if plugins else None
        for one in sets.children("enabled") if sets else ():
            if (name := one.text("name")) and name not in _IN_TREE:
                found[f"plugin {name}"] = None
    return [*found]


def _without(profile: StrictMapping) -> Iterator[str]:
    """The filters that are judged by and that the profile disables."""
    plugins = profile.child("plugins")
    disabled: dict[str, list[str]] = {}
    enabled: dict[str, list[str]] = {}
    for point in ("multiPoint", "preFilter", "filter"):
        sets = plugins.child(point) if plugins else None
        disabled[point] = [one.text("name") for one in sets.children("disabled")] if sets else []
        enabled[point] = [one.text("name") for one in sets.children("enabled")] if sets else []

    def is_off(name: str, point: str) -> bool:
        return not {name, "*"}.isdisjoint(disabled[point]) and name not in enabled[point]

    for name in FILTERS:
        everywhere = is_off(name, "multiPoint") and name not in enabled["filter"]
        if everywhere or is_off(name, "preFilter") or is_off(name, "filter"):
            yield f"plugin {name} is disabled"


def _disabled(profile: StrictMapping) -> Iterator[str]:
    """Warn where a profile disables the plugin, which answers all the same."""
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


def profile_from_args(
    name: str, args: StrictMapping, api_version: str, problems: list[str]
) -> Profile:
    """A profile out of the plugin's arguments, decoded and validated as kube-scheduler does.

    Args:
        name: the profile's schedulerName.
        args: the ``args`` of the plugin's pluginConfig.
        api_version: that of the configuration, which the arguments must share if they name one.
        problems: what is wrong is appended here; the profile is then of no use.
    """
    args.reject_unknown(_ARGS_FIELDS)
    for key, expected in (("apiVersion", api_version), ("kind", ARGS_KIND)):
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


def _constraint(written: StrictMapping) -> SpreadConstraint:
    written.reject_unknown(_CONSTRAINT_FIELDS)
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


def profile_from_proto(args: PodTopologySpreadArgs, name: str = DEFAULT_PROFILE) -> Profile:
    """Read a profile from a request's arguments.

    Args:
        args: as a request carries them; an empty defaultingType acts as System.
        name: the profile's name, for metrics.

    Raises:
        InvalidRequest: the plugin would refuse them; fields as kube-scheduler names them.
    """
    constraints = tuple(map(constraint_from_proto, args.default_constraints))
    violations = validate_args(args.defaulting_type, constraints)
    if violations:
        raise InvalidRequest(violations_text(violations), violations)
    return Profile(name, args.defaulting_type or SYSTEM, constraints)


class StrictMapping:
    """A mapping from an untrusted document; absent and null fields read as empty."""

    def __init__(self, fields: Mapping[str, object], path: str, problems: list[str]) -> None:
        self._fields = fields
        self._path = path
        self._problems = problems

    def at(self, key: str) -> str:
        """The path of a field."""
        return f"{self._path}.{key}" if self._path else key

    def get(self, key: str) -> object:
        """The value of a field; None when it is absent."""
        return self._fields.get(key)

    def text(self, key: str) -> str:
        """The value of a text field."""
        value = self.get(key)
        if value is None or isinstance(value, str):
            return value or ""
        self._wrong(key, "a text")
        return ""

    def optional_text(self, key: str) -> str | None:
        """The value of a text field; None when it is absent."""
        return None if self.get(key) is None else self.text(key)

    def int32(self, key: str) -> int:
        """The value of an integer field."""
        value = self.get(key)
        if value is None:
            return 0
        if isinstance(value, int) and not isinstance(value, bool) and value in INT32:
            return value
        self._wrong(key, "a whole number of 32 bits")
        return 0

    def optional_int32(self, key: str) -> int | None:
        """The value of an integer field; None when it is absent."""
        return None if self.get(key) is None else self.int32(key)

    def texts(self, key: str) -> tuple[str, ...]:
        """The values of a list of texts."""
        value = self.get(key)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return tuple(value)
        self._wrong(key, "a list of texts")
        return ()

    def switches(self, key: str) -> Mapping[str, bool]:
        """The values of a mapping of names to booleans."""
        value = self.get(key)
        if value is None:
            return {}
        if isinstance(value, dict) and all(isinstance(on, bool) for on in value.values()):
            return {str(name): on for name, on in value.items()}
        self._wrong(key, "a mapping of names to true or false")
        return {}

    def child(self, key: str) -> StrictMapping | None:
        """The mapping in a field; None when it is absent."""
        value = self.get(key)
        if value is None:
            return None
        if isinstance(value, Mapping):
            return StrictMapping(value, self.at(key), self._problems)
        self._wrong(key, "a mapping")
        return None

    def children(self, key: str) -> list[StrictMapping]:
        """The mappings in a list field."""
        value = self.get(key)
        if value is None:
            return []
        if isinstance(value, list) and all(isinstance(one, Mapping) for one in value):
            return [
                StrictMapping(one, f"{self.at(key)}[{position}]", self._problems)
                for position, one in enumerate(value)
            ]
        self._wrong(key, "a list of mappings")
        return []

    def reject_unknown(self, known: Iterable[str]) -> None:
        """Report each field that is not among the known ones."""
        known = tuple(known)
        for key in self._fields:
            if key not in known:
                self._problems.append(f"{self.at(key)}: unknown field{suggestion(str(key), known)}")

    def reject_typos(self, known: Iterable[str]) -> None:
        """Report each unknown field that is written much like a known one."""
        known = tuple(known)
        for key in self._fields:
            if key not in known and (close := closest(str(key), known, cutoff=0.8)):
                self._problems.append(f"{self.at(key)}: unknown field; did you mean {close}?")

    def _wrong(self, key: str, expected: str) -> None:
        self._problems.append(f"{self.at(key)}: {self.get(key)!r} is not {expected}")
