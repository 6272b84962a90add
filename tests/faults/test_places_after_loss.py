"""PlacePod where the state that it was judged at is no part of the store's log any more.

Nothing was written then, so the pod is judged again, at the state that there is.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from bench.campaigns.load import CLUSTER, client_of, pod, stored_pods, zones
from tests.processes import suspended
from tests.servers import incoming
from tests.store.backends import RedisBackend, SqliteBackend
from topospread.codec.stored import stored
from topospread.errors import StoreUnavailable
from topospread.store.model import Put, StoreSettings
from topospread_client import RevisionUnavailable, object_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.store.backends import Backend
    from topospread.store.api import Store

KEPT = 4
"""Changes that the log keeps."""


def another(number: int) -> dict[str, Any]:
    """A pod that nothing is held for yet: the repeat of a renewal may end with ABORTED."""
    asked = incoming()
    return {**asked, "metadata": {**asked["metadata"], "name": f"p-{number}"}}


@pytest.fixture(params=["sqlite", "redis"])
def backend(request, tmp_path) -> Backend:
    if request.param == "redis":
        return RedisBackend(request.getfixturevalue("redis_url"))
    return SqliteBackend(f"sqlite://{tmp_path}/state.db")


def write(store: Store, name: str) -> None:
    """Store a pod, beside all servers."""
    made = object_from_manifest(pod(name))
    assert made is not None, "its kind is known"
    store.apply(CLUSTER, [Put(stored(made))])


@contextmanager
def suspended_between_writes(pid: int, store: Store) -> Iterator[None]:
    """A server stands still, but not within a write of its own, which would keep SQLite's lock."""
    while True:
        with suspended(pid):
            try:
                write(store, "first")
            except StoreUnavailable:
                pass
            else:
                yield
                return
        # It has ended that write when another's passes.
        write(store, "between")


def test_behind_a_trimmed_log_a_pod_is_placed_all_the_same(backend, serve, call):
    server = serve(backend.url)
    client = call(server)
    client.apply_objects(zones())
    with (
        closing(backend.open(StoreSettings(log_limit=KEPT))) as store,
        ThreadPoolExecutor(1) as elsewhere,
    ):
        for attempt in range(3):
            before = client.get_node_table().meta.revision
            with suspended_between_writes(server.process.pid, store):
                placing = elsewhere.submit(client.place_pod, another(attempt))
                for number in range(KEPT * 4):
                    write(store, f"w-{attempt}-{number}")

            assert placing.result().node

            # A revision that the log does not reach is refused, as ever.
            with pytest.raises(RevisionUnavailable):
                list(client.watch_objects(revision=before))


def test_after_writes_were_lost_a_pod_is_placed_all_the_same(start_redis, serve):
    master = start_redis(options={"appendonly": "no"})
    server = serve(master.url)
    with client_of(server.address, retries=True) as client, ThreadPoolExecutor(1) as elsewhere:
        client.apply_objects(zones())
        for attempt in range(3):
            with master.client() as redis:
                redis.save()
            lost = client.apply_objects([pod(f"lost-{attempt}")]).meta.revision
            with suspended(server.process.pid):
                placing = elsewhere.submit(client.place_pod, another(attempt))
                master.kill()
                master.start()

            placed = placing.result()
            assert placed.node

            # What was lost may be seen until the server follows the history of the place.
            client.get_node_table(consistency=placed.meta.revision)
            with pytest.raises(RevisionUnavailable):
                client.get_node_table(consistency=lost)
        assert stored_pods(client) == set()
