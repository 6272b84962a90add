"""When another history may take the place of the one that was followed."""

from __future__ import annotations

import pytest

from topospread.replica.succession import LISTED_KINDS, Fate, Succession
from topospread.store.api import Head, Kind, Revision

NOW = 1000
ALL = dict.fromkeys(LISTED_KINDS, NOW)
SOME = dict.fromkeys(LISTED_KINDS[:-1], NOW)
LONG_AGO = dict.fromkeys(LISTED_KINDS, 10)


def head(identity, vouched=(), dropped=()):
    revision = Revision(1, "t") if identity else Revision()
    return Head(identity, revision, 1, dropped, dict(vouched), 0 if identity else NOW)


def more(counts, by=1):
    return {kind: count + by for kind, count in counts.items()}


HISTORIES = {
    "it is there": ([head("x")], Fate.SAME),
    "it is missing": ([head("")], Fate.LOST),
    "it is another one": ([head("y")], Fate.LOST),
    "it is back": ([head("x"), head(""), head("x")], Fate.SAME),
    "it was dropped": ([head("x"), head("", dropped=("x",))], Fate.DROPPED),
    "it was dropped and made again": ([head("y", dropped=("z", "x"))], Fate.DROPPED),
    "all kinds were listed since": ([head(""), head("y"), head("y", ALL)], Fate.SUCCEEDED),
    "it was listed before anybody looked": ([head(""), head("y", ALL)], Fate.SUCCEEDED),
    "it was missing and an old copy is there": ([head(""), head("y", LONG_AGO)], Fate.LOST),
    "an old copy was listed again": (
        [head(""), head("y", LONG_AGO), head("y", more(ALL))],
        Fate.SUCCEEDED,
    ),
    "an old copy was listed in part": (
        [head(""), head("y", LONG_AGO), head("y", LONG_AGO | SOME)],
        Fate.LOST,
    ),
    "it was listed before it was there": (
        [head("", SOME), head("y", SOME), head("y", ALL)],
        Fate.SUCCEEDED,
    ),
    "one kind is not listed yet": ([head(""), head("y", SOME)], Fate.LOST),
    "another store was listed long ago": ([head("y", ALL)], Fate.LOST),
    "another store was listed again": ([head("y", ALL), head("y", more(ALL))], Fate.SUCCEEDED),
    "another store was listed in part": ([head("y", ALL), head("y", more(SOME))], Fate.LOST),
    "that there is nothing is accepted": ([head("", ALL)], Fate.SUCCEEDED),
    "one store after the other": ([head("y", ALL), head("z", more(ALL))], Fate.LOST),
    "the second of two was listed": (
        [head("y"), head("z", ALL), head("z", more(ALL))],
        Fate.SUCCEEDED,
    ),
    "it comes and goes": ([head("y"), head("x"), head("y", ALL)], Fate.LOST),
}


@pytest.mark.parametrize(("heads", "fate"), HISTORIES.values(), ids=HISTORIES)
def test_the_last_head_decides_by_what_was_seen_before(heads, fate):
    succession = Succession("x")

    assert [succession.judge(each) for each in heads][-1] is fate


@pytest.mark.parametrize("present", ["y", ""])
def test_what_is_accepted_in_so_many_words_counts_at_once(present):
    succession = Succession("x")
    succession.accept(present)

    assert succession.judge(head(present)) is Fate.SUCCEEDED
    assert succession.judge(head("z")) is (Fate.SUCCEEDED if present == "" else Fate.LOST)


def test_reservations_need_no_list():
    assert Kind.RESERVATION not in LISTED_KINDS
