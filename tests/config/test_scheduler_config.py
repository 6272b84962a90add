from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
import yaml

from topospread.codec.scheduler_config import FILTERS, PLUGIN, read_rules
from topospread.config.loading import load_settings
from topospread.errors import ConfigError, FieldViolation
from topospread.kube.objects import SpreadConstraint
from topospread.kube.violations import violation_text
from topospread.service.fit.profile import PROFILE
from topospread.spread.settings import (
    GATE_NAMES,
    NEWEST,
    SYSTEM_DEFAULTS,
    ConfiguredRules,
    FeatureGates,
    Profile,
)

V1 = "kubescheduler.config.k8s.io/v1"
RECORDED = Path(__file__).parents[1] / "conformance" / "args.jsonl.gz"

# As users have it: other plugins, an extender, leader election.
REAL = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
clientConnection:
  kubeconfig: /etc/kubernetes/scheduler.conf
leaderElection:
  leaderElect: true
parallelism: 16
extenders:
  - urlPrefix: http://localhost:8888
    filterVerb: filter
profiles:
  - schedulerName: default-scheduler
    percentageOfNodesToScore: 50
    plugins:
      score:
        disabled: [{name: NodeResourcesBalancedAllocation}]
    pluginConfig:
      - name: NodeResourcesFit
        args:
          apiVersion: kubescheduler.config.k8s.io/v1
          kind: NodeResourcesFitArgs
          scoringStrategy: {type: MostAllocated}
      - name: PodTopologySpread
        args:
          apiVersion: kubescheduler.config.k8s.io/v1
          kind: PodTopologySpreadArgs
          defaultingType: List
          defaultConstraints:
            - maxSkew: 1
              topologyKey: topology.kubernetes.io/zone
              whenUnsatisfiable: ScheduleAnyway
            - maxSkew: 2
              topologyKey: kubernetes.io/hostname
              whenUnsatisfiable: DoNotSchedule
              minDomains: 3
              nodeAffinityPolicy: Ignore
              nodeTaintsPolicy: Honor
              matchLabelKeys: [pod-template-hash]
  - schedulerName: batch
    pluginConfig:
      - name: PodTopologySpread
        args: {defaultingType: List, defaultConstraints: []}
  - schedulerName: plain
