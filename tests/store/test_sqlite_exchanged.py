"""The file of a SQLite store is removed or replaced while it is open: it says so, and stops."""

from __future__ import annotations

import shutil
import sqlite3
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.store.backends import CLUSTER, PROCESSES, node, objects, pod, put
from tests.store.conftest import SETTINGS
from tests.waiting import PATIENCE, until
from topospread.errors import StoreUnavailable
from topospread.store.model import Revision
from topospread.store.sqlite.store import open_store
from topospread.store.urls import SqliteURL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.store.sqlite.store import SqliteStore

SIDES = ("", "-wal", "-shm")
STOPPED = "restart the server"
KNOWN = {"first", "node-1"}


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


def remove(path: Path, *suffixes: str) -> None:
    for suffix in suffixes or SIDES:
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
    copy = path.parent.parent / "copy.db"
    shutil.copy(path, copy)
    with closing(sqlite3.connect(copy)) as reader:
        assert reader.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = {name for (name,) in reader.execute("SELECT name FROM object")}
    copy.unlink()
    return found


def check_stopped(store: SqliteStore) -> None:
    """Whatever is asked for is refused."""
    identity, begin = "0" * 32, Revision()
    for ask in (
        lambda: store.apply(CLUSTER, [put(pod("lost"))]),
        lambda: store.apply(CLUSTER, []),
        lambda: store.apply(CLUSTER, [put(pod("lost"))], identity=identity),
        lambda: store.acquire(CLUSTER, "one", 1000),
        lambda: store.drop(CLUSTER),
        lambda: store.head(CLUSTER),
        lambda: store.follow(CLUSTER, identity, begin, wait=0),
        lambda: store.follow(CLUSTER, identity, begin, wait=PATIENCE),
        lambda: store.lease(CLUSTER),
        lambda: store.get(CLUSTER, [pod("first")]),
        lambda: objects(store),
        store.clusters,
        store.ping,
    ):
        for _ in range(2):
            with pytest.raises(StoreUnavailable, match=STOPPED):
                ask()


def test_removed_file_is_neither_read_nor_written(store, path):
    remove(path)

    check_stopped(store)
    assert list(path.parent.iterdir()) == [], "no file is made in its place"


@pytest.mark.parametrize("whole", [False, True], ids=["files", "directory"])
def test_file_moved_away_has_all_and_is_written_again_after_a_restart(store, opened, path, whole):
    elsewhere = path.parent.with_name("elsewhere")
    if whole:
        path.parent.rename(elsewhere)
    else:
        elsewhere.mkdir()
        for suffix in SIDES:
            beside(path, suffix).rename(beside(elsewhere / path.name, suffix))
    check_stopped(store)
    assert content(elsewhere / path.name) == KNOWN

    for suffix in () if whole else SIDES:
        beside(elsewhere / path.name, suffix).rename(beside(path, suffix))
    if whole:
        elsewhere.rename(path.parent)
    check_stopped(store)
    store.close()
    again = opened(path)
    again.apply(CLUSTER, [put(pod("second"))])
    assert names(again) == {*KNOWN, "second"}


@pytest.mark.parametrize("left", [False, True], ids=["alone", "with the old log beside it"])
def test_another_file_is_neither_read_nor_written(store, opened, path, left):
    other = another(path, "theirs")
    aside = path.parent.parent / "aside.db"
    path.rename(aside)
    if not left:
        remove(path, "-wal", "-shm")
    other.rename(path)

    check_stopped(store)
    assert content(aside) == KNOWN, "the old file got what its log had"
    assert content(path) == {"theirs"}
    store.close()
    again = opened(path)
    assert names(again) == {"theirs"}
    again.apply(CLUSTER, [put(pod("ours"))])
    again.close()
    assert content(path) == {"theirs", "ours"}


