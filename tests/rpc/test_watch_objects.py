"""WatchObjects: its events, and when it ends."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from tests.errors.error_status import error_status
from tests.servers import Peer, at_least, expired, incoming, pod, served, threads_end, two_zones
from tests.telemetry.expositions import value
from tests.waiting import PATIENCE, until
from topospread_client import pod_from_manifest
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import common_pb2, placement_service_pb2_grpc
from topospread_proto.v1 import placement_service_pb2 as placement_pb

CODE = grpc.StatusCode
WATCH = "ClusterStateService/WatchObjects"
APPLIED = state_pb.WATCH_EVENT_TYPE_APPLIED
DELETED = state_pb.WATCH_EVENT_TYPE_DELETED
BOOKMARK = state_pb.WATCH_EVENT_TYPE_BOOKMARK


def events(stream):
    """One after the other."""
    for answer in stream:
        yield from answer.events


def removed(peer, kind, name, namespace=""):
    """Delete an object; returns the revision."""
    reference = state_pb.ObjectReference(kind=kind, namespace=namespace, name=name)
    request = state_pb.DeleteObjectsRequest(objects=[reference])
    return peer.state.DeleteObjects(request, timeout=PATIENCE).meta.revision


def opened(peer, **fields):
    """A watch, as its request says."""
    request = state_pb.WatchObjectsRequest(**fields)
    return peer.state.WatchObjects(request, timeout=PATIENCE)


def watch(running):
    """A watch that has begun."""
    stream = opened(running.peer, revision=running.revision)
    running.peer.apply(pod("first", "a1"))
    assert next(stream).events[0].ref.name == "first"
    return stream


def test_changes_come_in_order_with_the_revision_that_holds_them(run):
    running = run()
    stream = watch(running)
    revisions = [running.peer.apply(pod(f"p{number}", "a1")) for number in range(5)]
    answers = [next(stream) for _ in range(5)]
    assert [answer.meta.revision for answer in answers] == revisions
    assert [answer.events[0].ref.name for answer in answers] == [f"p{n}" for n in range(5)]
    seen = at_least(answers[-1].meta.revision)
    assert running.peer.evaluate(consistency=seen).feasible_node_count == 1
    stream.cancel()


def test_watch_has_only_the_requested_kinds(run):
    running = run()
    stream = opened(running.peer, revision=running.revision, kinds=[common_pb2.KIND_NODE])
    running.peer.apply(pod("p", "a1"))
    running.peer.apply(two_zones()[0], pod("q", "a1"))
    removed(running.peer, common_pb2.KIND_NODE, "a1")
    event = next(each for each in events(stream) if each.type != BOOKMARK)
    assert (event.type, event.ref.name) == (DELETED, "a1")
    stream.cancel()


def test_deleted_event_has_uid_and_version(run):
    """A watcher that names objects by uid could not tell which of two of one name is gone."""
    running = run()
    made = pod("p", "a1")
    made.pod.metadata.uid, made.pod.metadata.resource_version = "u-1", "17"
    revision = running.peer.apply(made)
    stream = opened(running.peer, revision=revision)
    removed(running.peer, common_pb2.KIND_POD, "p")
    (event,) = next(stream).events
    assert event.ref == state_pb.ObjectReference(
        kind=common_pb2.KIND_POD,
        namespace="default",
        name="p",
        uid="u-1",
        resource_version="17",
    )
    assert (event.type, event.HasField("object")) == (DELETED, False)
    stream.cancel()


def test_watch_without_events_advances_by_bookmarks(run):
    """On a busy cluster the log would be trimmed past the last thing that it was told."""
    running = run()
    stream = opened(running.peer, revision=running.revision, kinds=[common_pb2.KIND_STATEFUL_SET])
    last = ""
    for number in range(3):
        last = running.peer.apply(*(pod(f"p{number}-{n}", "a1") for n in range(500)))
    answer = next(answer for answer in stream if answer.meta.revision == last)
    assert [event.type for event in answer.events] == [BOOKMARK]
    stream.cancel()
    again = opened(running.peer, revision=answer.meta.revision)
    running.peer.apply(pod("next", "a1"))
    assert next(events(again)).ref.name == "next"
    again.cancel()


def test_watch_from_the_present_begins_with_its_revision(run):
    """Or one that is cut before anything happened could not go on without missing what did."""
    running = run()
    stream = opened(running.peer)
    first = next(stream)
    assert [event.type for event in first.events] == [BOOKMARK]
    assert first.meta.revision == running.revision
    stream.cancel()
    running.peer.apply(pod("missed", "a1"))
    again = opened(running.peer, revision=first.meta.revision)
    assert next(events(again)).ref.name == "missed"
    again.cancel()


def initial(stream):
    """What there is, up to the bookmark, and the bookmark's revision."""
    found: list[state_pb.WatchEvent] = []
    for answer in stream:
        if answer.events[0].type == BOOKMARK:
            return found, answer.meta.revision
        # Whoever went on from amid it would never see the rest.
        assert not answer.meta.revision
        assert {event.type for event in answer.events} == {APPLIED}
        found += answer.events
    raise AssertionError("it ended")


