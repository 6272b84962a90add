"""A write is carried out, its connection ends before the answer, and another writer writes."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.relays import WatchedRelay
from tests.store.backends import CLUSTER, RedisBackend, node, objects, put
from tests.store.conftest import SETTINGS
from topospread.errors import StoreUnavailable
from topospread.store.model import Remove, WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.redis_server import RedisProcess
    from topospread.store.api import Store


class Forgetful(WatchedRelay):
    """A way to a server that can end in place of the next answer to a script.

    Attributes:
        between: called then, once.
    """

    def __init__(self, server: RedisProcess) -> None:
        self.between: Callable[[], object] | None = None
        self._asked = False
        super().__init__(f"127.0.0.1:{server.port}")

    def asked(self, content: bytes) -> None:
        # Not in place of an answer to what a connection begins with.
        self._asked = b"EVAL" in content

    def answers(self, content: bytes) -> bool:
        del content
        if not self._asked or self.between is None:
            return True
        between, self.between = self.between, None
        between()
        return False


@pytest.fixture
def way(redis_server: RedisProcess, redis_url: str) -> Iterator[Forgetful]:
    with Forgetful(redis_server) as made:
        yield made


@pytest.fixture
def ours(way: Forgetful) -> Iterator[Store]:
    with closing(RedisBackend(way.url).open(SETTINGS)) as store:
        yield store


@pytest.fixture
def other(redis_url: str) -> Iterator[Store]:
    with closing(RedisBackend(redis_url).open(SETTINGS)) as store:
        store.lease(CLUSTER)  # Redis knows the script from now on
        yield store


def test_changes_without_versions_are_not_repeated(way: Forgetful, ours: Store, other: Store):
    mine, theirs = put(node(), payload=b"mine"), put(node(), payload=b"theirs")
    way.between = lambda: other.apply(CLUSTER, [theirs])
    with pytest.raises(StoreUnavailable):
        ours.apply(CLUSTER, [mine])
    assert list(objects(other).values()) == [theirs.object]

    way.between = lambda: other.apply(CLUSTER, [mine])
    with pytest.raises(StoreUnavailable):
        ours.apply(CLUSTER, [Remove(node())])
    assert list(objects(other).values()) == [mine.object]
    assert way.between is None


def test_changes_with_versions_are_repeated(way: Forgetful, ours: Store, other: Store):
    older, newer = put(node(), "7", b"older"), put(node(), "8", b"newer")
    way.between = lambda: other.apply(CLUSTER, [newer])
    assert ours.apply(CLUSTER, [older]).outcomes == (WriteOutcome.IGNORED_STALE,)

    newest = put(node(), "9", b"newest")
    way.between = lambda: other.apply(CLUSTER, [newest])
    removed = ours.apply(CLUSTER, [Remove(node(), up_to_version="8")])
    assert removed.outcomes == (WriteOutcome.IGNORED_STALE,)
    assert list(objects(other).values()) == [newest.object]
    assert way.between is None
