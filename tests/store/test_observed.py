"""The decorator that reports failures of a store: around a real one that is closed under it."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from topospread.errors import InvalidRequest, StoreUnavailable
from topospread.store import observed
from topospread.store.model import Key, Kind, Put, Revision, StoredObject
from topospread.store.observed import observed_store
from topospread.store.sqlite.store import SqliteStore, open_store
from topospread.store.urls import SqliteURL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from topospread.store.api import Store

KEY = Key(Kind.POD, "default", "p")
CHANGES = [Put(StoredObject(KEY, b"payload", b"12345678"))]
OPERATIONS: dict[str, Callable[[Store], object]] = {
    "head": lambda store: store.head("c"),
    "scan": lambda store: store.scan("c", Kind.POD),
    "get": lambda store: store.get("c", [KEY]),
    "clusters": lambda store: store.clusters(),
    "follow": lambda store: store.follow("c", store.head("c").identity, Revision(), wait=0.0),
    "apply": lambda store: store.apply("c", CHANGES),
    "drop": lambda store: store.drop("c"),
    "lease": lambda store: store.lease("c"),
    "acquire": lambda store: store.acquire("c", "one", 1000),
    "ping": lambda store: store.ping(),
}


class Observer:
    """Calls of the decorator's observers.

    Attributes:
        failed: operations that failed.
        inside: how many wait at the moment.
        entered: how often a wait began.
    """

    def __init__(self) -> None:
        self.failed: list[str] = []
        self.inside = 0
        self.entered = 0

    @contextmanager
    def around(self) -> Iterator[None]:
        self.inside += 1
        self.entered += 1
        try:
            yield
        finally:
            self.inside -= 1


@pytest.fixture
def observer() -> Observer:
    return Observer()


@pytest.fixture
def real() -> Iterator[Store]:
    store = open_store(SqliteURL())
    yield store
    store.close()


@pytest.fixture
def store(real: Store, observer: Observer) -> Store:
    return observed_store(real, observer.failed.append, observer.around)


def test_each_method_that_asks_the_store_is_observed():
    assert set(OPERATIONS) == set(observed.OPERATIONS)
    asking = {name for name in dir(SqliteStore) if not name.startswith("_")}
    assert asking - set(OPERATIONS) == {"address", "close", "wake"}


@pytest.mark.parametrize("operation", OPERATIONS)
def test_decorator_answers_as_the_store_does(store, real, observer, operation):
    real.apply("c", CHANGES)
    if operation in ("apply", "drop"):
        assert OPERATIONS[operation](store)
    else:
        assert OPERATIONS[operation](store) == OPERATIONS[operation](real)
    assert observer.failed == []
    assert observer.entered > 0
    assert observer.inside == 0


def logged(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Log records about the store."""
    return [record for record in caplog.records if record.name == observed.__name__]


@pytest.mark.parametrize("operation", OPERATIONS)
def test_failure_is_reported_each_time_and_logged_once(store, real, observer, caplog, operation):
    real.apply("c", CHANGES)
    ask = OPERATIONS[operation]
    if operation == "follow":
        identity = real.head("c").identity

        def ask(store: Store) -> object:
            return store.follow("c", identity, Revision(), wait=0.0)

    real.close()
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            ask(store)
    assert observer.failed == [operation] * 3
    assert observer.inside == 0
    (record,) = logged(caplog)
    assert record.levelno == logging.WARNING
    assert f"{operation}: the store is closed" in record.getMessage()


def test_refusals_are_no_failures(store, observer):
    with pytest.raises(InvalidRequest):
        store.apply("not a name", CHANGES)
    assert observer.failed == []


def test_recovery_is_logged_once(tmp_path, observer, caplog):
    """The file is locked by another process for a while."""
    path = str(tmp_path / "state.db")
    store = observed_store(open_store(SqliteURL(path)), observer.failed.append, observer.around)
    other = open_store(SqliteURL(path))
    with caplog.at_level(logging.INFO):
        with other._connections.writing():
            for _ in range(2):
                with pytest.raises(StoreUnavailable):
                    store.apply("c", CHANGES, timeout=0.01)
            assert store.clusters() == []
        for _ in range(2):
            store.apply("c", CHANGES)
    store.close()
    other.close()
    messages = [record.getMessage().partition(": ")[2] for record in logged(caplog)]
    assert [text.partition(" (")[0] for text in messages] == [
        "apply: another process holds the store's write lock; retry",
        "apply works again",
    ]
    assert observer.failed == ["apply", "apply"]
