"""When a master that Sentinels name may be used."""

from __future__ import annotations

import pytest

from topospread.store.redis.failures import MasterUnknown
from topospread.store.redis.sentinel import HEARSAY, LEASE, Majority, SentinelReply

SENTINELS = [("s", number) for number in range(3)]
OLD, NEW = ("old", 6379), ("new", 6379)


@pytest.fixture
def majority():
    """All three have named the old master for a lease, and just now, at the moment 100."""
    found = Majority(3)
    answer_at(found, 100.0 - LEASE, (1, OLD))
    answer_at(found, 100.0, (1, OLD), (1, OLD), (1, OLD))
    return found


def answer_at(majority, now, *answers, **more):
    """Let Sentinels answer at once, the first ones first; None is no answer."""
    for sentinel, answer in zip(SENTINELS, answers, strict=False):
        if answer is not None:
            epoch, master = answer
            majority.note(sentinel, SentinelReply(now, epoch, master, **more), now)


def test_a_master_that_was_named_a_lease_ago_is_used(majority):
    assert majority.master(100.0) == OLD
    assert majority.master(100.0 + LEASE - 0.01) == OLD


def test_without_any_answer_nothing_is_used():
    with pytest.raises(MasterUnknown, match="no Sentinel answers"):
        Majority(3).master(100.0)


def test_a_majority_has_to_have_answered_within_the_lease(majority):
    answer_at(majority, 100.9, (1, OLD), None, None)
    with pytest.raises(MasterUnknown, match="only 1 of 3 Sentinels answer: 2 are needed"):
        majority.master(101.1)
    answer_at(majority, 101.2, None, (1, OLD), None)
    assert majority.master(101.3) == OLD


def test_the_newest_configuration_names_the_master_and_is_waited_for(majority):
    answer_at(majority, 100.5, (2, NEW), None, None)
    for now in (100.5, 100.5 + LEASE - 0.01):
        answer_at(majority, now, (2, NEW), (1, OLD), (1, OLD))
        with pytest.raises(MasterUnknown, match="changing the master"):
            majority.master(now)
    answer_at(majority, 101.6, (2, NEW), (2, NEW), (1, OLD))
    assert majority.master(101.6) == NEW


def test_older_configurations_change_nothing(majority):
    answer_at(majority, 100.5, (0, NEW), (1, OLD), (1, OLD))
    assert majority.master(100.6) == OLD


def test_the_word_of_a_sentinel_that_fell_silent_counts_for_a_while(majority):
    answer_at(majority, 100.5, (2, NEW), None, None)
    before = 100.4 + HEARSAY
    answer_at(majority, before, None, (1, OLD), (1, OLD))
    assert majority.master(before) == NEW
    now = 100.6 + HEARSAY
    answer_at(majority, now, None, (1, OLD), (1, OLD))
    with pytest.raises(MasterUnknown, match="changing the master"):
        majority.master(now)
    answer_at(majority, now + LEASE, None, (1, OLD), (1, OLD))
    assert majority.master(now + LEASE) == OLD


def test_while_a_replica_is_promoted_no_master_is_used(majority):
    answer_at(majority, 100.5, (1, OLD), promoting=True)
    with pytest.raises(MasterUnknown, match="changing the master"):
        majority.master(100.5)
    # The same epoch, and no longer so: the failover was given up.
    answer_at(majority, 100.6, (1, OLD))
    assert majority.master(100.6) == OLD


def test_news_stop_calls_until_the_next_answer(majority):
    majority.doubt(SENTINELS[2])
    with pytest.raises(MasterUnknown, match="changing the master"):
        majority.master(100.0)
    answer_at(majority, 100.1, None, None, (1, OLD))
    assert majority.master(100.1) == OLD


def test_a_master_that_most_find_down_is_not_used(majority):
    answer_at(majority, 100.1, (1, OLD), down=True)
    assert majority.master(100.1) == OLD
    answer_at(majority, 100.2, (1, OLD), (1, OLD), down=True)
    with pytest.raises(MasterUnknown, match="for down"):
        majority.master(100.2)


def test_at_the_start_a_lease_is_waited_for():
    majority = Majority(3)
    answer_at(majority, 100.0, (2, NEW), (2, NEW), (2, NEW))
    with pytest.raises(MasterUnknown, match="changing the master"):
        majority.master(100.9)
    answer_at(majority, 101.0, (2, NEW), (2, NEW), (2, NEW))
    assert majority.master(101.0) == NEW


def test_one_master_that_sentinels_write_differently_is_not_a_new_one(majority):
    answer_at(majority, 100.1, (1, OLD), (1, ("old.example", 6379)), (1, ("old.example", 6379)))
    assert majority.master(100.1) == OLD
