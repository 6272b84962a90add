"""The SQLite file is removed or replaced under running servers."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.campaigns.load import NEWEST, Load, client_of, counted_pods, pod, stored_pods, zones
from tests.servers import shared_address
from tests.waiting import until
from topospread_client import StoreIdentityChanged, TopospreadClientError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.servers import ServerProcess

LONGER = pytest.mark.faults
CALLS = 12
"""Calls on connections of their own, so that each of three processes has some of them."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def refusals(server) -> list[type[TopospreadClientError]]:
    """Errors of writes, each on a connection of its own; one that is acknowledged fails."""
    found = []
    for number in range(CALLS):
        with client_of(server.address) as client:
            with pytest.raises(TopospreadClientError) as refused:
                client.apply_objects([pod(f"lost-{number}")])
            found.append(type(refused.value))
    return found


def other_file(serve, call, path: Path, *pods: str) -> Path:
    """The file of another server, which has ended, with these pods."""
    other = path.with_name("other.db")
    server = serve(f"sqlite://{other}")
    call(server).apply_objects([*zones(), *map(pod, pods)])
    server.end()
    return other


@pytest.fixture
def address() -> Iterator[str]:
    with shared_address() as reserved:
        yield reserved


def loaded(serve, call, path: Path, address: str, processes: int) -> list[ServerProcess]:
    """Processes that share the address and have loaded the cluster: it was there at their start."""
    first = serve(f"sqlite://{path}")
    call(first).apply_objects(zones())
    first.end()
    flags = ("--listen", address, "--reuse-port")
    return [serve(f"sqlite://{path}", *flags) for _ in range(processes)]


@pytest.mark.parametrize("processes", [3, pytest.param(1, marks=LONGER)])
def test_no_write_is_acknowledged_after_the_file_was_removed(serve, call, path, address, processes):
    servers = loaded(serve, call, path, address, processes)
    server = servers[0]
    client = call(server)
    client.apply_objects([pod("before")])
    assert counted_pods(client) == 1

    for suffix in ("", "-wal", "-shm"):
        os.unlink(f"{path}{suffix}")
    assert set(refusals(server)) == {Unavailable}
    with pytest.raises(Unavailable, match="put it back, or restart the server"):
        client.get_node_table(consistency=NEWEST)
    with pytest.raises(Unavailable, match="put it back, or restart the server"):
        client.accept_store("default", client.get_cluster().cluster.store_identity)
    with Load([server.address], writers=0) as load:
        load.until_read()
    assert load.unread == []
    for each in servers:
        each.end()
    assert not path.exists()
    again = call(serve(f"sqlite://{path}"))
    again.apply_objects([pod("after")])
    assert stored_pods(again) == {"after"}


@pytest.mark.parametrize(
    ("processes", "left"),
    [
        (1, False),
        (3, True),
        pytest.param(1, True, marks=LONGER),
        pytest.param(3, False, marks=LONGER),
    ],
)
def test_another_file_is_another_identity(serve, call, path, address, processes, left):
    other = other_file(serve, call, path, "theirs")
    servers = loaded(serve, call, path, address, processes)
    server = servers[0]
    client = call(server)
    client.apply_objects([pod("before")])
    assert counted_pods(client) == 1
    if not left:
        os.unlink(f"{path}-wal")
        os.unlink(f"{path}-shm")
    other.rename(path)

    # While the old file's -wal and -shm are still there, a process says that it is to be retried.
    assert set(refusals(server)) <= {StoreIdentityChanged, *([Unavailable] if left else [])}
    until(partial(changed, client), "the status shows it")
    assert set(refusals(server)) == {StoreIdentityChanged}
    with pytest.raises(StoreIdentityChanged):
        client.get_node_table(consistency=NEWEST)
    with Load([server.address], writers=0) as load:
        load.until_read()
        client.accept_store("default", client.get_cluster().cluster.store_identity)
        for number in range(CALLS):
            with client_of(server.address) as each:
                until(partial(written, each, f"after-{number}"), "it is accepted")
        load.until_read()
    assert {type(error).__name__ for error in load.unread} <= {"Unavailable"}
    expected = {"theirs", *(f"after-{number}" for number in range(CALLS))}
    assert stored_pods(client) == expected
    for process in servers:
        process.end()
    assert stored_pods(call(serve(f"sqlite://{path}"))) == expected


def changed(client) -> bool:
    return any(cluster.identity_changed for cluster in client.list_clusters())


def written(client, name: str) -> bool:
    """Whether a pod was written; a process may need a moment to hear what was accepted."""
    try:
        client.apply_objects([pod(name)])
    except (StoreIdentityChanged, Unavailable):
        return False
    return True


@pytest.mark.parametrize("begun_anew", [False, True])
def test_a_removed_log_loses_nothing_that_was_acknowledged(serve, call, path, begun_anew):
    server = serve(f"sqlite://{path}")
    client = call(server)
    client.apply_objects([*zones(), pod("before")])
    assert counted_pods(client) == 1
    os.unlink(f"{path}-wal")
    if begun_anew:
        # As a connection does that is opened at this moment.
        Path(f"{path}-wal").touch()

    assert set(refusals(server)) == {Unavailable}
    server.process.kill()
    server.end()
    again = call(serve(f"sqlite://{path}"))
    assert stored_pods(again) == {"before"}
    again.apply_objects([pod("after")])
    assert stored_pods(again) == {"before", "after"}
