"""A server in this process for each test that asks for one, with the flags that it asks for."""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.servers import Peer, served, two_zones
from tests.telemetry.expositions import value
from topospread.app import parts as app_parts
from topospread.app.stores import open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from topospread.app.server import Server
    from topospread.store.model import Transaction


class Running:
    """A server and one peer of it; the small cluster of two zones is loaded.

    Attributes:
        revision: of the load.
    """

    def __init__(self, server: Server, peer: Peer) -> None:
        self.server = server
        self.peer = peer
        self.revision = peer.apply(*two_zones())

    def metrics(self) -> bytes:
        return self.server.metrics.expose()[0]

    def expired_calls(self, method: str) -> float:
        """The calls of a method that their callers' deadlines ended.

        gRPC rounds deadlines up on the way to the server, so its caller may leave a moment before
        the server's clock says why: that counts as CANCELLED.
        """
        codes = ("DEADLINE_EXCEEDED", "CANCELLED")
        metrics = self.metrics()
        counts = [
            value(metrics, "topospread_calls_total", method=method, code=code) for code in codes
        ]
        return sum(count or 0 for count in counts)

    def waiting(self) -> int:
        """Calls that wait for a revision, of whichever pool they are."""
        waiting: int = sum(pool.blocked for pool in self.server.pools.by_name().values())
        return waiting


class HeldBack:
    """A store whose news reach nobody while :attr:`open` is not set."""

    def __init__(self, store: Any, news: threading.Event) -> None:
        self.open = news
        self._store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def follow(self, *arguments: Any, wait: float, **more: Any) -> Sequence[Transaction]:
        if not self.open.is_set() and not self.open.wait(min(wait, 0.1)):
            return ()
        found: Sequence[Transaction] = self._store.follow(*arguments, wait=wait, **more)
        # What came meanwhile is not told either; it is asked for again.
        return found if self.open.is_set() else ()


@pytest.fixture
def news(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """The news that the test's servers get from their store come only while this is set."""
    event = threading.Event()
    event.set()

    monkeypatch.setattr(
        app_parts, "open_store", lambda *arguments: HeldBack(open_store(*arguments), event)
    )
    return event


@pytest.fixture
def transport() -> str:
    """The transport of decisions; files override it to try each of them."""
    return "grpcio"


@pytest.fixture
def run(transport: str) -> Iterator[Callable[..., Running]]:
    with ExitStack() as opened:

        def start(**flags: Any) -> Running:
            server = opened.enter_context(served(**{"transport": transport, **flags}))
            return Running(server, opened.enter_context(Peer(server.address)))

        yield start


@pytest.fixture(scope="module")
def unchanged() -> Iterator[Peer]:
    """Of one server of the module, for calls that are refused."""
    with served() as server, Peer(server.address) as peer:
        yield Running(server, peer).peer
