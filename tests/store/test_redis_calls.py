"""Calls on Redis: what they cost in round trips and commands, and what is repeated of them."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from tests.relays import WatchedRelay
from tests.store.backends import CLUSTER, RedisBackend, node, objects, pod, put
from tests.store.conftest import SETTINGS
from topospread.errors import StoreUnavailable
from topospread.store.api import scan_all
from topospread.store.model import Kind, Listed, Remove, Unchanged, WriteOutcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from redis import Redis

    from tests.redis_server import RedisProcess
    from topospread.store.api import Store
    from topospread.store.model import Change


class Counting(WatchedRelay):
    """A way to a server that counts round trips, for one caller at a time.

    Attributes:
        trips: how often the caller spoke after the server had.
    """

    def __init__(self, server: RedisProcess) -> None:
        self.trips = 0
        self._answered = True
        super().__init__(f"127.0.0.1:{server.port}")

    def asked(self, content: bytes) -> None:
        del content
        self.trips += self._answered
        self._answered = False

    def answers(self, content: bytes) -> bool:
        del content
        self._answered = True
        return True


@pytest.fixture
def way(server: RedisProcess) -> Iterator[Counting]:
    with Counting(server) as made:
        yield made


PODS: Sequence[Change] = [put(pod(f"p-{number:03}")) for number in range(40)]
"""They fit in one packet: Redis answers the first of several before the last is sent."""

CALLS: dict[str, Callable[[Store], object]] = {
    "head": lambda store: store.head(CLUSTER),
    "head of none": lambda store: store.head("nobody"),
    "get": lambda store: store.get(CLUSTER, [pod("p-001"), node(), pod("none")]),
    "get of many": lambda store: store.get(CLUSTER, [pod(f"p-{n:03}") for n in range(40)]),
    "scan": lambda store: store.scan(CLUSTER, Kind.POD),
    "scan of a namespace": lambda store: store.scan(CLUSTER, Kind.POD, namespace="default"),
    "scan of nothing": lambda store: store.scan(CLUSTER, Kind.SERVICE),
    "follow": lambda store: store.follow(
        CLUSTER, (head := store.head(CLUSTER)).identity, head.revision, wait=0
    ),
    "apply": lambda store: store.apply(CLUSTER, [put(pod()), Remove(node())]),
    "apply of many": lambda store: store.apply(CLUSTER, PODS, force=True),
    "apply of nothing": lambda store: store.apply(CLUSTER, ()),
    "apply with all conditions": lambda store: store.apply(
        CLUSTER,
        [put(pod("p-001"), "9")],
        identity=(head := store.head(CLUSTER)).identity,
        precondition=Unchanged(head.revision, ("default", "nodes/")),
        fence=store.acquire(CLUSTER, "one", 60_000).fence,
        listed=Listed(Kind.POD, frozenset({Kind.POD})),
    ),
    "acquire": lambda store: store.acquire(CLUSTER, "one", 60_000),
    "lease": lambda store: store.lease(CLUSTER),
    "drop": lambda store: store.drop(CLUSTER),
    "ping": lambda store: store.ping(),
}
"""By name: one call, or one behind others that are one."""

MORE = {"follow": 2, "apply with all conditions": 3}
"""Round trips of calls that others go before."""


@pytest.mark.parametrize("looks", ["none", "at each call"])
@pytest.mark.parametrize("name", CALLS)
def test_each_call_is_one_round_trip(
    way: Counting, name: str, looks: str, monkeypatch: pytest.MonkeyPatch
):
    """Also when it is time to look whether the server is still a master that evicts nothing."""
    with closing(RedisBackend(way.url).open(SETTINGS)) as store:
        store.apply(CLUSTER, [*PODS[:-1], put(node())])
        every = 0.0 if looks == "at each call" else 3600.0
        monkeypatch.setattr("topospread.store.redis.client.CHECK_INTERVAL", every)
        before = way.trips
        CALLS[name](store)
        assert way.trips - before == MORE.get(name, 1)


def test_news_that_are_there_are_one_round_trip(way: Counting):
    with closing(RedisBackend(way.url).open(SETTINGS)) as store:
        seen = store.apply(CLUSTER, [put(node())])
        news = store.apply(CLUSTER, [put(node("news"))])
        before = way.trips
        (found,) = store.follow(CLUSTER, seen.identity, seen.revision, wait=60)
        assert found.revision == news.revision
        assert way.trips - before == 1


def fill(store: Store, count: int, namespace: str) -> None:
    for first in range(0, count, 500):
        numbers = range(first, min(first + 500, count))
        store.apply(CLUSTER, [put(pod(f"p-{number}", namespace)) for number in numbers])


def commands(client: Redis, call: Callable[[], object]) -> dict[str, int]:
    """How often each command of Redis ran meanwhile, also those of scripts."""
    client.config_resetstat()
    call()
    stats = client.info("commandstats")
    return {name.removeprefix("cmdstat_"): each["calls"] for name, each in stats.items()}


@pytest.mark.parametrize("others", [0, 500, 5000])
def test_a_list_of_a_namespace_reads_what_it_holds(redis_store: Store, client: Redis, others: int):
    fill(redis_store, 10, "m-small")
    for namespace in ("a", "m", "m-small-too", "z"):
        fill(redis_store, others // 4, namespace)
    redis_store.apply(CLUSTER, [put(node(f"n-{number}")) for number in range(7)])

    def read(kind: Kind, namespace: str = "") -> int:
        return sum(len(page) for page in scan_all(redis_store, CLUSTER, kind, namespace))

    for kind, namespace, held in ((Kind.POD, "m-small", 10), (Kind.NODE, "", 7)):
        counted = commands(client, lambda: read(kind, namespace))  # noqa: B023 # called at once
        assert counted["zrangebylex"] == 1
        # One more for the format.
        assert counted["hget"] == held + 1
        assert read(kind, namespace) == held
    assert len(objects(redis_store)) == 10 + 4 * (others // 4) + 7


@pytest.mark.parametrize("held", [500, 1000, 2000, 4000])
def test_a_list_reads_each_value_once(redis_store: Store, client: Redis, held: int):
    fill(redis_store, held, "default")

    counted = commands(client, lambda: list(scan_all(redis_store, CLUSTER, Kind.POD)))

    pages = held // 1000 + 1
    assert counted["zrangebylex"] == pages
    assert counted["hget"] == held + pages
    assert not counted.keys() & {"zrange", "hscan", "hgetall", "hvals", "hmget"}


def test_a_page_ends_with_its_bytes_before_others_are_read(redis_store: Store, client: Redis):
    changes = [put(pod(f"p-{number:03}"), payload=bytes(1000)) for number in range(100)]
    redis_store.apply(CLUSTER, changes)

    counted = commands(client, lambda: redis_store.scan(CLUSTER, Kind.POD, max_bytes=20_000))

    # Twenty, with what stands before their payloads, and one for the format.
    assert counted["hget"] == 21


# ------------------------------ an answer is lost, and another writer writes


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
def forgetful(redis_server: RedisProcess, redis_url: str) -> Iterator[Forgetful]:
    with Forgetful(redis_server) as made:
        yield made


@pytest.fixture
def ours(forgetful: Forgetful) -> Iterator[Store]:
    with closing(RedisBackend(forgetful.url).open(SETTINGS)) as store:
        yield store


@pytest.fixture
def other(redis_url: str) -> Iterator[Store]:
    with closing(RedisBackend(redis_url).open(SETTINGS)) as store:
        store.lease(CLUSTER)  # Redis knows the script from now on
        yield store


def test_changes_without_versions_are_not_repeated(forgetful: Forgetful, ours: Store, other: Store):
    mine, theirs = put(node(), payload=b"mine"), put(node(), payload=b"theirs")
    forgetful.between = lambda: other.apply(CLUSTER, [theirs])
    with pytest.raises(StoreUnavailable):
        ours.apply(CLUSTER, [mine])
    assert list(objects(other).values()) == [theirs.object]

    forgetful.between = lambda: other.apply(CLUSTER, [mine])
    with pytest.raises(StoreUnavailable):
        ours.apply(CLUSTER, [Remove(node())])
    assert list(objects(other).values()) == [mine.object]
    assert forgetful.between is None


def test_changes_with_versions_are_repeated(forgetful: Forgetful, ours: Store, other: Store):
    older, newer = put(node(), "7", b"older"), put(node(), "8", b"newer")
    forgetful.between = lambda: other.apply(CLUSTER, [newer])
    assert ours.apply(CLUSTER, [older]).outcomes == (WriteOutcome.IGNORED_STALE,)

    newest = put(node(), "9", b"newest")
    forgetful.between = lambda: other.apply(CLUSTER, [newest])
    removed = ours.apply(CLUSTER, [Remove(node(), up_to_version="8")])
    assert removed.outcomes == (WriteOutcome.IGNORED_STALE,)
    assert list(objects(other).values()) == [newest.object]
    assert forgetful.between is None
