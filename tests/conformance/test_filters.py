"""Evaluators that only filter give kube-scheduler's recorded verdicts and messages."""

import re
from collections.abc import Iterator

import pytest

from tests.batches import check_each
from tests.conformance.cases import (
    BIG_CLUSTERS,
    Decision,
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
SOME = 12
"""Every so many-th decision that refuses no node is asked; all of them are elsewhere."""

OF_REFUSING = 3
"""The same of those that refuse one, among those of a family: the first word of their names."""


def refuses(case: Decision) -> bool:
    """Whether the recorded answer refuses a node."""
    return any(status["code"] != "Success" for status in case.expect.get("filter", {}).values())


FAMILIES: dict[str, list[Decision]] = {}
for decision in filter(refuses, DECISIONS.values()):
    FAMILIES.setdefault(re.split(r"\W", decision.name)[0], []).append(decision)
REFUSING = [case for family in FAMILIES.values() for case in family[::OF_REFUSING]]
OTHERS = [case for case in DECISIONS.values() if not refuses(case)][::SOME]
FIT_ERRORS = [error for error in fit_errors() if error.case in DECISIONS]


@pytest.fixture(scope="module", params=FILTERS)
def filtering(request: pytest.FixtureRequest) -> Iterator[Evaluator]:
    """Each evaluator in turn, started once."""
    with FILTERS[request.param]() as started:
        yield started


def test_verdicts(filtering: Evaluator) -> None:
    assert len(REFUSING) > 100
    check_each(
        [*REFUSING, *OTHERS],
        lambda case: differences(case.expect, filtering.evaluate(case), filtering.members),
    )


def test_verdicts_in_a_big_cluster(filtering: Evaluator) -> None:
    check_each(
        [pod.decision for pod in big_cluster(BIG_CLUSTERS[0])],
        lambda case: differences(case.expect, filtering.evaluate(case), filtering.members)[:10],
    )


def test_messages_of_pods_that_fit_nowhere(filtering: Evaluator) -> None:
    assert FIT_ERRORS
    for fit_error in FIT_ERRORS:
        condition = filtering.condition(DECISIONS[fit_error.case])
        assert condition is not None, fit_error
        assert condition["reason"] == fit_error.reason
        if fit_error.reason != "SchedulerError":  # of those only the presence is recorded for good
            assert condition["message"] == fit_error.message
