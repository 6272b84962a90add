"""Filters that ask which pods are on nodes answer as the model in tests/reference does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings

from tests.conformance.fit import FitCase, answered, fit_cases
from tests.reference import other_pods
from tests.reference.other_pods_strategies import neighbours

if TYPE_CHECKING:
    from tests.reference.objects import Json

ASKED = (
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
    "NodeDeclaredFeatures",
)
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


@pytest.mark.parametrize("plugin", other_pods.FILTERS)
def test_the_model_answers_as_recorded(plugin: str) -> None:
    """Of stored pods: what an API server adds to others is not the model's."""
    cases = [
        case for case in fit_cases() if plugin in case.plugins and "phase" in case.pod["status"]
    ]
    assert len(cases) > 5
    for case in cases:
        cluster = {"nodes": [], "pods": [], "namespaces": [], **case.cluster}
        found = other_pods.said(plugin, cluster, case.pod)
        assert found == case.expect["alone"].get(plugin, {}), case.name


@settings(deadline=None, max_examples=200, suppress_health_check=SLOW)
@given(neighbours())
def test_filters_answer_as_the_model(case: tuple[Json, Json]) -> None:
    cluster, pod = case
    got = answered(FitCase("random", "", cluster, pod, {}))
    for plugin in other_pods.FILTERS:
        assert got.alone.get(plugin, {}) == other_pods.said(plugin, cluster, pod), plugin


@settings(deadline=None, max_examples=400, suppress_health_check=SLOW)
@given(neighbours() | neighbours(spreads=True))
def test_nodes_fit_with_their_nominated_pods_and_without(case: tuple[Json, Json]) -> None:
    cluster, pod = case
    pod["spec"].pop("nodeName", None)
    got = answered(FitCase("random", "", cluster, pod, {}))
    nodes = {
        name: {key: value for key, value in verdict.items() if key != "at"}
        for name, verdict in got.nodes.items()
    }
    assert nodes == other_pods.verdicts(cluster, pod, ASKED)
