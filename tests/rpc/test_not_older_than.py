"""Progress of a sync: writers report it, responses carry it, and calls wait for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import grpc
import pytest

from tests.errors.error_status import error_status
from tests.servers import Peer, evaluate_request, node, pod, replacement, served, two_zones
from tests.waiting import PATIENCE
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

CODE = grpc.StatusCode
NODE, POD = common_pb2.KIND_NODE, common_pb2.KIND_POD


def versions(**kinds: str) -> list[common_pb2.ResourceVersion]:
    """By the names of kinds."""
    return [
        common_pb2.ResourceVersion(
            kind=common_pb2.Kind.Value(f"KIND_{kind.upper()}"), resource_version=version
        )
        for kind, version in kinds.items()
    ]


def not_older(**kinds: str) -> common_pb2.Consistency:
    wanted = common_pb2.ObservedVersions(versions=versions(**kinds))
    return common_pb2.Consistency(not_older_than=wanted)


@pytest.fixture(params=["memory", "redis"])
def peer(request: pytest.FixtureRequest) -> Iterator[Peer]:
    """Of a server that has two zones and no sync."""
    store = "memory:" if request.param == "memory" else request.getfixturevalue("redis_url")
    with served(store=store) as server, Peer(server.address) as peer:
        peer.await_revision(peer.apply(*two_zones()))
        yield peer


def report(peer: Peer, *objects: pb.ClusterObject, force: bool = False, **kinds: str) -> str:
    """Write objects, and how far was read; returns the revision."""
    request = pb.ApplyObjectsRequest(objects=objects, observed=versions(**kinds), force=force)
    answer = peer.state.ApplyObjects(request, timeout=PATIENCE)
    assert len(answer.results) == len(objects)
    revision: str = answer.meta.revision
    return revision


def observed(peer: Peer) -> dict[str, str]:
    """What the newest state's answers tell."""
    newest = common_pb2.Consistency(fully_consistent=True)
    answer = peer.evaluate(consistency=newest)
    known = {
        common_pb2.Kind.Name(each.kind).removeprefix("KIND_").lower(): each.resource_version
        for each in answer.meta.observed
    }
    cluster = peer.state.GetCluster(pb.GetClusterRequest(), timeout=PATIENCE).cluster
    assert list(cluster.observed) == list(answer.meta.observed)
    return known


def test_observed_is_empty_without_reported_progress(peer):
    assert observed(peer) == {}


def test_observed_follows_the_writes_that_report_it(peer):
    report(peer, pod("p", "a1"), node="10", pod="12")
    assert observed(peer) == {"node": "10", "pod": "12"}
    request = pb.DeleteObjectsRequest(
        objects=[pb.ObjectReference(kind=POD, name="p")], observed=versions(pod="13")
    )
    assert len(peer.state.DeleteObjects(request, timeout=PATIENCE).results) == 1
    assert observed(peer) == {"node": "10", "pod": "13"}
    # As for a watch's bookmark: nothing else has changed.
    report(peer, node="20")
    assert observed(peer) == {"node": "20", "pod": "13"}


def test_full_batch_may_report_progress(run):
    peer = run().peer
    everything = dict.fromkeys(
        ("node", "pod", "service", "replication_controller", "replica_set", "stateful_set"), "7"
    )
    request = pb.ApplyObjectsRequest(
        objects=[pod(f"p{n}", "a1") for n in range(500)], observed=versions(**everything)
    )
    assert len(peer.state.ApplyObjects(request, timeout=PATIENCE).results) == 500
    assert observed(peer) == everything


def test_the_highest_number_is_kept(peer):
    """Of two syncs the one that is behind must not take back what the other has read."""
    report(peer, pod="99")
    report(peer, pod="100")
    report(peer, pod="99")
    assert observed(peer) == {"pod": "100"}
    report(peer, pod="1" + "0" * 60)
    report(peer, pod="9" * 60)
    assert observed(peer) == {"pod": "1" + "0" * 60}


def test_progress_may_go_back_after_a_restored_backup(peer):
    """Else questions would be answered at once that should wait for what comes after the backup."""
    report(peer, pod="1000")
    report(peer, pod="100", force=True)
    assert observed(peer) == {"pod": "100"}


def test_list_reports_progress_with_its_commit(peer):
    """Half of a list must not count as all that there was at its version."""
    start, batch, commit = replacement(node("a1", "a"), kind=NODE, resource_version="50")
    with pytest.raises(grpc.RpcError):
        peer.state.ReplaceObjects(iter([start, batch]), timeout=PATIENCE)
    assert observed(peer) == {}
    peer.state.ReplaceObjects(iter([start, batch, commit]), timeout=PATIENCE)
    assert observed(peer) == {"node": "50"}


