"""Where each rule on one constraint begins and ends."""

from __future__ import annotations

import pytest

from topospread.kube.objects import (
    DO_NOT_SCHEDULE,
    HOSTNAME_LABEL,
    SCHEDULE_ANYWAY,
    ZONE_LABEL,
    LabelExpression,
    LabelSelector,
    NodeRequirements,
    Pod,
    SpreadConstraint,
    Toleration,
)
from topospread.kube.rollouts import Rollout, Share
from topospread.kube.selectors import Selector, compile_selector
from topospread.spread import constraints as effective
from topospread.spread.linting import workloads
from topospread.spread.linting.catalog import Severity
from topospread.spread.linting.engine import NOTHING_KNOWN, RULES, Knowledge, lint
from topospread.spread.linting.workloads import DomainNumbers, LintedWorkload
from topospread_client import CONTROLLER_LABELS
from topospread_proto.v1.explanation_pb2 import FindingCode

OWN = LabelSelector((("app", "web"), ("release", "a")))
LABELS = {"app": "web", "release": "a", "tier": "front"}


def constraint(**changed) -> SpreadConstraint:
    given = {
        "max_skew": 1,
        "topology_key": ZONE_LABEL,
        "when_unsatisfiable": DO_NOT_SCHEDULE,
        "label_selector": OWN,
    }
    return SpreadConstraint(**{**given, **changed})


def codes(*constraints, kind="StatefulSet", replicas=3, known=NOTHING_KNOWN, pod=None, **more):
    made = Pod("web", labels=LABELS, constraints=constraints or (constraint(),), **(pod or {}))
    added = CONTROLLER_LABELS.get(kind, ())
    workload = LintedWorkload(kind, made, replicas, OWN, added, **more)
    return {each.code: each.severity for each in lint(workload, known)}


def labels(**pairs) -> LabelSelector:
    return LabelSelector(tuple(sorted(pairs.items())))


def exists(key: str) -> LabelSelector:
    return LabelSelector((), (LabelExpression(key, "Exists"),))


@pytest.mark.parametrize(
    ("selector", "code"),
    [
        (OWN, None),
        (labels(app="web"), "WiderSelector"),
        (labels(tier="front"), None),
        (labels(app="web", tier="front"), None),
        (labels(app="web", release="a", tier="front"), None),
        (labels(app="web", release="b"), "SelfMismatch"),
        (exists("app"), None),
        (exists("none"), "SelfMismatch"),
        (LabelSelector(), "EmptySelector"),
        (None, "NilSelector"),
        (LabelSelector((), (LabelExpression("app", "Is"),)), "InvalidConstraint"),
    ],
    ids=str,
)
def test_selectors(selector, code):
    found = codes(constraint(label_selector=selector))
    found.pop("DefaultsReplaced", None)
    assert list(found) == ([code] if code else [])


def is_in(key: str, *values: str, operator: str = "In") -> LabelSelector:
    return LabelSelector((), (LabelExpression(key, operator, values),))


@pytest.mark.parametrize(
    ("kind", "selector", "mismatched"),
    [
        ("Deployment", exists("pod-template-hash"), False),
        ("Deployment", is_in("pod-template-hash", "5f7", "5f8"), False),
        ("Deployment", is_in("pod-template-hash", "5f7", operator="NotIn"), False),
        ("Deployment", labels(app="web", **{"pod-template-hash": "5f7"}), False),
        ("Deployment", labels(app="db", **{"pod-template-hash": "5f7"}), True),
        ("StatefulSet", exists("pod-template-hash"), True),
        ("StatefulSet", exists("apps.kubernetes.io/pod-index"), False),
        ("StatefulSet", is_in("statefulset.kubernetes.io/pod-name", "web-0"), False),
        ("CronJob", labels(**{"job-name": "web-1"}), False),
        ("Pod", exists("pod-template-hash"), True),
    ],
)
def test_labels_of_controllers_may_match(kind, selector, mismatched):
    assert ("SelfMismatch" in codes(constraint(label_selector=selector), kind=kind)) == mismatched


