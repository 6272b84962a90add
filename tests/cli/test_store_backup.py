"""Stores that are backed up, restored and checked, beside servers and without."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from pathlib import Path

import pytest

from tests.apiserver.server import ApiServer
from tests.cli.manifests import CLUSTER
from tests.servers import served
from tests.transports.kubernetes.syncing import pod, small_cluster, synced
from tests.waiting import until
from topospread.app.stores import open_store
from topospread_client import Client, RevisionUnavailable

OBJECTS = 6


@pytest.fixture
def file(tmp_path):
    return tmp_path / "backup.gz"


@pytest.fixture(params=["sqlite", "redis"])
def store(request, tmp_path):
    if request.param == "redis":
        return request.getfixturevalue("redis_url")
    return f"sqlite://{tmp_path}/state.db"


@pytest.fixture
def server(store, monkeypatch):
    """A server on the store, which the command finds."""
    with served(store=store) as running:
        monkeypatch.setenv("TOPOSPREAD_STORE", store)
        monkeypatch.setenv("TOPOSPREAD_ADDRESS", running.address)
        monkeypatch.setenv("TOPOSPREAD_CLUSTER", "shop")
        yield running


@pytest.fixture
def loaded(bare, server):
    """The command, with the cluster written."""
    assert bare("apply", "-f", "-", stdin=CLUSTER).code == 0
    return bare


def names(bare):
    """What the server has."""
    kinds = ("nodes", "pods", "workloads")
    return [line for kind in kinds for line in bare("get", kind, "-o", "name").lines]


def contents(address):
    """The clusters of a store, and what is in them."""
    store = open_store(address, {})
    try:
        return {
            name: {each.key: each for page in store.scan(name) for each in page}
            for name in store.clusters()
        }
    finally:
        store.close()


def test_a_running_server_answers_from_what_was_restored(loaded, server, file):
    before = names(loaded)
    with Client(server.address, cluster="shop") as client:
        revision = client.get_node_table().revision
        assert loaded("store", "backup", file).code == 0
        assert loaded("delete", "node", "a1").code == 0
        refused = loaded("store", "restore", file)
        assert (refused.code, "shop already" in refused.err) == (2, True)
        assert len(names(loaded)) == OBJECTS - 1
        said = loaded("store", "restore", file, "--replace")
        assert (said.code, said.lines[1].split()[:2]) == (0, ["shop", str(OBJECTS)])
        until(lambda: names(loaded) == before, "the server has loaded it")
        until(lambda: len(client.get_node_table().node_names) == 3, "decisions, too")
        with pytest.raises(RevisionUnavailable):
            list(client.watch_objects(revision=revision))
    assert loaded("apply", "-f", "-", stdin=CLUSTER).code == 0


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_a_lost_cluster_is_restored_and_taken_for_intended(loaded, redis_server, file):
    assert loaded("evaluate", "shop/web-0").code in {0, 1}
    assert loaded("store", "backup", file).code == 0
    with redis_server.client() as redis:
        redis.flushall()
    until(lambda: "store changed" in loaded("status").out, "the server has found out")
    assert loaded("store", "restore", file).code == 0
    until(lambda: "store changed" not in loaded("status").out, "the server has found out")
    assert loaded("apply", "-f", "-", stdin=CLUSTER).code == 0


def test_a_backup_moves_clusters_to_another_kind_of_store(loaded, store, file, tmp_path, redis_url):
    loaded("apply", "-f", "-", "--cluster", "other", stdin=CLUSTER)
    assert loaded("store", "backup", file).code == 0
    before = contents(store)
    other = redis_url if store.startswith("sqlite") else f"sqlite://{tmp_path}/other.db"
    said = loaded("store", "restore", file, "--store", other, "--cluster", "other", "-o", "json")
    (restored,) = json.loads(said.out)["clusters"]
    assert (restored["name"], restored["objectCount"]) == ("other", OBJECTS)
    assert contents(other) == {"other": before["other"]}
    assert loaded("store", "restore", file, "--store", other, "--cluster", "shop").code == 0
    assert contents(other) == before
    assert loaded("store", "check", "--store", other).code == 0


def cut(path):
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text[: text.rindex(b"\n", 0, -1) + 1]))


def cut_amid(path):
    path.write_bytes(path.read_bytes()[:-20])


def altered(path):
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text.replace(b"1//a1", b"1//a9")))


def foreign(path):
    path.write_text("apiVersion: v1\n")


def foreign_zip(path):
    path.write_bytes(gzip.compress(b'{"kind": "List"}\n'))


def newer(path):
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text.replace(b'"formatVersion":1', b'"formatVersion":2')))


def prolonged(path):
    text = gzip.decompress(path.read_bytes())
    path.write_bytes(gzip.compress(text + b'["1//x","AA=="]\n'))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (cut, "was cut"),
        (cut_amid, "was cut"),
        (altered, "was altered"),
        (prolonged, "was altered"),
        (foreign, "no backup of topospread"),
        (foreign_zip, "no backup of topospread"),
        (newer, "this version reads 1"),
    ],
)
def test_nothing_is_written_from_a_file_that_is_no_whole_backup(bare, tmp_path, file, damage, said):
    here, there = f"sqlite://{tmp_path}/state.db", f"sqlite://{tmp_path}/other.db"
    with served(store=here) as server:
        assert bare("apply", "-f", "-", "--address", server.address, stdin=CLUSTER).code == 0
    assert bare("store", "backup", file, "--store", here).code == 0
    damage(file)
    result = bare("store", "restore", file, "--store", there)
    assert (result.code, result.out) == (2, "")
    assert said in result.err
    assert not (tmp_path / "other.db").exists()


def test_a_backup_replaces_no_file_unless_that_is_said(bare, tmp_path, file):
    store = f"sqlite://{tmp_path}/state.db"
    open_store(store, {}).close()
    file.write_text("precious")
    assert bare("store", "backup", file, "--store", store).code == 2
    assert file.read_text() == "precious"
    assert bare("store", "backup", file, "--store", store, "--overwrite").code == 0
    assert gzip.decompress(file.read_bytes()).startswith(b'{"kind":"TopospreadBackup"')
    assert {each.name for each in tmp_path.iterdir()} == {"backup.gz", "state.db"}


@pytest.fixture
def small_store(tmp_path):
    """Options for a store without clusters."""
    store = f"sqlite://{tmp_path}/state.db"
    open_store(store, {}).close()
    return ("--store", store)


def test_a_backup_is_for_its_owner_alone(bare, small_store, file):
    file.touch(0o644)
    assert bare("store", "backup", file, *small_store, "--overwrite").code == 0
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_link_to_a_backup_stays_one(bare, tmp_path, small_store, file):
    link = tmp_path / "newest.gz"
    link.symlink_to(file.name)
    for option in ((), ("--overwrite",)):
        assert bare("store", "backup", link, *small_store, *option).code == 0
        assert link.is_symlink()
        assert gzip.decompress(file.read_bytes()).startswith(b'{"kind":"TopospreadBackup"')


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_a_backup_replaces_no_pipe_device_or_folder(bare, small_store, file, make):
    make(file)
    before = file.stat()
    said = bare("store", "backup", file, *small_store, "--overwrite")
    assert (said.code, "no regular file" in said.err) == (2, True)
    assert file.stat().st_ino == before.st_ino


def test_a_backup_that_cannot_be_written_is_named_and_leaves_nothing(bare, tmp_path, small_store):
    missing = tmp_path / "missing" / "backup.gz"
    said = bare("store", "backup", missing, *small_store)
    assert (said.code, said.err) == (
        2,
        f"topospread: {missing}: cannot be written: No such file or directory\n",
    )


def test_a_backup_is_not_written_to_stdout(bare, tmp_path, monkeypatch, small_store):
    monkeypatch.chdir(tmp_path)
    said = bare("store", "backup", "-", *small_store)
    assert (said.code, said.out, "name a file" in said.err) == (2, "", True)
    assert [each.name for each in tmp_path.iterdir()] == ["state.db"]


@pytest.mark.parametrize("verb", ["backup", "check"])
def test_a_copy_of_a_running_servers_file_is_not_passed_in_silence(bare, tmp_path, file, verb):
    with served(store=f"sqlite://{tmp_path}/state.db") as server:
        assert bare("apply", "-f", "-", "--address", server.address, stdin=CLUSTER).code == 0
        (tmp_path / "copy.db").write_bytes((tmp_path / "state.db").read_bytes())
    names = [file] if verb == "backup" else []
    said = bare("store", verb, *names, "--store", f"sqlite://{tmp_path}/copy.db")
    assert (said.code, "holds no cluster" in said.err) == (0, True)


@pytest.mark.parametrize("verb", [("backup", "b.gz"), ("check",)])
def test_a_file_that_is_not_there_is_not_made(bare, tmp_path, verb):
    said = bare("store", *verb, "--store", f"sqlite://{tmp_path}/none.db")
    assert (said.code, "is not there" in said.err) == (2, True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("verb", [("backup", "b.gz"), ("check",)])
def test_a_store_that_cannot_be_looked_for_is_named(bare, tmp_path, verb):
    said = bare("store", *verb, "--store", f"sqlite://{tmp_path}/{'a' * 300}")
    assert said.code == 2
    assert said.err.startswith(f"topospread: --store: {tmp_path}/aaa")
    assert said.err.endswith(": File name too long\n")


@pytest.mark.parametrize("form", ["json", "table", "name"])
def test_a_sound_store_is_checked_beside_its_server(loaded, form):
    said = loaded("store", "check", "-o", form)
    assert (said.code, said.err) == (0, "")
    assert "shop" in said.out


def test_a_cluster_that_is_not_there_is_a_mistake(loaded, file):
    assert loaded("store", "backup", file, "--cluster", "none").code == 2
    assert not file.exists()


DAMAGES = {
    "an object that is gone": ("DELETE FROM object WHERE name = 'a1'", "1//a1 is gone"),
    "an older object": (
        "UPDATE object SET value = (SELECT value FROM object WHERE name = 'a2') WHERE name = 'a1'",
        "another than the log says",
    ),
    "a value that is none": ("UPDATE object SET value = x'ff' WHERE name = 'a1'", "cannot be read"),
    "a gap in the log": ("DELETE FROM log WHERE number = 2", "log lacks what came"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_named(bare, tmp_path, file, damage):
    path = tmp_path / "state.db"
    store = ("--store", f"sqlite://{path}")
    with served(store=store[1]) as server:
        to = ("--address", server.address)
        others = [
            f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\n" for name in ("c", "d")
        ]
        for manifest in (CLUSTER, *others):
            assert bare("apply", "-f", "-", *to, stdin=manifest).code == 0
    statement, said = DAMAGES[damage]
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    result = bare("store", "check", *store)
    assert result.code == 1
    assert said in result.err
    (checked,) = json.loads(bare("store", "check", *store, "-o", "json").out)["clusters"]
    assert any(said in problem for problem in checked["problems"])


def test_a_value_that_cannot_be_read_is_named_and_left_out_of_the_backup(bare, tmp_path, file):
    path = tmp_path / "state.db"
    store = ("--store", f"sqlite://{path}")
    with served(store=store[1]) as server:
        bare("apply", "-f", "-", "--address", server.address, stdin=CLUSTER)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE object SET value = x'ff' WHERE name = 'a1'")
    connection.close()
    said = bare("store", "backup", file, *store)
    assert (said.code, "1//a1 cannot be read" in said.err) == (1, True)
    assert bare("store", "restore", file, *store, "--replace").code == 0
    assert bare("store", "check", *store).code == 0


@pytest.mark.parametrize("store", ["redis"], indirect=True)
def test_entries_that_are_gone_from_redis_are_named(loaded, redis_server):
    with redis_server.client() as redis:
        redis.hdel("ts:{shop}:node", "a1")
    said = loaded("store", "check")
    assert (said.code, "gone from Redis" in said.err) == (1, True)


def test_a_leader_lists_a_restored_cluster_anew(bare, store, file, tmp_path):
    objects = small_cluster()
    with ApiServer(objects) as api, synced(tmp_path, api, store=store) as (state, server):
        until(lambda: server.ready()[0], "all kinds listed")
        assert bare("store", "backup", file, "--store", store).code == 0
        objects.remove("Pod", "web-0", "default")
        objects.put(pod("web-2", "a2"))
        until(lambda: set(state.pods()) == {"web-1", "web-2"}, "watched")
        assert bare("store", "restore", file, "--store", store, "--replace").code == 0
        until(lambda: set(state.pods()) == {"web-1", "web-2"}, "listed anew")
