"""Every evaluator gives kube-scheduler's recorded answers."""

import functools
from dataclasses import replace

import pytest

from tests.batches import check_each
from tests.conformance.cases import (
    BIG_CLUSTERS,
    BigPod,
    Decision,
    Difference,
    FitError,
    Json,
    big_cluster,
    compact,
    decisions,
    differences,
    fit_errors,
    later_decisions,
)
from tests.conformance.core import Core
from tests.conformance.evaluators import Evaluator

# Each test has a thousand cases, or a cluster of 50,000 pods.
pytestmark = [pytest.mark.timeout(1200), pytest.mark.long]

DECISIONS = decisions()
FIT_ERRORS = list(fit_errors())


@functools.cache
def loaded(name: str) -> list[BigPod]:
    """A big cluster's pods; the evaluators share one load."""
    return big_cluster(name)


def test_all_recorded_files_are_here() -> None:
    assert len(DECISIONS) == 1226
    assert len(FIT_ERRORS) == 42
    assert [len(loaded(name)) for name in BIG_CLUSTERS] == [20, 20]


def test_decisions_and_their_messages(evaluator: Evaluator) -> None:
    recorded = {fit_error.case: fit_error for fit_error in FIT_ERRORS}
    assert any("preFilter" in case.expect and case.name not in recorded for case in DECISIONS)

    def wrong(case: Decision) -> list[Difference]:
        found = differences(case.expect, evaluator.evaluate(case), evaluator.members)
        # Of a pod that fits somewhere, and of one whose args are refused, there is no condition.
        if "preFilter" in case.expect or case.name in recorded:
            found += condition_differences(recorded.get(case.name), evaluator.condition(case))
        return found

    check_each(DECISIONS, wrong)


def test_decisions_of_later_versions(evaluator: Evaluator) -> None:
    cases = later_decisions()
    assert len(cases) == 400 + 88
    check_each(
        cases, lambda case: differences(case.expect, evaluator.evaluate(case), evaluator.members)
    )


def test_the_answers_of_later_versions_are_others() -> None:
    """Else a version that nobody looks at would pass."""
    others = Core()
    for gates, version, changed in (({}, "1.37", 229), ({"schedulerMerge": True}, "1.38", 52)):
        cases = [
            replace(
                case,
                cluster=case.cluster | {"kubernetesVersion": version},
                gates=case.gates | gates,
            )
            for case in later_decisions()
            if ("schedulerMerge" in case.gates) == bool(gates)
        ]
        differ = sum(
            bool(differences(case.expect, others.evaluate(case), others.members)) for case in cases
        )
        assert differ == changed


@pytest.mark.parametrize("name", BIG_CLUSTERS)
def test_big_cluster(evaluator: Evaluator, name: str) -> None:
    wrong = {}
    for pod in loaded(name):
        got = evaluator.evaluate(pod.decision)
        if found := differences(pod.decision.expect, got, evaluator.members):
            wrong[pod.decision.name] = found[:10]
        elif evaluator.members >= set(pod.decision.expect) and (
            found := differences(pod.compact, compact(got))
        ):
            wrong[pod.decision.name] = found
    assert wrong == {}


def test_messages_in_big_clusters(evaluator: Evaluator) -> None:
    small = {case.name for case in DECISIONS}
    for fit_error in (each for each in FIT_ERRORS if each.case not in small):
        cluster, _, pod = fit_error.case.partition("/")
        big = next(each for each in loaded(cluster) if each.decision.name.endswith(pod))
        assert condition_differences(fit_error, evaluator.condition(big.decision)) == []


def condition_differences(expected: FitError | None, condition: Json | None) -> list[Difference]:
    """What distinguishes a PodScheduled condition from the recorded one, or from none."""
    if expected is None or condition is None:
        agree = expected is None and condition is None
        return [] if agree else [Difference("condition", expected, condition)]
    members = {"reason": expected.reason, "message": expected.message}
    if expected.reason == "SchedulerError":  # of those only the presence is recorded for good
        del members["message"]
    return differences(members, {name: condition[name] for name in members})
