"""What only the SQLite file can show: modes, foreign files, locks, full disks, half-done steps."""

from __future__ import annotations

import os
import re
import sqlite3
import stat
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from tests.store.backends import (
    CLUSTER,
    PROCESSES,
    SqliteBackend,
    follow_all,
    node,
    objects,
    pod,
    put,
    scanned,
)
from tests.store.conftest import SETTINGS
from tests.store.test_concurrency import WRITES, write_from_a_process
from topospread.errors import ConfigError, StoreUnavailable
from topospread.store import values
from topospread.store.model import Change, Key, Kind, Put, Remove, StoredObject, StoreSettings
from topospread.store.sqlite import connections
from topospread.store.sqlite.store import open_store as open_sqlite
from topospread.store.urls import SqliteURL
from topospread.store.values import FORMAT


@pytest.fixture
def path(tmp_path):
    return tmp_path / "made" / "for it" / "topospread.db"


@pytest.fixture
def file_store(path):
    opened = open_sqlite(SqliteURL(str(path)), SETTINGS)
    yield opened
    opened.close()


def everything(store):
    head = store.head(CLUSTER)
    return head, objects(store), follow_all(store) if head.identity else []


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_only_the_owner_can_read_the_file(file_store, path):
    file_store.apply(CLUSTER, [put(node())])

    assert {found.name: mode(found) for found in path.parent.iterdir()} == {
        "topospread.db": 0o600,
        "topospread.db-wal": 0o600,
        "topospread.db-shm": 0o600,
    }
    assert mode(path.parent) == 0o700


def test_a_file_of_another_mode_is_left_as_it_is(path):
    path.parent.mkdir(parents=True)
    path.touch(0o640)

    open_sqlite(SqliteURL(str(path)), SETTINGS).close()

    assert mode(path) == 0o640


def test_copy_by_vacuum_into_has_all_that_a_store_in_use_has(file_store, path, tmp_path):
    file_store.apply(CLUSTER, [put(node()), put(pod()), put(pod("gone"))])
    file_store.apply(CLUSTER, [Remove(pod("gone"))])
    held = StoredObject(Key(Kind.RESERVATION, "default", "held"), b"node", b"8 bytes.", "", "uid")
    file_store.apply(CLUSTER, [Put(held, lifetime=3_600_000)])
    copy = tmp_path / "copy.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM INTO ?", [str(copy)])
    with closing(open_sqlite(SqliteURL(str(copy)), SETTINGS)) as copied:
        found, there = everything(copied), everything(file_store)
        assert (found[0].identity, found[0].revision) == (there[0].identity, there[0].revision)
        assert found[1:] == there[1:]
        assert copied.apply(CLUSTER, [put(pod("next"))]).previous == there[0].revision


def test_a_path_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(ConfigError, match="may write"):
        open_sqlite(SqliteURL(f"{tmp_path}/file/topospread.db"), SETTINGS)


def test_a_directory_is_refused(tmp_path):
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        open_sqlite(SqliteURL(str(tmp_path)), SETTINGS)


def test_another_programs_database_is_refused_and_left_alone(path):
    path.parent.mkdir(parents=True)
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE theirs (x)")
    other.close()

    with pytest.raises(ConfigError, match="another program"):
        open_sqlite(SqliteURL(str(path)), SETTINGS)
    with sqlite3.connect(path) as other:
        assert other.execute("SELECT name FROM sqlite_schema").fetchall() == [("theirs",)]
    other.close()


def test_a_file_that_is_no_database_is_refused(path):
    path.parent.mkdir(parents=True)
    path.write_text("kind: Pod\n" * 1000)

    with pytest.raises(ConfigError, match="not a SQLite database"):
        open_sqlite(SqliteURL(str(path)), SETTINGS)
    assert path.read_text().startswith("kind: Pod")


