"""The comparison of answers notices what it should, and the data is all there."""

import pytest

from tests.conformance.cases import (
    Json,
    args_validations,
    compact,
    differences,
    fit_counts,
    pod_validations,
    sha256,
)
from tests.reference.evaluation import fit_error

SUCCESS = {"code": "Success", "reasons": []}
UNSCHEDULABLE = {"code": "Unschedulable", "reasons": ["skewed"]}
ANSWER: Json = {
    "preFilter": SUCCESS,
    "ops": [SUCCESS],
    "filter": {"a": SUCCESS, "b": UNSCHEDULABLE},
    "preScore": SUCCESS,
    "score": {"a": 1},
    "normalized": {"a": 100},
}


def test_equal_answers_have_no_differences() -> None:
    assert differences(ANSWER, ANSWER) == []


@pytest.mark.parametrize(
    ("other", "difference"),
    [
        ({"preFilter": UNSCHEDULABLE}, "preFilter: expected"),
        ({"ops": []}, "ops: expected"),
        ({"ops": [UNSCHEDULABLE]}, "ops[0]: expected"),
        ({"filter": {"a": SUCCESS, "b": SUCCESS}}, "filter[b]: expected"),
        ({"filter": {"a": SUCCESS}}, "filter[b]: expected"),
        ({"filter": ANSWER["filter"] | {"c": SUCCESS}}, "filter[c]: expected absent"),
        ({"filter": {"a": SUCCESS, "b": UNSCHEDULABLE | {"reasons": []}}}, "filter[b]: expected"),
        ({"score": {"a": 2}}, "score[a]: expected 1, got 2"),
        ({"normalized": {}}, "normalized[a]: expected 100, got absent"),
        ({"newError": "refused"}, "newError: expected absent"),
        ({"postFilter": SUCCESS}, "postFilter: expected absent"),
    ],
)
def test_every_difference_is_listed(other: Json, difference: str) -> None:
    found = differences(ANSWER, ANSWER | other)
    assert len(found) == 1
    assert str(found[0]).startswith(difference)


@pytest.mark.parametrize("member", ANSWER)
def test_a_missing_member_is_a_difference(member: str) -> None:
    without = {key: value for key, value in ANSWER.items() if key != member}
    assert len(differences(ANSWER, without)) == 1
    assert len(differences(without, ANSWER)) == 1


def test_of_errors_only_the_code_is_compared() -> None:
    one = {"preFilter": {"code": "Error", "reasons": ["one"]}}
    assert differences(one, {"preFilter": {"code": "Error", "reasons": ["other", "more"]}}) == []
    assert differences(one, {"preFilter": SUCCESS}) != []


def test_of_refused_args_only_the_presence_is_compared() -> None:
    assert differences({"newError": "one"}, {"newError": "other"}) == []
    assert len(differences({"newError": "one"}, {"preFilter": SUCCESS})) == 2


def test_members_that_an_evaluator_does_not_answer_are_left_out() -> None:
    members = frozenset({"filter"})
    assert differences(ANSWER, {"filter": ANSWER["filter"]}, members) == []
    assert differences(ANSWER, {"filter": {}}, members) != []


def test_hashes_are_of_canonical_json() -> None:
    assert compact(ANSWER) == {
        "preFilter": SUCCESS,
        "preScore": SUCCESS,
        "filterSha256": sha256({"b": UNSCHEDULABLE, "a": SUCCESS}),
        "filterCounts": {"Success": 1, "Unschedulable": 1},
        "scoreSha256": sha256({"a": 1}),
        "scoreDistinct": 1,
        "normalizedSha256": sha256({"a": 100}),
    }
    empty = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
    assert sha256({}) == empty


def test_the_validation_data_is_all_here() -> None:
    pods, args = list(pod_validations()), list(args_validations())
    assert (len(pods), len(args)) == (224, 81)
    assert sum(bool(case.other_errors) for case in pods) == 2


FIT_COUNTS = list(fit_counts())


def test_all_counts_are_here() -> None:
    assert len(FIT_COUNTS) == 30


def test_refusals_of_several_plugins_make_the_recorded_message() -> None:
    for case in FIT_COUNTS:
        made = fit_error((status, status["nodes"]) for status in case.statuses)
        assert made == case.message, case.name
