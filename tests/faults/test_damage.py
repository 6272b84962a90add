"""The log is trimmed under a slow follower; values are damaged; the disk is full."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from bench.campaigns.load import NEWEST, Load, counted_pods, pod, stored_pods, zones
from tests.processes import suspended
from tests.servers import incoming, start
from tests.waiting import until
from topospread_client import ServerFault, Unavailable

if TYPE_CHECKING:
    from pathlib import Path


def test_a_follower_that_the_log_has_outrun_loads_anew(two, durable, call):
    fast, slow = two
    call(fast).apply_objects([pod("before")])
    assert counted_pods(call(slow)) == 1

    revision = ""
    with suspended(slow.process.pid):
        for number in range(50):
            revision = call(fast).apply_objects([pod(f"meanwhile-{number}")]).meta.revision
        with durable.client() as redis:
            redis.xtrim("ts:{default}:log", maxlen=3, approximate=False)

    client = call(slow)
    until(lambda: seen(client, revision), "it has caught up")
    assert counted_pods(client) == 51
    late = call(fast).apply_objects([pod("late")]).meta.revision
    client.get_node_table(consistency=late)
    assert counted_pods(client) == 52


def seen(client, revision) -> bool:
    try:
        client.get_node_table(consistency=revision)
    except Unavailable:
        return False
    return True


def test_damaged_values_are_left_out_and_reported_and_the_rest_is_served(two, durable, serve, call):
    call(two[0]).apply_objects([pod(f"web-{number}") for number in range(10)])
    with durable.client() as redis:
        redis.hset("ts:{default}:object", "2/default/web-3", b"\x07damaged")
        redis.hset("ts:{default}:object", "1//n-b", b"\x00" * 9 + b"\x00\xff\xff\xff")
    late = serve(durable.url, "--http", "127.0.0.1:0")
    client = call(late)

    assert client.get_node_table(consistency=NEWEST).node_names == ["n-a", "n-c"]
    assert counted_pods(client) == 9
    (cluster,) = client.list_clusters()
    assert cluster.corrupt_count == 2
    assert 'topospread_corrupt_values{cluster="default"} 2.0' in late.get("/metrics")[1]
    assert len(stored_pods(client)) == 9
    with pytest.raises(ServerFault, match="write it anew"):
        client.get_object("POD", "web-3", namespace="default")

    call(two[0]).apply_objects([pod("web-3"), *zones()])
    assert client.get_node_table(consistency=NEWEST).node_names == ["n-a", "n-b", "n-c"]
    assert counted_pods(client) == 10


def test_damaged_values_are_logged_with_their_keys(durable, serve, call):
    first = serve(durable.url)
    call(first).apply_objects(zones())
    with durable.client() as redis:
        redis.hset("ts:{default}:object", "1//n-b", b"\x07damaged")
    with start(["--store", durable.url], {}, stderr=subprocess.PIPE) as late:
        assert late.stdout is not None
        assert late.stderr is not None
        assert "listens on" in late.stdout.readline()
        late.terminate()
        logged = late.stderr.read()
    assert "NODE /n-b is left out" in logged


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MB, in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0 or mounted(place, "size=3m"):
        pytest.skip("a file system can be mounted by root only, and not in every container")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def mounted(place: Path, options: str) -> int:
    """Exit code of mounting a file system there, or anew with other options."""
    command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
    return subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode


def test_full_disk_refuses_writes_until_there_is_space_again(small_disk, serve, call):
    path = small_disk / "state.db"
    client = call(serve(f"sqlite://{path}"))
    client.apply_objects([*zones(), pod("kept")])
    with pytest.raises(Unavailable, match="disk"):
        fill(client)
    before = stored_pods(client)
    with pytest.raises(Unavailable, match="disk"):
        client.apply_objects(big("refused"))
    assert stored_pods(client) == before >= {"kept"}
    assert counted_pods(client) == len(before)

    assert mounted(small_disk, "remount,size=30m") == 0
    client.apply_objects(big("welcome"))
    assert counted_pods(client) == len(before) + 20


def test_a_disk_quota_refuses_writes_and_keeps_what_there_is(tmp_path, serve, call):
    """The quota is that of the process: SQLite's files may not grow any more."""
    path = tmp_path / "state.db"
    server = serve(f"sqlite://{path}")
    client = call(server)
    client.apply_objects([*zones(), pod("kept")])
    assert counted_pods(client) == 1

    with Load([server.address], writers=0) as load:
        quota(server.process.pid, max(file.stat().st_size for file in files(path)))
        with pytest.raises(Unavailable, match="disk"):
            fill(client)
        before = stored_pods(client)
        for _ in range(3):
            with pytest.raises(Unavailable, match="disk"):
                client.apply_objects(big("refused"))
        assert stored_pods(client) == before
        assert "kept" in before
        assert not any(name.startswith("refused") for name in before)
        load.until_read()

        quota(server.process.pid, resource.RLIM_INFINITY)
        client.apply_objects(big("welcome"))
        assert counted_pods(client) == len(before) + 20
    assert load.unread == []
    server.end()
    again = call(serve(f"sqlite://{path}"))
    assert len(stored_pods(again)) == len(before) + 20


