"""Every evaluator gives kube-scheduler's recorded answers."""

import functools

import pytest

from tests.conformance.cases import (
    BIG_CLUSTERS,
    BigPod,
    Decision,
    FitError,
    big_cluster,
    compact,
    decisions,
    differences,
    fit_errors,
)
from tests.conformance.evaluators import Evaluator

DECISIONS = list(decisions())
FIT_ERRORS = list(fit_errors())


@functools.cache
def loaded(name: str) -> list[BigPod]:
    """A big cluster's pods; the evaluators share one load."""
    return big_cluster(name)


def test_all_recorded_files_are_here() -> None:
    assert len(DECISIONS) == 1226
    assert len(FIT_ERRORS) == 42
    assert [len(loaded(name)) for name in BIG_CLUSTERS] == [20, 20]


@pytest.mark.parametrize("case", DECISIONS, ids=lambda case: case.name)
def test_decision(evaluator: Evaluator, case: Decision) -> None:
    assert differences(case.expect, evaluator.evaluate(case), evaluator.members) == []


@pytest.mark.parametrize("name", BIG_CLUSTERS)
def test_big_cluster(evaluator: Evaluator, name: str) -> None:
    wrong = {}
    for pod in loaded(name):
        got = evaluator.evaluate(pod.decision)
        if found := differences(pod.decision.expect, got, evaluator.members):
            wrong[pod.decision.name] = found[:10]
        elif evaluator.members >= set(pod.decision.expect) and compact(got) != pod.compact:
            wrong[pod.decision.name] = [f"hashes: expected {pod.compact}, got {compact(got)}"]
    assert wrong == {}


@pytest.mark.parametrize("fit_error", FIT_ERRORS, ids=lambda fit_error: fit_error.case)
def test_message_of_a_pod_that_fits_nowhere(evaluator: Evaluator, fit_error: FitError) -> None:
    condition = evaluator.condition(named(fit_error.case))
    assert condition is not None
    assert condition["reason"] == fit_error.reason
    if fit_error.reason != "SchedulerError":  # of those only the presence is recorded for good
        assert condition["message"] == fit_error.message


def test_no_message_for_a_pod_that_fits_somewhere(evaluator: Evaluator) -> None:
    recorded = {fit_error.case for fit_error in FIT_ERRORS}
    fitting = [
        case for case in DECISIONS if "preFilter" in case.expect and case.name not in recorded
    ]
    assert fitting
    assert [case.name for case in fitting if evaluator.condition(case) is not None] == []


def named(name: str) -> Decision:
    """The decision that a fit error names."""
    cluster, _, pod = name.partition("/")
    if cluster in BIG_CLUSTERS:
        return next(big.decision for big in loaded(cluster) if big.decision.name.endswith(pod))
    return next(case for case in DECISIONS if case.name == name)
