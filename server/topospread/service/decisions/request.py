"""The request of a decision as plain values, and the profiles by which pods are judged."""

from __future__ import annotations

import difflib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from topospread.errors import FieldViolation, InvalidRequest
from topospread.kube.demands import NO_DEMAND
from topospread.kube.objects import DEFAULT_NAMESPACE, Pod
from topospread.kube.violations import NOT_SUPPORTED
from topospread.replica.view import DEFAULT_CONSISTENCY, Consistency
from topospread.spread.settings import (
    DEFAULT_PROFILE,
    DEFAULT_RULES,
    GATE_NAMES,
    ConfiguredRules,
    Profile,
    Rules,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from topospread.codec.frames import UnreadPod
    from topospread.kube.demands import Demand
    from topospread.kube.versions import KubernetesVersion
    from topospread.service.decisions.pods import ShapedPod


DEFAULT_CLUSTER: Final = "default"


@dataclass(frozen=True, slots=True)
class PodRef:
    """The name of a pod in the state; references are equal if they name the same pod.

    Attributes:
        uid: the uid that the pod must have; empty: any.
    """

    name: str
    namespace: str = DEFAULT_NAMESPACE
    uid: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class SettingsOverride:
    """Settings given in a request; empty: the profile of the pod's schedulerName applies.

    Attributes:
        profile: a profile's name, or arguments given in the request.
        gates: feature gates by upstream's names.
        version: one of the known Kubernetes versions; None: the cluster's.
    """

    profile: str | Profile = ""
    gates: Mapping[str, bool] = field(default_factory=dict)
    version: KubernetesVersion | None = None


@dataclass(frozen=True, slots=True)
class PodOnNode:
    """A pod, or one of the state by name, on a node; an empty node means the pod's own."""

    pod: Pod | PodRef
    node: str = ""


@dataclass(frozen=True, slots=True)
class NodeSelection:
    """A choice of nodes: by name, or by position in a node table."""

    names: Sequence[str] = ()
    indices: Sequence[int] = ()
    node_table: str = ""


NO_OVERRIDE: Final = SettingsOverride()


@dataclass(slots=True)
class StageTimings:
    """Seconds that each stage of a decision took; 0 for what was not done.

    Attributes:
        resolve: from the call's arrival to a view that is fresh enough and counts all groups.
        pre_filter: domain counts, minimum, rejected domains.
        filter: verdicts on nodes.
        pre_score: weights and counts for scoring; part of `score` where nodes are judged one by
            one.
        score: scores and the choice of the best.
    """

    resolve: float = 0.0
    pre_filter: float = 0.0
    filter: float = 0.0
    pre_score: float = 0.0
    score: float = 0.0


class DecisionRequest(NamedTuple):
    """The fields that all decision calls share; immutable.

    A tuple costs less to make than a dataclass, frozen or not.

    Attributes:
        deadline: of the call, on the monotonic clock.
        pod: its name in the state, the pod as far as its frame is read, or its shape with its name
            and uid; None when only a cycle is given.
        cycle: identifier that an earlier PreFilter returned.
        nodes: candidates; None: all nodes.
        node_table: identifier of the table that the caller holds.
        validate: refuse constraints that the API server would refuse.
        demand: what the pod demands of its node, for calls that ask more than spreading: what its
            inter-pod affinity counts is counted, too.
    """

    deadline: float
    cluster: str = DEFAULT_CLUSTER
    pod: PodRef | UnreadPod | ShapedPod | None = None
    cycle: str = ""
    add_pods: Sequence[PodOnNode] = ()
    remove_pods: Sequence[PodOnNode] = ()
    nodes: NodeSelection | None = None
    node_table: str = ""
    settings: SettingsOverride = NO_OVERRIDE
    consistency: Consistency = DEFAULT_CONSISTENCY
    validate: bool = False
    demand: Demand = NO_DEMAND


class ProfileRegistry:
    """The configured profiles and feature gates. Reads take no lock; :meth:`replace` swaps all.

    Attributes:
        known: the rules by version and name of their profile, as far as they were asked for.
    """

    def __init__(self, current: ConfiguredRules | None = None) -> None:
        self.known: dict[tuple[KubernetesVersion, str], Rules] = {}
        self.current = DEFAULT_RULES if current is None else current

    def replace(self, rules: ConfiguredRules) -> None:
        """Put other rules in force, for calls that begin from now on."""
        self.current, self.known = rules, {}

    def rules_for(
        self, settings: SettingsOverride, scheduler_name: str, version: KubernetesVersion
    ) -> Rules:
        """The rules that apply to one call.

        A pod whose schedulerName names no profile is judged by the first one: it is the pod of
        another scheduler, and that scheduler makes the call.

        Args:
            settings: of the request.
            scheduler_name: of the pod.
            version: of the cluster, one of the known ones; the settings' goes first.
        """
        current = self.current
        version = settings.version or version
        if not settings.profile and not settings.gates:
            cache = self.known
            rules = cache.get((version, scheduler_name or DEFAULT_PROFILE))
            if rules is None:
                # By profile, of which there are few; callers may name any scheduler.
                chosen = self._by_scheduler(current, scheduler_name)
                rules = cache.get((version, chosen.name))
                if rules is None:
                    rules = Rules(chosen, current.gates_of(version), version)
                    if current is self.current:
                        cache[version, chosen.name] = rules
            return rules
        violations: list[FieldViolation] = []
        profile = self._requested(current, settings.profile, scheduler_name, violations)
        violations += [_unknown_gate(name) for name in settings.gates if name not in GATE_NAMES]
        if violations or profile is None:
            raise InvalidRequest.of(violations)
        return Rules(profile, current.gates_of(version).switched(settings.gates), version)

    def _requested(
        self,
        current: ConfiguredRules,
        requested: str | Profile,
        scheduler_name: str,
        violations: list[FieldViolation],
    ) -> Profile | None:
        if isinstance(requested, Profile):
            return requested
        if not requested:
            return self._by_scheduler(current, scheduler_name)
        profile = current.profiles.get(requested)
        if profile is None:
            known = ", ".join(sorted(current.profiles))
            violations.append(
                FieldViolation(
                    "settings.profile",
                    f"no such profile; the configuration has: {known}",
                    "Not found",
                    requested,
                )
            )
        return profile

    @staticmethod
    def _by_scheduler(current: ConfiguredRules, scheduler_name: str) -> Profile:
        profile = current.profiles.get(scheduler_name or DEFAULT_PROFILE)
        return next(iter(current.profiles.values())) if profile is None else profile


def _unknown_gate(name: str) -> FieldViolation:
    close = difflib.get_close_matches(name, GATE_NAMES, n=1)
    hint = f"; did you mean {close[0]}?" if close else f"; known: {', '.join(sorted(GATE_NAMES))}"
    path, text = f"settings.featureGates[{name}]", "unknown feature gate" + hint
    return FieldViolation(path, text, NOT_SUPPORTED, name)