def fill(client) -> None:
    """Write until it is full."""
    for number in range(1000):
        client.apply_objects(big(f"filler-{number}"))


def big(name: str) -> list[dict[str, object]]:
    """Pods that need some pages."""
    return [pod(f"{name}-{n}", app="x" * 60) for n in range(20)]


def quota(pid: int, size: int) -> None:
    """How large files may grow by that process."""
    _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))


def files(path: Path) -> list[Path]:
    return [file for file in path.parent.iterdir() if file.name.startswith(path.name)]


def test_a_redis_without_memory_is_read_by_all_calls(two, durable, serve, call):
    client = call(two[0])
    client.place_pod(incoming(), reservation_ttl=1)
    before = client.apply_objects([pod("kept")]).meta.revision
    last = client.apply_objects([pod("other", node="n-b")]).meta.revision
    with durable.client() as redis:
        redis.config_set("maxmemory", "1")
        late = serve(durable.url)
        for server in (*two, late):
            reader = call(server)
            assert stored_pods(reader) == {"kept", "other"}
            assert reader.get_object("POD", "kept").object.pod.metadata.name == "kept"
            assert reader.evaluate_pod(incoming(), consistency=NEWEST).node_count
            assert counted_pods(reader) >= 2
            assert next(iter(reader.watch_objects(revision=before))).meta.revision == last
            assert reader.rank_deletions({"app": "load"}, delete_count=1).ranked_pod_count == 2
            assert reader.plan_rebalance().meta.revision
            (cluster,) = reader.list_clusters()
            assert (cluster.name, cluster.HasField("store_unreachable_for")) == ("default", False)
            with pytest.raises(Unavailable, match="out of memory"):
                reader.apply_objects([pod("refused")])
        # What is due cannot be ended, which is no reason to call the state old.
        tries = scripts_run(redis)
        while scripts_run(redis) < tries + 5:
            client.evaluate_pod(incoming(), consistency={"max_staleness": 0.0})
        redis.config_set("maxmemory", "0")
    until(lambda: counted_pods(client) == 2, "what was due has ended")


def scripts_run(redis) -> int:
    """How often a Redis was asked to write something."""
    return redis.info("commandstats")["cmdstat_evalsha"]["calls"]


@pytest.mark.parametrize(
    ("options", "code", "expected"),
    [
        ({"maxmemory-policy": "allkeys-lru"}, 2, "maxmemory-policy noeviction"),
        ({"maxmemory-policy": "noeviction"}, None, "runs without AOF"),
        ({"appendonly": "yes"}, None, ""),
    ],
)
def test_serve_warns_of_or_refuses_a_redis_that_may_lose_data(start_redis, options, code, expected):
    redis = start_redis(options=options)
    with start(["--store", redis.url], {}, stderr=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        line = server.stdout.readline()
        assert ("listens on" in line) is (code is None)
        server.terminate()
        logged = server.stderr.read()
    assert expected in logged
    assert "AOF" in logged if "AOF" in expected else "AOF" not in logged
    if code is not None:
        assert server.returncode == code
