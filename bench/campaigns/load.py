"""Callers that go on calling whatever happens, and remember the answers."""

from __future__ import annotations

import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Self

from tests.servers import incoming
from tests.waiting import PATIENCE, until
from topospread_client import Client, Connection, TopospreadClientError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import TracebackType

CLUSTER = "default"
ZONE = "topology.kubernetes.io/zone"

CALL_SECONDS = 30.0
"""Time-out of a single call: far above what any of them takes."""

PAUSE = 0.01
"""Seconds between two calls of a caller: some hundred a second, and processor time is left over."""

NEWEST = {"fully_consistent": True}


def zones() -> list[dict[str, object]]:
    """Three nodes, each in a zone of its own."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n-{zone}", "labels": {ZONE: zone}},
            "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "1000000"}},
        }
        for zone in "abc"
    ]


def pod(name: str, app: str = "load", node: str = "n-a") -> dict[str, object]:
    """A pod on a node."""
    metadata = {"name": name, "namespace": "default", "labels": {"app": app}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": node}}


def client_of(address: str, *, retries: bool = False) -> Client:
    """A client of one or several servers on this machine."""
    connection = Connection(address, insecure=True, retries=retries)
    return Client(connection, cluster=CLUSTER, timeout=CALL_SECONDS)


def balanced(addresses: Sequence[str]) -> str:
    """One target for several servers: the next one is tried when one does not answer."""
    return "ipv4:" + ",".join(addresses)


class Load:
    """Writers and readers in threads of their own, from entering to leaving it.

    Every writer writes one new pod after the other, each until the write is acknowledged. Every
    reader asks for a decision from the newest state at hand.

    Attributes:
        acknowledged: names of pods, with the moment of the acknowledgement on the monotonic clock.
        refused: how often writes failed, by the name of the error.
        unread: errors that readers got.
        reads: decisions that were answered.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        writers: int = 2,
        readers: int = 2,
        retries: bool = False,
    ) -> None:
        self.acknowledged: dict[str, float] = {}
        self.refused: Counter[str] = Counter()
        self.unread: list[TopospreadClientError] = []
        self.reads = 0
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(writers + readers)
        clients = [client_of(addresses[n % len(addresses)], retries=retries) for n in range(8)]
        self._clients = clients
        self._work: list[Callable[[], None]] = []
        for number in range(writers):
            self._work.append(
                lambda number=number: self._write(number, clients[number % len(addresses)])  # type: ignore[misc]
            )
        for number in range(readers):
            self._work.append(
                lambda number=number: self._read(clients[(number + writers) % len(addresses)])  # type: ignore[misc]
            )
        self._running = [self._pool.submit(lambda: None)]

    def __enter__(self) -> Self:
        self._running = [self._pool.submit(work) for work in self._work]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        for running in self._running:
            running.result(PATIENCE)
        self._pool.shutdown()
        for client in self._clients:
            client.close()

    def until_written(self, more: int = 20) -> None:
        """Let so many more writes be acknowledged."""
        goal = len(self.acknowledged) + more
        until(lambda: len(self.acknowledged) >= goal, f"{more} more writes")

    def until_read(self, more: int = 20) -> None:
        """Let so many more decisions be answered."""
        goal = self.reads + more
        until(lambda: self.reads >= goal or bool(self.unread), f"{more} more decisions")

    def resumed_after(self, moment: float) -> float:
        """Seconds from a moment on the monotonic clock to the first write acknowledged after it."""
        return min(at for at in self.acknowledged.values() if at > moment) - moment

    def _write(self, number: int, client: Client) -> None:
        count = 0
        while not self._stop.is_set():
            name = f"w{number}-{count}"
            try:
                client.apply_objects([versioned(pod(name))])
            except TopospreadClientError as refused:
                self.refused[type(refused).__name__] += 1
                self._stop.wait(0.02)
            else:
                self.acknowledged[name] = time.monotonic()
                count += 1
                self._stop.wait(PAUSE)

    def _read(self, client: Client) -> None:
        while not self._stop.is_set():
            try:
                client.evaluate_pod(incoming())
            except TopospreadClientError as failed:
                self.unread.append(failed)
                self._stop.wait(0.02)
            else:
                self.reads += 1
                self._stop.wait(PAUSE)


def versioned(made: dict[str, Any]) -> dict[str, Any]:
    """An object with a resourceVersion: a client repeats no write of others."""
    return made | {"metadata": made["metadata"] | {"resourceVersion": "1"}}


def stored_pods(client: Client) -> set[str]:
    """Names of the pods that the store has."""
    return {item.pod.metadata.name for item in client.list_objects("POD")}


def counted_pods(client: Client) -> int:
    """How many pods a server's newest state has."""
    client.get_node_table(consistency=NEWEST)
    return client.get_cluster(cluster=CLUSTER).cluster.pod_count
