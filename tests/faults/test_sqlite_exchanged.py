"""The SQLite file is removed or replaced under running servers: they say so, and stop writing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.campaigns.load import NEWEST, Load, client_of, counted_pods, pod, stored_pods, zones
from tests.servers import shared_address
from topospread_client import TopospreadClientError, Unavailable

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


def check_stopped(servers: list[ServerProcess], client) -> None:
    """No write is acknowledged, and each refusal says what to do; decisions go on."""
    assert set(refusals(servers[0])) == {Unavailable}
    for ask in (
        lambda: client.apply_objects([pod("lost")]),
        lambda: client.replace_objects("POD", [pod("lost")]),
        lambda: client.get_node_table(consistency=NEWEST),
    ):
        with pytest.raises(Unavailable, match="restart the server"):
            ask()
    with Load([servers[0].address], writers=0) as load:
        load.until_read()
    assert load.unread == []


@pytest.mark.parametrize("processes", [3, pytest.param(1, marks=LONGER)])
def test_no_write_is_acknowledged_after_the_file_was_removed(serve, call, path, address, processes):
    servers = loaded(serve, call, path, address, processes)
    client = call(servers[0])
    client.apply_objects([pod("before")])
    assert counted_pods(client) == 1

    for suffix in ("", "-wal", "-shm"):
        os.unlink(f"{path}{suffix}")
    check_stopped(servers, client)
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
def test_another_file_is_served_after_a_restart(serve, call, path, address, processes, left):
    other = other_file(serve, call, path, "theirs")
    servers = loaded(serve, call, path, address, processes)
    client = call(servers[0])
    client.apply_objects([pod("before")])
    assert counted_pods(client) == 1
    if not left:
        os.unlink(f"{path}-wal")
        os.unlink(f"{path}-shm")
    aside = path.with_name("aside.db")
    path.rename(aside)
    other.rename(path)

    check_stopped(servers, client)
    for process in servers:
        process.end()
    again = call(serve(f"sqlite://{path}"))
    again.apply_objects([pod("after")])
    assert stored_pods(again) == {"theirs", "after"}
    assert stored_pods(call(serve(f"sqlite://{aside}"))) == {"before"}


@pytest.mark.parametrize("begun_anew", [False, True])
@pytest.mark.parametrize("processes", [1, 2])
def test_a_removed_log_loses_nothing_that_was_acknowledged(
    serve, call, path, address, begun_anew, processes
):
    servers = loaded(serve, call, path, address, processes)
    client = call(servers[0])
    client.apply_objects([pod("before")])
    assert counted_pods(client) == 1
    os.unlink(f"{path}-wal")
    if begun_anew:
        # As a connection does that is opened at this moment.
        Path(f"{path}-wal").touch()

    check_stopped(servers, client)
    for each in servers:
        each.process.kill()
        each.end()
    again = call(serve(f"sqlite://{path}"))
    assert stored_pods(again) == {"before"}
    again.apply_objects([pod("after")])
    assert stored_pods(again) == {"before", "after"}
