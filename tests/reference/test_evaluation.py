"""Results of the reference model beyond the members of recorded answers."""

import pytest

from tests.conformance.cases import Json, decisions
from tests.reference.evaluation import evaluate, filter_verdict, unschedulable

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


def test_the_verdict_on_one_node_is_the_one_among_all() -> None:
    judged = [case for case in decisions() if "filter" in case.expect]
    assert judged
    for case in judged:
        got = {
            node["metadata"]["name"]: filter_verdict(
                case.cluster,
                case.pod,
                node["metadata"]["name"],
                args=case.args,
                gates=case.gates,
                ops=case.ops,
            )
            for node in case.cluster["nodes"]
        }
        assert got == case.expect["filter"], case.name


def test_the_verdict_on_one_node_without_hard_constraints_is_success() -> None:
    pod = pod_with(whenUnsatisfiable="ScheduleAnyway")
    assert filter_verdict(cluster_of({"z": 0}), pod, "z-node") == {"code": "Success", "reasons": []}


def test_the_verdict_on_one_node_is_the_error_of_pre_filter() -> None:
    pod = pod_with(labelSelector={"matchLabels": {"app": "not valid!"}})
    assert filter_verdict(cluster_of({"z": 0}), pod, "z-node")["code"] == "Error"


def test_the_verdict_on_an_unknown_node_and_with_refused_args_is_none() -> None:
    with pytest.raises(KeyError):
        filter_verdict(cluster_of({"z": 0}), pod_with(), "other")
    with pytest.raises(ValueError, match="defaultingType"):
        filter_verdict(cluster_of({"z": 0}), pod_with(), "z-node", args={"defaultingType": "Auto"})


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
