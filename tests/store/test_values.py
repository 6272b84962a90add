"""The stored form of objects and log entries, and the rules for versions and trimming."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.backends import DIGEST, node, pod
from topospread.store import rules, values
from topospread.store.model import Key, Kind, LogEntry, StoredObject, StoreSettings

words = st.text(st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="/"))
keys = st.builds(Key, st.sampled_from(Kind), words, words)
digits = st.text("0123456789", max_size=255)
objects = st.builds(
    StoredObject, keys, st.binary(), st.binary(min_size=8, max_size=8), digits, words
)


def test_the_header_is_as_documented():
    stored = StoredObject(pod(), b"payload", b"8 bytes!", "1234", "uid")

    assert values.pack(stored) == b"\x0412348 bytes!\x03uidpayload"


@given(objects)
def test_objects_come_back_as_they_were(stored):
    assert values.unpack(stored.key, values.pack(stored)) == stored


@given(objects, st.data())
def test_a_cut_value_is_raw_or_has_a_shorter_payload(stored, draw):
    whole = values.pack(stored)
    cut = whole[: draw.draw(st.integers(0, len(whole)))]

    found = values.unpack(stored.key, cut)

    if found.digest:
        assert stored.payload.startswith(found.payload)
        assert (found.resource_version, found.uid) == (stored.resource_version, stored.uid)
    else:
        assert found.payload == cut
        assert len(cut) < len(whole) - len(stored.payload)


@given(st.binary())
def test_any_bytes_can_be_looked_at(value):
    found = values.unpack(pod(), value)

    assert found.payload == value if not found.digest else values.pack(found) == value


@given(keys)
def test_names_come_back_as_keys(key):
    assert values.key_of(values.name_of(key).encode()) == key


@pytest.mark.parametrize("name", [b"", b"2", b"2/x", b"99/x/y", b"x/y/z", b"02/x/y", b"\xff/x/y"])
def test_other_names_are_no_keys(name):
    assert values.key_of(name) is None
    assert values.entry(b"=" + name, b"") is None


@given(st.lists(st.tuples(st.binary(max_size=300), st.binary())))
def test_joined_changes_come_apart(pairs):
    assert list(values.split(values.join(pairs))) == pairs


def test_entries_distinguish_relevant_irrelevant_and_deleted():
    stored = StoredObject(node(), b"x", DIGEST, "5", "u")
    value = values.pack(stored)

    assert values.entry(b"=1//node-1", value) == LogEntry(node(), stored, relevant=True)
    assert values.entry(b"~1//node-1", value) == LogEntry(node(), stored, relevant=False)
    assert values.entry(b"-1//node-1", b"") == LogEntry(node(), None, relevant=True)


@given(st.integers(0, 10**40), st.integers(0, 10**40))
def test_versions_compare_like_numbers(left, right):
    assert values.older(str(left), str(right)) == (left < right)


@given(st.integers(1, 300), st.lists(st.integers(1, 120), min_size=1, max_size=200))
def test_trimming_keeps_the_limit_and_little_more(limit, sizes):
    marks, total, oldest = "", 0, 1
    for number, size in enumerate(sizes, 1):
        marks, last = rules.trimmed(marks, number, total, total + size, limit)
        total += size
        oldest = last + 1 if last else oldest
        kept = sum(sizes[oldest - 1 : number])

        assert oldest <= number
        assert kept >= min(limit, total)
        # Besides the limit: a grain, and the transactions at both ends, which are never split.
        assert kept <= limit + max(1, limit // rules.GRAINS) + 2 * max(sizes)
        assert len(marks.split()) <= rules.GRAINS * 2


@pytest.mark.parametrize("marks", ["7", "x:y", ": 1:", "1:" + "9" * 30])
def test_marks_that_are_none_trim_nothing(marks):
    assert rules.trimmed(marks, 10, 0, 20, limit=1000) == ("10:20", 0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"timeout": 0},
        {"connect_timeout": -1},
        {"attempts": 0},
        {"connections": 0},
        {"log_limit": 0},
        {"tombstone_seconds": -1},
        {"tombstone_limit": -1},
    ],
)
def test_settings_that_no_backend_could_keep_are_refused(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        StoreSettings(**wrong)
