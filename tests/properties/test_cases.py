"""The core answers every random question as the model does, and so after every change."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from hypothesis import given

from tests.conformance.cases import Decision, Json, differences
from tests.conformance.core import answer_at, change_of, folded
from tests.properties.expected import answer_to, judgement_of
from tests.properties.questions import Interview, at, interviews, odd_cases
from tests.properties.siblings import Sibling
from tests.reference.histories import changed
from tests.reference.strategies import cases
from topospread.errors import InvalidRequest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.index.builder import Builder


@given(cases())
def test_core_answers_as_the_model(case: Decision) -> None:
    assert differences(answer_to(case), answer_at(folded(case.cluster), case)) == []


@given(odd_cases())
def test_core_copes_with_constraints_that_an_api_server_refuses(case: Decision) -> None:
    assert differences(answer_to(case), answer_at(folded(case.cluster), case)) == []


def states(interview: Interview, builder: Builder) -> Iterator[Json]:
    """The cluster after each batch; the builder is there, too, when the state comes out."""
    cluster = interview.start
    yield cluster
    for batch in interview.batches:
        builder.fold([change_of(change.object, gone=change.gone) for change in batch])
        for change in batch:
            cluster = changed(cluster, change)
        yield cluster


@given(interviews())
def test_nodes_and_node_classes_are_judged_as_by_the_model_after_every_change(
    interview: Interview,
) -> None:
    # To draw a history costs more than to ask about it: both ways are asked about each.
    nodes_agree(interview)
    classes_agree(interview)


def nodes_agree(interview: Interview) -> None:
    """Judge nodes one by one, by the extension points."""
    builder = folded(interview.start)
    for cluster in states(interview, builder):
        for question in interview.questions:
            case = at(question, cluster)
            assert differences(answer_to(case), answer_at(builder, case)) == []


def classes_agree(interview: Interview) -> None:
    """Judge classes of nodes, by what is kept of a pod's shape from one state to the next."""
    builder = folded(interview.start)
    siblings = []
    for question in interview.questions:
        try:
            siblings.append((replace(question, ops=[]), Sibling(question)))
        except InvalidRequest:
            continue
    for cluster in states(interview, builder):
        for question, sibling in siblings:
            found = sibling.judged(builder)
            if found is not None:
                expected = judgement_of(at(question, cluster))
                assert found.verdicts == expected.verdicts
                assert found.top == expected.top
