"""One of many servers leads, another succeeds it; a former leader's writes are refused."""

from __future__ import annotations

import json
import os
import platform
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from tests.apiserver.server import ApiServer
from tests.cli.processes import run
from tests.kubernetes.syncing import State, metric, node, pod, small_cluster, synced
from tests.servers import served
from tests.store.backends import CLUSTER
from tests.waiting import until
from topospread.app.stores import open_store
from topospread.errors import Fenced
from topospread.kubernetes.objects import RESOURCES, DeletedObject, decode_object
from topospread.kubernetes.sink import Sink
from topospread.replica.replicas import Replicas
from topospread.replica.state import ReplicaOptions
from topospread.service.state.write import StateWriter
from topospread.store.model import Key, Kind
from topospread_client import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.redis_server import RedisProcess
    from topospread.store.api import Store


def active(server: Any) -> bool:
    return metric(server, "topospread_sync_active") == 1


def is_ready(server: Any) -> bool:
    return bool(server.ready()[0])


def holder(state: State, cluster: str = "default") -> str:
    """Who syncs a cluster, as GetCluster tells."""
    found = state.client.get_cluster(cluster=cluster).cluster
    assert found.HasField("sync_lease") == bool(found.sync_lease.holder_identity)
    return found.sync_lease.holder_identity


def reported(server: Any) -> dict[str, str]:
    """Who syncs a cluster, as `status` prints it for programs, but for the moment."""
    said = run("status", "--address", server.address, "-o", "json")
    (cluster,) = json.loads(said.stdout)["clusters"]
    lease: dict[str, str] = cluster["syncLease"]
    assert lease.pop("expireTime").endswith("Z")
    return lease


def test_one_of_two_servers_syncs_and_the_other_takes_over(tmp_path: Path) -> None:
    objects = small_cluster()
    # Far longer than a busy machine may keep the first from renewing it.
    shared = {"store": f"sqlite://{tmp_path}/state.db", "sync_lease_duration": "9s"}
    with ApiServer(objects) as api, ExitStack() as first, ExitStack() as second:
        state, one = first.enter_context(synced(tmp_path, api, **shared))
        until(lambda: one.ready()[0], "the first leads")
        other_state, two = second.enter_context(synced(tmp_path, api, **shared))
        until(lambda: two.ready()[0], "the second answers from what the first listed")
        assert active(one)
        assert not active(two)
        leader = holder(state)
        assert leader.startswith(f"{platform.node()}_{os.getpid()}_")
        assert holder(other_state) == leader, "each server tells it"
        assert reported(two) == {"holderIdentity": leader}
        assert f" {leader} " in run("status", "--address", two.address).stdout
        assert api.lists("pods") == 1
        objects.put(pod("web-2", "b1"))
        until(lambda: "web-2" in other_state.pods(), "a change by way of the first")
        # Something goes while the first is still there, and something when nobody is.
        first.close()
        objects.remove("Pod", "web-0", "default")
        until(lambda: active(two), "the second leads")
        assert holder(other_state) not in ("", leader)
        until(lambda: set(other_state.pods()) == {"web-1", "web-2"}, "the deletion")
        second.close()
        with served(store=shared["store"]) as third, Client(third.address) as client:
            assert State(client).pods() == {"web-1": "b1", "web-2": "b1"}
            assert holder(State(client)) == ""


def test_servers_of_one_store_sync_a_cluster_each(
    tmp_path: Path, start_redis: Callable[..., RedisProcess]
) -> None:
    store = start_redis().url
    west = small_cluster()
    west.put(pod("web-west", "b1"))
    with ExitStack() as opened:
        states = {}
        for name, objects in (("east", small_cluster()), ("west", west)):
            (tmp_path / name).mkdir()
            api = opened.enter_context(ApiServer(objects))
            synced_here = synced(tmp_path / name, api, store=store, sync_cluster=name)
            states[name], server = opened.enter_context(synced_here)
            until(partial(is_ready, server), f"{name} is listed")
        # A server that reaches no API server answers about both.
        reading = opened.enter_context(served(store=store))
        client = opened.enter_context(Client(reading.address))
        newest = {"fully_consistent": True}
        pods = {name: len(list(client.list_objects("POD", cluster=name))) for name in states}
        assert pods == {"east": 2, "west": 3}
        found = {each.name: each.sync_lease.holder_identity for each in client.list_clusters()}
        assert found == {name: holder(state, name) for name, state in states.items()}
        assert len({*found.values()}) == 2
        west.put(pod("web-later", "b1"))
        until(
            lambda: client.get_cluster(cluster="west", consistency=newest).cluster.pod_count == 4,
            "a change of one cluster",
        )


@pytest.fixture(params=["sqlite", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    """An empty store of each backend."""
    of_redis = request.param == "redis"
    url = request.getfixturevalue("redis_url") if of_redis else f"sqlite://{tmp_path}/state.db"
    with closing(open_store(url, {})) as opened:
        yield opened


@pytest.fixture
def sinks(store: Store) -> Iterator[Callable[[str], Sink]]:
    """Sinks of servers of one store, by the holder of each."""
    with closing(Replicas(store, ReplicaOptions())) as replicas:
        yield lambda holder: Sink(StateWriter(store, replicas), store, CLUSTER, holder)


def test_a_leader_that_lost_the_lease_without_noticing_is_refused(
    store: Store, sinks: Callable[[str], Sink]
) -> None:
    resource = {one.kind: one for one in RESOURCES}[Kind.NODE]
    late = decode_object(resource, {**node("late"), "metadata": {"name": "late"}})
    gone = DeletedObject(Key(Kind.NODE, "", "a1"), "99999")
    former, present = sinks("former"), sinks("present")
    old = former.acquire(60)
    assert old > 0
    assert present.acquire(60) == 0
    former.replace(Kind.NODE, [late], "1", fence=old)
    former.release()
    new = present.acquire(60)
    assert new > old
    writes: list[Callable[[Sink, int], object]] = [
        lambda sink, fence: sink.write([late], [], observed={}, fence=fence),
        lambda sink, fence: sink.write([], [gone], observed={}, fence=fence),
        lambda sink, fence: sink.write([], [], observed={Kind.NODE: "99999"}, fence=fence),
        lambda sink, fence: sink.note_unknown(Kind.JOB, "no right", fence=fence),
        lambda sink, fence: sink.replace(Kind.NODE, [], "2", fence=fence),
    ]
    head = store.head(CLUSTER)
    for write in writes:
        with pytest.raises(Fenced, match="list again"):
            write(former, old)
    assert store.head(CLUSTER) == head
    former.release()  # which is nothing of its own any more
    for write in writes:
        write(present, new)


def test_a_former_leader_is_refused_also_where_nothing_would_be_written(
    store: Store, sinks: Callable[[str], Sink]
) -> None:
    """A list without changes of a cluster that is not there makes none."""
    sink = sinks("one")
    token = sink.acquire(60)
    for wrong in (token - 1, token + 1):
        with pytest.raises(Fenced):
            sink.write([], [], observed={}, fence=wrong)
    sink.write([], [], observed={}, fence=token)
    assert store.clusters() == []
