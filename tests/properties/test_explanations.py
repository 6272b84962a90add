"""An explanation agrees by domain with Filter by node, and its advice works."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace

from hypothesis import given

from tests.conformance.calls import OverGrpc, label_of
from tests.conformance.cases import Decision
from tests.conformance.core import folded, pod_of, prepared
from tests.conformance.objects import rules_of
from tests.properties.expected import answer_to
from tests.properties.questions import odd_cases
from tests.reference.objects import labels_of
from tests.reference.snapshot import Snapshot as ReferenceSnapshot
from tests.reference.strategies import cases, kind_of
from topospread.kube.objects import DO_NOT_SCHEDULE
from topospread.service.explaining.context import EvaluationContext
from topospread.service.explaining.explain import explain_at
from topospread.service.fit.question import Fit
from topospread.spread.verdicts import LABEL_MISSING, TOO_SKEWED, VERDICTS
from topospread_proto.v1.explanation_pb2 import ConstraintExplanation

EVERY = 1000
SUCCESS = ("Success", ())


def case_of(decision: Decision, fit: Fit = Fit.SPREAD_ONLY) -> EvaluationContext:
    """The core's case for a random question."""
    rules = rules_of(decision)
    pod = pod_of(decision.pod)
    constraints, snapshot = prepared(folded(decision.cluster), pod, rules)
    return EvaluationContext(snapshot, pod, rules, constraints, fit=fit, name=pod.name)


def verdict_on(
    explanations: Iterable[ConstraintExplanation], labels: Mapping[str, str]
) -> tuple[str, tuple[str, ...]]:
    """Filter's verdict on a node, read off the explanation's domains."""
    for each in explanations:
        constraint = each.constraint
        allowed = {domain.value: domain.allowed for domain in each.domains}
        if constraint.when_unsatisfiable != DO_NOT_SCHEDULE:
            continue
        value, verdict = labels.get(constraint.topology_key), None
        if value is None:
            verdict = LABEL_MISSING
        elif not allowed[value]:
            verdict = TOO_SKEWED
        if verdict is not None:
            return VERDICTS[verdict].code.label, VERDICTS[verdict].reasons
    return SUCCESS


@given(decision=kind_of(cases(), cases(), odd_cases()))
def test_domains_have_filters_verdicts_and_nodes_scores_and_findings_add_up(
    decision: Decision,
) -> None:
    # To draw a case costs more than to ask about it.
    decision = replace(decision, ops=[], filter_nodes=None)
    domains_have_the_verdicts_of_filter(decision)
    domain_scores_span_node_scores(decision)
    finding_adds_up(decision)


def domains_have_the_verdicts_of_filter(decision: Decision) -> None:
    expected = answer_to(decision)
    if "newError" in expected:
        return
    found = explain_at(case_of(decision), EVERY)
    assert label_of(found.verdict) == expected["preFilter"]["code"]
    nodes = ReferenceSnapshot(decision.cluster).nodes
    if expected["preFilter"]["code"] == "Error":
        assert (found.feasible_node_count, found.fitting_node_count) == (0, 0)
        return
    verdicts = {
        name: (verdict["code"], tuple(verdict["reasons"]))
        for name, verdict in expected.get("filter", {}).items()
    } or dict.fromkeys(nodes, SUCCESS)
    assert {
        name: verdict_on(found.constraints, labels_of(node)) for name, node in nodes.items()
    } == verdicts
    assert found.feasible_node_count == Counter(verdicts.values())[SUCCESS]
    # Nothing but spreading was asked about.
    assert found.fitting_node_count == found.feasible_node_count


@given(decision=kind_of(cases(), cases(), odd_cases()))
def test_a_server_explains_by_domain_what_it_filters_by_node(
    server: OverGrpc, decision: Decision
) -> None:
    decision = replace(decision, ops=[], filter_nodes=None)
    answer = server.evaluate(decision)
    if "newError" in answer:
        return
    found = server.explanation(decision, EVERY)
    assert label_of(found.verdict) == answer["preFilter"]["code"]
    for name, verdict in answer.get("filter", {}).items():
        labels = labels_of(ReferenceSnapshot(decision.cluster).nodes[name])
        expected = verdict["code"], tuple(verdict["reasons"])
        assert verdict_on(found.constraints, labels) == expected


@given(decision=kind_of(cases(), cases(), odd_cases()))
def test_by_spreading_alone_it_is_what_evaluate_pod_answers(
    server: OverGrpc, decision: Decision
) -> None:
    decision = replace(decision, ops=[], filter_nodes=None)
    if "newError" in server.evaluate(decision):
        return
    expected = server.evaluation(decision, 1000)
    expected.ClearField("meta")
    found = server.explained(decision, 1000).evaluation
    assert sorted(map(str, found.verdict_counts)) == sorted(map(str, expected.verdict_counts))
    for each in (found, expected):
        each.ClearField("verdict_counts")
    assert found == expected


def domain_scores_span_node_scores(decision: Decision) -> None:
    expected = answer_to(decision)
    if "newError" in expected or expected["preFilter"]["code"] == "Error":
        return
    scores = expected.get("normalized", {})
    nodes = ReferenceSnapshot(decision.cluster).nodes
    for constraint in explain_at(case_of(decision), EVERY).constraints:
        if constraint.constraint.when_unsatisfiable == DO_NOT_SCHEDULE:
            continue
        for domain in constraint.domains:
            here = [
                scores[name]
                for name, node in nodes.items()
                if name in scores
                and labels_of(node).get(constraint.constraint.topology_key) == domain.value
            ]
            assert domain.HasField("scores") == bool(here)
            if here:
                assert (domain.scores.lowest, domain.scores.highest) == (min(here), max(here))


def finding_adds_up(decision: Decision) -> None:
    if "newError" in answer_to(decision):
        return
    found = explain_at(case_of(decision, Fit.NODE), EVERY)
    for constraint in found.constraints:
        listed = constraint.domains
        assert constraint.unlisted_domain_count == 0
        assert constraint.domain_count == len(listed) == len({d.value for d in listed})
        assert constraint.keyless_node_count == found.node_count - sum(d.node_count for d in listed)
        for domain in listed:
            excluded = sum(count for _, count in domain.excluded.ListFields())
            assert domain.node_count == domain.eligible_node_count + excluded
            refused = sum(each.node_count for each in domain.node_reasons)
            assert domain.node_count == domain.usable_node_count + refused
            assert domain.fitting_node_count <= domain.usable_node_count
        eligible = [d for d in listed if d.eligible_node_count]
        assert constraint.eligible_domain_count == len(eligible)
        assert constraint.eligible_node_count == sum(d.eligible_node_count for d in eligible)
        assert constraint.minimum.lowest_domain_count == sum(d.holds_minimum for d in listed)
        if constraint.constraint.when_unsatisfiable == DO_NOT_SCHEDULE:
            assert constraint.rejected_domain_count == sum(not d.allowed for d in listed)
            for domain in listed:
                assert domain.allowed == (domain.skew <= constraint.constraint.max_skew)
    if found.fitting_node_count:
        assert not found.suggestions
        assert not found.message
    else:
        assert found.message
    assert all(suggestion.fitting_node_count for suggestion in found.suggestions)