def test_watch_with_send_initial_begins_with_the_state_up_to_a_bookmark(run):
    running = run()
    many = [pod(f"p{n:04}", "a1") for n in range(1200)]
    for at in range(0, 1200, 400):
        running.peer.apply(*many[at : at + 400])
    removed(running.peer, common_pb2.KIND_NODE, "b1")
    stream = opened(running.peer, send_initial=True)
    found, revision = initial(stream)
    nodes = {e.ref.name for e in found if e.ref.kind == common_pb2.KIND_NODE}
    pods = {e.object.pod.metadata.name for e in found if e.ref.kind == common_pb2.KIND_POD}
    assert nodes == {"a1", "a2"}
    assert pods == {"web-0", "web-1", "web-2", *(f"p{n:04}" for n in range(1200))}
    assert len(found) == len(nodes) + len(pods)
    after = running.peer.apply(pod("later", "a1"))
    answer = next(stream)
    assert (answer.events[0].ref.name, answer.meta.revision) == ("later", after)
    stream.cancel()
    again = opened(running.peer, revision=revision)
    assert next(events(again)).ref.name == "later"
    again.cancel()


def test_send_initial_has_only_the_requested_kinds(run):
    running = run()
    stream = opened(running.peer, kinds=[common_pb2.KIND_NODE], send_initial=True)
    found, _ = initial(stream)
    assert {event.object.node.metadata.name for event in found} == {"a1", "a2", "b1"}
    stream.cancel()


def test_send_initial_is_of_one_revision_while_others_write(run):
    """Objects of several ages would be told again, in an older form."""
    running = run()
    stop = threading.Event()

    def write():
        number = 0
        while not stop.is_set():
            number += 1
            running.peer.apply(
                pod("first", f"a{number % 2 + 1}"), pod("last", f"a{number % 2 + 1}")
            )

    with ThreadPoolExecutor(1) as writing:
        done = writing.submit(write)
        try:
            for _ in range(20):
                stream = opened(running.peer, kinds=[common_pb2.KIND_POD], send_initial=True)
                found, _ = initial(stream)
                stream.cancel()
                on = {e.ref.name: e.object.pod.spec.node_name for e in found}
                assert on.get("first") == on.get("last")
        finally:
            stop.set()
        done.result(PATIENCE)


def test_send_initial_is_bounded_by_the_memory_of_lists(run):
    running = run(max_held_bytes=2 << 20)
    large = [pod(f"large-{n}", "a1") for n in range(300)]
    for one in large:
        one.pod.metadata.labels.update({f"label-{n}": "x" * 63 for n in range(60)})
    running.peer.apply(*large)
    stream = opened(running.peer, send_initial=True)
    with pytest.raises(grpc.RpcError):
        initial(stream)
    assert stream.code() is CODE.RESOURCE_EXHAUSTED
    # Other kinds are few; and what was refused keeps nothing any more.
    for _ in range(3):
        stream = opened(running.peer, kinds=[common_pb2.KIND_NODE], send_initial=True)
        assert len(initial(stream)[0]) == 3
        stream.cancel()