@pytest.mark.parametrize(
    ("selector", "counted"),
    [
        (exists("apps.kubernetes.io/pod-index"), True),
        (is_in("statefulset.kubernetes.io/pod-name", "web-0"), False),
    ],
)
def test_pods_that_may_not_count_are_in_no_reckoning_of_places(selector, counted):
    known = Knowledge({0: DomainNumbers(3, 2)})
    found = codes(constraint(label_selector=selector), known=known)
    assert ("TooFewDomains" in found) == counted


@pytest.mark.parametrize(
    ("kind", "key", "missing"),
    [
        ("StatefulSet", "controller-revision-hash", False),
        ("StatefulSet", "apps.kubernetes.io/pod-index", False),
        ("StatefulSet", "pod-template-hash", True),
        ("Deployment", "pod-template-hash", False),
        ("Deployment", "controller-revision-hash", True),
        ("Rollout", "rollouts-pod-template-hash", False),
        ("Pod", "pod-template-hash", True),
        ("Pod", "tier", False),
        ("SparkApplication", "revision", True),
    ],
)
def test_match_label_keys(kind, key, missing):
    found = codes(constraint(match_label_keys=(key,)), kind=kind)
    assert ("LabelKeyMissing" in found) == missing


def test_a_constraint_on_one_revision_counts_no_pods_of_others():
    scoped = constraint(
        label_selector=labels(app="web"), match_label_keys=("controller-revision-hash",)
    )
    assert "WiderSelector" not in codes(scoped)
    by_release = constraint(label_selector=labels(app="web"), match_label_keys=("release",))
    assert "WiderSelector" not in codes(by_release)


@pytest.mark.parametrize(
    ("key", "code"),
    [
        ("failure-domain.beta.kubernetes.io/zone", "DeprecatedKey"),
        ("failure-domain.beta.kubernetes.io/region", "DeprecatedKey"),
        ("beta.kubernetes.io/instance-type", "DeprecatedKey"),
        ("zone", "MisspeltKey"),
        ("hostname", "MisspeltKey"),
        ("kubernetes.io/hostnames", "MisspeltKey"),
        ("topology.kubernetes.io/Zone", "MisspeltKey"),
        ("toplogy.kubernetes.io/zone", "MisspeltKey"),
        ("topology.kubernetes.io/hostname", "MisspeltKey"),
        (ZONE_LABEL, None),
        (HOSTNAME_LABEL, None),
        ("topology.kubernetes.io/region", None),
        ("node.kubernetes.io/instance-type", None),
        ("example.com/zone", None),
        ("topology.ebs.csi.aws.com/zone", None),
        ("topology.gke.io/zone", None),
        ("topology.disk.csi.azure.com/zone", None),
        ("topology.k8s.aws/zone-id", None),
        ("karpenter.sh/capacity-type", None),
        ("cloud.google.com/gke-nodepool", None),
        ("rack", None),
    ],
)
def test_keys(key, code):
    found = codes(constraint(topology_key=key))
    assert found.keys() & {"DeprecatedKey", "MisspeltKey"} == ({code} if code else set())


@pytest.mark.parametrize(
    ("key", "found"), [("zone name", "ImpossibleKey"), ("rack", "KeyOnNoNode")]
)
def test_a_key_that_no_node_can_have_is_said_once(key, found):
    missing = RULES["KEY_ON_NO_NODE"].found(0, f"no node has the label {key}")
    said = codes(constraint(topology_key=key), known=Knowledge(findings=(missing,)))
    assert said.keys() & {"ImpossibleKey", "KeyOnNoNode"} == {found}


def test_a_key_that_nodes_have_is_not_misspelt():
    known = Knowledge({0: DomainNumbers(3, 3)})
    assert "MisspeltKey" not in codes(constraint(topology_key="zone"), known=known)


