"""A short campaign of changed files that is the same each time; what was found is in tests/cli."""

from __future__ import annotations

from bench.campaigns.files import Files
from tests.servers import served

MIB = 1 << 20


def test_a_short_campaign_finds_nothing():
    with served() as server:
        found = Files(server.address, seed=1).run(250)
    assert found.faults == []
    assert found.sent == 250
    # They are neither all refused nor all read.
    assert found.codes["refused"] > 25
    assert found.codes["read"] > 25
    assert found.grown < 200 * MIB