def test_no_statement_has_numbered_placeholders():
    # Python 3.12.1 warns of them where values come as a sequence.
    folder = Path(connections.__file__).parent
    for source in folder.glob("*.py"):
        assert not re.search(r"\?[0-9]", source.read_text(encoding="utf-8")), source.name


def test_a_refused_file_is_closed_again(path):
    path.parent.mkdir(parents=True)
    path.write_text("kind: Pod\n" * 1000)

    with pytest.raises(ConfigError) as refused:
        open_sqlite(SqliteURL(str(path)), SETTINGS)
    # Its frames hold what they had: only what was closed is closed.
    assert refused.tb is not None
    open_files = {os.path.realpath(f"/proc/self/fd/{each}") for each in os.listdir("/proc/self/fd")}
    assert os.path.realpath(path) not in open_files


@pytest.mark.parametrize("found", [1, FORMAT + 1])
def test_another_format_is_refused_and_left_alone(file_store, path, found):
    file_store.apply(CLUSTER, [put(node())])
    file_store.close()
    with sqlite3.connect(path) as other:
        other.execute(f"PRAGMA user_version = {found}")
    other.close()

    with pytest.raises(ConfigError, match=f"format {found}, .* start with a new file"):
        open_sqlite(SqliteURL(str(path)), SETTINGS)
    with closing(sqlite3.connect(path)) as other:
        assert other.execute("SELECT count(*) FROM cluster").fetchone() == (1,)


def test_another_process_lock_is_waited_for_until_the_deadline(file_store, path):
    file_store.apply(CLUSTER, [put(node())])
    before = everything(file_store)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(StoreUnavailable, match="lock"):
        file_store.apply(CLUSTER, [put(pod())], timeout=0.01)
    assert everything(file_store) == before

    other.execute("ROLLBACK")
    other.close()
    assert file_store.apply(CLUSTER, [put(pod())]).revision.number == 2


def test_a_full_disk_leaves_the_state_as_it_was(file_store):
    file_store.apply(CLUSTER, [put(pod(), "1")])
    before = everything(file_store)
    writer = file_store._connections._writer
    (pages,) = writer.execute("PRAGMA page_count").fetchone()
    writer.execute(f"PRAGMA max_page_count = {pages}")

    with pytest.raises(StoreUnavailable, match="full"):
        file_store.apply(CLUSTER, [put(pod(), "2"), put(node(), payload=b"x" * 200_000)])
    assert everything(file_store) == before

    writer.execute("PRAGMA max_page_count = 1000000")
    assert file_store.apply(CLUSTER, [put(pod(), "2")]).revision.number == 2


def write_beyond_the_allowed_size(url: str) -> tuple[str, bool]:
    """In a process of its own: the operating system refuses to let files grow."""
    import resource

    store = SqliteBackend(url).open(SETTINGS)
    store.apply(CLUSTER, [put(pod(), "1")])
    before = everything(store)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
    try:
        store.apply(CLUSTER, [put(pod(), "2"), put(node(), payload=b"x" * 400_000)])
    except StoreUnavailable as refusal:
        return str(refusal), everything(store) == before
    return "was written", False


def test_a_disk_that_refuses_to_write_leaves_the_state_as_it_was(path):
    with ProcessPoolExecutor(1, mp_context=PROCESSES) as pool:
        text, same = pool.submit(write_beyond_the_allowed_size, f"sqlite://{path}").result()

    assert "disk" in text
    assert same


def test_a_read_only_database_is_unavailable_for_writes_only(file_store):
    file_store.apply(CLUSTER, [put(pod(), "1")])
    before = everything(file_store)
    file_store._connections._writer.execute("PRAGMA query_only = 1")

    with pytest.raises(StoreUnavailable, match="read-only"):
        file_store.apply(CLUSTER, [put(pod(), "2")])
    assert everything(file_store) == before


