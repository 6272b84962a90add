"""When another history may take the place of the one that was followed."""

from __future__ import annotations

import pytest

from topospread.replica.history import HistoryStatus, status_of
from topospread.store.model import Head, Revision

AT = Revision(1, "t")

HEADS = {
    "it is there": (Head("x", AT), HistoryStatus.SAME),
    "it is there and complete": (Head("x", AT, complete=True), HistoryStatus.SAME),
    "it is missing": (Head("", Revision()), HistoryStatus.LOST),
    "it is another one": (Head("y", AT), HistoryStatus.LOST),
    "another one was dropped there": (Head("y", AT, replaced=("z",)), HistoryStatus.LOST),
    "another one is complete": (Head("y", AT, complete=True), HistoryStatus.REPLACED),
    "it was dropped": (Head("", Revision(), replaced=("x",)), HistoryStatus.DROPPED),
    "it was dropped and made again": (
        Head("y", AT, replaced=("z", "x")),
        HistoryStatus.DROPPED,
    ),
    "it was dropped, and the next one is complete": (
        Head("y", AT, complete=True, replaced=("x",)),
        HistoryStatus.DROPPED,
    ),
}


@pytest.mark.parametrize(("head", "status"), HEADS.values(), ids=HEADS)
def test_the_head_decides(head, status):
    assert status_of("x", head) is status
