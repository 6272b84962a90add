"""The file of a SQLite store is removed or replaced while it is open: nothing is acknowledged."""

from __future__ import annotations

import os
import shutil
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from tests.store.backends import CLUSTER, node, objects, pod, put
from tests.store.conftest import SETTINGS
from tests.waiting import PATIENCE
from topospread.errors import IdentityChanged, RevisionUnavailable, StoreUnavailable
from topospread.store.sqlite.store import open_store
from topospread.store.urls import SqliteURL

if TYPE_CHECKING:
    from pathlib import Path

    from topospread.store.sqlite.store import SqliteStore

SIDES = ("", "-wal", "-shm")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "in use" / "100% state?.db"


@pytest.fixture
def opened():
    """Opens stores, and closes them at the end."""
    stores: list[SqliteStore] = []

    def one(path: Path) -> SqliteStore:
        stores.append(open_store(SqliteURL(str(path)), SETTINGS))
        return stores[-1]

    yield one
    for store in stores:
        store.close()


@pytest.fixture
def store(opened, path):
    store = opened(path)
    store.apply(CLUSTER, [put(pod("first")), put(node())])
    return store


def beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)


def remove(path: Path) -> None:
    for suffix in SIDES:
        beside(path, suffix).unlink()


def another(path: Path, *names: str) -> Path:
    """Another store's file, closed, with pods of these names."""
    made = path.parent.parent / "other.db"
    store = open_store(SqliteURL(str(made)), SETTINGS)
    store.apply(CLUSTER, [put(pod(name)) for name in names])
    store.close()
    return made


def names(store: SqliteStore) -> set[str]:
    return {key.name for key in objects(store)}


def content(path: Path) -> set[str]:
    """What a file holds by itself, and that it is whole; read from a copy."""
    copy = path.parent / "copy.db"
    shutil.copy(path, copy)
    with sqlite3.connect(copy) as reader:
        assert reader.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = {name for (name,) in reader.execute("SELECT name FROM object")}
    reader.close()
    copy.unlink()
    return found


def test_removed_file_is_neither_written_nor_read(store, path):
    remove(path)

    for ask in (
        lambda: store.apply(CLUSTER, [put(pod("lost"))]),
        lambda: store.apply(CLUSTER, []),
        lambda: store.lease(CLUSTER, "feeder", 1000),
        lambda: store.drop(CLUSTER),
        lambda: store.head(CLUSTER),
        lambda: objects(store),
        store.ping,
    ):
        with pytest.raises(StoreUnavailable, match="put it back, or restart"):
            ask()
    assert list(path.parent.iterdir()) == [], "no file is made in its place"


@pytest.mark.parametrize("whole", [False, True], ids=["files", "directory"])
def test_file_moved_away_and_back_is_the_same(store, path, whole):
    identity, elsewhere = store.head(CLUSTER).identity, path.parent.with_name("elsewhere")
    if whole:
        path.parent.rename(elsewhere)
    else:
        elsewhere.mkdir()
        for suffix in SIDES:
            beside(path, suffix).rename(beside(elsewhere / path.name, suffix))
    with pytest.raises(StoreUnavailable):
        store.apply(CLUSTER, [put(pod("lost"))])

    for suffix in () if whole else SIDES:
        beside(elsewhere / path.name, suffix).rename(beside(path, suffix))
    if whole:
        elsewhere.rename(path.parent)
    store.apply(CLUSTER, [put(pod("second"))], identity=identity)
    assert names(store) == {"first", "node-1", "second"}


@pytest.mark.parametrize("left", [False, True], ids=["alone", "with the old log beside it"])
def test_another_file_is_another_identity(store, opened, path, left):
    identity = store.head(CLUSTER).identity
    other = another(path, "theirs")
    aside = path.with_name("aside.db")
    path.rename(aside)
    if not left:
        beside(path, "-wal").unlink()
        beside(path, "-shm").unlink()
    other.rename(path)

    with pytest.raises(IdentityChanged):
        store.apply(CLUSTER, [put(pod("lost"))], identity=identity)
    with pytest.raises(IdentityChanged):
        store.follow(CLUSTER, identity, store.head(CLUSTER).revision, wait=0)
    assert names(store) == {"theirs"}
    # Whoever means the file that is there now writes into that one.
    store.apply(CLUSTER, [put(pod("ours"))], identity=store.head(CLUSTER).identity)
    store.close()
    assert content(path) == {"theirs", "ours"}
    assert names(opened(path)) == {"theirs", "ours"}
    if left:
        assert content(aside) == {"first", "node-1"}, "the old file got what its log had"


