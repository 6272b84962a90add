"""PlacePod where the state that it was judged at is no part of the store's log any more.

Nothing was written then, so the pod is judged again, at the state that there is.
"""

from __future__ import annotations

import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from bench.campaigns.load import CLUSTER, client_of, pod, stored_pods, zones
from tests.servers import incoming
from tests.store.backends import RedisBackend, SqliteBackend
from topospread.codec.stored import stored
from topospread.errors import StoreUnavailable
from topospread.store.model import Put, StoreSettings
from topospread_client import Consistency, RevisionUnavailable, object_from_manifest

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from tests.store.backends import Backend

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


@contextmanager
def frozen(process: subprocess.Popen[str], write: Callable[[], object]) -> Iterator[None]:
    """A process that is stopped, but not within a write of its own: another's passes."""
    process.send_signal(signal.SIGSTOP)
    try:
        while True:
            try:
                write()
            except StoreUnavailable:
                process.send_signal(signal.SIGCONT)
                process.send_signal(signal.SIGSTOP)
            else:
                break
        yield
    finally:
        process.send_signal(signal.SIGCONT)


def test_behind_a_trimmed_log_a_pod_is_placed_all_the_same(backend, serve, call):
    server = serve(backend.url)
    client = call(server)
    client.apply_objects(zones())
    with (
        closing(backend.open(StoreSettings(log_limit=KEPT))) as store,
        ThreadPoolExecutor(1) as elsewhere,
    ):
        for attempt in range(3):
            before = client.get_node_table().revision
            written = [object_from_manifest(pod(f"w-{attempt}-{n}")) for n in range(KEPT * 4)]
            puts = [Put(stored(made)) for made in written if made is not None]
            with frozen(server.process, lambda: store.apply(CLUSTER, puts[:1])):  # noqa: B023
                placing = elsewhere.submit(client.place_pod, another(attempt))
                for each in puts[1:]:
                    store.apply(CLUSTER, [each])

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
            lost = client.apply_objects([pod(f"lost-{attempt}")]).revision
            server.process.send_signal(signal.SIGSTOP)
            placing = elsewhere.submit(client.place_pod, another(attempt))
            master.kill()
            master.start()
            server.process.send_signal(signal.SIGCONT)

            assert placing.result().node

            with pytest.raises(RevisionUnavailable):
                client.get_node_table(consistency=Consistency(at_least_as_fresh=lost))
        assert stored_pods(client) == set()
