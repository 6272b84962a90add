"""A small crowd of hostile peers; large ones are `python -m bench.campaigns floods`."""

from __future__ import annotations

from bench.campaigns.floods import flooded


def test_a_small_crowd_is_in_nobodys_way():
    found = flooded(300)
    assert found.faults == []
    assert found.sent == 300 + 300 + 300 + 30
    assert 0 < found.codes["idle gRPC connections"] <= 270
    assert 0 < found.codes["idle HTTP connections"] <= 270
    assert found.codes["answers to others"] >= 6
