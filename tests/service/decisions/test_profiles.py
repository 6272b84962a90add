"""By which rules a pod is judged: the profile of its scheduler, or what the request says."""

from __future__ import annotations

import pytest

from tests.service.world import HOSTNAME, ZONE, World, constraint, encoded, incoming, node, running
from topospread.errors import InvalidRequest
from topospread.kube.objects import DO_NOT_SCHEDULE, SpreadConstraint
from topospread.service.decisions.batch import evaluate_batch
from topospread.service.decisions.evaluate import Evaluation, evaluate
from topospread.service.decisions.extension_points import filter_, pre_filter
from topospread.service.decisions.request import DecisionRequest, SettingsOverride
from topospread.spread.settings import LIST, ConfiguredRules, Profile
from topospread.spread.verdicts import Code

BY_ZONE = Profile("by-zone", LIST, (SpreadConstraint(1, ZONE, DO_NOT_SCHEDULE),))
BY_NODE = Profile("by-node", LIST, (SpreadConstraint(1, HOSTNAME, DO_NOT_SCHEDULE),))
NOTHING = Profile("nothing", LIST)
CONFIGURED = ConfiguredRules({profile.name: profile for profile in (BY_ZONE, BY_NODE, NOTHING)})
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}},
}


@pytest.fixture
def world(three_zones: World) -> World:
    three_zones.apply(SERVICE)
    three_zones.process.rules.replace(CONFIGURED)
    return three_zones


def keys(world: World, pod, settings: SettingsOverride | None = None) -> list[str]:
    """The topology keys that the pod is judged by."""
    answer = pre_filter(world.engine, world.ask(pod, settings=settings))
    return [counts.state.constraint.topology_key for counts in answer.constraints]


@pytest.mark.parametrize(
    ("scheduler", "judged_by"),
    [
        ("by-zone", [ZONE]),
        ("by-node", [HOSTNAME]),
        ("nothing", []),
        # Another scheduler's pod, or nobody's: the first profile.
        ("somebody-else", [ZONE]),
        ("", [ZONE]),
    ],
)
def test_the_schedulers_name_chooses_the_profile(world: World, scheduler, judged_by):
    assert keys(world, incoming(schedulerName=scheduler)) == judged_by


def test_a_request_may_name_a_profile(world: World):
    pod = incoming(schedulerName="by-zone")
    assert keys(world, pod, SettingsOverride("by-node")) == [HOSTNAME]
    assert keys(world, pod, SettingsOverride("nothing")) == []


def test_a_request_may_bring_its_own_profile(world: World):
    own = Profile("mine", LIST, (SpreadConstraint(2, "rack", DO_NOT_SCHEDULE),))
    assert keys(world, incoming(), SettingsOverride(own)) == ["rack"]


def test_own_constraints_go_before_any_profile(world: World):
    pod = incoming(constraint("rack"))
    assert keys(world, pod) == keys(world, pod, SettingsOverride("by-node")) == ["rack"]


def test_an_unknown_profile_is_refused_and_the_known_ones_are_named(world: World):
    with pytest.raises(InvalidRequest) as refused:
        keys(world, incoming(), SettingsOverride("by-rack"))
    (violation,) = refused.value.violations
    assert violation.field == "settings.profile"
    assert violation.type == "Not found"
    assert violation.bad_value == "by-rack"
    assert "by-node, by-zone, nothing" in violation.description


def test_an_unknown_gate_is_refused_with_what_was_meant(world: World):
    with pytest.raises(InvalidRequest) as refused:
        keys(world, incoming(), SettingsOverride(gates={"MinDomainsInPodTopologySpreads": False}))
    (violation,) = refused.value.violations
    assert violation.field == "settings.featureGates[MinDomainsInPodTopologySpreads]"
    assert violation.bad_value == "MinDomainsInPodTopologySpreads"
    assert "did you mean MinDomainsInPodTopologySpread?" in violation.description


def test_an_unknown_gate_like_no_other_is_refused_with_all_that_are_known(world: World):
    with pytest.raises(InvalidRequest) as refused:
        keys(world, incoming(), SettingsOverride(gates={"X": False}))
    (violation,) = refused.value.violations
    assert "known: DefaultPodTopologySpread, MatchLabelKeys" in violation.description


def test_all_violations_of_the_settings_are_reported_at_once(world: World):
    asked = SettingsOverride("by-rack", {"X": True, "DefaultPodTopologySpread": True, "Y": False})
    with pytest.raises(InvalidRequest) as refused:
        keys(world, incoming(), asked)
    assert [v.bad_value for v in refused.value.violations] == ["by-rack", "X", "Y"]


def test_gates_of_a_request_are_laid_over_those_in_force(world: World):
    pod = incoming(constraint(minDomains=5, maxSkew=2))
    off = SettingsOverride(gates={"MinDomainsInPodTopologySpread": False})

    def eligible(settings: SettingsOverride | None) -> int:
        return evaluate(world.engine, world.ask(pod, settings=settings)).feasible

    world.apply(running("w4", "n-c"))
    assert (eligible(None), eligible(off)) == (2, 3)
    configured = {"MinDomainsInPodTopologySpread": False, "DefaultPodTopologySpread": False}
    world.process.rules.replace(ConfiguredRules(CONFIGURED.profiles, configured))
    assert (eligible(None), eligible(off)) == (3, 3)
    on = SettingsOverride(gates={"MinDomainsInPodTopologySpread": True})
    assert eligible(on) == 2
    assert keys(world, incoming()) == keys(world, incoming(), on) == []  # the other gate stays off
    both = SettingsOverride(
        gates={"MinDomainsInPodTopologySpread": True, "DefaultPodTopologySpread": True}
    )
    assert keys(world, incoming(), both) == [ZONE]


def test_new_rules_hold_for_new_questions_and_old_cycles_keep_theirs(world: World):
    begun = pre_filter(world.engine, world.ask(incoming()))
    for _ in range(2):  # the rules of a scheduler are remembered
        assert keys(world, incoming()) == [ZONE]
    world.process.rules.replace(ConfiguredRules({"only": BY_NODE}))
    assert keys(world, incoming()) == [HOSTNAME]
    world.process.rules.replace(ConfiguredRules({"only": NOTHING}))
    assert keys(world, incoming()) == []
    cycle = begun.resolved.cycle_id
    answer = filter_(world.engine, world.ask(cycle=cycle))
    assert answer.status.code is Code.SUCCESS
    assert answer.resolved.cycle.rules.profile is BY_ZONE


def test_settings_of_a_batch_hold_for_all_pods(world: World):
    ask = world.ask(settings=SettingsOverride("by-node"))
    pods = [encoded(incoming(schedulerName=name)) for name in ("by-zone", "nothing")]

    def profiles(ask: DecisionRequest) -> list[Profile]:
        answers = evaluate_batch(world.engine, ask, pods).answers
        return [a.resolved.cycle.rules.profile for a in answers if isinstance(a, Evaluation)]

    assert profiles(ask) == [BY_NODE, BY_NODE]
    assert profiles(world.ask()) == [BY_ZONE, NOTHING]


def test_without_a_configuration_the_rules_are_kube_schedulers(empty_world: World):
    empty_world.apply(node("n"), SERVICE)
    answer = evaluate(empty_world.engine, empty_world.ask(incoming()))
    assert answer.pre_filter.code is Code.SKIP
    assert answer.pre_score.code is Code.SUCCESS
    soft = answer.resolved.cycle.constraints.soft.constraints
    assert [(c.topology_key, c.max_skew) for c in soft] == [(HOSTNAME, 3), (ZONE, 5)]