def test_reservations_are_watched(run):
    """A dashboard that does not see what is held shows nodes as free that are not."""
    running = run()
    places = placement_service_pb2_grpc.PlacementServiceStub(running.peer.channel)
    stream = opened(running.peer, revision=running.revision, kinds=[common_pb2.KIND_RESERVATION])
    wanted = pod_from_manifest(incoming())
    wanted.metadata.uid = "u-1"
    asked = placement_pb.PlacePodRequest(pod=common_pb2.PodSource(object=wanted))
    placed = places.PlacePod(asked, timeout=PATIENCE)
    held = next(event for event in events(stream) if event.type == APPLIED)
    assert (held.ref.kind, held.ref.name, held.ref.uid) == (
        common_pb2.KIND_RESERVATION,
        "incoming",
        "u-1",
    )
    assert held.object.reservation.node == placed.node == "b1"
    assert held.object.reservation.reservation_id == placed.reservation_id
    assert held.ref.resource_version == placed.reservation_id
    assert held.object.reservation.expire_time == placed.expire_time
    listed, _ = initial(
        opened(running.peer, kinds=[common_pb2.KIND_RESERVATION], send_initial=True)
    )
    assert [event.object for event in listed] == [held.object]
    bound = pod("incoming", "b1")
    bound.pod.metadata.uid = "u-1"
    running.peer.apply(bound)
    gone = next(event for event in events(stream) if event.type == DELETED)
    assert gone.ref == held.ref
    stream.cancel()


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        ({"kinds": [99]}, "kinds[0]"),
        ({"kinds": [1, 8]}, "kinds[1]"),
        ({"revision": "nowhere"}, "revision"),
        ({"revision": "nowhere", "send_initial": True}, "revision"),
    ],
)
def test_invalid_watch_is_refused(unchanged, wrong, field):
    stream = opened(unchanged, **wrong)
    with pytest.raises(grpc.RpcError) as failed:
        next(stream)
    assert stream.code() is CODE.INVALID_ARGUMENT
    assert error_status(failed.value).paths == [field]


def test_watch_ends_when_its_caller_is_gone(run):
    running = run()
    stream = watch(running)
    stream.cancel()
    until(lambda: running.server.pools.executors["streams"].busy == 0, "the thread is given back")
    assert value(running.metrics(), "topospread_calls_total", method=WATCH, code="CANCELLED") == 1


def test_watch_ends_when_its_connection_is_gone(run):
    running = run()
    with Peer(running.server.address) as other:
        next_change = other.state.WatchObjects(
            state_pb.WatchObjectsRequest(revision=running.revision)
        )
        running.peer.apply(pod("first", "a1"))
        next(next_change)
    until(lambda: running.server.pools.executors["streams"].busy == 0, "the thread is given back")


def test_watch_ends_with_its_deadline(run):
    running = run()
    streams = running.server.pools.executors["streams"]
    stream = expired(
        lambda seconds: running.peer.state.WatchObjects(
            state_pb.WatchObjectsRequest(), timeout=seconds
        ),
        lambda: streams.arrived > 0,
    )
    assert stream.code() is CODE.DEADLINE_EXCEEDED
    until(lambda: streams.busy == 0, "the thread is given back")
    until(lambda: running.expired_calls(WATCH), "it is counted")


def test_watch_ends_with_the_server_and_does_not_delay_it():
    with served(shutdown_grace_period="10m") as server, Peer(server.address) as peer:
        revision = peer.apply(*two_zones())
        streams = [
            peer.state.WatchObjects(state_pb.WatchObjectsRequest(revision=revision))
            for _ in range(5)
        ]
        peer.apply(pod("first", "a1"))
        for stream in streams:
            next(stream)
        server.stop()
        for stream in streams:
            with pytest.raises(grpc.RpcError):
                next(stream)
            assert stream.code() is CODE.UNAVAILABLE
            assert "going away" in stream.details()


def test_watch_ends_with_its_cluster(run):
    running = run()
    stream = watch(running)
    dropped = state_pb.DeleteClusterRequest(cluster="default")
    running.peer.state.DeleteCluster(dropped, timeout=PATIENCE)
    with pytest.raises(grpc.RpcError):
        next(stream)
    assert stream.code() is CODE.OUT_OF_RANGE


def test_open_watches_leave_no_thread_behind():
    with threads_end():
        with served() as server, Peer(server.address) as peer:
            peer.apply(*two_zones())
            streams = [peer.state.WatchObjects(state_pb.WatchObjectsRequest()) for _ in range(3)]
            until(lambda: server.pools.executors["streams"].busy == 3, "they are open")
        del streams
