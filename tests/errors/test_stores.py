"""Errors that come from the store: unreachable, damaged, or with a trimmed log."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.errors.calls import NAMED, ask, refused
from tests.redis_server import RedisProcess
from tests.servers import Peer, evaluate_request, node, served, two_zones
from tests.waiting import PATIENCE, until
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as decision
from topospread_proto.v1 import placement_service_pb2 as placement

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

NODES = common.KIND_NODE


@pytest.fixture
def redis(redis_binary: Path, tmp_path: Path) -> Iterator[RedisProcess]:
    with RedisProcess(tmp_path, binary=redis_binary) as server:
        yield server


@pytest.fixture
def peer(redis: RedisProcess) -> Iterator[Peer]:
    """Of a server whose cluster of two zones is loaded."""
    with served(store=redis.url) as server, Peer(server.address) as peer:
        peer.await_revision(peer.apply(*two_zones()))
        yield peer


def test_damaged_value(redis, peer):
    with redis.client() as damaging:
        assert damaging.hset("ts:{default}:object", "1//a1", b"\x07damaged") == 0  # it was there
    request = state.GetObjectRequest(kind=NODES, name="a1")
    refused(peer.channel, NAMED["GetObject"], [request]).check("VALUE_CORRUPT")


def test_trimmed_log(redis, peer):
    old = newest = peer.apply(node("n-0", "a"))
    for number in range(1, 6):
        newest = peer.apply(node(f"n-{number}", "a"))
    with redis.client() as trimming:
        trimming.xtrim("ts:{default}:log", maxlen=2, approximate=False)

    found = refused(peer.channel, NAMED["WatchObjects"], [state.WatchObjectsRequest(revision=old)])
    found.check("REVISION_COMPACTED")

    oldest = found.metadata["oldestRevision"]
    watch = peer.state.WatchObjects(state.WatchObjectsRequest(revision=oldest), timeout=PATIENCE)
    seen: list[str] = []
    for answer in watch:
        seen += [event.object.node.metadata.name for event in answer.events]
        if answer.meta.revision == newest:
            break
    watch.cancel()
    assert seen == ["n-4", "n-5"]


def test_unreachable_store(redis, peer):
    pod = evaluate_request().pod
    newest = common.Consistency(fully_consistent=True)
    peer.evaluate()
    redis.kill()
    writes = {
        "ApplyObjects": state.ApplyObjectsRequest(objects=[node("n", "a")]),
        "GetObject": state.GetObjectRequest(kind=NODES, name="a1"),
        "PlacePod": placement.PlacePodRequest(pod=pod),
        "EvaluatePod": decision.EvaluatePodRequest(pod=pod, consistency=newest),
    }
    for name, request in writes.items():
        refused(peer.channel, NAMED[name], [request], timeout=PATIENCE).check("STORE_UNREACHABLE")

    instant = common.Consistency(max_staleness=Duration(nanos=1))
    request = decision.EvaluatePodRequest(pod=pod, consistency=instant)

    def stale() -> bool:
        with suppress(grpc.RpcError):
            ask(peer.channel, NAMED["EvaluatePod"], [request])
            return False
        return True

    until(stale, "it is noticed that the store is out of reach")
    refused(peer.channel, NAMED["EvaluatePod"], [request]).check("STATE_TOO_STALE")
