"""Lists in pages: in order, on any server, for what they answer and no more."""

from __future__ import annotations

import random
from contextlib import closing
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.counting import Counting
from tests.store.backends import (
    CLUSTER,
    Backend,
    RedisBackend,
    SqliteBackend,
    follow_all,
    node,
    pod,
    put,
    replay,
)
from tests.store.conftest import SETTINGS
from topospread.errors import ClusterNotFound, InvalidRequest, RevisionOfOtherHistory
from topospread.replica.view import Token
from topospread.service.state.pages import MAX_PAGE, PageRequest
from topospread.service.state.read import SMALLEST_SCAN, StateReader
from topospread.store.api import scan_all
from topospread.store.model import Key, Kind, Remove, StoredObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from topospread.service.state.read import ObjectPage
    from topospread.store.api import Store


@pytest.fixture(params=["memory", "sqlite", "redis"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "memory":
        return SqliteBackend("memory:")
    if request.param == "sqlite":
        return SqliteBackend(f"sqlite://{tmp_path}/state.db")
    return RedisBackend(request.getfixturevalue("redis_url"))


@pytest.fixture
def store(backend: Backend) -> Iterator[Store]:
    with closing(backend.open(SETTINGS)) as opened:
        yield opened


def reader(store: Any) -> StateReader:
    """What lists; no index is asked."""
    return StateReader(store, cast("Any", None))


def fill(store: Store, count: int) -> None:
    for first in range(0, count, 200):
        numbers = range(first, min(first + 200, count))
        store.apply(CLUSTER, [put(pod(f"p-{n:05}", f"ns-{n % 3}")) for n in numbers])


def page(
    reads: StateReader,
    size: int,
    token: str = "",
    namespace: str = "",
    matches: Callable[[StoredObject], bool] = lambda _: True,
) -> ObjectPage:
    return reads.list(CLUSTER, Kind.POD, namespace, matches, PageRequest(size, token))


def pods(store: Store) -> dict[Key, StoredObject]:
    return {each.key: each for found in scan_all(store, CLUSTER, Kind.POD) for each in found}


def in_order(state: dict[Key, StoredObject]) -> list[StoredObject]:
    return sorted(state.values(), key=lambda each: (each.key.namespace, each.key.name))


def whole(reads: StateReader, size: int, **others: Any) -> list[StoredObject]:
    found: list[StoredObject] = []
    token, first = "", True
    while token or first:
        answer = page(reads, size, token, **others)
        found += answer.objects
        token, first = answer.next, False
    return found


# ------------------------------ what it costs


def test_work_of_a_list_grows_with_its_length_and_no_faster(store: Store) -> None:
    """As many objects are read as are answered, by and large, in pages of any size."""
    work = []
    for count in (1200, 3600):
        fill(store, count)
        counting = Counting(store)
        assert len(whole(reader(counting), 200)) == count
        assert counting.objects <= 1.1 * count + 200
        work.append(counting.objects)
    assert work[1] <= 3.3 * work[0]


def test_work_of_a_small_page_does_not_grow_with_the_cluster(store: Store) -> None:
    work = []
    for count in (600, 1800):
        fill(store, count)
        counting = Counting(store)
        first = page(reader(counting), 1)
        page(reader(counting), 1, first.next)
        work.append((counting.objects, counting.calls))
    assert work[0] == work[1]


def test_work_of_a_page_is_bounded_whatever_its_selector_matches(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topospread.service.state.read.READ_OBJECTS", 250)
    fill(store, 2000)
    wanted = pod("p-01900", "ns-1")
    found: list[StoredObject] = []
    token, pages = "", 0
    while token or not pages:
        counting = Counting(store)
        answer = page(reader(counting), 10, token, matches=lambda each: each.key == wanted)
        assert counting.objects <= 250 + SMALLEST_SCAN
        found += answer.objects
        token, pages = answer.next, pages + 1
    assert [each.key for each in found] == [wanted]
    assert pages >= 2000 // (250 + SMALLEST_SCAN)


def test_page_ends_where_many_bytes_were_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("topospread.service.state.read.READ_BYTES", 100_000)
    store.apply(CLUSTER, [put(pod(f"p-{n:03}"), payload=b"x" * 1000) for n in range(450)])
    answer = page(reader(store), 10, matches=lambda _: False)
    assert not answer.objects
    assert answer.next
    assert whole(reader(store), 10, matches=lambda each: each.key.name == "p-449")


def test_other_namespaces_and_kinds_are_not_read(store: Store) -> None:
    fill(store, 600)
    store.apply(CLUSTER, [put(pod("only", "small")), *(put(node(f"n-{n}")) for n in range(300))])
    counting = Counting(store)
    assert len(whole(reader(counting), 500, namespace="small")) == 1
    assert counting.objects == 1


# ------------------------------ what it says


@pytest.mark.parametrize("size", [1, 7, 60, MAX_PAGE])
def test_unchanged_objects_are_listed_once_and_a_watch_has_the_rest(
    store: Store, size: int
) -> None:
    """A writer changes, deletes and creates before, in and behind each page."""
    fill(store, 150)
    random_ = random.Random(size)
    first = store.head(CLUSTER).revision
    listed: list[StoredObject] = []
    token, begun = "", False
    while token or not begun:
        answer = page(reader(store), size, token)
        listed += answer.objects
        token, begun = answer.next, True
        assert Token.decode(answer.token).revision == first
        for n in random_.sample(range(200), 6):
            key = pod(f"p-{n:05}", f"ns-{n % 3}")
            gone = random_.random() < 0.4
            new = put(key, payload=b"%d" % random_.randrange(9))
            store.apply(CLUSTER, [Remove(key) if gone else new, put(node(f"n-{n}"))])
    assert listed == in_order({each.key: each for each in listed})
    changes = follow_all(store, CLUSTER, first)
    followed = replay({each.key: each for each in listed}, changes)
    assert {key: each for key, each in followed.items() if key.kind is Kind.POD} == pods(store)


@pytest.mark.parametrize("backend", ["sqlite", "redis"], indirect=True)
def test_any_server_answers_the_next_page_also_after_a_restart(backend: Backend) -> None:
    with closing(backend.open(SETTINGS)) as store:
        fill(store, 90)
        expected = in_order(pods(store))
        first = page(reader(store), 30)
        with closing(backend.open(SETTINGS)) as other:
            other.apply(CLUSTER, [Remove(each.key) for each in expected[20:40]])
            second = page(reader(other), 30, first.next)
    with closing(backend.open(SETTINGS)) as restarted:
        third = page(reader(restarted), 30, second.next)
    assert [*first.objects, *second.objects, *third.objects] == [*expected[:30], *expected[40:]]
    assert third.next == ""
    assert first.token == second.token == third.token


def test_values_that_cannot_be_read_count_as_absent(store: Store, backend: Backend) -> None:
    fill(store, 10)
    backend.overwrite(store, CLUSTER, pod("p-00004", "ns-1"), b"\x00")
    answer = page(reader(store), 5)
    assert len(whole(reader(store), 5)) == 9
    store.apply(CLUSTER, [put(pod("p-00004", "ns-1"), payload=b"healed")])
    assert len([*answer.objects, *page(reader(store), 5, answer.next).objects]) == 9


# ------------------------------ when it cannot go on


def test_list_of_a_deleted_cluster_is_refused(store: Store) -> None:
    fill(store, 10)
    token = page(reader(store), 3).next
    store.drop(CLUSTER)
    with pytest.raises(ClusterNotFound):
        page(reader(store), 3, token)
    fill(store, 10)
    with pytest.raises(RevisionOfOtherHistory, match="begin it anew"):
        page(reader(store), 3, token)


def test_page_token_that_leads_out_of_the_namespace_is_refused(store: Store) -> None:
    fill(store, 10)
    token = page(reader(store), 3).token
    elsewhere = PageRequest().next(token, "ns-0", "")
    with pytest.raises(InvalidRequest, match="token of an earlier page"):
        page(reader(store), 3, elsewhere, "ns-1")