def test_another_files_log_outlives_the_server_that_is_stopped(store, opened, path):
    """The other server writes at the path before the first one has noticed anything."""
    other = another(path, "theirs")
    aside = path.parent.parent / "aside.db"
    path.rename(aside)
    remove(path, "-wal", "-shm")
    other.rename(path)
    second = opened(path)
    second.apply(CLUSTER, [put(pod("ours"))])

    check_stopped(store)
    assert content(aside) == KNOWN
    store.close()
    second.apply(CLUSTER, [put(pod("ours-2"))])
    assert names(second) == {"theirs", "ours", "ours-2"}
    second.close()
    assert content(path) == {"theirs", "ours", "ours-2"}


def test_a_link_that_leads_elsewhere_now(opened, path):
    path.parent.mkdir()
    link = path.with_name("link.db")
    link.symlink_to(path)
    store = opened(link)
    store.apply(CLUSTER, [put(pod("first")), put(node())])
    other = another(path, "theirs")
    link.unlink()
    link.symlink_to(other)

    check_stopped(store)
    store.close()
    assert content(path) == KNOWN
    assert content(other) == {"theirs"}


@pytest.mark.parametrize("gone", [("-wal",), ("-shm",), ("-wal", "-shm")])
@pytest.mark.parametrize("noticed_by", ["a write", "a follower"])
def test_a_log_or_index_that_was_removed_stops_writes_and_loses_nothing(
    store, opened, path, gone, noticed_by
):
    head = store.head(CLUSTER)
    remove(path, *gone)

    notice = {
        "a write": lambda: store.apply(CLUSTER, [put(pod("lost"))]),
        "a follower": lambda: store.follow(CLUSTER, head.identity, head.revision, wait=PATIENCE),
    }
    with pytest.raises(StoreUnavailable, match=STOPPED):
        notice[noticed_by]()
    if "-wal" in gone:
        assert content(path) == KNOWN, "even if the process is killed now"
    check_stopped(store)
    store.close()
    again = opened(path)
    assert names(again) == KNOWN
    again.apply(CLUSTER, [put(pod("second"))])
    again.close()
    assert content(path) == {*KNOWN, "second"}


def test_a_log_that_another_process_goes_on_in_is_left_to_it(store, opened, path):
    """Without its index, the log is found by whoever comes next."""
    remove(path, "-shm")
    with ProcessPoolExecutor(1, mp_context=PROCESSES) as pool:
        assert pool.submit(Later.write, path, "second").result() == {*KNOWN, "second"}
        check_stopped(store)
        store.close()
        assert pool.submit(Later.write, path, "third").result() == {*KNOWN, "second", "third"}
        pool.submit(Later.close).result()
    assert names(opened(path)) == {*KNOWN, "second", "third"}


def test_a_log_that_another_process_began_is_not_overwritten_by_the_old_one(store, path):
    """By an index that both share the old log is that of other pages: it is not read, either."""
    store._connections._writer.execute("PRAGMA wal_checkpoint(PASSIVE)")
    remove(path, "-wal")
    with ProcessPoolExecutor(1, mp_context=PROCESSES) as pool:
        assert pool.submit(Later.write, path, "second").result() == {*KNOWN, "second"}
        for call in (
            lambda: store.apply(CLUSTER, [put(pod("lost"))]),
            lambda: objects(store),
            lambda: store.head(CLUSTER),
        ):
            for _ in range(2):
                with pytest.raises(StoreUnavailable, match=STOPPED):
                    call()
        assert pool.submit(Later.write, path, "third").result() == {*KNOWN, "second", "third"}
        store.close()
        pool.submit(Later.close).result()
    assert content(path) == {*KNOWN, "second", "third"}


@pytest.mark.parametrize("begun", [False, True])
def test_a_log_that_was_only_opened_anew_does_not_hide_the_old_one(store, path, begun):
    remove(path, "-wal")
    if begun:
        # As a connection does that is opened at this moment.
        beside(path, "-wal").touch()

    check_stopped(store)
    assert content(path) == KNOWN