@pytest.mark.parametrize(
    ("changed", "replicas", "too_large"),
    [
        ({"max_skew": 3}, 3, True),
        ({"max_skew": 2}, 3, False),
        ({"max_skew": 3}, 1, False),
        ({"max_skew": 3}, None, False),
        ({"max_skew": 3, "when_unsatisfiable": SCHEDULE_ANYWAY}, 3, False),
        ({"max_skew": 3, "label_selector": labels(app="web")}, 3, False),
        ({"max_skew": 3, "label_selector": labels(app="db")}, 3, False),
    ],
)
def test_max_skew(changed, replicas, too_large):
    found = codes(constraint(**changed), replicas=replicas)
    assert ("MaxSkewTooLarge" in found) == too_large


IN_ONE = {"requirements": NodeRequirements(((ZONE_LABEL, "a"),))}


@pytest.mark.parametrize(
    ("changed", "more", "single"),
    [
        ({}, {"pod": IN_ONE}, True),
        ({"topology_key": HOSTNAME_LABEL}, {"pod": IN_ONE}, False),
        ({"node_affinity_policy": "Ignore"}, {"pod": IN_ONE}, False),
        ({}, {"pod": IN_ONE, "replicas": 1}, False),
        ({}, {"pod": IN_ONE, "kind": "DaemonSet"}, False),
        ({}, {"known": Knowledge({0: DomainNumbers(1, 1)})}, True),
        ({}, {"known": Knowledge({0: DomainNumbers(2, 2)})}, False),
    ],
)
def test_single_domains(changed, more, single):
    assert ("SingleDomain" in codes(constraint(**changed), **more)) == single


@pytest.mark.parametrize("action", [DO_NOT_SCHEDULE, SCHEDULE_ANYWAY])
def test_a_daemon_set_needs_no_constraint(action):
    written = constraint(when_unsatisfiable=action)
    assert codes(written, kind="DaemonSet") == {"ConstraintOnDaemonSet": Severity.WARNING}
    assert "ConstraintOnDaemonSet" not in codes(written)


@pytest.mark.parametrize(
    ("changed", "pod", "severity"),
    [
        ({"topology_key": HOSTNAME_LABEL}, {}, Severity.INFO),
        ({"topology_key": HOSTNAME_LABEL, "node_taints_policy": "Honor"}, {}, None),
        (
            {"topology_key": HOSTNAME_LABEL},
            {"tolerations": (Toleration(operator="Exists"),)},
            None,
        ),
        ({"topology_key": HOSTNAME_LABEL, "when_unsatisfiable": SCHEDULE_ANYWAY}, {}, None),
        ({}, {}, None),
        ({"node_affinity_policy": "Ignore"}, IN_ONE, Severity.WARNING),
        ({"node_affinity_policy": "Ignore"}, {}, None),
    ],
)
def test_nodes_that_count_and_cannot_be_used(changed, pod, severity):
    assert codes(constraint(**changed), pod=pod).get("UnusableNodesCounted") == severity


def test_the_numbers_of_a_cluster_take_the_place_of_what_may_be():
    hosts = constraint(topology_key=HOSTNAME_LABEL)
    usable = codes(hosts, known=Knowledge({0: DomainNumbers(3, 3)}))
    assert "UnusableNodesCounted" not in usable
    some = codes(hosts, known=Knowledge({0: DomainNumbers(4, 3)}))
    assert some["UnusableNodesCounted"] is Severity.WARNING
    assert "TooFewDomains" not in some
    assert "TooFewDomains" in codes(hosts, replicas=4, known=Knowledge({0: DomainNumbers(4, 3)}))


def test_pods_in_a_domain_that_cannot_be_used_any_more_hold_the_minimum_up():
    hosts = constraint(topology_key=HOSTNAME_LABEL)
    empty, filled = (codes(hosts, known=Knowledge({0: DomainNumbers(3, 2, n)})) for n in (0, 1))
    assert empty["TooFewDomains"] is Severity.ERROR
    assert "TooFewDomains" not in filled
    assert filled["UnusableNodesCounted"] is Severity.WARNING


