"""The filters give the recorded verdicts of a whole scheduler: reasons, codes and messages."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.batches import check_each
from tests.conformance.fit import (
    FitCase,
    answered,
    differences,
    fit_cases,
    names_claims,
)
from topospread.api.local import local_api
from topospread.cli.anonymization import Anonymizer
from topospread.codec.objects import OBJECTS
from topospread.codec.stored import stored
from topospread.service.fit.profile import PROFILE
from topospread_client import manifest_from_object, object_from_manifest, pod_from_manifest
from topospread_proto.v1 import common_pb2
from topospread_proto.v1.decision_service_pb2 import ExplainPodRequest
from topospread_proto.v1.planner_service_pb2 import SimulateRequest
from topospread_proto.v1.scenario_pb2 import PodsToPlace, Scenario

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conformance.fit import FitAnswer

SHOWN = ("hand/", "fit/1/719/", "fit/1/1360/")
"""Of these fits, those with a driver's topology key and with mismatchLabelKeys among them."""


def test_all_cases_are_here() -> None:
    assert len(fit_cases()) == 1500


@pytest.mark.parametrize("plugin", [plugin.name for plugin in PROFILE])
def test_each_filter_is_shown_by_cases(plugin: str) -> None:
    assert any(plugin in case.plugins for case in fit_cases())


def test_answers_are_as_recorded() -> None:
    check_each(fit_cases(), lambda case: differences(case, answered(case)))


def over_the_api(case: FitCase) -> Iterator[str]:
    """What ExplainPod and Simulate, which places as PlacePod does, say otherwise than recorded."""
    manifests = [each for objects in case.cluster.values() for each in objects]
    objects = [made for each in manifests if (made := object_from_manifest(each)) is not None]
    api = local_api(map(stored, objects), kinds=dict.fromkeys(OBJECTS, ""))
    given = pod_from_manifest(case.pod)
    pod = common_pb2.PodSource(object=given)
    settings = common_pb2.Settings(kubernetes_version="1.37")
    feasible, message = case.expect["feasible"], case.expect.get("message", "")
    asked = ExplainPodRequest(pod=pod, settings=settings, skip_suggestions=True)
    found = api.call("ExplainPod", asked).explanation
    if found.fitting_node_count != len(feasible):
        yield f"ExplainPod fits {found.fitting_node_count} of {feasible}"
    if found.message != message:
        yield f"ExplainPod says {found.message!r} for {message!r}"
    if given.spec.node_name:
        return  # such a pod is placed already
    wanted = PodsToPlace(pod=pod)
    placed = api.call(
        "Simulate", SimulateRequest(pods=[wanted], scenario=Scenario(settings=settings))
    )
    nodes = [each.node for each in placed.placements]
    if len(nodes) != bool(feasible) or not {*nodes} <= {*feasible}:
        yield f"Simulate takes {nodes} of {feasible}"
    said = [each.message for each in placed.pending_pods]
    if said != [message] * (not feasible):
        yield f"Simulate says {said} for {message!r}"


@pytest.mark.parametrize("part", range(5))
def test_answers_of_the_api_are_as_recorded(part: int) -> None:
    check_each(fit_cases()[part::5], over_the_api)


def test_recorded_claims_to_devices_are_all_judged() -> None:
    claiming = [case for case in fit_cases() if "resourceClaims" in case.pod["spec"]]
    assert len(claiming) == 56
    assert not any(names_claims(answered(case)) for case in claiming)


def anonymous(case: FitCase) -> FitCase:
    """The case with other names, as a dump of its cluster has them."""
    manifests = [case.pod, *(each for objects in case.cluster.values() for each in objects)]
    objects = [made for each in manifests if (made := object_from_manifest(each)) is not None]
    replaced = Anonymizer(objects)
    pod, *cluster = (manifest_from_object(replaced.anonymized(each)) for each in objects)
    return replace(case, cluster={"all": cluster}, pod=pod)


def verdicts(answer: FitAnswer) -> Counter[tuple[bool, str, str]]:
    """Nodes by verdict: whether the pod fits, the plugin that refuses, and its code."""
    return Counter(
        (each["feasible"], each.get("plugin", ""), each.get("code", ""))
        for each in answer.nodes.values()
    )


def test_anonymous_clusters_have_the_same_verdicts() -> None:
    def changed(case: FitCase) -> list[object]:
        real, other = verdicts(answered(case)), verdicts(answered(anonymous(case)))
        return [] if other == real else [real, other]

    cases = [each for each in fit_cases() if each.name.startswith(SHOWN)]
    assert len(cases) > 130
    check_each(cases, changed)
