"""One cluster's index in this process, asked without gRPC, from a source that only replays.

A store's own cost is another matter and measured elsewhere; here a replica reads what was made up
before.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from topospread.cli.bench import questions
from topospread.cli.bench.questions import CLUSTER
from topospread.replica.replica import ReplicaOptions
from topospread.replica.replicas import NEWEST_AT_HAND, Replicas, seconds_from_now
from topospread.service.cycles import Cycles
from topospread.service.engine import Engine
from topospread.service.rules_book import RulesBook
from topospread.store.api import Applied, Head, LogEntry, Revision, StoredObject, Transaction
from topospread.telemetry.metrics import Metrics
from topospread.telemetry.sampling import Sampling
from topospread.telemetry.tracing import Tracing
from topospread.transports.grpc.calls import Call, Unary, parse
from topospread.transports.grpc.decision import DecisionServicer
from topospread.transports.grpc.observe import Observer

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Sequence

    from topospread.cli.bench.questions import Question
    from topospread.store.api import Key, Kind

_LOAD_SECONDS = 600.0
_METHOD = f"{questions.SERVICE}EvaluatePod"


class Replay:
    """A source (see replica.Source) of one cluster: objects at first, then what is released."""

    def __init__(self, objects: Iterable[StoredObject]) -> None:
        self._objects = objects
        self._released: list[Transaction] = []
        self._news = threading.Condition()

    def release(self, batches: Sequence[Sequence[LogEntry]]) -> Revision:
        """Put transactions in the log; returns the revision after the last one."""
        with self._news:
            first = len(self._released) + 1
            self._released += [
                Transaction(Revision(number, "t"), "t" if number > 1 else "", tuple(batch))
                for number, batch in enumerate(batches, first)
            ]
            self._news.notify_all()
            return self._revision()

    def _revision(self) -> Revision:
        return self._released[-1].revision if self._released else Revision()

    def head(self, cluster: str, *, timeout: float | None = None) -> Head:
        """The newest transaction."""
        del cluster, timeout
        return Head("replay", self._revision(), 1)

    def verify(self, cluster: str, identity: str, revision: Revision) -> None:
        """There is one history."""
        del cluster, identity, revision

    def scan(
        self, cluster: str, page: int = 2000, *, kind: Kind | None = None
    ) -> Iterator[Sequence[StoredObject]]:
        """The objects, once."""
        del cluster
        batch: list[StoredObject] = []
        for each in self._objects:
            if kind not in (None, each.key.kind):
                continue
            batch.append(each)
            if len(batch) == page:
                yield batch
                batch = []
        self._objects = ()
        yield batch

    def get(self, cluster: str, key: Key) -> StoredObject | None:
        """Nothing: pods are asked about by their content."""
        del cluster, key
        return None

    def clusters(self) -> Sequence[str]:
        """The one."""
        return [CLUSTER]

    def follow(
        self, cluster: str, identity: str, after: Revision, *, wait: float, limit: int = 1000
    ) -> Sequence[Transaction]:
        """What was released, as stores give it: about `limit` entries at once."""
        del cluster, identity
        with self._news:
            if len(self._released) == after.number and wait:
                self._news.wait(wait)
            found: list[Transaction] = []
            entries = 0
            for transaction in self._released[after.number : after.number + limit]:
                if entries >= limit:
                    break
                found.append(transaction)
                entries += len(transaction.entries)
            return found

    def vouch(
        self,
        cluster: str,
        kinds: Collection[Kind],
        *,
        identity: str = "",
        instead_of: str = "",
    ) -> None:
        """Nobody holds on to another history."""
        del cluster, kinds, identity, instead_of

    def purge(self, cluster: str, *, timeout: float | None = None) -> Applied:
        """Nothing is reserved."""
        del cluster, timeout
        return Applied(self._revision(), self._revision(), ())

    def wake(self, cluster: str) -> None:
        """End a follow() that blocks."""
        del cluster
        with self._news:
            self._news.notify_all()


class Index:
    """A loaded cluster and the way of a call to it, from request bytes to answer bytes."""

    def __init__(self, objects: Iterable[StoredObject]) -> None:
        self.source = Replay(objects)
        self.replicas = Replicas(self.source, ReplicaOptions())
        engine = Engine(self.replicas, self.source, RulesBook(), Cycles(), remembers=False)
        self._tracing = Tracing(Sampling.ratio(0.01), None)
        servicer = DecisionServicer(engine, Observer(Metrics("bench")))
        method, _ = servicer.methods()["EvaluatePod"]
        assert isinstance(method, Unary), "EvaluatePod has one request and one answer"
        self._method = method
        self.replicas.preload((CLUSTER,), seconds_from_now(_LOAD_SECONDS))
        self.replica, _ = self.replicas.resolve(CLUSTER, NEWEST_AT_HAND, seconds_from_now(1.0))

    def close(self) -> None:
        """Stop following."""
        self.replicas.close()

    def evaluate(self, request: bytes) -> bytes:
        """One EvaluatePod, with its span and its metrics."""
        span = self._tracing.start(_METHOD)
        call = Call(span, time.monotonic() + 30.0, _there)
        answer = self._method.serve(parse(self._method.request, request), call)
        span.end(0)
        return answer if isinstance(answer, bytes) else answer.SerializeToString()

    def cost(self, asked: Sequence[Question], seconds: float) -> float:
        """Microseconds of CPU of one EvaluatePod, all questions taking turns."""
        for each in asked:
            self.evaluate(each.numbered(0))
        calls, number = 0, 0
        begun, spent = time.monotonic(), time.thread_time()
        while time.monotonic() - begun < seconds:
            number += 1
            for each in asked:
                self.evaluate(each.numbered(number))
            calls += len(asked)
        return (time.thread_time() - spent) / calls * 1e6


def _there() -> bool:
    return True
