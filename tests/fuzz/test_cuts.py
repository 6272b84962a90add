"""A few lists that are cut, in each way; many are `python -m bench.campaigns cuts`."""

from __future__ import annotations

from bench.campaigns.cuts import cut


def test_lists_that_are_cut_take_nothing_away():
    found = cut(8, seed=1)
    assert found.faults == []
    assert found.codes["objects lost"] == 0
    # Each of the two stores has three more, which are cut after the server has begun them; of the
    # others the server may see none, if it is slow.
    assert found.sent == 8 + 6
    assert found.codes["cut before the commit was sent"] >= 8
    assert found.codes["seen by the server"] >= 8