def test_list_sets_progress_also_after_a_restored_backup(peer):
    """Else questions would be answered at once that should wait for what comes after the list."""
    report(peer, node("a1", "a"), node="10000")
    listed = replacement(node("a1", "a"), kind=NODE, resource_version="8000")
    revision = peer.state.ReplaceObjects(iter(listed), timeout=PATIENCE).meta.revision
    assert observed(peer) == {"node": "8000"}
    waiting = peer.engine.EvaluatePod.future(
        evaluate_request(consistency=not_older(node="8500")), timeout=PATIENCE
    )
    assert peer.evaluate(consistency=not_older(node="8000")).meta.revision
    report(peer, node("c1", "c"), node="8500")
    assert waiting.result(PATIENCE).node_count == 2
    # What is known is not written again.
    listed = replacement(node("a1", "a"), kind=NODE, resource_version="8500")
    first, again = (
        peer.state.ReplaceObjects(iter(listed), timeout=PATIENCE).meta.revision for _ in "12"
    )
    assert revision != first == again


def at(version: str, made: pb.ClusterObject) -> pb.ClusterObject:
    """A node or pod at a version."""
    content = made.node if made.HasField("node") else made.pod
    content.metadata.resource_version = version
    return made


def test_a_list_below_what_was_observed_is_of_another_history(peer):
    """What is newer comes from before the API server was restored, and nothing will mend it."""
    report(peer, at("9000", node("a1", "z")), at("9100", node("c1", "c")), node="10000")
    gone = pb.ObjectReference(kind=NODE, name="b1", resource_version="9500")
    peer.state.DeleteObjects(pb.DeleteObjectsRequest(objects=[gone]), timeout=PATIENCE)

    listed = replacement(at("800", node("a1", "a")), kind=NODE, resource_version="8000")
    answer = peer.state.ReplaceObjects(iter(listed), timeout=PATIENCE)

    assert (answer.updated_count, answer.deleted_count, answer.ignored_stale_count) == (1, 2, 0)
    assert names(peer) == ["a1"]
    # In the new history it is made later, at a version below that of its deletion in the old one.
    report(peer, at("8010", node("b1", "b")), node="8010")
    assert names(peer) == ["a1", "b1"]


def test_a_list_at_what_was_observed_leaves_alone_what_is_newer(peer):
    report(peer, at("9000", node("a1", "z")), at("9100", node("c1", "c")), node="8000")
    listed = replacement(at("800", node("a1", "a")), kind=NODE, resource_version="8000")
    answer = peer.state.ReplaceObjects(iter(listed), timeout=PATIENCE)
    assert answer.ignored_stale_count == 2
    assert names(peer) == ["a1", "c1"]


def names(peer: Peer) -> list[str]:
    """The nodes."""
    newest = common_pb2.Consistency(fully_consistent=True)
    table = peer.state.GetNodeTable(pb.GetNodeTableRequest(consistency=newest), timeout=PATIENCE)
    return sorted(table.node_names)


def test_caller_that_bound_a_pod_waits_until_it_counts(peer):
    """A scheduler that does not wait judges the next pod as if the last one were not there."""
    report(peer, pod="100")
    assert peer.evaluate(consistency=not_older(pod="100")).feasible_node_count == 1
    ask = evaluate_request(consistency=not_older(pod="101"))
    waiting = peer.engine.EvaluatePod.future(ask, timeout=PATIENCE)
    report(peer, pod("web-3", "b1"), pod="101")
    answer = waiting.result(PATIENCE)
    assert answer.feasible_node_count == 3
    assert list(answer.meta.observed) == versions(pod="101")


def test_call_waits_for_all_named_kinds(peer):
    report(peer, node="5", pod="5")
    ask = evaluate_request(consistency=not_older(node="7", pod="6"))
    waiting = peer.engine.EvaluatePod.future(ask, timeout=PATIENCE)
    report(peer, pod="6")
    report(peer, node="6")
    assert not waiting.done()
    report(peer, node="7")
    assert list(waiting.result(PATIENCE).meta.observed) == versions(node="7", pod="6")