def test_a_restored_backup_is_followed_by_its_tags(store, opened, path):
    head = store.head(CLUSTER)
    backup = path.parent.parent / "backup.db"
    with sqlite3.connect(path) as source, sqlite3.connect(backup) as target:
        source.backup(target)
    source.close()
    target.close()
    lost = store.apply(CLUSTER, [put(pod("lost"))])
    backup.rename(path)

    with pytest.raises(RevisionUnavailable):
        store.verify(CLUSTER, head.identity, lost.revision)
    store.apply(CLUSTER, [put(pod("kept"))], identity=head.identity)
    store.close()
    assert names(opened(path)) == {"first", "node-1", "kept"}


def test_a_link_that_leads_elsewhere_now(opened, path):
    path.parent.mkdir()
    link = path.with_name("link.db")
    link.symlink_to(path)
    store = opened(link)
    store.apply(CLUSTER, [put(pod("first"))])
    identity = store.head(CLUSTER).identity
    other = another(path, "theirs")
    link.unlink()
    link.symlink_to(other)

    with pytest.raises(IdentityChanged):
        store.apply(CLUSTER, [put(pod("lost"))], identity=identity)
    assert names(store) == {"theirs"}
    store.close()
    assert content(path) == {"first"}
    assert content(other) == {"theirs"}


@pytest.mark.parametrize("gone", [("-wal",), ("-shm",), ("-wal", "-shm")])
def test_a_log_or_index_that_was_removed_stops_writes_and_loses_nothing(store, opened, path, gone):
    for suffix in gone:
        beside(path, suffix).unlink()

    with pytest.raises(StoreUnavailable, match="restart the server"):
        store.apply(CLUSTER, [put(pod("lost"))])
    with pytest.raises(StoreUnavailable, match="restart the server"):
        store.head(CLUSTER)
    if "-wal" in gone:
        assert content(path) == {"first", "node-1"}, "even if the process is killed now"
    store.close()
    again = opened(path)
    assert names(again) == {"first", "node-1"}
    again.apply(CLUSTER, [put(pod("second"))])


@pytest.mark.parametrize("replaced", [False, True])
def test_a_write_is_not_acknowledged_whose_file_goes_before_its_commit(store, path, replaced):
    other = another(path, "theirs")

    def exchange(*_: object) -> int:
        remove(path)
        if replaced:
            other.rename(path)
        store._connections._writer.set_authorizer(None)
        return sqlite3.SQLITE_OK

    store._connections._writer.set_authorizer(exchange)
    with pytest.raises(StoreUnavailable, match="in the middle"):
        store.apply(CLUSTER, [put(pod("lost"))])


def test_a_file_that_is_no_store_is_refused_until_it_is_one_again(store, path):
    aside = path.with_name("aside.db")
    path.rename(aside)
    path.write_text("kind: Pod\n" * 1000)
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="not a SQLite database"):
            store.apply(CLUSTER, [put(pod("lost"))])
    assert path.read_text().startswith("kind: Pod")

    aside.rename(path)
    assert names(store) == {"first", "node-1"}


def test_pages_of_one_scan_are_of_one_file(store, path):
    store.apply(CLUSTER, [put(pod(f"p-{n}")) for n in range(20)])
    pages = store.scan(CLUSTER, page=5)
    next(pages)
    another(path, *(f"q-{n}" for n in range(20))).rename(path)

    with pytest.raises(StoreUnavailable, match="while it was read"):
        list(pages)


@pytest.mark.parametrize("replaced", [False, True])
def test_waiting_follower_learns_of_the_exchange(store, path, replaced):
    head = store.head(CLUSTER)
    other = another(path, "theirs")
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(store.follow, CLUSTER, head.identity, head.revision, wait=2 * PATIENCE)
        if replaced:
            other.rename(path)
        else:
            remove(path)
        with pytest.raises(IdentityChanged if replaced else StoreUnavailable):
            waits.result(PATIENCE)


def test_stores_that_share_the_file_all_go_over_to_the_other_one(store, opened, path):
    second = opened(path)
    second.apply(CLUSTER, [put(pod("second"))])
    identity = store.head(CLUSTER).identity
    other = another(path, "theirs")
    os.replace(other, path)

    for each in (store, second):
        with pytest.raises(IdentityChanged):
            each.apply(CLUSTER, [put(pod("lost"))], identity=identity)
    for number, each in enumerate((store, second, store)):
        each.apply(CLUSTER, [put(pod(f"ours-{number}"))])
    for each in (store, second):
        assert names(each) == {"theirs", "ours-0", "ours-1", "ours-2"}
        each.close()
    assert content(path) == {"theirs", "ours-0", "ours-1", "ours-2"}
