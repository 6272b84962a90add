"""The model by itself: recorded cases, rules that none of these shows, and its strategies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.reference import taints
from tests.reference.constraints import GATES
from tests.reference.defaults import deduced_selector
from tests.reference.evaluation import evaluate, unschedulable
from tests.reference.histories import Change, changed, histories
from tests.reference.scoring import divide
from tests.reference.selectors import parse_int64
from tests.reference.strategies import cases

if TYPE_CHECKING:
    from collections.abc import Callable

    from hypothesis.strategies import SearchStrategy

    from tests.conformance.cases import Decision, Json


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
    ("dividend", "divisor", "quotient"), [(7, 2, 3), (-7, 2, -3), (7, -2, -3), (-7, -2, 3)]
)
def test_division_cuts_towards_zero(dividend: int, divisor: int, quotient: int) -> None:
    assert divide(dividend, divisor) == quotient


ZONE = "topology.kubernetes.io/zone"


def cluster_of(zones: dict[str, int]) -> Json:
    return {
        "nodes": [{"metadata": {"name": f"{zone}-node", "labels": {ZONE: zone}}} for zone in zones],
        "pods": [
            {
                "metadata": {"name": f"{zone}-{n}", "namespace": "default", "labels": {"app": "a"}},
                "spec": {"nodeName": f"{zone}-node"},
            }
            for zone, count in zones.items()
            for n in range(count)
        ],
    }


def pod_with(**constraint: object) -> Json:
    hard = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    return {
        "metadata": {"name": "incoming", "namespace": "default", "labels": {"app": "a"}},
        "spec": {"topologySpreadConstraints": [hard | constraint]},
    }


def test_unknown_gate_is_refused() -> None:
    with pytest.raises(ValueError, match="minDomain"):
        evaluate(cluster_of({"z": 0}), pod_with(), gates={"minDomain": False})


def test_min_domains_is_ignored_with_its_gate_off() -> None:
    cluster, pod = cluster_of({"z1": 1, "z2": 1}), pod_with(minDomains=3)
    on, off = (evaluate(cluster, pod, gates={"minDomains": state}) for state in (True, False))
    assert {s["code"] for s in on["filter"].values()} == {"Unschedulable"}
    assert {s["code"] for s in off["filter"].values()} == {"Success"}
    assert off == evaluate(cluster, pod_with())


def test_a_what_if_on_an_unknown_node_changes_nothing() -> None:
    cluster, pod = cluster_of({"z1": 1, "z2": 0}), pod_with()
    op = {"op": "remove", "pod": cluster["pods"][0], "node": "other"}
    got = evaluate(cluster, pod, ops=[op])
    assert got.pop("ops") == [{"code": "Success", "reasons": []}]
    assert got == evaluate(cluster, pod)


def test_moves_on_several_domains_use_the_true_minimum() -> None:
    """Upstream keeps the two smallest domains only, and would be left with a stale one here."""
    cluster, pod = cluster_of({"z1": 0, "z2": 0, "z3": 1}), pod_with()
    ops = [
        {"op": "add", "pod": cluster["pods"][0], "node": node}
        for node in ("z1-node", "z1-node", "z2-node", "z2-node")
    ]
    got = evaluate(cluster, pod, ops=ops)["filter"]
    assert {name: s["code"] for name, s in got.items()} == {
        "z1-node": "Unschedulable",  # 2 + 1 − 1
        "z2-node": "Unschedulable",
        "z3-node": "Success",
    }


def test_changing_an_answer_does_not_change_the_next() -> None:
    first = evaluate(cluster_of({"z": 0}), pod_with())
    first["filter"]["z-node"]["reasons"].append("spoiled")
    assert evaluate(cluster_of({"z": 0}), pod_with())["filter"]["z-node"]["reasons"] == []


def test_a_pod_that_fits_has_no_message() -> None:
    cluster = cluster_of({"z": 0})
    assert unschedulable(cluster, evaluate(cluster, pod_with())) is None


CHANGES = {
    "node appears",
    "node vanishes",
    "node relabelled",
    "node tainted",
    "pod starts",
    "pod moves",
    "pod terminates",
    "pod finishes",
    "pod relabelled",
    "pod deleted",
    "workload changes",
    "workload deleted",
}


def code(member: str, wanted: str) -> Callable[[Json], bool]:
    return lambda answer: (answer.get(member) or {}).get("code") == wanted


def verdicts(*wanted: str) -> Callable[[Json], bool]:
    return lambda answer: {s["code"] for s in answer.get("filter", {}).values()} == set(wanted)


ANSWERS: dict[str, Callable[[Json], bool]] = {
    "args refused": lambda answer: "newError" in answer,
    "PreFilter Success": code("preFilter", "Success"),
    "PreFilter Skip": code("preFilter", "Skip"),
    "PreFilter Error": code("preFilter", "Error"),
    "every node passes": verdicts("Success"),
    "no node passes": verdicts("Unschedulable"),
    "no node has the key": verdicts("UnschedulableAndUnresolvable"),
    "all verdicts at once": verdicts("Success", "Unschedulable", "UnschedulableAndUnresolvable"),
    "what-ifs": lambda answer: len(answer.get("ops", [])) > 1,
    "PreScore Success": code("preScore", "Success"),
    "PreScore Skip": code("preScore", "Skip"),
    "PreScore Error": code("preScore", "Error"),
    "nothing left to score": lambda answer: "filter" in answer and "preScore" not in answer,
    "hard and soft": lambda answer: "filter" in answer and "score" in answer,
    "several scores": lambda answer: len(set(answer.get("score", {}).values())) > 2,
    "worst above 0": lambda answer: 0 < min(answer.get("normalized", {"": 0}).values()) < 100,
    "ignored nodes": lambda answer: 0 in answer.get("normalized", {}).values(),
}


def answer_to(case: Decision, **others: Any) -> Json:
    options = {"args": case.args, "gates": case.gates, "ops": case.ops}
    return evaluate(case.cluster, case.pod, **options | others)


def over(strategy: SearchStrategy[Any], examples: int, look: Callable[[Any], None]) -> None:
    """Look at so many examples, the same ones in every run."""

    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def look_at(example: Any) -> None:
        look(example)

    look_at()


@pytest.mark.long
def test_random_cases_reach_every_kind_of_answer_and_gate() -> None:
    reached: set[str] = set()
    wanted = {*ANSWERS, *GATES}

    def look(case: Decision) -> None:
        if reached == wanted:
            return
        answer = answer_to(case, filter_nodes=case.filter_nodes)
        reached.update(name for name, holds in ANSWERS.items() if holds(answer))
        for gate in set(GATES) - reached:
            # One gate by itself changes the answer.
            if answer_to(case, gates={gate: True}) != answer_to(case, gates={gate: False}):
                reached.add(gate)

    over(cases(), 1000, look)
    assert reached == wanted


def test_random_histories_have_every_kind_of_change() -> None:
    reached: set[str] = set()
    over(
        histories(),
        60,
        lambda history: reached.update(change.what for change in history.changes),
    )
    assert reached == CHANGES


def test_a_change_replaces_adds_or_removes_an_object() -> None:
    node = {"metadata": {"name": "n", "labels": {"a": "b"}}}
    other = {"metadata": {"name": "o"}}
    before = {"nodes": [{"metadata": {"name": "n"}}, other]}
    assert changed(before, Change("", "nodes", node)) == {"nodes": [other, node]}
    assert changed(before, Change("", "nodes", other, gone=True)) == {
        "nodes": [{"metadata": {"name": "n"}}]
    }
    assert before == {"nodes": [{"metadata": {"name": "n"}}, other]}
