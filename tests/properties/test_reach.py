"""The random questions reach what they are asked for: no comparison here is about nothing."""

from dataclasses import replace

from tests.conformance.cases import Decision
from tests.conformance.core import folded
from tests.properties.expected import answer_to, judgement_of
from tests.properties.questions import Interview, at, interviews, odd_cases
from tests.properties.siblings import Judgement, Sibling
from tests.reference.histories import changed
from tests.reference.test_rules import over
from topospread.errors import InvalidRequest


def judged(case: Decision) -> Judgement | None:
    """The judgement by class of a question without what-ifs."""
    return Sibling(case).judged(folded(case.cluster))


def test_interviews_reach_both_ways_of_judging_and_answers_that_change() -> None:
    reached: set[str] = set()

    def look(interview: Interview) -> None:
        for question in interview.questions:
            case = replace(question, ops=[])
            try:
                found = judged(case)
            except InvalidRequest:
                continue
            if found is None:
                reached.add("judged node by node")
                continue
            codes = {code for code, _ in found.verdicts}
            reached.add("judged by class")
            reached.update(f"by class: {code}" for code in codes if len(codes) > 1)
            if len({normalized for _, _, normalized in found.top}) > 1:
                reached.add("by class: several scores")
            cluster = interview.start
            for change in (change for batch in interview.batches for change in batch):
                cluster = changed(cluster, change)
            if judgement_of(at(case, cluster)).top != judgement_of(case).top:
                reached.add("by class: another order in the end")

    over(interviews(), 50, look)
    assert reached == {
        "judged node by node",
        "judged by class",
        "by class: Success",
        "by class: Unschedulable",
        "by class: UnschedulableAndUnresolvable",
        "by class: several scores",
        "by class: another order in the end",
    }


def test_odd_cases_reach_scores_out_of_bounds() -> None:
    reached: set[str] = set()

    def look(case: Decision) -> None:
        answer = answer_to(case)
        scores = set(answer.get("score", {}).values())
        reached.update({-1: "-1"}.get(score, "below") for score in scores if score < 0)
        if "filter" in answer:
            reached.update(status["code"] for status in answer["filter"].values())

    over(odd_cases(), 300, look)
    assert reached >= {"-1", "below", "Success", "Unschedulable"}
