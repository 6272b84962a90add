"""The volume filters answer as the model in tests/reference does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings

from tests.conformance.fit import FitCase, answered, fit_cases
from tests.reference import volumes
from tests.reference.volume_strategies import volume_cases

if TYPE_CHECKING:
    from tests.reference.objects import Json


@pytest.mark.parametrize("plugin", volumes.FILTERS)
def test_the_model_answers_as_recorded(plugin: str) -> None:
    cases = [case for case in fit_cases() if plugin in case.plugins]
    assert len(cases) > 50
    for case in cases:
        expected = case.expect["alone"].get(plugin, {})
        found = volumes.said(plugin, case.cluster, case.pod)
        assert found == expected or is_never_asked(plugin, case), case.name


def is_never_asked(plugin: str, case: FitCase) -> bool:
    """Whether another plugin refuses the pod before, so that what this one says is not told."""
    return plugin == "NodeVolumeLimits" and "preFilter" in case.expect["alone"].get(
        "VolumeBinding", {}
    )


@settings(
    deadline=None,
    max_examples=400,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(volume_cases())
def test_filters_answer_as_the_model(case: tuple[Json, Json]) -> None:
    cluster, pod = case
    got = answered(FitCase("random", "", cluster, pod, {}))
    for plugin in volumes.FILTERS:
        expected = volumes.said(plugin, cluster, pod)
        assert got.alone.get(plugin, {}) == expected, plugin
