"""The sync from an API server of our own, in a process beside this one, into a SQLite file.

Objects are about as large as real ones: what is not kept of them is made up, since it must be read
all the same.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.cluster import objects
from bench.figures import Figures
from bench.processes import worker_process
from bench.requests import CLUSTER
from bench.stores import sqlite_store
from tests.apiserver.objects import Objects
from tests.apiserver.server import ApiServer as MadeUpApiServer
from topospread.app.stores import open_store
from topospread.cli.errors import Unreachable
from topospread.codec.stored import object_from_stored
from topospread.kubernetes.api_server import ApiServer, ClusterAccess
from topospread.kubernetes.cluster_sync import ClusterSync
from topospread.kubernetes.sink import Sink
from topospread.replica.replicas import Replicas
from topospread.replica.state import ReplicaOptions
from topospread.service.state.write import StateWriter
from topospread_client import manifest_from_object

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.cluster import Size
    from bench.options import BenchOptions

PATIENCE: Final = 600.0
BURST: Final = 5000
"""Events of one burst at most: as many pods as there are, if there are fewer."""

_PADDING: Final = {
    "manager": "kube-controller-manager",
    "operation": "Update",
    "apiVersion": "v1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {f"f:field-{number}": {".": {}, "f:value": {}} for number in range(60)},
}
"""About two thousand bytes of what an API server keeps for itself in every object."""

LEASE: Final = 60.0


def measure_sync(options: BenchOptions) -> Figures:
    """Objects listed a second into an empty state, and events a second: changes and heartbeats."""
    figures = Figures()
    with ExitStack() as opened:
        options.progress(f"sync: making {options.size.nodes} nodes and {options.size.pods} pods")
        api = opened.enter_context(worker_process(ClusterInApiServer, options.size))
        url, count, size = api.run(describe)
        figures.add("object_bytes", size)
        for number in range(options.rounds):
            options.progress(f"sync: round {number + 1} of {options.rounds}")
            with sqlite_store() as store, _synced(store, url) as (sync, seconds):
                figures.add("listed_per_s", count / seconds)
                for beats, name in ((False, "change"), (True, "heartbeat")):
                    before = _settled(sync)
                    # The watches send events when all is changed, which is when this returns.
                    sent = api.run(burst, beats)
                    begun, busy = time.monotonic(), time.process_time()
                    _wait(lambda goal=before + sent: _settled(sync) >= goal)
                    figures.add(f"{name}s_per_s", sent / (time.monotonic() - begun))
                    figures.add(f"{name}_cpu_us", (time.process_time() - busy) / sent * 1e6)
    return figures


class ClusterInApiServer:
    """An API server with a made-up cluster, in a process of its own."""

    def __init__(self, size: Size) -> None:
        self._objects = Objects()
        manifests = [manifest_from_object(object_from_stored(each)) for each in objects(size)]
        for manifest in manifests:
            manifest["metadata"]["managedFields"] = [_PADDING]
        self._objects.put(*manifests)
        self._count = len(manifests)
        self._pods = [each["metadata"] for each in manifests if each["kind"] == "Pod"][:BURST]
        self._turn = 0
        self._server = MadeUpApiServer(self._objects)
        self._server.__enter__()

    def describe(self) -> tuple[str, int, float]:
        """The server's URL, its number of objects, and the bytes of one of its pods."""
        pods = self._objects.all("pods")
        return self._server.url, self._count, sum(len(pod.encoded) for pod in pods) / len(pods)

    def burst(self, beats: bool) -> int:
        """Change pods in a label, or for heartbeats in what is not kept; returns how many."""
        self._turn += 1
        turn = str(self._turn)

        def change(manifest: dict[str, Any]) -> None:
            part = "annotations" if beats else "labels"
            manifest["metadata"].setdefault(part, {})["turn"] = turn

        # At once: watches that woke at each change would cost the machine more than the sync does.
        with self._objects.changed:
            for meta in self._pods:
                self._objects.change("Pod", meta["namespace"], meta["name"], change)
        return len(self._pods)

    def close(self) -> None:
        """End the server."""
        self._server.__exit__(None, None, None)


def describe(cluster: ClusterInApiServer) -> tuple[str, int, float]:
    """Run ClusterInApiServer.describe in a child."""
    return cluster.describe()


def burst(cluster: ClusterInApiServer, beats: bool) -> int:
    """Run ClusterInApiServer.burst in a child."""
    return cluster.burst(beats)


@contextmanager
def _synced(address: str, url: str) -> Iterator[tuple[ClusterSync, float]]:
    """A sync that has listed everything, and the seconds that this took."""
    with tempfile.TemporaryDirectory(prefix="topospread-bench-") as directory:
        config = Path(directory, "kubeconfig")
        config.write_text(json.dumps(_kubeconfig(url)), "utf-8")
        listed = threading.Event()
        with ExitStack() as opened:
            store = open_store(address, {})
            opened.callback(store.close)
            replicas = Replicas(store, ReplicaOptions())
            opened.callback(replicas.close)
            sync = ClusterSync(
                CLUSTER,
                ApiServer(ClusterAccess(str(config))),
                Sink(StateWriter(store, replicas), store, CLUSTER, "bench"),
                lease_duration=LEASE,
                excluded_namespaces=(),
                on_listed=listed.set,
                on_standby=lambda: None,
            )
            opened.callback(sync.stop)
            begun = time.monotonic()
            sync.start()
            if not listed.wait(PATIENCE):
                raise Unreachable(f"the cluster was not listed within {PATIENCE:g} s")
            seconds = time.monotonic() - begun
            _wait(lambda: all(kind.watching for kind in sync.gauges().kinds))
            yield sync, seconds


def _settled(sync: ClusterSync) -> int:
    """Changes of pods that were written, or found not to be worth it."""
    (pods,) = [kind for kind in sync.gauges().kinds if kind.kind == "Pod"]
    return sum(pods.counters.changes[name].read() for name in ("applied", "skipped"))


def _wait(reached: Any) -> None:
    ends = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > ends:
            raise Unreachable(f"the sync did not catch up within {PATIENCE:g} s")
        time.sleep(0.002)


def _kubeconfig(url: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "bench", "cluster": {"server": url}}],
        "users": [{"name": "bench", "user": {}}],
        "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "bench"}}],
        "current-context": "bench",
    }
