"""What is held, and where the pod runs already."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.service.placement.placer import Placer, bound, named
from tests.service.world import CLUSTER, World, constraint
from topospread.service.decisions.request import PodRef
from topospread.service.explaining.explain import explain
from topospread_client import pod_from_manifest
from topospread_proto.v1.explanation_pb2 import FINDING_CODE_ALREADY_BOUND

if TYPE_CHECKING:
    from tests.service.world import Json
    from topospread_proto.v1.explanation_pb2 import DomainExplanation, Explanation


def explained(placer: Placer, pod: Json | PodRef) -> Explanation:
    engine = placer.engine
    given = pod if isinstance(pod, PodRef) else pod_from_manifest(pod).SerializeToString()
    return explain(engine, placer.ask(), engine.with_requests(CLUSTER, given)).response.explanation


def zone(found: Explanation, value: str) -> DomainExplanation:
    (constraint_,) = found.constraints
    return next(domain for domain in constraint_.domains if domain.value == value)


def test_reservations_of_other_pods_are_listed_separately(three_zones: World) -> None:
    placer = Placer(three_zones)
    placer.reserve(named("first"), "n-c")
    placer.reserve(named("second"), "n-c")
    found = explained(placer, named("third", constraint()))
    assert (zone(found, "c").pod_count, zone(found, "c").reserved_pod_count) == (2, 2)
    assert (zone(found, "a").pod_count, zone(found, "a").reserved_pod_count) == (2, 0)


def test_the_pods_own_place_is_not_counted(three_zones: World) -> None:
    placer = Placer(three_zones)
    pod = named("mine", constraint())
    placer.reserve(pod, "n-c")
    found = explained(placer, pod)
    assert (
        zone(found, "c").pod_count,
        zone(found, "c").reserved_pod_count,
        zone(found, "c").skew,
    ) == (0, 0, 1)
    # Another pod sees it.
    other = explained(placer, named("other", constraint()))
    assert (zone(other, "c").pod_count, zone(other, "c").reserved_pod_count) == (1, 1)


def test_places_of_another_namespace_do_not_count(three_zones: World) -> None:
    placer = Placer(three_zones)
    other = named("other")
    other["metadata"]["namespace"] = "elsewhere"
    placer.reserve(other, "n-c")
    found = explained(placer, named("mine", constraint()))
    assert (zone(found, "c").pod_count, zone(found, "c").reserved_pod_count) == (0, 0)


def test_running_pod_gets_a_finding(three_zones: World) -> None:
    placer = Placer(three_zones)
    placer.apply(bound(named("mine", constraint()), "n-c"))
    found = explained(placer, PodRef("mine"))
    assert [finding.code for finding in found.findings] == [FINDING_CODE_ALREADY_BOUND]
    assert "n-c" in found.findings[0].text
    assert zone(found, "c").pod_count == 1
