"""A small share of what `kept` tries: what callers wrote is not kept beyond their calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.campaigns import kept
from bench.campaigns.campaign import MIB
from bench.campaigns.measured import AS_SHIPPED, Measured, load
from tests.servers import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

SIZE = 4 * MIB - 65536
CALLS = 18
MOST = 60 * MIB
"""More than before: were each request kept once, it would be 70 MiB, and mostly there are copies.
All counts of a cluster may take 48 MiB.
"""

KINDS = ("labels", "selector", "topology key", "resource", "cluster", "added pods")
"""One for each cache; the others are kept as one of these is."""


@pytest.fixture(scope="module")
def measured() -> Iterator[Measured]:
    with ServerProcess("--store", "memory:", "--log-level", "error", **AS_SHIPPED) as server:
        one = Measured(server.process.pid, server.address)
        load(one, 6, 6)
        yield one
        one.channel.close()


@pytest.mark.parametrize("kind", KINDS)
def test_request_is_not_kept(
    measured: Measured, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "SIZE", SIZE)
    kept.send(measured, kind, 2)
    before = measured.rss
    ended = kept.send(measured, kind, CALLS)
    assert measured.rss - before < MOST
    assert sum(ended.values()) == CALLS
    assert all(outcome == "OK" or kind == "cluster" for outcome in ended)
