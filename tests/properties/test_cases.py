"""The core answers every random question as the reference model does."""

from hypothesis import given

from tests.conformance.cases import Decision, differences
from tests.conformance.core import answer_at, folded
from tests.properties.expected import answer_to
from tests.properties.questions import odd_cases
from tests.reference.strategies import cases


@given(cases())
def test_core_answers_as_the_model(case: Decision) -> None:
    assert differences(answer_to(case), answer_at(folded(case.cluster), case)) == []


@given(odd_cases())
def test_core_copes_with_constraints_that_an_api_server_refuses(case: Decision) -> None:
    assert differences(answer_to(case), answer_at(folded(case.cluster), case)) == []
