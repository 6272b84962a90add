"""Watch: what it tells, and when it ends."""

from __future__ import annotations

import grpc
import pytest

from tests.servers import (
    PATIENCE,
    Peer,
    at_least,
    expired,
    pod,
    served,
    threads_end,
    two_zones,
    until,
)
from tests.telemetry.expositions import value
from topospread_proto.v1 import cluster_state_pb2 as state_pb

CODE = grpc.StatusCode
WATCH = "ClusterState/Watch"


def watch(running, **more):
    stream = running.peer.state.Watch(
        state_pb.WatchRequest(revision=running.revision, **more), timeout=PATIENCE
    )
    running.peer.apply(pod("first", "a1"))
    assert next(stream).events[0].name == "first"
    return stream


def test_changes_come_in_order_with_the_revision_that_holds_them(run):
    running = run()
    stream = watch(running)
    revisions = [running.peer.apply(pod(f"p{number}", "a1")) for number in range(5)]
    answers = [next(stream) for _ in range(5)]
    assert [answer.revision for answer in answers] == revisions
    assert [answer.events[0].name for answer in answers] == [f"p{n}" for n in range(5)]
    assert running.peer.evaluate(consistency=at_least(answers[-1].revision)).feasible == 1
    stream.cancel()


def test_only_the_kinds_that_were_asked_for(run):
    running = run()
    stream = running.peer.state.Watch(
        state_pb.WatchRequest(revision=running.revision, kinds=[state_pb.KIND_NODE]),
        timeout=PATIENCE,
    )
    running.peer.apply(pod("p", "a1"))
    running.peer.apply(two_zones()[0], pod("q", "a1"))
    running.peer.state.Delete(
        state_pb.DeleteRequest(
            objects=[state_pb.ObjectReference(kind=state_pb.KIND_NODE, name="a1")]
        ),
        timeout=PATIENCE,
    )
    event = next(stream).events[0]
    assert (event.type, event.name) == (state_pb.WatchEvent.TYPE_DELETED, "a1")
    stream.cancel()


def test_it_ends_when_its_caller_is_gone(run):
    running = run()
    stream = watch(running)
    stream.cancel()
    until(lambda: running.server._pools.streams.busy == 0, "the thread is given back")
    assert value(running.metrics(), "topospread_calls_total", method=WATCH, code="CANCELLED") == 1


def test_it_ends_when_its_callers_connection_is_gone(run):
    running = run()
    with Peer(running.server.address) as other:
        next_change = other.state.Watch(state_pb.WatchRequest(revision=running.revision))
        running.peer.apply(pod("first", "a1"))
        next(next_change)
    until(lambda: running.server._pools.streams.busy == 0, "the thread is given back")


def test_it_ends_with_its_deadline(run):
    running = run()
    streams = running.server._pools.streams
    stream = expired(
        lambda seconds: running.peer.state.Watch(state_pb.WatchRequest(), timeout=seconds),
        lambda: streams._workers_made > 0,
    )
    assert stream.code() is CODE.DEADLINE_EXCEEDED
    until(lambda: streams.busy == 0, "the thread is given back")
    code = "DEADLINE_EXCEEDED"
    assert value(running.metrics(), "topospread_calls_total", method=WATCH, code=code)


def test_it_ends_with_the_server_and_does_not_hold_it_up():
    with served(grace="10m") as server, Peer(server.address) as peer:
        revision = peer.apply(*two_zones())
        streams = [peer.state.Watch(state_pb.WatchRequest(revision=revision)) for _ in range(5)]
        peer.apply(pod("first", "a1"))
        for stream in streams:
            next(stream)
        server.stop()
        for stream in streams:
            with pytest.raises(grpc.RpcError):
                next(stream)
            assert stream.code() is CODE.UNAVAILABLE
            assert "going away" in stream.details()


def test_it_ends_with_its_cluster(run):
    running = run()
    stream = watch(running)
    running.peer.state.DropCluster(state_pb.DropClusterRequest(), timeout=PATIENCE)
    with pytest.raises(grpc.RpcError):
        next(stream)
    assert stream.code() is CODE.OUT_OF_RANGE


def test_a_revision_of_nowhere_is_refused(run):
    stream = run().peer.state.Watch(state_pb.WatchRequest(revision="nowhere"), timeout=PATIENCE)
    with pytest.raises(grpc.RpcError):
        next(stream)
    assert stream.code() is CODE.INVALID_ARGUMENT


def test_open_watches_leave_no_thread_behind():
    with threads_end():
        with served() as server, Peer(server.address) as peer:
            peer.apply(*two_zones())
            streams = [peer.state.Watch(state_pb.WatchRequest()) for _ in range(3)]
            until(lambda: server._pools.streams.busy == 3, "they are open")
        del streams
