"""A running server answers every random question as the reference model does."""

from dataclasses import replace

from hypothesis import given

from tests.conformance.calls import OverGrpc, label_of
from tests.conformance.cases import Decision, differences
from tests.properties.expected import Expected, answer_to, judgement_of
from tests.properties.questions import Interview, at, interviews, odd_cases, plain_cases
from tests.reference.histories import changed
from tests.reference.strategies import cases, kind_of
from topospread_proto.v1.decision_service_pb2 import EvaluatePodResponse

EVERY = 1000
"""Best nodes that EvaluatePod names at most; no random cluster has so many."""


@given(case=kind_of(cases(), cases(), odd_cases()))
def test_extension_points_and_evaluate_answer_as_the_model(
    server: OverGrpc, case: Decision
) -> None:
    # To draw a case and to load its cluster costs more than to ask about it.
    assert differences(answer_to(case), server.evaluate(case)) == []
    case = replace(case, filter_nodes=None)
    if "newError" in answer_to(case):
        assert server.condition(case) is None
    else:
        agrees(server.evaluation(case, EVERY), judgement_of(case))


@given(case=plain_cases())
def test_a_plain_question_is_answered_as_any_other(server: OverGrpc, case: Decision) -> None:
    expected, place = judgement_of(case), server.load(case.cluster)
    agrees(server.plain_evaluation(place, case.pod, EVERY), expected)
    agrees(server.plain_evaluation(place, case.pod), expected, best=5)
    agrees(server.plain_evaluation(place, case.pod, EVERY), expected)


@given(interview=interviews(max_changes=6))
def test_plain_questions_after_every_change(server: OverGrpc, interview: Interview) -> None:
    """What a server remembers of a pod's shape never outlives what it rests on."""
    place, cluster = server.load(interview.start), interview.start
    for batch in ([], *interview.batches):
        for change in batch:
            place = server.change(place, change.object, gone=change.gone)
            cluster = changed(cluster, change)
        for question in interview.questions:
            case = replace(at(question, cluster), args={}, gates={}, ops=[], filter_nodes=None)
            for _ in range(2):
                got = server.plain_evaluation(place, case.pod, EVERY)
                agrees(got, judgement_of(case))
                assert got.meta.revision == place.revision


def agrees(got: EvaluatePodResponse, expected: Expected, best: int = EVERY) -> None:
    """Fail unless the answer is as expected."""
    assert label_of(got.pre_filter_verdict) == expected.pre_filter
    if expected.pre_score is not None:
        assert label_of(got.pre_score_verdict) == expected.pre_score
    judged = [
        ((label_of(each.verdict), tuple(each.verdict.reasons)), each.node_count)
        for each in got.verdict_counts
    ]
    assert dict(judged) == expected.verdicts
    assert len(judged) == len(expected.verdicts)
    assert [nodes for _, nodes in judged] == sorted(expected.verdicts.values(), reverse=True)
    assert got.node_count == expected.nodes
    assert got.feasible_node_count == len(expected.top)
    assert [(n.node, n.raw, n.normalized) for n in got.top_nodes] == expected.top[:best]
    if expected.condition is None:
        assert (got.reason, got.message) == ("", "")
    else:
        assert got.reason == expected.condition["reason"]
        # Of errors in selectors the text is the parser's own.
        if got.reason != "SchedulerError":
            assert got.message == expected.condition["message"]
