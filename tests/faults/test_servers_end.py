"""Servers are killed in the middle of writes, and restarted one after the other under load."""

from __future__ import annotations

import signal
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from bench.campaigns.load import (
    CLUSTER,
    NEWEST,
    ZONE,
    Load,
    balanced,
    client_of,
    counted_pods,
    stored_pods,
    zones,
)
from tests.redis_server import free_port
from tests.servers import ServerProcess, shared_address
from tests.waiting import until
from topospread_client import TopospreadClientError

if TYPE_CHECKING:
    from topospread_client import Client

BATCH = 400
"""Objects of one atomic step: large enough to be killed in the middle of."""


def generation(number: int) -> list[dict[str, object]]:
    """Nodes with the time at which they were written."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"m-{n}", "labels": {ZONE: f"generation-{number}"}},
        }
        for n in range(BATCH)
    ]


class Writer(threading.Thread):
    """Writes one generation after the other until a call fails."""

    def __init__(self, client: Client, count: int) -> None:
        super().__init__()
        self.client = client
        self.count = count
        self.acknowledged: list[str] = []

    def writes(self) -> bool:
        return len(self.acknowledged) > 1

    def run(self) -> None:
        while True:
            self.count += 1
            try:
                self.acknowledged.append(
                    self.client.apply_objects(generation(self.count)).meta.revision
                )
            except TopospreadClientError:
                return


@pytest.mark.parametrize("kills", [2, pytest.param(8, marks=pytest.mark.faults)])
def test_an_apply_that_its_server_did_not_survive_is_whole_or_not_at_all(
    durable, serve, call, kills
):
    witness = call(serve(durable.url))
    start = witness.apply_objects(zones()).meta.revision
    acknowledged: list[str] = []
    count = 0
    for _ in range(kills):
        victim = serve(durable.url)
        writer = Writer(call(victim), count)
        writer.start()
        until(writer.writes, "it writes")
        victim.process.kill()
        writer.join()
        acknowledged += writer.acknowledged
        count = writer.count

    seen: list[str] = []
    last = witness.apply_objects(
        [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "last"}}]
    )
    for changes in witness.watch_objects(revision=start, timeout=60):
        seen.append(changes.meta.revision)
        if changes.meta.revision == last.meta.revision:
            break
        events = [event for event in changes.events if event.HasField("object")]
        if not events:
            continue  # a bookmark
        # Watched from the beginning, every transaction is one whole generation.
        assert len({event.ref.name for event in events}) == BATCH
        zones_of = {event.object.node.metadata.labels[ZONE] for event in events}
        assert len(zones_of) == 1
    assert set(acknowledged) <= set(seen)
    nodes = [item.node for item in witness.list_objects("NODE")]
    generations = Counter(node.metadata.labels.get(ZONE, "") for node in nodes)
    assert [number for zone, number in generations.items() if zone.startswith("gen")] == [BATCH]
    assert len(witness.get_node_table(consistency=NEWEST).node_names) == BATCH + 4


@pytest.mark.parametrize("kills", [2, pytest.param(4, marks=pytest.mark.faults)])
def test_killed_process_of_a_shared_address_fails_no_call(durable, serve, call, kills):
    """The client repeats decisions and writes, which the other process takes."""
    with shared_address() as address:
        flags = ("--listen", address, "--reuse-port", "--preload", CLUSTER)
        servers = [serve(durable.url, *flags) for _ in range(2)]
        call(servers[0]).apply_objects(zones())
        with Load([address], writers=2, readers=3, retries=True) as load:
            for number in range(kills):
                load.until_read(100)
                servers[number % 2].end(signal.SIGKILL)
                load.until_written()
                servers[number % 2] = serve(durable.url, *flags)
            load.until_read(100)
        assert load.unread == []
        assert load.refused == Counter()
        client = call(servers[0])
        stored = stored_pods(client)
        assert set(load.acknowledged) == stored
        assert counted_pods(client) == len(stored)


@pytest.mark.parametrize("rounds", [1, pytest.param(2, marks=pytest.mark.faults)])
def test_a_rolling_restart_fails_no_call(durable, rounds):
    """Two servers behind one target, restarted in turn; the client repeats what is safe to."""
    ports = [free_port(), free_port()]
    target = balanced([f"127.0.0.1:{port}" for port in ports])

    def run(port: int) -> ServerProcess:
        listen = ("--listen", f"127.0.0.1:{port}")
        return ServerProcess("--store", durable.url, "--preload", CLUSTER, *listen)

    servers = [run(port) for port in ports]
    try:
        with client_of(target) as client:
            client.apply_objects(zones())
        with Load([target], writers=1, readers=3, retries=True) as load:
            for _ in range(rounds):
                for number, port in enumerate(ports):
                    load.until_read(100)
                    assert servers[number].end() == 0
                    load.until_read(100)
                    servers[number] = run(port)
            load.until_read(100)
            load.until_written()
        assert load.unread == []
        assert load.refused == Counter()
        with client_of(target) as client:
            stored = stored_pods(client)
            assert set(load.acknowledged) == stored
            assert counted_pods(client) == len(stored)
    finally:
        for server in servers:
            server.end()
