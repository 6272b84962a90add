"""Asks a server as fast as it answers, with a fixed number of calls under way."""

from __future__ import annotations

import selectors
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Final

import click

from bench.http2 import Http2Connection

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.requests import RequestTemplate

MAX_CONNECTIONS: Final = 8
"""Schedulers of a cluster are few; 50 calls under way come over as many connections as 10 do."""


class CallsFailedError(click.ClickException):
    """Calls of a round ended without an answer: its figures mean nothing."""


@dataclass(slots=True)
class LoadResult:
    """The results of one round of calls.

    Attributes:
        seconds: how long it took.
        calls: answers in that time.
        latencies: seconds of each call.
    """

    seconds: float = 0.0
    calls: int = 0
    latencies: list[float] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """Answers a second."""
        return self.calls / self.seconds

    def latency(self, share: float) -> float:
        """Seconds within which a share of the calls was answered."""
        ordered = sorted(self.latencies)
        return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def numbered(templates: Sequence[RequestTemplate]) -> Callable[[], bytes]:
    """Each question in turn, a new number each time."""

    def messages() -> Iterator[bytes]:
        for number in count():
            yield templates[number % len(templates)].numbered(number)

    return messages().__next__


def run_calls(
    address: str, path: str, next_message: Callable[[], bytes], concurrency: int, seconds: float
) -> LoadResult:
    """Keep so many unary calls under way for so long, or until the first is answered.

    Raises:
        CallsFailedError: a call failed.
        BrokenConnectionError: the server is gone.
    """
    with ExitStack() as opened:
        connections = [
            opened.enter_context(Http2Connection(address, path))
            for _ in range(min(concurrency, MAX_CONNECTIONS))
        ]
        round_ = _serial if concurrency == 1 else _parallel
        done = round_(connections, next_message, concurrency, seconds)
        failed = sum(each.failed for each in connections)
    if failed:
        raise CallsFailedError(f"{failed} of {len(done.latencies)} calls of {path} failed")
    return done


def _serial(
    connections: Sequence[Http2Connection],
    next_message: Callable[[], bytes],
    _: int,
    seconds: float,
) -> LoadResult:
    connection, clock, done = connections[0], time.perf_counter, LoadResult()
    begin = now = clock()
    while now - begin < seconds:
        sent = clock()
        connection.call((next_message(),))
        while not connection.receive():
            pass
        now = clock()
        done.latencies.append(now - sent)
    done.calls, done.seconds = len(done.latencies), now - begin
    return done


def _parallel(
    connections: Sequence[Http2Connection],
    next_message: Callable[[], bytes],
    concurrency: int,
    seconds: float,
) -> LoadResult:
    clock, done = time.perf_counter, LoadResult()
    sent: dict[tuple[int, int], float] = {}
    with selectors.DefaultSelector() as ready:
        for connection in connections:
            ready.register(connection, selectors.EVENT_READ, connection)
        begin = now = clock()
        for number, connection in enumerate(connections):
            share = len(range(number, concurrency, len(connections)))
            for stream in connection.call([next_message() for _ in range(share)]):
                sent[connection.fileno(), stream] = now
        while sent:
            for key, _ in ready.select():
                connection = key.data
                ended = connection.receive()
                now = clock()
                for stream in ended:
                    done.latencies.append(now - sent.pop((key.fd, stream)))
                if now - begin < seconds or not done.calls:
                    done.calls += len(ended)
                    done.seconds = now - begin
                    for stream in connection.call([next_message() for _ in ended]):
                        sent[key.fd, stream] = now
    return done