def test_a_key_that_no_node_has_leaves_no_places_to_count():
    stated = (RULES["KEY_ON_NO_NODE"].found(0, "no node has it"),)
    found = codes(known=Knowledge({0: DomainNumbers(0, 0)}, stated))
    assert found.keys() - {"DefaultsReplaced"} == {"KeyOnNoNode"}


def test_findings_of_a_state_are_those_that_no_manifest_shows():
    stated = (
        RULES["KEY_ON_SOME_NODES"].found(0, "some lack it"),
        RULES["LABEL_KEY_MISSING"].found(0, "pod-template-hash"),
        RULES["DEFAULTS_WITHOUT_SELECTOR"].found(-1, "no Service"),
        RULES["KEY_ON_NO_NODE"].found(1, "of the profile's constraint"),
    )
    assert codes(known=Knowledge({}, stated)).keys() - {"DefaultsReplaced"} == {"KeyOnSomeNodes"}


@pytest.mark.parametrize(
    ("kind", "replicas", "said"),
    [("Job", 3, True), ("Job", 1, False), ("DaemonSet", None, False), ("Deployment", 3, False)],
)
def test_defaults_without_a_selector_are_said_where_they_would_spread(kind, replicas, said):
    stated = (RULES["DEFAULTS_WITHOUT_SELECTOR"].found(-1, "no Service"),)
    found = codes(kind=kind, replicas=replicas, known=Knowledge({}, stated))
    assert ("DefaultsWithoutSelector" in found) == said


def test_the_defaults_of_a_profile_are_those_that_are_lost():
    zones = (constraint(label_selector=None, when_unsatisfiable=SCHEDULE_ANYWAY),)
    assert "DefaultsReplaced" not in codes(known=Knowledge(defaults=zones))
    assert "DefaultsReplaced" in codes(
        known=Knowledge(defaults=(*zones, constraint(topology_key="rack")))
    )
    assert "DefaultsReplaced" not in codes(known=Knowledge(defaults=()))


@pytest.mark.parametrize(
    ("kind", "replicas", "said"),
    [
        ("StatefulSet", 3, True),
        ("StatefulSet", 1, False),
        ("StatefulSet", None, False),
        ("Job", 3, False),
        ("DaemonSet", None, False),
    ],
)
def test_workloads_without_constraints(kind, replicas, said):
    workload = LintedWorkload(kind, Pod("web", labels=LABELS), replicas, OWN)
    assert ("NoConstraints" in {each.code for each in lint(workload)}) == said


def test_the_gravest_findings_of_a_constraint_stand_first():
    several = constraint(topology_key="zone", label_selector=labels(app="db"))
    found = list(codes(several, constraint(label_selector=None)))
    assert found == ["DefaultsReplaced", "SelfMismatch", "MisspeltKey", "NilSelector"]


def test_the_api_has_the_codes_of_all_rules_and_what_explanations_alone_say():
    of_pods = {"NOT_PARSED", "ALREADY_BOUND"}
    names = {name.removeprefix("FINDING_CODE_") for name in FindingCode.keys()[1:]}
    assert RULES.keys() | of_pods == names


def test_every_rule_says_what_is_wrong_and_how_to_mend_it():
    for rule in RULES.values():
        assert rule.summary
        assert rule.mend.endswith(".")


def test_each_selector_is_compiled_once_and_tried_on_the_labels_once(monkeypatch):
    work: list[str] = []

    def counted(name, of):
        def call(*arguments):
            work.append(name)
            return of(*arguments)

        return call

    for module in (workloads, effective):
        monkeypatch.setattr(module, "compile_selector", counted("compile", compile_selector))
    monkeypatch.setattr(Selector, "matches", counted("match", Selector.matches))
    rollout = Rollout(Share(1), Share(0))
    several = [constraint(topology_key=f"key-{number}") for number in range(10)]
    codes(*several, kind="Deployment", rollout=rollout)
    assert (work.count("compile"), work.count("match")) == (11, 10)
