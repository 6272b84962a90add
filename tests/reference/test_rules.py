"""Rules from upstream's code that no recorded case shows."""

import pytest

from tests.conformance.cases import Json
from tests.reference import taints
from tests.reference.defaults import deduced_selector
from tests.reference.scoring import divide, normalize, round_half_away
from tests.reference.selectors import parse_int64


def pod_of(kind: str, version: str) -> Json:
    owner = {"apiVersion": version, "kind": kind, "name": "w", "controller": True}
    metadata = {"name": "p", "namespace": "default", "labels": {"app": "a", "tier": "fe"}}
    return {"metadata": metadata | {"ownerReferences": [owner]}}


def workload(selector: Json) -> Json:
    return {"metadata": {"name": "w", "namespace": "default"}, "spec": {"selector": selector}}


SERVICES = [workload({"app": "a"}), workload({"tier": "fe"})]


def test_a_replication_controller_replaces_equal_keys_of_the_services() -> None:
    cluster = {"services": SERVICES, "replicationControllers": [workload({"app": "b"})]}
    selector = deduced_selector(cluster, pod_of("ReplicationController", "v1"))
    assert selector.matches({"app": "b", "tier": "fe"})
    assert not selector.matches({"app": "a", "tier": "fe"})
    assert not selector.matches({"app": "b"})


def test_a_replica_set_is_required_besides_the_services() -> None:
    cluster = {"services": SERVICES, "replicaSets": [workload({"matchLabels": {"app": "b"}})]}
    selector = deduced_selector(cluster, pod_of("ReplicaSet", "apps/v1"))
    assert not selector.matches({"app": "b", "tier": "fe"})
    assert not selector.matches({"app": "a", "tier": "fe"})


@pytest.mark.parametrize("version", ["", "v1beta1", "apps/v1", "core/v1"])
def test_an_owner_of_another_version_is_not_looked_at(version: str) -> None:
    cluster = {"replicationControllers": [workload({"app": "b"})]}
    assert deduced_selector(cluster, pod_of("ReplicationController", version)).empty


@pytest.mark.parametrize("selector", [None, {}, {"matchLabels": {"app": "not valid!"}}])
def test_an_owner_without_a_sound_selector_adds_nothing(selector: Json) -> None:
    cluster = {"services": SERVICES, "statefulSets": [workload(selector)]}
    assert deduced_selector(cluster, pod_of("StatefulSet", "apps/v1")).matches(
        {"app": "a", "tier": "fe"}
    )


@pytest.mark.parametrize(
    ("operator", "bound", "tainted", "covers"),
    [
        *[("Gt", "5", "7", True), ("Gt", "7", "7", False), ("Lt", "8", "7", True)],
        *[("Lt", "-3", "-4", True), ("Gt", "0", "1", True), ("Lt", "7", "7", False)],
        *[("Gt", "005", "7", False), ("Gt", "5", "007", False), ("Gt", "+5", "7", False)],
        *[("Lt", "8", "-0", False), ("Lt", "8", "x", False), ("Lt", "", "7", False)],
        ("Lt", "9223372036854775808", "7", False),
    ],
)
def test_comparing_tolerations(operator: str, bound: str, tainted: str, covers: bool) -> None:
    toleration = {"key": "k", "operator": operator, "value": bound}
    taint = {"key": "k", "value": tainted, "effect": "NoSchedule"}
    assert taints.tolerates(toleration, taint, comparison_operators=True) is covers
    assert taints.tolerates(toleration, taint, comparison_operators=False) is False


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *[("0", 0), ("+5", 5), ("-5", -5), ("007", 7), ("0" * 5000 + "1", 1)],
        *[("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63))],
        *[(text, None) for text in ("", "+", "1_0", " 1", "1 ", "1.0", "0x1", "\u0663", "1\n")],
        *[("9223372036854775808", None), ("-9223372036854775809", None), ("9" * 5000, None)],
    ],
)
def test_numbers_are_read_as_go_reads_them(text: str, number: int | None) -> None:
    assert parse_int64(text) == number


@pytest.mark.parametrize(
    ("value", "rounded"), [(0.5, 1), (1.5, 2), (2.5, 3), (-0.5, -1), (-2.5, -3), (2.4999, 2)]
)
def test_halves_are_rounded_away_from_zero(value: float, rounded: int) -> None:
    assert round_half_away(value) == rounded


@pytest.mark.parametrize(
    ("dividend", "divisor", "quotient"), [(7, 2, 3), (-7, 2, -3), (7, -2, -3), (-7, -2, 3)]
)
def test_division_cuts_towards_zero(dividend: int, divisor: int, quotient: int) -> None:
    assert divide(dividend, divisor) == quotient


def test_the_worst_node_gets_its_share_and_not_zero() -> None:
    assert normalize({"a": 2, "b": 3, "c": 0}, frozenset("c")) == {"a": 100, "b": 66, "c": 0}
    assert normalize({"a": 0, "b": 0}, frozenset()) == {"a": 100, "b": 100}
    assert normalize({"a": -1, "b": 0}, frozenset()) == {"a": 0, "b": 100}
