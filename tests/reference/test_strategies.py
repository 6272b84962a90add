"""The random cases reach every kind of answer, and the random histories every kind of change."""

from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis.strategies import SearchStrategy

from tests.conformance.cases import Decision, Json
from tests.reference.constraints import GATES
from tests.reference.evaluation import evaluate
from tests.reference.histories import Change, changed, histories
from tests.reference.strategies import cases

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
