"""When another history may take the place of the one that was followed."""

from __future__ import annotations

import pytest

from topospread.replica.history import LISTED_KINDS, HistoryArbiter, HistoryStatus
from topospread.store.model import Head, Kind, Revision

NOW = 1000
ALL = dict.fromkeys(LISTED_KINDS, NOW)
SOME = dict.fromkeys(LISTED_KINDS[:-1], NOW)
LONG_AGO = dict.fromkeys(LISTED_KINDS, 10)


def head(identity, confirmed=(), dropped=()):
    revision = Revision(1, "t") if identity else Revision()
    return Head(identity, revision, 1, dropped, dict(confirmed), 0 if identity else NOW)


def more(counts, by=1):
    return {kind: count + by for kind, count in counts.items()}


HISTORIES = {
    "it is there": ([head("x")], HistoryStatus.SAME),
    "it is missing": ([head("")], HistoryStatus.LOST),
    "it is another one": ([head("y")], HistoryStatus.LOST),
    "it is back": ([head("x"), head(""), head("x")], HistoryStatus.SAME),
    "it was dropped": ([head("x"), head("", dropped=("x",))], HistoryStatus.DROPPED),
    "it was dropped and made again": ([head("y", dropped=("z", "x"))], HistoryStatus.DROPPED),
    "all kinds were listed since": ([head(""), head("y"), head("y", ALL)], HistoryStatus.REPLACED),
    "it was listed before anybody looked": ([head(""), head("y", ALL)], HistoryStatus.REPLACED),
    "it was missing and an old copy is there": (
        [head(""), head("y", LONG_AGO)],
        HistoryStatus.LOST,
    ),
    "an old copy was listed again": (
        [head(""), head("y", LONG_AGO), head("y", more(ALL))],
        HistoryStatus.REPLACED,
    ),
    "an old copy was listed in part": (
        [head(""), head("y", LONG_AGO), head("y", LONG_AGO | SOME)],
        HistoryStatus.LOST,
    ),
    "it was listed before it was there": (
        [head("", SOME), head("y", SOME), head("y", ALL)],
        HistoryStatus.REPLACED,
    ),
    "one kind is not listed yet": ([head(""), head("y", SOME)], HistoryStatus.LOST),
    "another store was listed long ago": ([head("y", ALL)], HistoryStatus.LOST),
    "another store was listed again": (
        [head("y", ALL), head("y", more(ALL))],
        HistoryStatus.REPLACED,
    ),
    "another store was listed in part": (
        [head("y", ALL), head("y", more(SOME))],
        HistoryStatus.LOST,
    ),
    "that there is nothing is accepted": ([head("", ALL)], HistoryStatus.REPLACED),
    "one store after the other": ([head("y", ALL), head("z", more(ALL))], HistoryStatus.LOST),
    "the second of two was listed": (
        [head("y"), head("z", ALL), head("z", more(ALL))],
        HistoryStatus.REPLACED,
    ),
    "it comes and goes": ([head("y"), head("x"), head("y", ALL)], HistoryStatus.LOST),
}


@pytest.mark.parametrize(("heads", "fate"), HISTORIES.values(), ids=HISTORIES)
def test_the_last_head_decides_by_what_was_seen_before(heads, fate):
    succession = HistoryArbiter("x")

    assert [succession.classify(each) for each in heads][-1] is fate


@pytest.mark.parametrize("present", ["y", ""])
def test_accepted_history_counts_at_once(present):
    succession = HistoryArbiter("x")
    succession.accept(present)

    assert succession.classify(head(present)) is HistoryStatus.REPLACED
    assert succession.classify(head("z")) is (
        HistoryStatus.REPLACED if present == "" else HistoryStatus.LOST
    )


def test_reservations_need_no_list():
    assert Kind.RESERVATION not in LISTED_KINDS
