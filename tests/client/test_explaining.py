"""Explanations through either client, on a real server."""

from __future__ import annotations

import pytest

from tests.client.manifests import TWO_ZONES, incoming, spread
from topospread_client import placement
from topospread_client.errors import InvalidRequest, NotFound
from topospread_client.requests import Consistency, Settings


@pytest.fixture
def fresh(client):
    """The two zones, and the demand to see all of them."""
    return Consistency(at_least_as_fresh=client.apply(TWO_ZONES).revision)


def test_domains_and_who_holds_the_minimum(client, fresh):
    answer = client.explain(incoming(), consistency=fresh)
    assert answer.revision
    assert answer.trace_id
    found = answer.explanation
    assert (found.nodes, found.passing, found.fitting, found.suggestions) == (3, 1, 1, ())
    (zone,) = found.constraints
    assert (zone.minimum.value, zone.minimum.reason, zone.minimum.holders) == (1, "Lowest", 1)
    assert [(d.value, d.pods, d.skew, d.allowed) for d in zone.first] == [
        ("b", 1, 1, True),
        ("a", 2, 2, False),
    ]
    assert (zone.last, zone.unlisted) == ((), 0)


def test_what_would_let_it_in(client, fresh):
    pod = incoming(spread(minDomains=3))
    found = client.explain(pod, consistency=fresh, domain_limit=1).explanation
    assert found.fitting == 0
    assert found.message.startswith("0/3 nodes are available")
    assert [change.kind for each in found.suggestions for change in each.changes][:2] == [
        "MoreDomains",
        "MinDomains",
    ]
    assert [warned.kind for warned in found.warnings] == ["MinDomainsOutOfReach"]
    (zone,) = found.constraints
    assert (len(zone.first), len(zone.last), zone.unlisted) == (1, 0, 1)


def test_settings_and_what_is_asked_beside_spreading(client, fresh):
    pod = incoming(spread(minDomains=3), nodeSelector={"disk": "fast"})
    off = Settings(gates={"MinDomainsInPodTopologySpread": False})
    found = client.explain(
        pod, settings=off, fit=placement.SPREAD_ONLY, consistency=fresh
    ).explanation
    assert (found.passing, found.fitting) == (3, 3)
    assert client.explain(pod, settings=off, consistency=fresh).explanation.fitting == 0


def test_what_is_wrong_is_named(client, fresh):
    for given, field in (
        ({"fit": 9}, "fit"),
        ({"domain_limit": 1001}, "domainLimit"),
        ({"settings": Settings(profile="nobody")}, "settings.profile"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            client.explain(incoming(), consistency=fresh, **given)
        assert [violation.field for violation in refused.value.violations] == [field]
    with pytest.raises(InvalidRequest) as refused:
        client.explain(incoming(spread(maxSkew=0)), validate=True, consistency=fresh)
    assert refused.value.violations[0].field == "spec.topologySpreadConstraints[0].maxSkew"
    with pytest.raises(NotFound):
        client.explain("default/nobody", consistency=fresh)
    with pytest.raises(NotFound):
        client.explain(incoming(), cluster="nobody-knows-it")
