"""Many writers at once: numbers stay dense, the chain stays whole, conditions hold."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

from tests.store.backends import (
    CLUSTER,
    PROCESSES,
    RedisBackend,
    SqliteBackend,
    existing,
    follow_all,
    node,
    objects,
    pod,
    put,
    replay,
)
from tests.store.conftest import SETTINGS
from topospread.errors import Conflict
from topospread.store.model import Revision, Transaction, Unchanged

WRITERS = 8
PROCESS_COUNT = 3
WRITES = 40


def write(store, writer: int) -> list[int]:
    return [
        store.apply(
            CLUSTER,
            [put(pod(f"p-{writer}-{n}"), str(n)), put(node(f"n-{n % 5}"), payload=b"%d" % n)],
        ).revision.number
        for n in range(WRITES)
    ]


def write_from_a_process(url: str, writer: int) -> list[int]:
    """Opens a store of its own, as another server does."""
    backend = SqliteBackend(url) if url.startswith("sqlite") else RedisBackend(url)
    store = backend.open(SETTINGS)
    try:
        return write(store, writer)
    finally:
        store.close()


def check(store, numbers: list[list[int]]) -> list[Transaction]:
    """Look at all that several have written; returns the log."""
    found = follow_all(store)
    last = len(numbers) * WRITES
    assert sorted(number for written in numbers for number in written) == list(range(1, last + 1))
    assert [transaction.revision.number for transaction in found] == list(range(1, last + 1))
    for before, after in zip([None, *found], found, strict=False):
        assert after.previous_tag == (before.revision.tag if before else "")
    assert replay({}, found) == objects(store)
    assert len(objects(store)) == last + 5
    return found


def test_threads_write_one_history(store):
    with ThreadPoolExecutor(WRITERS) as pool:
        numbers = list(pool.map(lambda writer: write(store, writer), range(WRITERS)))

    check(store, numbers)


def test_processes_write_one_history_that_a_follower_sees(store, other_store, backend):
    assert other_store.clusters() == []
    identity = store.apply(CLUSTER, ()).identity
    seen: list[Transaction] = []
    with ProcessPoolExecutor(PROCESS_COUNT, mp_context=PROCESSES) as pool:
        jobs = [pool.submit(write_from_a_process, backend.url, n) for n in range(PROCESS_COUNT)]
        while len(seen) < PROCESS_COUNT * WRITES:
            after = seen[-1].revision if seen else Revision()
            seen += store.follow(CLUSTER, identity, after, wait=30)
        numbers = [job.result() for job in jobs]

    assert check(store, numbers) == seen
    assert other_store.head(CLUSTER) == store.head(CLUSTER)


def test_conditional_writers_never_overwrite_each_other(store):
    """A counter in one object: each adds one to what it read, if that still stands."""
    store.apply(CLUSTER, [put(pod("counter"), payload=b"0")])
    identity = store.head(CLUSTER).identity

    def add(_: int) -> int:
        conflicts = 0
        while True:
            seen = store.head(CLUSTER).revision
            value = int(existing(store, pod("counter")).payload)
            change = put(pod("counter"), payload=b"%d" % (value + 1), digest=b"%08d" % (value + 1))
            try:
                store.apply(
                    CLUSTER,
                    [change],
                    precondition=Unchanged(seen, ("default",)),
                    identity=identity,
                )
            except Conflict:
                conflicts += 1
            else:
                return conflicts

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(add, range(100)))

    assert existing(store, pod("counter")).payload == b"100"
    assert store.head(CLUSTER).revision.number == 101
