"""Streams whose callers send no message give way, and do not delay the server's stop."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.telemetry.expositions import value
from tests.waiting import PATIENCE, until
from topospread_proto.v1 import cluster_state_service_pb2 as pb

if TYPE_CHECKING:
    from tests.rpc.conftest import Running

WATCH = "/topospread.v1.ClusterStateService/WatchObjects"


@pytest.fixture
def running(monkeypatch, run) -> Running:
    # A stream that has not said anything is late at once.
    monkeypatch.setattr("topospread.calls.memory.READ_SECONDS", 0.0)
    monkeypatch.setattr("topospread.app.factories.MAX_STREAMS", 2)
    made: Running = run(shutdown_grace_period="10m")
    return made


def test_silent_stream_is_ended_for_others(running):
    streams, peer = running.server.pools.executors["streams"], running.peer
    request = pb.WatchObjectsRequest(send_initial=True)
    watch = peer.state.WatchObjects(request)
    next(watch)
    silent = peer.silent_call(WATCH)
    until(silent.done, "it is ended")
    assert silent.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    labels = {"method": "ClusterStateService/WatchObjects", "code": "RESOURCE_EXHAUSTED"}
    until(lambda: value(running.metrics(), "topospread_calls_total", **labels), "it is counted so")
    until(lambda: streams.busy == 1, "there is room")
    other = peer.state.WatchObjects(request)
    next(other)
    assert watch.is_active()
    other.cancel()
    watch.cancel()


def test_silent_stream_does_not_delay_the_servers_stop(running):
    silent = running.peer.silent_call(WATCH)
    running.server.stop()
    assert silent.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


def test_stream_that_idles_between_questions_does_not_delay_the_servers_stop(run):
    running = run(shutdown_grace_period="10m")
    asked = threading.Event()
    question = reflection_pb2.ServerReflectionRequest(list_services="")

    def questions():
        yield question
        asked.wait(PATIENCE)

    stub: Any = reflection_pb2_grpc.ServerReflectionStub(running.peer.channel)
    answers = stub.ServerReflectionInfo(questions())
    next(answers)
    running.server.stop()
    assert answers.code() is grpc.StatusCode.UNAVAILABLE
    asked.set()


def test_watch_outlives_the_default_deadline_of_a_call(running, monkeypatch):
    monkeypatch.setattr("topospread.calls.pipeline.DEFAULT_DEADLINE", 0.0)
    watch = running.peer.state.WatchObjects(pb.WatchObjectsRequest(send_initial=True))
    next(watch)
    watch.cancel()
