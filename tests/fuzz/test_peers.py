"""A small crowd of hostile peers; the large one is `make fuzz`."""

from __future__ import annotations

from tests.fuzz.peers import crowded


def test_a_small_crowd_is_in_nobodys_way():
    found = crowded(300)
    assert found.faults == []
    assert found.sent == 300 + 300 + 300 + 30
    assert 0 < found.codes["idle gRPC connections"] <= 270
    assert 0 < found.codes["idle HTTP connections"] <= 270
    assert found.codes["answers to others"] >= 6
