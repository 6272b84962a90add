"""Explanations through either client, on a real server."""

from __future__ import annotations

import pytest

from tests.client.manifests import TWO_ZONES, incoming, spread
from topospread_client import (
    AddDomains,
    Consistency,
    ConstraintValidation,
    FindingCode,
    Fit,
    InvalidRequest,
    MinimumExplanation,
    MinimumReason,
    NotFound,
    SetMinDomains,
    Settings,
)


@pytest.fixture
def fresh(client):
    """The two zones, and the demand to see all of them."""
    return Consistency(at_least_as_fresh=client.apply_objects(TWO_ZONES).revision)


def test_explanation_has_domains_and_the_minimum(client, fresh):
    answer = client.explain_pod(incoming(), consistency=fresh)
    assert answer.revision
    assert answer.trace_id
    found = answer.explanation
    assert (found.node_count, found.feasible_node_count, found.fitting_node_count) == (3, 1, 1)
    assert found.suggestions == ()
    (zone,) = found.constraints
    assert zone.minimum == MinimumExplanation(1, MinimumReason.LOWEST, 1, 1, zone.minimum.note)
    assert [(d.value, d.pod_count, d.skew, d.allowed) for d in zone.domains] == [
        ("b", 1, 1, True),
        ("a", 2, 2, False),
    ]
    assert (zone.leading_domain_count, zone.unlisted_domain_count) == (2, 0)


def test_explanation_has_suggestions(client, fresh):
    pod = incoming(spread(minDomains=3))
    found = client.explain_pod(pod, consistency=fresh, domain_limit=1).explanation
    assert found.fitting_node_count == 0
    assert found.message.startswith("0/3 nodes are available")
    assert [change.change for each in found.suggestions for change in each.changes][:2] == [
        AddDomains(1),
        SetMinDomains(2),
    ]
    assert [finding.code for finding in found.findings] == [FindingCode.MIN_DOMAINS_OUT_OF_REACH]
    (zone,) = found.constraints
    assert (len(zone.domains), zone.leading_domain_count, zone.unlisted_domain_count) == (1, 1, 1)


def test_explanation_has_the_evaluation_and_leaves_suggestions_out(client, fresh):
    answer = client.explain_pod(incoming(), consistency=fresh, top_k=1)
    assert answer.evaluation.best
    assert (answer.evaluation.feasible_node_count, answer.evaluation.top_k) == (1, 1)
    assert (answer.evaluation.revision, answer.evaluation.trace_id) == (
        answer.revision,
        answer.trace_id,
    )
    nowhere = incoming(spread(minDomains=3))
    skipped = client.explain_pod(nowhere, consistency=fresh, skip_suggestions=True)
    assert (skipped.explanation.suggestions, skipped.evaluation.best) == ((), None)
    assert skipped.evaluation.message == skipped.explanation.message


def test_settings_and_fit_are_used(client, fresh):
    pod = incoming(spread(minDomains=3), nodeSelector={"disk": "fast"})
    off = Settings(feature_gates={"MinDomainsInPodTopologySpread": False})
    found = client.explain_pod(
        pod, settings=off, fit=Fit.SPREAD_ONLY, consistency=fresh
    ).explanation
    assert (found.feasible_node_count, found.fitting_node_count) == (3, 3)
    whole = client.explain_pod(pod, settings=off, consistency=fresh).explanation
    assert whole.fitting_node_count == 0


def test_errors_name_the_field(client, fresh):
    for given, field in (
        ({"domain_limit": 1001}, "domainLimit"),
        ({"settings": Settings(profile="missing")}, "settings.profile"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            client.explain_pod(incoming(), consistency=fresh, **given)
        assert [violation.field for violation in refused.value.violations] == [field]
    with pytest.raises(InvalidRequest) as refused:
        client.explain_pod(
            incoming(spread(maxSkew=0)), validation=ConstraintValidation.STRICT, consistency=fresh
        )
    assert (
        refused.value.violations[0].field == "pod.object.spec.topologySpreadConstraints[0].maxSkew"
    )
    with pytest.raises(NotFound):
        client.explain_pod("default/missing", consistency=fresh)
    with pytest.raises(NotFound):
        client.explain_pod(incoming(), cluster="missing")
