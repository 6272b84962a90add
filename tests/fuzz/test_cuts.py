"""A few lists that are cut, in each way; many are `make fuzz`."""

from __future__ import annotations

from tests.fuzz.cuts import cut


def test_lists_that_are_cut_take_nothing_away():
    found = cut(12, seed=1)
    assert found.faults == []
    assert found.codes["objects lost"] == 0
    assert found.sent == 12
    assert found.codes["cut before the commit was sent"] >= 3
    assert found.codes["seen by the server"] >= 3
