"""A caller who keeps many questions under way, in a process of its own.

Its work holds up nobody who measures what it does to others.
"""

from __future__ import annotations

import itertools
import multiprocessing
import selectors
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Self

from bench.http2 import Http2Connection
from tests.servers import evaluate_request
from tests.waiting import PATIENCE, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from multiprocessing.sharedctypes import Synchronized

ENGINE: Final = "/topospread.v1.DecisionService/"
EVALUATE: Final = f"{ENGINE}EvaluatePod"
QUESTION: Final = evaluate_request().SerializeToString()
"""A request of EvaluatePod that costs little."""

CONNECTIONS: Final = 8


class HeavyCaller:
    """Keeps so many questions under way over eight connections; a context manager.

    Args:
        address: of the server.
        under_way: questions.
        method: that is called.
        requests: sent in turn.
    """

    def __init__(
        self,
        address: str,
        under_way: int,
        method: str = EVALUATE,
        requests: Sequence[bytes] = (QUESTION,),
    ) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._ended = spawning.Value("q", 0, lock=False)
        self._failed = spawning.Value("q", 0, lock=False)
        self._process = spawning.Process(
            target=_call,
            args=(address, under_way, method, requests, self._ended, self._failed),
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._process.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()

    @property
    def answered(self) -> int:
        """Questions so far that were answered."""
        return int(self._ended.value - self._failed.value)

    @property
    def failed(self) -> int:
        """Questions so far that were refused, or failed."""
        return int(self._failed.value)

    def await_ended(self, more: int) -> None:
        """Wait until so many more have ended, whichever way."""
        wanted = self._ended.value + more

        def reached() -> bool:
            assert self._process.is_alive()
            return bool(self._ended.value >= wanted)

        until(reached, f"{more} questions of the heavy caller end")


def _call(
    address: str,
    under_way: int,
    method: str,
    requests: Sequence[bytes],
    ended: Synchronized[int],
    failed: Synchronized[int],
) -> None:
    questions = itertools.cycle(requests)
    with selectors.DefaultSelector() as ready, ExitStack() as opened:
        connections = [
            opened.enter_context(Http2Connection(address, method, PATIENCE))
            for _ in range(min(CONNECTIONS, under_way))
        ]
        for connection in connections:
            ready.register(connection, selectors.EVENT_READ, connection)
            connection.call(list(itertools.islice(questions, under_way // len(connections))))
        while True:
            for key, _ in ready.select():
                over = key.data.receive()
                failed.value = sum(each.failed for each in connections)
                ended.value += len(over)
                key.data.call(list(itertools.islice(questions, len(over))))