STEPS = [
    (sqlite3.SQLITE_INSERT, "object"),
    (sqlite3.SQLITE_DELETE, "object"),
    (sqlite3.SQLITE_INSERT, "log"),
    (sqlite3.SQLITE_DELETE, "log"),
    (sqlite3.SQLITE_INSERT, "touched"),
    (sqlite3.SQLITE_DELETE, "touched"),
    (sqlite3.SQLITE_INSERT, "tombstone"),
    (sqlite3.SQLITE_DELETE, "tombstone"),
    (sqlite3.SQLITE_UPDATE, "cluster"),
]


@pytest.mark.parametrize(("action", "table"), STEPS)
@pytest.mark.parametrize("in_memory", [False, True])
def test_an_error_at_any_step_undoes_the_whole_transaction(path, action, table, in_memory):
    url = SqliteURL() if in_memory else SqliteURL(str(path))
    store = open_sqlite(url, StoreSettings(log_limit=4, tombstone_limit=1))
    for number in range(9):
        store.apply(CLUSTER, [put(pod(f"p-{number}"), "1"), put(node(), str(number))])
    store.apply(CLUSTER, [Remove(pod("p-0"), up_to_version="5")])
    before = store.head(CLUSTER), objects(store)
    writer = store._connections._writer
    denied = []

    def deny(what: int, first: str | None, *_: object) -> int:
        if (what, first) != (action, table):
            return sqlite3.SQLITE_OK
        denied.append(first)
        return sqlite3.SQLITE_DENY

    changes: list[Change] = [
        put(pod("p-1"), "2"),
        put(pod("p-0"), "9"),
        Remove(pod("p-2"), up_to_version="5"),
        Remove(pod("p-3"), up_to_version="5"),
        Put(put(Key(Kind.RESERVATION, "default", "p-9")).object, lifetime=60_000),
    ]
    writer.set_authorizer(deny)
    with pytest.raises(StoreUnavailable):
        store.apply(CLUSTER, changes)
    writer.set_authorizer(None)

    assert denied
    assert (store.head(CLUSTER), objects(store)) == before
    store.apply(CLUSTER, changes)
    assert store.head(CLUSTER).revision.number == 11
    store.close()


def test_every_table_is_written_by_the_steps_above(file_store):
    rows = file_store._connections._writer.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"
    )

    # The lease of a cluster is written alone, never with objects.
    written = {table for _, table in STEPS} | {"lease"}
    assert [name for (name,) in rows] == sorted(written)


def test_waiting_readers_do_not_keep_the_wal_from_being_written_back(file_store, path):
    file_store.apply(CLUSTER, [put(pod(f"p-{n}")) for n in range(100)])
    head = file_store.head(CLUSTER)
    page = file_store.scan(CLUSTER, Kind.POD, limit=10)
    follower = file_store._follower
    with follower._notifier.waiting(CLUSTER), follower._connections.watch() as version:
        version()
        for number in range(150):
            file_store.apply(CLUSTER, [put(node(), str(number + 1), bytes(200_000))])

    # 30 MB were written; 1,000 pages are 4 MB.
    assert path.with_name("topospread.db-wal").stat().st_size < 12_000_000
    assert len(file_store.scan(CLUSTER, Kind.POD, after=page.last).objects) == 90
    assert file_store.head(CLUSTER).revision.number == head.revision.number + 150


def test_other_writes_of_the_process_are_waited_for_until_the_deadline(file_store):
    file_store.apply(CLUSTER, [put(node())])
    with (
        file_store._connections.writing(),
        pytest.raises(StoreUnavailable, match="other writes"),
    ):
        file_store.apply(CLUSTER, [put(pod())], timeout=0.01)

    assert file_store.apply(CLUSTER, [put(pod())]).revision.number == 2


@pytest.mark.parametrize(("full", "level"), [(False, 1), (True, 2)])
def test_the_address_chooses_how_writes_reach_the_disk(path, full, level):
    store = open_sqlite(SqliteURL(str(path), full_sync=full), SETTINGS)

    assert store._connections._writer.execute("PRAGMA synchronous").fetchone() == (level,)
    assert store._connections._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    store.close()


