"""A server beside a newer one on one store: it serves what it understands, and spoils nothing."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

import grpc
import pytest
import redis

from tests.servers import Peer, at_least, evaluate_request, incoming, node, pod, served, two_zones
from tests.store.backends import RedisBackend, SqliteBackend, follow_all, objects
from tests.store.conftest import SETTINGS
from tests.waiting import PATIENCE, until
from topospread.codec.stored import stored
from topospread.errors import StoreUnavailable
from topospread.generated.internal.v1.stored_pb2 import StoredReservation
from topospread.replica.view import Token
from topospread.store.model import Key, Kind, Put, StoredObject
from topospread.store.values import FORMAT
from topospread_client import object_from_manifest, pod_from_manifest
from topospread_proto.v1 import cluster_state_service_pb2 as pb
from topospread_proto.v1 import common_pb2, placement_service_pb2, placement_service_pb2_grpc

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.store.backends import Backend
    from topospread.store.api import Store
    from topospread.store.model import Applied

CLUSTER = "default"
NEW = b"\xfa\xff\x01\x03new"
"""Field 4095 of a message, which no message has by now."""

WORKLOAD = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}},
}
RESERVED = Key(Kind.RESERVATION, "default", "held")
"""A place on a2, for a pod that counts."""


class Place(Protocol):
    """Where a store is.

    Attributes:
        backend: opens stores there.
    """

    backend: Backend

    def content(self) -> object:
        """Everything that is there, to be compared."""


class File:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.backend: Backend = SqliteBackend(f"sqlite://{path}")

    def content(self) -> object:
        with closing(sqlite3.connect(self.path)) as connection:
            return [*connection.iterdump()]


class Redis:
    def __init__(self, url: str) -> None:
        self._url = url
        self.backend: Backend = RedisBackend(url)

    def content(self) -> object:
        with closing(redis.Redis.from_url(self._url)) as client:
            read: dict[bytes | str, Callable[[bytes], object]] = {
                b"hash": client.hgetall,
                b"zset": lambda name: client.zrange(name, 0, -1, withscores=True),
                b"stream": client.xrange,
            }
            return {name: read[client.type(name)](name) for name in client.scan_iter()}


@pytest.fixture(params=["sqlite", "redis"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """An empty place of each kind."""
    if request.param == "sqlite":
        return File(tmp_path / "state.db")
    return Redis(request.getfixturevalue("redis_url"))


@pytest.fixture
def running(place):
    """A server of today, and the place where its store is."""
    with served(store=place.backend.url) as server, Peer(server.address) as peer:
        yield peer


@pytest.fixture
def newer(place):
    """The store as a newer server has it open."""
    store = place.backend.open(SETTINGS)
    yield store
    store.close()


def extended(object_: pb.ClusterObject) -> Put:
    """An object as a newer version writes it: with fields of its own at the top and below."""
    kept = stored(object_)
    metadata = b"\x0a" + bytes([len(NEW)]) + NEW
    return Put(replace(kept, payload=kept.payload + metadata + NEW))


def write(newer: Store) -> Applied:
    """Objects of several kinds, and a reservation."""
    workload = object_from_manifest(WORKLOAD)
    assert workload is not None
    held = StoredReservation(node="a2", labels={"app": "web"}).SerializeToString() + NEW
    reservation = Put(StoredObject(RESERVED, held, b"12345678"), lifetime=3_600_000)
    return newer.apply(CLUSTER, [*map(extended, [*two_zones(), workload]), reservation])


def token(applied: Applied) -> str:
    return Token(applied.identity, applied.revision).encode()


def judged(peer: Peer, revision: str = "") -> tuple[int, list[str]]:
    """How many nodes pass, and the best ones."""
    more = {"consistency": at_least(revision)} if revision else {}
    answer = peer.evaluate(top_k=3, **more)
    return answer.feasible_node_count, [each.node for each in answer.top_nodes]


def reservations(peer: Peer) -> list[str]:
    stub: Any = placement_service_pb2_grpc.PlacementServiceStub(peer.channel)
    request = placement_service_pb2.ListReservationsRequest()
    return [each.pod.name for each in stub.ListReservations(request, timeout=PATIENCE).reservations]


@pytest.mark.parametrize("first", ["followed", "loaded"])
def test_fields_of_a_newer_version_are_shown_and_change_no_decision(place, newer, first):
    revision = token(write(newer)) if first == "loaded" else ""
    with served(store=place.backend.url) as server, Peer(server.address) as peer:
        if first == "followed":
            peer.apply(node("other", "c"))
            write(newer)
            removed = pb.ObjectReference(kind=common_pb2.KIND_NODE, name="other")
            answer = peer.state.DeleteObjects(
                pb.DeleteObjectsRequest(objects=[removed]), timeout=PATIENCE
            )
            revision = answer.meta.revision
        assert judged(peer, revision) == (1, ["b1"])
        assert reservations(peer) == ["held"]
        for kind in (common_pb2.KIND_NODE, common_pb2.KIND_POD, common_pb2.KIND_REPLICA_SET):
            listed = peer.state.ListObjects(pb.ListObjectsRequest(kind=kind), timeout=PATIENCE)
            assert all(each.SerializeToString().count(NEW) == 2 for each in listed.objects), (
                "what this version does not know is passed on"
            )
        (status,) = peer.state.ListClusters(pb.ListClustersRequest(), timeout=PATIENCE).clusters
        assert (status.corrupt_count, status.pod_count, status.reservation_count) == (0, 3, 1)


def test_object_that_is_written_again_is_stored_as_this_version_stores_it(running, newer):
    """Nothing is read in order to be written: an object is as it was written last."""
    write(newer)
    kept = {each.key: each for each in map(stored, two_zones())}

    revision = running.apply(*two_zones())

    held = objects(newer, CLUSTER)
    assert {key: held[key].payload for key in kept} == {k: v.payload for k, v in kept.items()}
    assert judged(running, revision) == (1, ["b1"])
    # A place that is taken again is written as a whole, too; what is held on a2 passes no more.
    manifest = incoming()
    manifest["metadata"]["name"] = "held"
    request = placement_service_pb2.PlacePodRequest(
        pod=common_pb2.PodSource(object=pod_from_manifest(manifest))
    )
    stub: Any = placement_service_pb2_grpc.PlacementServiceStub(running.channel)
    assert stub.PlacePod(request, timeout=PATIENCE).node == "b1"
    assert NEW not in objects(newer, CLUSTER)[RESERVED].payload


# ------------------------------ what the store is made of


def extend_file(path: Any) -> None:
    """What a newer version may add to a file: tables, columns that have a default, kinds."""
    with closing(sqlite3.connect(path)) as connection, connection:
        tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        for (name,) in tables.fetchall():
            connection.execute(f"ALTER TABLE {name} ADD COLUMN newer TEXT NOT NULL DEFAULT 'x'")
        connection.execute("CREATE TABLE newest (name TEXT)")
        row = connection.execute("SELECT id, number, tag FROM cluster").fetchone()
        connection.execute(
            "INSERT INTO object (cluster, kind, namespace, name, value, due) "
            "VALUES (?, 99, 'n', 'x', ?, 0)",
            (row[0], b"newer"),
        )
        name, value = b"=99/n/x", b"newer"
        entries = len(name).to_bytes(2, "big") + len(value).to_bytes(4, "big") + name + value
        connection.execute(
            "INSERT INTO log (cluster, number, tag, previous, entries) VALUES (?, ?, 'new', ?, ?)",
            (row[0], row[1] + 1, row[2], entries),
        )
        connection.execute("UPDATE cluster SET number = number + 1, tag = 'new'")


def extend_redis(client: Any) -> None:
    """The same for a Redis: keys, fields of the meta and of the log, kinds."""
    meta, log = f"ts:{{{CLUSTER}}}:meta", f"ts:{{{CLUSTER}}}:log"
    number, tag = client.hmget(meta, "number", "tag")
    client.hset(meta, mapping={"newer": "x", "number": int(number) + 1, "tag": "new"})
    client.hset(f"ts:{{{CLUSTER}}}:object", "99/n/x", "newer")
    client.zadd(f"ts:{{{CLUSTER}}}:names", {"99\0n\0x": 0})
    client.hset(f"ts:{{{CLUSTER}}}:newest", "x", "newer")
    fields = {"t": "new", "p": tag, "=99/n/x": "newer", "newer": "x"}
    client.xadd(log, fields, id=f"{int(number) + 1}-0")


def extend(place: Place) -> None:
    if isinstance(place, File):
        extend_file(place.path)
        return
    with closing(redis.Redis.from_url(place.backend.url)) as client:
        extend_redis(client)


def test_additions_of_a_newer_version_to_the_store_are_left_alone(place, running, newer):
    running.apply(*two_zones())
    before = newer.head(CLUSTER)
    extend(place)

    revision = running.apply(pod("web-3", "b1"))

    assert newer.head(CLUSTER).revision.number == before.revision.number + 2
    assert judged(running, revision)[0] == 3
    assert [len(each.entries) for each in follow_all(newer, CLUSTER)] == [6, 0, 1]
    # Nor does it trouble a server that begins with it, or one that drops the cluster.
    with served(store=place.backend.url) as server, Peer(server.address) as peer:
        assert judged(peer, revision)[0] == 3
        (status,) = peer.state.ListClusters(pb.ListClustersRequest(), timeout=PATIENCE).clusters
        assert (status.corrupt_count, status.pod_count) == (0, 4)
        peer.state.DeleteCluster(pb.DeleteClusterRequest(cluster=CLUSTER), timeout=PATIENCE)
        peer.apply(*two_zones())
        assert judged(peer) == (1, ["b1"])


# ------------------------------ another format


NEWER_FORMAT = FORMAT + 1


def bring_to_newer_format(place: Place) -> None:
    if isinstance(place, File):
        with closing(sqlite3.connect(place.path)) as connection:
            connection.execute(f"PRAGMA user_version = {NEWER_FORMAT}")
        return
    with closing(redis.Redis.from_url(place.backend.url)) as client:
        client.hset(f"ts:{{{CLUSTER}}}:meta", "format", NEWER_FORMAT)


def test_a_server_under_which_the_format_changes_writes_no_more(place, running):
    running.apply(*two_zones())
    assert judged(running) == (1, ["b1"])
    bring_to_newer_format(place)
    before = place.content()
    reference = pb.ObjectReference(kind=common_pb2.KIND_NODE, name="a1")
    place_pod = placement_service_pb2.PlacePodRequest(
        pod=common_pb2.PodSource(object=pod_from_manifest(incoming()))
    )
    placement: Any = placement_service_pb2_grpc.PlacementServiceStub(running.channel)

    for call, request in (
        (running.state.ApplyObjects, pb.ApplyObjectsRequest(objects=[pod("p", "a1")])),
        (running.state.DeleteObjects, pb.DeleteObjectsRequest(objects=[reference])),
        (placement.PlacePod, place_pod),
        (running.state.DeleteCluster, pb.DeleteClusterRequest(cluster=CLUSTER)),
    ):
        with pytest.raises(grpc.RpcError, match="format") as refused:
            call(request, timeout=PATIENCE)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
    assert place.content() == before
    # It goes on deciding from what it has, and reports how old that is.
    assert judged(running) == (1, ["b1"])
    until(
        lambda: running.evaluate().meta.HasField("store_unreachable_for"),
        "it reports that it is stale",
    )


def test_every_call_to_a_store_of_another_format_is_refused(place, running, newer):
    running.apply(*two_zones())
    head = newer.head(CLUSTER)
    bring_to_newer_format(place)
    before = place.content()
    change = Put(StoredObject(Key(Kind.NODE, "", "x"), b"", b"12345678"))

    for call in (
        lambda: newer.head(CLUSTER),
        lambda: newer.get(CLUSTER, [Key(Kind.NODE, "", "a1")]),
        lambda: newer.scan(CLUSTER, Kind.NODE),
        lambda: newer.follow(CLUSTER, head.identity, head.revision, wait=0),
        lambda: newer.follow(CLUSTER, head.identity, head.revision, wait=0, limit=0),
        lambda: newer.apply(CLUSTER, [change]),
        lambda: newer.apply(CLUSTER, []),
        lambda: newer.lease(CLUSTER),
        lambda: newer.acquire(CLUSTER, "feeder", 1000),
        lambda: newer.drop(CLUSTER),
    ):
        with pytest.raises(StoreUnavailable, match=f"format {NEWER_FORMAT}, .*{FORMAT}; .*use the"):
            call()
    assert place.content() == before


def test_a_cluster_of_another_format_takes_no_other_with_it(redis_url, redis_server):
    with served(store=redis_url) as server, Peer(server.address) as peer:
        for cluster in ("default", "other"):
            peer.apply(*two_zones(), cluster=cluster)
    with redis_server.client() as client:
        client.hset("ts:{default}:meta", "format", NEWER_FORMAT)

    with served(store=redis_url) as server, Peer(server.address) as peer:
        assert peer.evaluate(cluster="other").feasible_node_count == 1
        with pytest.raises(grpc.RpcError, match=f"this version knows {FORMAT}") as refused:
            peer.engine.EvaluatePod(evaluate_request(), timeout=PATIENCE)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
