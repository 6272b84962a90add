"""Reading everything: pages, while others write, and values that cannot be read."""

from __future__ import annotations

import pytest

from tests.store.backends import CLUSTER, follow_all, node, objects, pod, put, replay
from topospread.errors import CorruptValue
from topospread.store.model import Key, Kind, Remove, StoredObject
from topospread.store.values import OBSERVABLE


def fill(store, count):
    for first in range(0, count, 250):
        numbers = range(first, min(count, first + 250))
        store.apply(CLUSTER, [put(pod(f"p-{n}", f"ns-{n % 3}"), "1") for n in numbers])


def test_a_cluster_that_is_not_there_has_no_objects(store):
    assert list(store.scan(CLUSTER)) == []
    assert store.get(CLUSTER, pod()) is None


@pytest.mark.parametrize("page", [1, 7, 100, 5000])
def test_pages_hold_every_object_once_at_rest(store, page):
    fill(store, 600)
    store.apply(CLUSTER, [put(node()), put(Key(Kind.SERVICE, "default", "web"))])

    pages = list(store.scan(CLUSTER, page=page))

    assert all(pages)
    found = [stored.key for page in pages for stored in page]
    assert len(found) == 602
    assert len(set(found)) == 602


@pytest.mark.parametrize("page", [1, 7, 5000])
def test_a_kind_may_be_asked_for_alone(store, page):
    fill(store, 30)
    others = [Key(kind, "default", "web") for kind in (*OBSERVABLE[2:], Kind.RESERVATION)]
    others.append(Key(Kind.PROGRESS, "", "2"))
    store.apply(CLUSTER, [put(node()), *map(put, others)])

    for kind in Kind:
        found = [each.key for found in store.scan(CLUSTER, page, kind=kind) for each in found]
        assert found
        assert len(found) == len(set(found))
        assert set(found) == {key for key in objects(store) if key.kind is kind}
    assert list(store.scan("another", kind=Kind.POD)) == []


def test_big_objects_come_in_pages_too(store):
    fill(store, 2000)

    assert max(len(page) for page in store.scan(CLUSTER, page=50)) < 1000


def test_a_scan_between_writes_converges_with_the_log(store):
    fill(store, 1500)
    before = store.head(CLUSTER)
    held: dict[Key, StoredObject] = {}

    for number, page in enumerate(store.scan(CLUSTER, page=20)):
        held |= {stored.key: stored for stored in page}
        n = number * 37 % 1500
        gone, changed = pod(f"p-{n}", f"ns-{n % 3}"), pod(f"p-{n + 1}", f"ns-{(n + 1) % 3}")
        store.apply(CLUSTER, [Remove(gone), put(pod(f"q-{n}"), "2"), put(node(f"n-{n % 40}"))])
        store.apply(CLUSTER, [put(changed, str(number + 2), b"changed")])

    held = replay(held, follow_all(store, after=before.revision))
    assert held == objects(store)
    assert len({key for key in held if key.kind is Kind.NODE}) > 20


@pytest.mark.parametrize("key", [pod(), node()])
@pytest.mark.parametrize(
    "value", [b"", b"\x00", b"\x05abcde", b"\x02x1" + b"d" * 30, b"\x01112345678\xff"]
)
def test_a_damaged_value_comes_raw_and_spoils_nothing_else(store, backend, key, value):
    store.apply(CLUSTER, [put(key, "5"), put(pod("fine")), put(node("fine"))])
    backend.overwrite(store, CLUSTER, key, value)

    found = objects(store)

    assert len(found) == 3
    assert found[key].digest == b""
    assert found[key].payload == value
    assert found[pod("fine")] == put(pod("fine")).object
    with pytest.raises(CorruptValue, match=key.name):
        store.get(CLUSTER, key)


def test_a_damaged_value_can_be_deleted(store, backend):
    store.apply(CLUSTER, [put(pod(), "5"), put(node())])
    backend.overwrite(store, CLUSTER, pod(), b"\x07damaged")

    store.apply(CLUSTER, [Remove(pod(), up_to_version="1")])

    assert list(objects(store)) == [node()]
