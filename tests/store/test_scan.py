"""Scans in the order of keys, reads by key, and values that cannot be read."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.store.backends import (
    CLUSTER,
    DIGEST,
    follow_all,
    get,
    node,
    objects,
    pod,
    put,
    replay,
    scanned,
)
from topospread.errors import CorruptValue
from topospread.store.model import CLUSTER_SCOPED, Key, Kind, Remove, StoredObject
from topospread.store.values import OBSERVABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.store.api import Store

NAMES = [
    ("a", "b"),
    ("a-b", "a"),
    ("a.b", "a"),
    ("a", "b-c"),
    ("a", "b.c"),
    ("a0", "a"),
    ("b", "0"),
    ("z", "a"),
]


def fill(store: Store, count: int) -> None:
    for first in range(0, count, 250):
        numbers = range(first, min(count, first + 250))
        store.apply(CLUSTER, [put(pod(f"p-{n}", f"ns-{n % 3}"), "1") for n in numbers])


def pages(
    store: Store, limit: int, kind: Kind = Kind.POD, namespace: str = ""
) -> Iterator[list[StoredObject]]:
    place: tuple[str, str] | None = ("", "")
    while place is not None:
        page = store.scan(CLUSTER, kind, namespace=namespace, after=place, limit=limit)
        yield list(page.objects)
        place = page.last


def in_order(store: Store, kind: Kind = Kind.POD) -> list[StoredObject]:
    """What there is of a kind, sorted by namespace and name as bytes."""
    found = [each for key, each in objects(store).items() if key.kind is kind]
    return sorted(found, key=lambda each: (each.key.namespace.encode(), each.key.name.encode()))


def test_a_cluster_that_is_not_there_has_no_objects(store):
    page = store.scan(CLUSTER, Kind.POD)
    assert (list(page.objects), page.last) == ([], None)
    assert list(store.get(CLUSTER, [pod()])) == []
    store.apply(CLUSTER, [put(pod())])
    store.drop(CLUSTER)
    assert scanned(store, Kind.POD) == []
    assert list(store.get(CLUSTER, [pod()])) == []
    store.apply(CLUSTER, [put(pod("other"))])
    assert [each.key for each in scanned(store, Kind.POD)] == [pod("other")]


@pytest.mark.parametrize("limit", [1, 2, 3, 8, 100])
def test_pages_are_in_the_order_of_namespace_and_then_name(store, limit):
    store.apply(CLUSTER, [put(pod(name, namespace)) for namespace, name in NAMES])
    store.apply(CLUSTER, [put(node("n")), put(Key(Kind.SERVICE, "a", "s"))])

    found = list(pages(store, limit))

    assert all(len(page) <= limit for page in found)
    listed = [each for page in found for each in page]
    assert [(each.key.namespace, each.key.name) for each in listed] == sorted(NAMES)
    assert listed == in_order(store)


@pytest.mark.parametrize("limit", [7, 5000])
def test_pages_hold_every_object_once_at_rest(store, limit):
    fill(store, 600)

    found = [each.key for page in pages(store, limit) for each in page]

    assert len(found) == len(set(found)) == 600


@pytest.mark.parametrize("limit", [1, 2, 3, 100])
def test_a_namespace_may_be_asked_for_alone(store, limit):
    store.apply(CLUSTER, [put(pod(name, namespace)) for namespace, name in NAMES])
    store.apply(CLUSTER, [put(node("a"))])

    found = [each.key.name for page in pages(store, limit, namespace="a") for each in page]

    assert found == ["b", "b-c", "b.c"]
    assert scanned(store, Kind.POD, namespace="nobodys") == []
    assert scanned(store, Kind.NODE, namespace="a") == []


def test_page_of_a_namespace_may_begin_after_any_name(store):
    store.apply(CLUSTER, [put(pod(name, namespace)) for namespace, name in NAMES])

    for after, expected in {("a", "b"): ["b-c", "b.c"], ("a", "b-b"): ["b-c", "b.c"]}.items():
        page = store.scan(CLUSTER, Kind.POD, namespace="a", after=after)
        assert [each.key.name for each in page.objects] == expected
        assert page.last is None


@pytest.mark.parametrize("limit", [1, 5000])
def test_kinds_are_kept_apart(store, limit):
    fill(store, 30)
    others = [
        Key(kind, "" if kind in CLUSTER_SCOPED else "default", "web")
        for kind in Kind
        if kind not in (Kind.NODE, Kind.POD)
    ]
    store.apply(CLUSTER, [put(node()), *map(put, others)])

    for kind in Kind:
        found = [each.key for page in pages(store, limit, kind) for each in page]
        assert found
        assert {key.kind for key in found} == {kind}
        assert len(found) == len(set(found)) == (30 if kind is Kind.POD else 1)


def test_page_ends_early_when_it_has_many_bytes(store):
    store.apply(CLUSTER, [put(pod(f"p-{n:03}"), payload=b"x" * 1000) for n in range(300)])

    page = store.scan(CLUSTER, Kind.POD, max_bytes=20_000)

    found = list(page.objects)
    assert 15 <= len(found) <= 120
    assert page.last == ("default", found[-1].key.name)
    assert found == in_order(store)[: len(found)]


def test_page_has_an_object_however_large_it_is(store):
    store.apply(CLUSTER, [put(pod(f"p-{n}"), payload=b"x" * 1000) for n in range(3)])

    found: list[StoredObject] = []
    place: tuple[str, str] | None = ("", "")
    while place is not None:
        page = store.scan(CLUSTER, Kind.POD, after=place, max_bytes=1)
        assert page.objects or page.last is None
        found += page.objects
        place = page.last

    assert [each.key.name for each in found] == ["p-0", "p-1", "p-2"]


def test_a_scan_between_writes_converges_with_the_log(store):
    fill(store, 1500)
    before = store.head(CLUSTER)
    held: dict[Key, StoredObject] = {}

    for number, page in enumerate(pages(store, 20)):
        held |= {stored.key: stored for stored in page}
        n = number * 37 % 1500
        gone, changed = pod(f"p-{n}", f"ns-{n % 3}"), pod(f"p-{n + 1}", f"ns-{(n + 1) % 3}")
        store.apply(CLUSTER, [Remove(gone), put(pod(f"q-{n}"), "2"), put(node(f"n-{n % 40}"))])
        store.apply(CLUSTER, [put(changed, str(number + 2), b"changed")])

    held = replay(held, follow_all(store, after=before.revision))
    assert held == objects(store)
    assert len({key for key in held if key.kind is Kind.NODE}) > 20


def test_objects_are_read_by_their_keys(store):
    kinds = [Key(kind, "" if kind in CLUSTER_SCOPED else "n", "x") for kind in OBSERVABLE]
    store.apply(CLUSTER, [put(pod(name, namespace)) for namespace, name in NAMES])
    store.apply(CLUSTER, [put(key, payload=key.kind.name.encode()) for key in kinds])
    wanted = [*kinds, pod("b-c", "a"), pod("nobody", "a"), Key(Kind.POD, "nobodys", "b-c")]

    found = {each.key: each for each in store.get(CLUSTER, wanted)}

    there = objects(store)
    assert found == {key: there[key] for key in wanted if key in there}
    assert len(found) == len(kinds) + 1
    assert list(store.get(CLUSTER, [])) == []


@pytest.mark.parametrize("key", [pod(), node()])
@pytest.mark.parametrize(
    "value", [b"", b"\x00", b"\x05abcde", b"\x02x1" + b"d" * 30, b"\x01112345678\xff"]
)
def test_a_damaged_value_comes_raw_and_spoils_nothing_else(store, backend, key, value):
    store.apply(CLUSTER, [put(key, "5"), put(pod("fine")), put(node("fine"))])
    backend.overwrite(store, CLUSTER, key, value)

    found = objects(store)

    assert len(found) == 3
    assert (found[key].digest, found[key].payload) == (b"", value)
    assert found[pod("fine")] == put(pod("fine")).object
    assert found[node("fine")].digest == DIGEST
    assert list(store.get(CLUSTER, [key])) == [found[key]]
    with pytest.raises(CorruptValue, match=key.name):
        get(store, key)


def test_a_damaged_value_can_be_deleted(store, backend):
    store.apply(CLUSTER, [put(pod(), "5"), put(node())])
    backend.overwrite(store, CLUSTER, pod(), b"\x07damaged")

    store.apply(CLUSTER, [Remove(pod(), up_to_version="1")])

    assert list(objects(store)) == [node()]
