"""Streams whose callers send no message give way, and do not delay the server's stop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from tests.waiting import until
from topospread_proto.v1 import cluster_state_service_pb2 as pb

if TYPE_CHECKING:
    from tests.transports.grpc.conftest import Running

WATCH = "/topospread.v1.ClusterStateService/WatchObjects"


@pytest.fixture
def running(monkeypatch, run) -> Running:
    # A stream that has not said anything is in the way at once.
    monkeypatch.setattr("topospread.threads.executor.SILENT_STREAM", 0.0)
    made: Running = run(max_streams=2, shutdown_grace_period="10m")
    return made


def test_silent_stream_gives_way_to_one_that_tries_again(running):
    pools, peer = running.server.pools, running.peer
    request = pb.WatchObjectsRequest(send_initial=True)
    watch = peer.state.WatchObjects(request)
    next(watch)
    silent = peer.silent_call(WATCH)
    until(lambda: pools.streams.busy == 2, "both are open")
    assert peer.state.WatchObjects(request).code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    until(silent.done, "it is refused")
    assert silent.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    until(lambda: pools.streams.busy == 1, "there is room")
    other = peer.state.WatchObjects(request)
    next(other)
    assert watch.is_active()
    other.cancel()
    watch.cancel()


def test_silent_stream_does_not_delay_the_servers_stop(running):
    silent = running.peer.silent_call(WATCH)
    until(lambda: running.server.pools.streams.busy == 1, "it is open")
    running.server.stop()
    assert silent.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


def test_watch_outlives_the_default_deadline_of_a_call(running, monkeypatch):
    monkeypatch.setattr("topospread.transports.grpc.handlers.DEFAULT_DEADLINE", 0.0)
    watch = running.peer.state.WatchObjects(pb.WatchObjectsRequest(send_initial=True))
    next(watch)
    watch.cancel()