def test_the_address_is_shown(file_store, path):
    assert file_store.address == f"sqlite://{path}"
    assert file_store.warnings == ()
    file_store.ping()


def test_processes_that_make_the_file_at_once_share_it(path):
    url = f"sqlite://{path}"
    with ProcessPoolExecutor(3, mp_context=PROCESSES) as pool:
        jobs = [pool.submit(write_from_a_process, url, n) for n in range(3)]
        numbers = [number for job in jobs for number in job.result()]

    assert sorted(numbers) == list(range(1, 3 * WRITES + 1))


def test_most_connections_of_a_crowd_of_readers_are_closed(file_store):
    # Each keeps what it has read in a cache of its own.
    file_store.apply(CLUSTER, [put(node())])
    connections = file_store._connections
    crowd = threading.Barrier(40)

    def read():
        with connections.reading():
            crowd.wait(30)

    with ThreadPoolExecutor(40) as readers:
        list(readers.map(lambda _: read(), range(40)))
    assert 0 < len(connections._readers) <= 8
    assert len(objects(file_store)) == 1


# ------------------------------ lists of a large cluster, in steps of SQLite's machine

PODS = 100_000
NAMESPACES = 10_000

FILL = """
WITH RECURSIVE number (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM number WHERE n + 1 < ?)
INSERT INTO object SELECT 1, ?, printf('ns-%05d', n % ?), printf('p-%06d', n), ?, 0 FROM number
"""


@pytest.fixture(scope="module")
def large():
    """Ten nodes, and ten pods in each of very many namespaces."""
    store = open_sqlite(SqliteURL())
    store.apply(CLUSTER, [put(node(f"node-{number}")) for number in range(10)])
    value = values.pack(put(pod(), payload=bytes(300)).object)
    writer = store._connections._writer
    writer.execute(FILL, (PODS, Kind.POD.value, NAMESPACES, value))
    yield store
    store.close()


def steps(store, ask) -> int:
    """Steps of SQLite's machine that something takes; each row that is looked at is some."""
    count = 0

    def one() -> int:
        nonlocal count
        count += 1
        return 0

    writer = store._connections._writer
    writer.set_progress_handler(one, 1)
    ask()
    writer.set_progress_handler(None, 0)
    return count


@pytest.mark.parametrize(("kind", "namespace"), [(Kind.POD, "ns-00042"), (Kind.NODE, "")])
def test_a_list_of_ten_costs_no_more_than_five_times_ten_single_reads(large, kind, namespace):
    found = scanned(large, kind, namespace)
    assert len(found) == 10

    single = steps(large, lambda: [large.get(CLUSTER, [each.key]) for each in found])
    assert steps(large, lambda: scanned(large, kind, namespace)) <= 5 * single
    assert steps(large, lambda: large.get(CLUSTER, [each.key for each in found])) <= single


def test_an_empty_list_costs_next_to_nothing(large):
    one = steps(large, lambda: large.get(CLUSTER, [node("node-1")]))
    assert steps(large, lambda: scanned(large, Kind.POD, "nobodys")) <= 5 * one
    assert steps(large, lambda: scanned(large, Kind.SERVICE)) <= 5 * one


def test_a_long_list_costs_the_same_for_each_page(large):
    place: tuple[str, str] | None = ("", "")
    costs: list[int] = []
    found: list[Key] = []

    def read() -> None:
        nonlocal place
        assert place is not None
        page = large.scan(CLUSTER, Kind.POD, after=place)
        found.extend(each.key for each in page.objects)
        place = page.last

    while len(found) < 30_000:
        costs.append(steps(large, read))
    assert len(found) == 30_000
    assert max(costs) <= 1.1 * min(costs)
