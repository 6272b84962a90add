"""Stores that are checked while others write them, delete clusters, or take them away."""

from __future__ import annotations

import itertools
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from tests.counting import Counting
from tests.store.backends import CLUSTER, Backend, RedisBackend, SqliteBackend, pod, put
from topospread.app.store_check import check_store
from topospread.errors import StoreUnavailable
from topospread.store.model import StoreSettings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from topospread.store.api import Store

LOG_LIMIT = 64
VERSIONS = itertools.count(1)


@pytest.fixture(params=["sqlite", "redis"])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Backend:
    if request.param == "redis":
        return RedisBackend(request.getfixturevalue("redis_url"))
    return SqliteBackend(f"sqlite://{tmp_path}/state.db")


@pytest.fixture
def store(backend: Backend) -> Iterator[Store]:
    with closing(backend.open(StoreSettings(timeout=20.0, log_limit=LOG_LIMIT))) as opened:
        write(opened, 2 * LOG_LIMIT)
        yield opened


def write(store: Store, count: int) -> None:
    """As many transactions."""
    for number in range(count):
        written = str(next(VERSIONS))
        store.apply(CLUSTER, [put(pod(f"p-{number % 7}"), version=written, payload=b"")])


class Trimmed(Counting):
    """A store of which others write so much that the log is trimmed while it is read."""

    def __init__(self, store: Store, transactions: int) -> None:
        super().__init__(store)
        self._transactions = transactions

    def follow(self, *arguments: Any, **others: Any) -> Any:
        self.calls["follow"] += 1
        try:
            return self._store.follow(*arguments, **others)
        finally:
            if self.calls["follow"] == 1:
                write(self._store, self._transactions)


@pytest.mark.parametrize("transactions", [LOG_LIMIT // 4, 2 * LOG_LIMIT])
def test_log_that_is_trimmed_meanwhile_is_no_problem(store: Any, transactions: int) -> None:
    reading = Trimmed(store, transactions)
    (checked,) = check_store(reading).clusters
    assert checked.problems == ()
    assert reading.calls["follow"] > 1


def test_values_are_named_also_where_the_log_cannot_be_read(store: Any, backend: Backend) -> None:
    class Unread(Counting):
        def follow(self, *arguments: Any, **others: Any) -> Any:
            raise StoreUnavailable("no log today")

    backend.overwrite(store, CLUSTER, pod("p-1"), b"\xff")
    (checked,) = check_store(Unread(store)).clusters
    assert len(checked.problems) == 2
    assert "p-1 cannot be read" in checked.problems[0]
    assert checked.problems[1] == "no log today"


def test_cluster_that_is_deleted_meanwhile_is_no_problem_unless_it_was_named(store: Any) -> None:
    class Late(Counting):
        def clusters(self) -> list[str]:
            return [CLUSTER, "deleted"]

    found = check_store(Late(store))
    assert [each.name for each in found.clusters] == [CLUSTER]
    (named,) = check_store(store, ["deleted"]).clusters
    assert "'deleted' is not known" in named.problems[0]


@pytest.mark.parametrize("call", ["scan", "follow"])
def test_store_that_goes_away_is_no_damaged_one(store: Any, call: str) -> None:
    class Gone(Counting):
        def __getattr__(self, name: str) -> Any:
            if name in {call, "ping"}:
                return self._refuse
            return getattr(self._store, name)

        def scan(self, *arguments: Any, **others: Any) -> Any:
            return self._refuse() if call == "scan" else self._store.scan(*arguments, **others)

        def _refuse(self, *arguments: Any, **others: Any) -> Any:
            raise StoreUnavailable("no answer in time")

    with pytest.raises(StoreUnavailable, match="no answer in time"):
        check_store(Gone(store))