class Later:
    """A server that was started meanwhile, in a process of its own."""

    store: ClassVar[SqliteStore | None] = None

    @classmethod
    def write(cls, path: Path, name: str) -> set[str]:
        """Write a pod; returns what is there then."""
        if cls.store is None:
            cls.store = open_store(SqliteURL(str(path)), SETTINGS)
        cls.store.apply(CLUSTER, [put(pod(name))])
        return names(cls.store)

    @classmethod
    def close(cls) -> None:
        """End it."""
        assert cls.store is not None
        cls.store.close()


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
    with pytest.raises(StoreUnavailable, match=STOPPED):
        store.apply(CLUSTER, [put(pod("unknown"))])
    check_stopped(store)


def test_a_file_that_is_no_store_is_left_as_it_is(store, path):
    aside = path.parent.parent / "aside.db"
    path.rename(aside)
    path.write_text("kind: Pod\n" * 1000)

    check_stopped(store)
    assert path.read_text() == "kind: Pod\n" * 1000
    assert content(aside) == KNOWN


def test_crowd_of_readers_is_refused(store, path):
    remove(path)

    def refused() -> bool:
        with pytest.raises(StoreUnavailable, match=STOPPED):
            objects(store)
        return True

    with ThreadPoolExecutor(20) as crowd:
        assert all(crowd.map(lambda _: refused(), range(60)))


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
        with pytest.raises(StoreUnavailable, match=STOPPED):
            waits.result(PATIENCE)


@pytest.mark.parametrize("exchange", [(), ("-wal",), ("-shm",)])
@pytest.mark.parametrize("noticed_first", [0, 1])
def test_stores_that_share_the_file_all_stop(store, opened, path, exchange, noticed_first):
    second = opened(path)
    second.apply(CLUSTER, [put(pod("second"))])
    remove(path, *exchange)

    for each in (store, second)[:: 1 if noticed_first == 0 else -1]:
        check_stopped(each)
    store.close()
    second.close()
    if exchange:
        assert names(opened(path)) == {*KNOWN, "second"}
    else:
        assert not path.exists()


def write_until_stopped(path: Path, writer: int, started: str) -> list[str]:
    """A server's writes that were acknowledged, until it says that it stops."""
    store = open_store(SqliteURL(str(path)), SETTINGS)
    done: list[str] = []
    while True:
        name = f"p-{writer}-{len(done)}"
        try:
            store.apply(CLUSTER, [put(pod(name))])
        except StoreUnavailable as refused:
            if STOPPED in str(refused):
                return done
        else:
            done.append(name)
            if len(done) == 20:
                Path(f"{started}-{writer}").touch()


def moved_away(path: Path) -> Path:
    return path.rename(path.parent.parent / "aside.db")


def replaced_by_another(path: Path) -> Path:
    kept = path.parent.parent / "kept.db"
    kept.hardlink_to(path)
    another(path, "theirs").replace(path)
    return kept


def log_removed(path: Path) -> Path:
    remove(path, "-wal")
    return path


@contextmanager
def two_writers(path: Path) -> Iterator[Callable[[], set[str]]]:
    """Two processes that write until they are told to stop; returns what was acknowledged."""
    started = f"{path.parent.parent}/started"
    with ProcessPoolExecutor(2, mp_context=PROCESSES) as pool:
        jobs = [pool.submit(write_until_stopped, path, each, started) for each in range(2)]
        until(lambda: all(Path(f"{started}-{n}").exists() for n in range(2)), "both write")
        yield lambda: {name for job in jobs for name in job.result(PATIENCE)}


@pytest.mark.parametrize("exchange", [moved_away, replaced_by_another, log_removed])
def test_processes_that_write_meanwhile_lose_nothing(store, path, exchange):
    """What each of two was told to be written is in the file, even if both are killed now."""
    store.close()
    with two_writers(path) as acknowledged:
        file = exchange(path)
        written = acknowledged()
        found = content(file)
    assert len(written) >= 40
    assert written - found == set()


def test_processes_that_write_while_the_index_is_removed_lose_nothing(store, opened, path):
    store.close()
    with two_writers(path) as acknowledged:
        remove(path, "-shm")
        written = acknowledged()
        found = names(opened(path))
    assert len(written) >= 40
    assert written - found == set()