"""


EXTENDED = ("extender http://localhost:8888",)


def configuration(*profiles, **fields):
    document = {"apiVersion": V1, "kind": "KubeSchedulerConfiguration", **fields}
    if profiles:
        document["profiles"] = list(profiles)
    return yaml.safe_dump(document)


def profile(args=None, **fields):
    return {"pluginConfig": [{"name": "PodTopologySpread", "args": args}], **fields}


def own(**fields):
    header = {"apiVersion": "topospread.io/v1", "kind": "TopospreadConfiguration"}
    return yaml.safe_dump({**header, **fields})


def problems(text, **overrides):
    with pytest.raises(ConfigError) as refused:
        read_rules(text, "f", overrides)
    return [line.removeprefix("f: ") for line in str(refused.value).splitlines()]


def test_a_real_configuration_is_read_as_it_is():
    assert read_rules(REAL) == ConfiguredRules(
        {
            "default-scheduler": Profile(
                "default-scheduler",
                "List",
                (
                    SpreadConstraint(1, "topology.kubernetes.io/zone", "ScheduleAnyway"),
                    SpreadConstraint(
                        2,
                        "kubernetes.io/hostname",
                        "DoNotSchedule",
                        min_domains=3,
                        node_affinity_policy="Ignore",
                        node_taints_policy="Honor",
                        match_label_keys=("pod-template-hash",),
                    ),
                ),
                EXTENDED,
            ),
            "batch": Profile("batch", "List", (), EXTENDED),
            "plain": Profile("plain", foreign=EXTENDED),
        },
    )


@pytest.mark.parametrize(
    "text",
    [
        "",
        "---\n",
        own(),
        configuration(),
        configuration(profiles=[]),
        configuration(profiles=None),
        configuration({}),
        configuration({"schedulerName": None}),
        configuration(profile()),
        configuration(profile({})),
        configuration(profile({"defaultConstraints": None, "defaultingType": None})),
        configuration({"pluginConfig": [{"name": "NodeResourcesFit"}]}),
    ],
)
def test_kube_schedulers_defaults_hold_where_nothing_is_said(text):
    rules = read_rules(text)
    assert rules.profiles == {"default-scheduler": Profile()}
    assert rules.profiles["default-scheduler"].defaults == SYSTEM_DEFAULTS
    assert rules.gates_of(NEWEST) == FeatureGates()


def test_json_is_read_as_well():
    text = json.dumps({"apiVersion": V1, "kind": "KubeSchedulerConfiguration"})
    assert list(read_rules(text).profiles) == ["default-scheduler"]


def test_a_lone_profile_may_have_another_name():
    assert list(read_rules(configuration(profile({}, schedulerName="mine"))).profiles) == ["mine"]


def recorded():
    with gzip.open(RECORDED, "rt", encoding="utf-8") as lines:
        return [pytest.param(case, id=case["name"]) for case in map(json.loads, lines)]


@pytest.mark.parametrize("case", recorded())
def test_args_are_refused_as_kube_scheduler_refuses_them(case):
    expected = [
        "profiles[0].pluginConfig[0].args."
        + violation_text(
            FieldViolation(e["field"], e.get("detail", ""), e["type"], e.get("badValue"))
        )
        for e in case["expect"]
    ]
    text = configuration(profile(case["args"]))
    if expected:
        # The recorded errors are sorted; equal ones are all kept.
        assert sorted(problems(text)) == sorted(expected)
    else:
        assert list(read_rules(text).profiles) == ["default-scheduler"]


ARGS = "profiles[0].pluginConfig[0].args"
FIRST = f"{ARGS}.defaultConstraints[0]"


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (
            {"kind": "InterPodAffinityArgs"},
            [f"{ARGS}.kind: 'InterPodAffinityArgs' is not PodTopologySpreadArgs"],
        ),
        (
            {"apiVersion": "kubescheduler.config.k8s.io/v1beta3"},
            [f"{ARGS}.apiVersion: 'kubescheduler.config.k8s.io/v1beta3' is not {V1}"],
        ),
        (
            {"defaultConstraint": []},
            [f"{ARGS}.defaultConstraint: unknown field; did you mean defaultConstraints?"],
        ),
        ({"defaultingType": 5}, [f"{ARGS}.defaultingType: 5 is not a text"]),
        (
            {"defaultConstraints": {}},
            [f"{ARGS}.defaultConstraints: {{}} is not a list of mappings"],
        ),
        (
            {"defaultConstraints": [{"maxSkew": "1"}]},
            [f"{FIRST}.maxSkew: '1' is not a whole number of 32 bits"],
        ),
        (
            {"defaultConstraints": [{"maxSkew": 2**31, "minDomains": True}]},
            [
                f"{FIRST}.maxSkew: 2147483648 is not a whole number of 32 bits",
                f"{FIRST}.minDomains: True is not a whole number of 32 bits",
            ],
        ),
        (
            {"defaultConstraints": [{"labelSelector": [], "matchLabelKeys": ["a", 1]}]},
            [
                f"{FIRST}.labelSelector: [] is not a mapping",
                f"{FIRST}.matchLabelKeys: ['a', 1] is not a list of texts",
            ],
        ),
        ([], [f"{ARGS}: [] is not a mapping"]),
    ],
)
def test_args_of_another_form_are_refused_with_their_path(args, said):
    assert problems(configuration(profile(args))) == said


@pytest.mark.parametrize(
    ("profiles", "said"),
    [
        (
            [{"schedulerName": "a"}, {"schedulerName": "b"}, {"schedulerName": "a"}],
            ['profiles[2].schedulerName: Duplicate value: "a"'],
        ),
        (
            [{"schedulerName": "a"}, {}],
            ["profiles[1].schedulerName: Required value"],
        ),
        ([{"schedulerName": ""}], ["profiles[0].schedulerName: Required value"]),
        ([{"schedulerName": 7}], ["profiles[0].schedulerName: 7 is not a text"]),
        (
            [{"schedulername": "a"}],
            ["profiles[0].schedulername: unknown field; did you mean schedulerName?"],
        ),
        (
            [{"pluginConfig": [{"name": "PodTopologySpread"}] * 2}],
            ['profiles[0].pluginConfig[1].name: Duplicate value: "PodTopologySpread"'],
        ),
        ([{"pluginConfig": [{}]}], ["profiles[0].pluginConfig[0].name: Required value"]),
        ([{"pluginConfig": {}}], ["profiles[0].pluginConfig: {} is not a list of mappings"]),
    ],
)
def test_profiles_that_cannot_be(profiles, said):
    found = problems(configuration(*profiles))
    assert found[: len(said)] == said


def test_a_slip_in_profiles_does_not_go_unnoticed():
    text = configuration(profile=[{"schedulerName": "a"}])
    assert problems(text) == ["profile: unknown field; did you mean profiles?"]


def test_fields_of_newer_releases_are_let_be():
    rules = read_rules(configuration({"schedulerName": "a", "tomorrow": 1}, somethingNew=True))
    assert list(rules.profiles) == ["a"]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        (
            "kubescheduler.config.k8s.io/v1beta3",
            f"apiVersion {V1}beta3 was removed from Kubernetes; change it to {V1}",
        ),
        ("v1", f"apiVersion 'v1' is unknown; write {V1}"),
        (None, f"apiVersion '' is unknown; write {V1}"),
    ],
)
def test_other_versions_are_refused(version, said):
    (line,) = problems(configuration(apiVersion=version))
    assert line == f"KubeSchedulerConfiguration: {said}"


@pytest.mark.parametrize(
    ("plugins", "warned"),
    [
        ({"multiPoint": {"disabled": [{"name": "PodTopologySpread"}]}}, True),
        ({"filter": {"disabled": [{"name": "*"}]}}, True),
        (
            {
                "filter": {
                    "disabled": [{"name": "*"}],
                    "enabled": [{"name": "PodTopologySpread"}],
                }
            },
            False,
        ),
        ({"bind": {"disabled": [{"name": "*"}]}}, False),
        ({"filter": {"disabled": [{"name": "NodePorts"}]}}, False),
    ],
)
def test_a_profile_without_the_plugin_is_warned_of(plugins, warned):
    rules = read_rules(configuration({"plugins": plugins}))
    assert bool(rules.warnings) is warned
    assert all("disables PodTopologySpread" in warning for warning in rules.warnings)


NO_PORTS = {"disabled": [{"name": "NodePorts"}]}
AGAIN = {"enabled": [{"name": "NodePorts"}]}
ALL_OFF = tuple(f"plugin {name} is disabled" for name in FILTERS)


@pytest.mark.parametrize(
    ("plugins", "named"),
    [
        ({"filter": NO_PORTS}, ("plugin NodePorts is disabled",)),
        ({"preFilter": NO_PORTS}, ("plugin NodePorts is disabled",)),
        ({"multiPoint": NO_PORTS}, ("plugin NodePorts is disabled",)),
        ({"multiPoint": {**NO_PORTS, **AGAIN}}, ()),
        ({"multiPoint": NO_PORTS, "filter": AGAIN}, ()),
        ({"score": NO_PORTS}, ()),
        ({"filter": {"disabled": [{"name": "PodTopologySpread"}, {"name": "Licences"}]}}, ()),
        ({"filter": {"disabled": [{"name": "*"}]}}, ALL_OFF),
        ({"multiPoint": {"disabled": [{"name": "*"}]}}, ALL_OFF),
    ],
)
def test_filters_that_a_profile_disables_are_named(plugins, named):
    (profile,) = read_rules(configuration({"plugins": plugins})).profiles.values()
    assert profile.foreign == named


def test_the_filters_that_may_be_named_are_those_of_fit():
    assert {*FILTERS, PLUGIN} == {each.name for each in PROFILE}


TERMS: dict[str, object] = {
    "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}
}


@pytest.mark.parametrize(
    ("plugin", "args", "named"),
    [
        ("NodeAffinity", {"addedAffinity": TERMS}, ("plugin NodeAffinity: addedAffinity",)),
        ("NodeAffinity", {"addedAffinity": None}, ()),
        (
            "NodeResourcesFit",
            {"ignoredResources": ["example.com/a"], "ignoredResourceGroups": ["example.org"]},
            (
                "plugin NodeResourcesFit: ignoredResources",
                "plugin NodeResourcesFit: ignoredResourceGroups",
            ),
        ),
        ("NodeResourcesFit", {"scoringStrategy": {}, "ignoredResources": []}, ()),
        ("InterPodAffinity", {"hardPodAffinityWeight": 9}, ()),
    ],
)
def test_arguments_of_other_filters_are_named(plugin, args, named):
    config = [{"name": plugin, "args": args}]
    (profile,) = read_rules(configuration({"pluginConfig": config})).profiles.values()
    assert profile.foreign == named


@pytest.mark.parametrize("gate", GATE_NAMES)
def test_gates_have_upstreams_names(gate):
    field = GATE_NAMES[gate]
    default = getattr(FeatureGates(), field)
    rules = read_rules(own(featureGates={gate: not default}))
    assert getattr(rules.gates_of(NEWEST), field) is not default
    back = read_rules(own(featureGates={gate: not default}), "f", {gate: default})
    assert back.gates_of(NEWEST) == FeatureGates()


GATE = "MinDomainsInPodTopologySpread"


def test_an_unknown_gate_is_refused_with_a_suggestion():
    text = own(featureGates={f"{GATE[:-2]}d": True, "Unheard": False})
    said = problems(text, **{GATE.lower(): True})
    assert said == [
        f"featureGates: unknown feature gate '{GATE[:-2]}d'; did you mean {GATE}?",
        f"featureGates: unknown feature gate 'Unheard'; known are {', '.join(GATE_NAMES)}",
        f"--feature-gates: unknown feature gate '{GATE.lower()}'; did you mean {GATE}?",
    ]


def test_a_gate_is_on_or_off():
    (line,) = problems(own(featureGates={"MinDomainsInPodTopologySpread": "yes"}))
    assert line.startswith("featureGates: ")
    assert line.endswith("is not of the form Name=true,OtherName=false")


def test_settings_that_would_keep_the_server_from_starting_again_are_refused():
    assert problems(own(decisionQueue="many")) == ["decisionQueue: 'many' is not a whole number"]


def test_both_documents_are_read_and_everything_wrong_is_said_at_once():
    text = own(featureGates={"Nope": True}) + "---\n" + configuration({"schedulerName": 1}, {})
    assert len(problems(text)) == 4
    good = own(featureGates={"TaintTolerationComparisonOperators": True}) + "---\n" + REAL
    rules = read_rules(good)
    assert rules.gates_of(NEWEST).taint_comparison_operators
    assert list(rules.profiles) == ["default-scheduler", "batch", "plain"]


def test_a_real_schedulers_file_is_fit_for_the_settings_as_well():
    assert load_settings({}, {"HOME": "/h"}, REAL).decision_queue == 1024
