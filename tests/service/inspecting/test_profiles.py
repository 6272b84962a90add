"""Rows follow the scheduler's configuration, also where the state does not change."""

from __future__ import annotations

from tests.service.explaining.cases import SERVICE
from tests.service.world import CLUSTER, PATIENCE, World
from topospread.replica.replicas import seconds_from_now
from topospread.replica.view import Consistency, Freshness, Token
from topospread.service.inspecting.inspector import Inspector
from topospread.spread.settings import DEFAULT_PROFILE, ConfiguredRules, FeatureGates, Profile


def test_new_defaults_are_in_force_at_once(three_zones: World) -> None:
    three_zones.apply(SERVICE)
    inspector = Inspector(three_zones.engine)
    newest = Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(three_zones.revision))

    def keys() -> set[str]:
        found = inspector.inspect(CLUSTER, newest, seconds_from_now(PATIENCE))
        return {each.key.constraint.topology_key for each in found.statuses.values()}

    assert keys() == {"kubernetes.io/hostname", "topology.kubernetes.io/zone"}
    none = Profile(DEFAULT_PROFILE, "List")
    three_zones.process.rules.replace(ConfiguredRules({DEFAULT_PROFILE: none}, FeatureGates()))
    assert keys() == set()
