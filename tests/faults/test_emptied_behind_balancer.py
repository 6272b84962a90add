"""Redis is emptied under load, and two servers behind the balancer as it is shipped say so."""

from __future__ import annotations

import random
import threading
from contextlib import closing
from typing import TYPE_CHECKING, Final, Self

import pytest

from bench.campaigns.load import CLUSTER, Load, client_of, stored_pods, zones
from tests.deploy.balanced import Balanced
from tests.deploy.test_rolling_restart import Callers
from tests.servers import incoming
from tests.store.backends import RedisBackend, follow_all
from tests.store.conftest import SETTINGS
from tests.waiting import PATIENCE, until
from topospread.replica.view import Token
from topospread.service.state.write import FEED_KINDS
from topospread_client import StoreIdentityChanged, TopospreadClientError
from topospread_proto.v1.common_pb2 import KIND_NODE, Kind

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.redis_server import RedisProcess
    from topospread.store.api import Store
    from topospread_client import Client

KINDS: Final = [Kind.Value(f"KIND_{kind.name}") for kind in sorted(FEED_KINDS)]


class Placer:
    """A thread that places one new pod after the other, from entering to leaving it.

    Attributes:
        refused: how often that ended STORE_IDENTITY_CHANGED.
        placed: how often it went well.
        failed: other errors.
    """

    def __init__(self, address: str) -> None:
        self.refused = self.placed = 0
        self.failed: list[TopospreadClientError] = []
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._place)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)

    def until_placed(self, more: int = 5) -> None:
        """Let so many more places be made."""
        goal = self.placed + more
        until(lambda: self.placed >= goal, f"{more} more places")

    def until_refused(self, more: int = 5) -> None:
        """Let so many more places be refused."""
        goal = self.refused + more
        until(lambda: self.refused >= goal, f"{more} more refusals")

    def _place(self) -> None:
        number = 0
        with client_of(self._address) as client:
            while not self._stop.wait(0.01):
                number += 1
                pod = incoming()
                pod = {**pod, "metadata": {**pod["metadata"], "name": f"p-{number}"}}
                try:
                    client.place_pod(pod, reservation_ttl=5)
                except StoreIdentityChanged:
                    self.refused += 1
                except TopospreadClientError as error:
                    self.failed.append(error)
                else:
                    self.placed += 1


def until_refused(load: Load, more: int = 20) -> None:
    """Let so many more writes be refused."""
    goal = load.refused.total() + more
    until(lambda: load.refused.total() >= goal, f"{more} more refusals")


def list_everything(clients: list[Client], order: random.Random) -> int:
    """List each kind by one of the clients; the number of the revision that completes it."""
    revision = ""
    for kind in order.sample(KINDS, len(KINDS)):
        objects = zones() if kind == KIND_NODE else ()
        revision = order.choice(clients).replace_objects(kind, objects).meta.revision
    return Token.decode(revision).revision.number


def written_until(store: Store, number: int) -> set[str]:
    """Names of all that was written into the present history up to a revision."""
    return {
        entry.key.name
        for transaction in follow_all(store, CLUSTER)
        for entry in transaction.entries
        if transaction.revision.number <= number
    }


@pytest.mark.parametrize("rounds", [1, pytest.param(4, marks=pytest.mark.faults)])
def test_no_decision_fails_and_nothing_is_written_until_everything_was_listed(
    start_redis: Callable[..., RedisProcess], tmp_path: Path, rounds: int
) -> None:
    server = start_redis()
    order = random.Random(rounds)
    store = RedisBackend(server.url).open(SETTINGS)
    with (
        closing(store),
        Balanced(server.url, tmp_path) as servers,
        client_of(servers.address, retries=True) as first,
        client_of(servers.address, retries=True) as second,
        Callers(servers.address) as callers,
        Load([servers.address], writers=2, readers=0) as load,
        Placer(servers.address) as placer,
        server.client() as redis,
    ):
        for _ in range(rounds):
            callers.until_answered(50)
            load.until_written()
            placer.until_placed()
            redis.flushall()

            until_refused(load)
            placer.until_refused()
            callers.until_answered(50)
            assert store.clusters() == []
            number = list_everything([first, second], order)

            assert written_until(store, number) <= {"n-a", "n-b", "n-c"}
            before = len(load.acknowledged)
            load.until_written()
            placer.until_placed()
            later = list(load.acknowledged)[before:]
            assert stored_pods(first) >= set(later)
    assert callers.failed == []
    # A call may be told to try again while the state is loaded anew.
    assert set(load.refused) - {"Unavailable"} == {"StoreIdentityChanged"}
    assert {type(error).__name__ for error in placer.failed} <= {"Unavailable"}