def test_list_and_get_wait_as_well(peer):
    report(peer, node="5")
    requests: list[tuple[Any, Any]] = [
        (peer.state.GetObject, pb.GetObjectRequest(kind=NODE, name="late")),
        (peer.state.ListObjects, pb.ListObjectsRequest(kind=NODE)),
        (peer.state.GetNodeTable, pb.GetNodeTableRequest()),
    ]
    waiting = []
    for call, request in requests:
        request.consistency.CopyFrom(not_older(node="6"))
        waiting.append(call.future(request, timeout=PATIENCE))
    report(peer, node("late", "c"), node="6")
    one, listed, table = (each.result(PATIENCE) for each in waiting)
    assert one.object.node.metadata.name == "late"
    assert "late" in {each.node.metadata.name for each in listed.objects}
    assert "late" in table.node_names


def test_wait_for_progress_ends_with_its_deadline(peer):
    report(peer, pod="100")
    with pytest.raises(grpc.RpcError) as failed:
        peer.engine.EvaluatePod(evaluate_request(consistency=not_older(pod="101")), timeout=0.2)
    assert failed.value.code() is CODE.DEADLINE_EXCEEDED


def test_call_does_not_wait_for_a_feed_without_progress(peer):
    """With a writer that never says how far it has read it would be for ever."""
    for consistency in (not_older(pod="1"), not_older(node="1", pod="1")):
        with pytest.raises(grpc.RpcError) as failed:
            peer.evaluate(consistency=consistency)
        assert failed.value.code() is CODE.FAILED_PRECONDITION
        assert error_status(failed.value).reason == "NO_FEED_PROGRESS"
        assert error_status(failed.value).metadata == {"kind": "KIND_POD"}
        report(peer, node="5")


def test_first_progress_is_known_to_the_next_call(peer):
    for number in range(20):
        cluster = f"c{number}"
        peer.await_revision(peer.apply(*two_zones(), cluster=cluster), cluster)
        request = pb.ApplyObjectsRequest(cluster=cluster, observed=versions(pod="3"))
        peer.state.ApplyObjects(request, timeout=PATIENCE)
        answer = peer.evaluate(cluster=cluster, consistency=not_older(pod="3"))
        assert list(answer.meta.observed) == versions(pod="3")


def wrong_versions() -> list[tuple[list[common_pb2.ResourceVersion], list[str]]]:
    one = common_pb2.ResourceVersion
    return [
        ([one(resource_version="1")], ["[0].kind"]),
        ([one(kind=common_pb2.KIND_RESERVATION, resource_version="1")], ["[0].kind"]),
        ([one(kind=8, resource_version="1")], ["[0].kind"]),  # type: ignore[arg-type]
        ([one(kind=POD)], ["[0].resourceVersion"]),
        ([one(kind=POD, resource_version="x")], ["[0].resourceVersion"]),
        ([one(kind=POD, resource_version="-1")], ["[0].resourceVersion"]),
        ([one(kind=POD, resource_version="01")], ["[0].resourceVersion"]),
        ([one(kind=POD, resource_version="٣")], ["[0].resourceVersion"]),
        ([one(kind=POD, resource_version="1" * 256)], ["[0].resourceVersion"]),
        (versions(node="1") * 2, ["[1].kind"]),
        ([*versions(node="1"), one(), one(kind=POD)],
         ["[1].kind", "[1].resourceVersion", "[2].resourceVersion"]),
    ]  # fmt: skip


@pytest.mark.parametrize(("given", "fields"), wrong_versions())
def test_invalid_version_is_refused(unchanged, given, fields):
    consistency = common_pb2.Consistency(not_older_than=common_pb2.ObservedVersions(versions=given))
    calls: list[tuple[Any, Any, str]] = [
        (unchanged.state.ApplyObjects, pb.ApplyObjectsRequest(observed=given), "observed"),
        (unchanged.state.DeleteObjects, pb.DeleteObjectsRequest(observed=given), "observed"),
        (
            unchanged.engine.EvaluatePod,
            evaluate_request(consistency=consistency),
            "consistency.notOlderThan.versions",
        ),
    ]
    for call, request, path in calls:
        with pytest.raises(grpc.RpcError) as failed:
            call(request, timeout=PATIENCE)
        assert failed.value.code() is CODE.INVALID_ARGUMENT
        assert error_status(failed.value).paths == [f"{path}{field}" for field in fields]


def test_empty_not_older_than_is_refused(unchanged):
    with pytest.raises(grpc.RpcError) as failed:
        unchanged.evaluate(consistency=not_older())
    assert error_status(failed.value).paths == ["consistency.notOlderThan.versions"]


def test_resource_version_of_a_list_must_be_comparable(unchanged):
    with pytest.raises(grpc.RpcError) as failed:
        unchanged.state.ReplaceObjects(
            iter(replacement(kind=NODE, resource_version="now")), timeout=PATIENCE
        )
    assert error_status(failed.value).paths == ["start.resourceVersion"]
