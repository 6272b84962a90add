"""Evaluators that only filter give kube-scheduler's recorded verdicts and messages."""

from collections.abc import Iterator

import pytest

from tests.conformance.cases import (
    BIG_CLUSTERS,
    Decision,
    FitError,
    big_cluster,
    decisions,
    differences,
    fit_errors,
)
from tests.conformance.evaluators import FILTERS, Evaluator

DECISIONS = {
    case.name: case
    for case in decisions()
    # What-ifs are no part of a filter's question, and refused args never get into force.
    if not case.ops and "newError" not in case.expect
}
SOME = 4
"""Every so many-th decision that refuses no node is asked; all of them are elsewhere."""


def refuses(case: Decision) -> bool:
    """Whether the recorded answer refuses a node."""
    return any(status["code"] != "Success" for status in case.expect.get("filter", {}).values())


REFUSING = [case for case in DECISIONS.values() if refuses(case)]
OTHERS = [case for case in DECISIONS.values() if not refuses(case)][::SOME]
FIT_ERRORS = [error for error in fit_errors() if error.case in DECISIONS]


@pytest.fixture(scope="module", params=FILTERS)
def filtering(request: pytest.FixtureRequest) -> Iterator[Evaluator]:
    """Each evaluator in turn, started once."""
    with FILTERS[request.param]() as started:
        yield started


def test_verdicts(filtering: Evaluator) -> None:
    assert len(REFUSING) > 300
    wrong = {}
    for case in [*REFUSING, *OTHERS]:
        if found := differences(case.expect, filtering.evaluate(case), filtering.members):
            wrong[case.name] = found
    assert wrong == {}


def test_verdicts_in_a_big_cluster(filtering: Evaluator) -> None:
    wrong = {}
    for pod in big_cluster(BIG_CLUSTERS[0]):
        case = pod.decision
        if found := differences(case.expect, filtering.evaluate(case), filtering.members):
            wrong[case.name] = found[:10]
    assert wrong == {}


@pytest.mark.parametrize("fit_error", FIT_ERRORS, ids=lambda fit_error: fit_error.case)
def test_message_of_a_pod_that_fits_nowhere(filtering: Evaluator, fit_error: FitError) -> None:
    condition = filtering.condition(DECISIONS[fit_error.case])
    assert condition is not None
    assert condition["reason"] == fit_error.reason
    if fit_error.reason != "SchedulerError":  # of those only the presence is recorded for good
        assert condition["message"] == fit_error.message
