"""Pods of the state are ranked as if the request gave them all, and few of them are read."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from google.protobuf.timestamp_pb2 import Timestamp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.counting import Counting
from tests.service.busy import Busy
from tests.service.world import CLUSTER, PATIENCE, ZONE, World, node, running, world
from topospread.codec.stored import object_from_stored
from topospread.kube.violations import Problems
from topospread.replica.replicas import seconds_from_now
from topospread.service.decisions.request import DecisionRequest
from topospread.service.ranking.rank import DeletionRanker
from topospread.store.api import scan_all
from topospread.store.model import Key, Kind, Put
from topospread_proto.kubernetes.v1.kubernetes_pb2 import LabelSelector
from topospread_proto.v1.deletion_order_pb2 import RANK_STRATEGY_REPLICA_SET, RankConstraint
from topospread_proto.v1.planner_service_pb2 import RankDeletionsRequest, RankDeletionsResponse

if TYPE_CHECKING:
    from collections.abc import Callable

Json = dict[str, Any]

NO_AFFINITY = b"\x12\x04\x92\x01\x01\xff"
"""A spec with an affinity that is no message."""

OWNERS = {
    "a": (None, ("ReplicaSet", "web-1"), ("ReplicaSet", "web-2")),
    "b": (None, ("ReplicaSet", "web-1"), ("StatefulSet", "db")),
}
"""Of the pods of each app; those that are ranked have one at most, Deployment web."""


def replica_set(name: str) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "web"}
    metadata = {"name": name, "namespace": "default", "ownerReferences": [owner]}
    owner["controller"] = True  # type: ignore[assignment]
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata, "spec": {}}


@st.composite
def pods(draw: st.DrawFn) -> list[Json]:
    """Of two apps, with owners that they share or do not share, some of them on their way out."""
    made = []
    for number in range(draw(st.integers(0, 8))):
        app, where = draw(st.sampled_from("ab")), draw(st.sampled_from(["n1", "n2", "n3", ""]))
        pod = running(f"p{number}", where, app=app, uid=f"u{number}")
        pod["metadata"]["namespace"] = draw(st.sampled_from(["default", "default", "other"]))
        if owner := draw(st.sampled_from(OWNERS[app])):
            kind, name = owner
            reference = {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": name}
            pod["metadata"]["ownerReferences"] = [reference | {"controller": True}]
        if draw(st.integers(0, 4)) == 0:
            pod["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
        if draw(st.integers(0, 4)) == 0:
            pod["status"] = {"phase": draw(st.sampled_from(["Failed", "Succeeded"]))}
        made.append(pod)
    return made


def ranked(made: World, store: Any = None, **fields: Any) -> RankDeletionsResponse:
    request = RankDeletionsRequest(
        label_selector=LabelSelector(match_labels={"app": "a"}),
        constraints=[RankConstraint(topology_key=ZONE)],
        evaluation_time=Timestamp(),
        **fields,
    )
    ranker = DeletionRanker(store or made.store, made.process.replicas, made.process.rules)
    return ranker.rank(request, DecisionRequest(seconds_from_now(PATIENCE), CLUSTER), Problems())


@settings(suppress_health_check=[HealthCheck.too_slow])
@given(at_first=pods(), later=pods())
def test_the_state_is_ranked_as_its_pods_are(at_first: list[Json], later: list[Json]) -> None:
    with world() as made:
        made.apply(*(node(f"n{n}", zone=f"z{n % 2}") for n in (1, 2, 3)))
        made.apply(replica_set("web-1"), replica_set("web-2"), *at_first)
        if later:
            made.apply(*later)
        found = [
            object_from_stored(item)
            for kind in (Kind.POD, Kind.REPLICA_SET)
            for page in scan_all(made.store, CLUSTER, kind)
            for item in page
        ]
        pods = [each.pod for each in found if each.pod.metadata.namespace == "default"]
        owners = [each.replica_set for each in found if each.HasField("replica_set")]
        of_state, of_request = ranked(made), ranked(made, pods=pods, replica_sets=owners)
    assert of_state.ending_pod_count == of_request.ending_pod_count
    if of_state.pods:  # otherwise the notes differ
        assert of_state == of_request
    else:
        assert not of_request.pods


def test_pods_that_are_not_ranked_are_not_read(three_zones: World) -> None:
    three_zones.apply(*(running(f"other-{n}", "n-a", app="b") for n in range(50)))
    three_zones.apply(*(running(f"ranked-{n}", "n-a", app="a") for n in range(3)))
    counting = Counting(three_zones.store)
    found = ranked(three_zones, counting)
    assert [each.pod.name for each in found.pods] == ["ranked-0", "ranked-1", "ranked-2"]
    assert counting.objects == 3


def test_a_damaged_pod_does_not_keep_the_others_from_being_ranked(three_zones: World) -> None:
    three_zones.apply(*(running(f"p-{n}", "n-a", app="a") for n in range(3)))
    (newest,) = three_zones.store.get(CLUSTER, [Key(Kind.POD, "default", "p-2")])
    damaged = replace(newest, payload=newest.payload + NO_AFFINITY, resource_version="")
    three_zones.store.apply(CLUSTER, [Put(damaged)])
    found = ranked(three_zones)
    assert {"p-0", "p-1"} <= {each.pod.name for each in found.pods}


def test_pods_of_the_owner_that_are_not_ranked_count_on_their_nodes(three_zones: World) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "web-1"}
    owners = [owner | {"controller": True}]
    three_zones.apply(
        *(
            running(f"a-{where}", where, app="a", ownerReferences=owners)
            for where in ("n-a", "n-b")
        ),
        *(running(f"b-{n}", "n-b", app="b", ownerReferences=owners) for n in range(2)),
    )
    found = ranked(three_zones, strategy=RANK_STRATEGY_REPLICA_SET)
    assert [each.pod.name for each in found.pods] == ["a-n-b", "a-n-a"]


def test_a_ranking_is_of_one_revision_whatever_is_written_meanwhile(three_zones: World) -> None:
    three_zones.apply(*(running(f"p-{n}", "n-a", app="a") for n in range(4)))

    def write() -> None:
        three_zones.apply(running("p-0", "n-b", app="a"), running("p-9", "n-c", app="a"))
        three_zones.apply(running("p-1", "n-a", app="other"))
        three_zones.delete(Kind.POD, "p-2", "default")

    busy = Busy(three_zones, write)
    found = ranked(three_zones, busy)
    assert not busy.meanwhile
    assert {each.pod.name: each.node for each in found.pods} == {
        "p-0": "n-b",
        "p-3": "n-a",
        "p-9": "n-c",
    }
    assert found == ranked(three_zones)


def test_a_ranking_comes_through_though_a_writer_never_rests(three_zones: World) -> None:
    """Each step moves all pods at once, so that pods of two steps would be on two nodes."""
    nodes = ("n-b", "n-c")

    def write(step: int) -> Callable[[], object]:
        moved = [running(f"p-{n}", nodes[step % 2], app="a") for n in range(4)]
        return lambda: three_zones.apply(*moved)

    write(1)()
    busy = Busy(three_zones, *map(write, range(50)))
    found = ranked(three_zones, busy)
    assert len(found.pods) == 4
    assert len({each.node for each in found.pods}) == 1
    assert 40 < len(busy.meanwhile) < 49
