"""Fixtures of the conformance tests."""

from collections.abc import Iterator

import pytest

from tests.conformance.evaluators import EVALUATORS, Evaluator


@pytest.fixture(scope="package", params=EVALUATORS)
def evaluator(request: pytest.FixtureRequest) -> Iterator[Evaluator]:
    """Each evaluator in turn, started once."""
    with EVALUATORS[request.param]() as started:
        yield started
