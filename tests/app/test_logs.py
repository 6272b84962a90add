"""The log of a server: what debug adds, and that nobody has to read it."""

from __future__ import annotations

import json
import logging
import os
from functools import partial
from typing import TYPE_CHECKING

import pytest

from tests.servers import Peer, ServerProcess, incoming, served, two_zones
from tests.telemetry.expositions import samples
from tests.waiting import until
from topospread.telemetry.logs import MAX_QUEUED
from topospread_client import Client, NotFound

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

LOST = "topospread_log_lines_lost_total"


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    reading, writing = os.pipe()
    yield reading, writing
    os.close(reading)
    os.close(writing)


@pytest.fixture
def server(pipe: tuple[int, int], tmp_path: Path) -> Iterator[ServerProcess]:
    flags = ("--store", f"sqlite:///{tmp_path}/state.db", "--http", "127.0.0.1:0")
    log = ("--log-level", "debug", "--log-format", "json")
    with ServerProcess(*flags, *log, stderr=f"/proc/self/fd/{pipe[1]}") as server:
        yield server


def lost(server: ServerProcess) -> float:
    _, page = server.get("/metrics")
    return samples(page.encode())[LOST, frozenset()]


def fill(server: ServerProcess, peer: Peer) -> None:
    """Have more lines written than the pipe and the queue take."""

    def is_full() -> bool:
        for _ in range(MAX_QUEUED // 16):
            peer.evaluate()
        return lost(server) > 0

    until(is_full, "lines are lost")


def test_calls_and_sigterm_succeed_while_the_log_is_unread(server: ServerProcess) -> None:
    with Peer(server.address) as peer:
        peer.apply(*two_zones())
        fill(server, peer)
        revision = peer.apply(*two_zones())  # writes have a line of the audit log
        peer.await_revision(revision)
        assert peer.evaluate().feasible_node_count == 1
    assert server.end() == 0


def test_log_says_how_many_lines_were_lost(server: ServerProcess, pipe: tuple[int, int]) -> None:
    with Peer(server.address) as peer, os.fdopen(os.dup(pipe[0])) as log:
        peer.apply(*two_zones())
        fill(server, peer)
        count = lost(server)
        lines = map(json.loads, log)
        reported = next(line["lost"] for line in lines if "lost" in line)
    assert reported >= count
    assert server.end() == 0


def contains(log: pytest.LogCaptureFixture, text: str) -> bool:
    return text in log.text


@pytest.mark.parametrize("level", ["DEBUG", "INFO"])
def test_debug_has_a_line_for_each_call(caplog: pytest.LogCaptureFixture, level: str) -> None:
    """And nothing of a call's content in it."""
    caplog.set_level(getattr(logging, level), logger="topospread")
    with served() as server, Client(server.address) as client:
        client.apply_objects(two_zones())
        client.evaluate_pod(incoming())
        with pytest.raises(NotFound):
            client.get_cluster(cluster="missing")
    if level == "INFO":
        assert " in " not in "".join(
            each.message for each in caplog.records if each.name.endswith("handlers")
        )
        return
    for text in ("ApplyObjects OK in", "EvaluatePod OK in", "GetCluster NOT_FOUND in"):
        until(partial(contains, caplog, text), text)
    assert "web-0" not in caplog.text
