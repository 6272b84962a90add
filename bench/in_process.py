"""Benches of decisions in this process, without gRPC: by size, and by selectors used first.

The CPU of a decision must not grow with the pods. A replica reads a cluster that was made before,
so that the cost of a store is not part of it.
"""

from __future__ import annotations

import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from bench import requests
from bench.cluster import APPS, Size, objects
from bench.figures import Figures
from bench.processes import worker_process
from bench.requests import CLUSTER
from topospread.api.decision import DecisionMetrics, DecisionServicer
from topospread.calls.call import Call, Encoded, Unary, parse
from topospread.replica.replicas import Replicas, seconds_from_now
from topospread.replica.state import ReplicaOptions
from topospread.replica.view import DEFAULT_CONSISTENCY
from topospread.service.decisions.cycle import CycleCache
from topospread.service.decisions.engine import Engine
from topospread.service.decisions.request import ProfileRegistry
from topospread.store.dict_store import DictStore
from topospread.store.model import Put, Remove
from topospread.telemetry.metrics import Metrics
from topospread.telemetry.tracing import Sampling, Tracing

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from bench.options import BenchOptions
    from bench.requests import RequestTemplate
    from topospread.store.model import LogEntry, Revision, StoredObject
    from topospread.telemetry.spans import CallSpan


_LOAD_SECONDS = 600.0

POD_FACTORS = (0.1, 1, 10)
NODE_FACTORS = (0.2, 1, 3, 10)
"""Times the plan's size."""

NEW_SELECTORS: Final = 40
"""New ones in each round."""


class ReplaySource(DictStore):
    """A store of one cluster that keeps all changes that were released."""

    def __init__(self, objects: Iterable[StoredObject]) -> None:
        super().__init__(CLUSTER, objects, kept=sys.maxsize)

    def release(self, batches: Sequence[Sequence[LogEntry]]) -> Revision:
        """Put transactions in the log; returns the revision after the last one."""
        for batch in batches:
            self.feed([Put(each.object) if each.object else Remove(each.key) for each in batch])
        return self.head(CLUSTER).revision


class InProcessDecisions:
    """A loaded cluster and the way of a call to it, from request bytes to answer bytes."""

    def __init__(self, objects: Iterable[StoredObject]) -> None:
        self.source = ReplaySource(objects)
        self.replicas = Replicas(self.source, ReplicaOptions())
        engine = Engine(
            self.replicas, self.source, ProfileRegistry(), CycleCache(), remembers=False
        )
        self._tracing = Tracing(Sampling.ratio(0.01), None)
        servicer = DecisionServicer(engine, DecisionMetrics(Metrics("bench")))
        method = servicer.methods()["EvaluatePod"]
        assert isinstance(method, Unary), "EvaluatePod has one request and one answer"
        self._method = method
        self.replicas.preload((CLUSTER,), seconds_from_now(_LOAD_SECONDS))
        self.replica, _ = self.replicas.resolve(CLUSTER, DEFAULT_CONSISTENCY, seconds_from_now(1.0))

    def close(self) -> None:
        """Stop following."""
        self.replicas.close()

    def evaluate(self, request: bytes) -> bytes:
        """One EvaluatePod, with its span and its metrics."""
        call = call_of(self._tracing.start(requests.EVALUATE_POD), 30.0)
        answer = self._method.serve(parse(self._method.request, request), call)
        call.span.end(0)
        assert isinstance(answer, Encoded), "a decision writes its answer by itself"
        return answer.body

    def evaluate_cost(self, asked: Sequence[RequestTemplate], seconds: float) -> float:
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


def call_of(span: CallSpan, seconds: float) -> Call:
    """A call of nobody, whose caller waits for so many seconds."""
    method: Any = SimpleNamespace(turn=None, shares_turn=False, ended=lambda _: None)
    context: Any = SimpleNamespace(is_active=lambda: True)
    call = Call(method, context, time.perf_counter())
    call.span, call.deadline = span, time.monotonic() + seconds
    return call


def measure_scale(options: BenchOptions) -> Figures:
    """Microseconds of CPU of one EvaluatePod, by pods and by nodes, and the ratios to the usual."""
    figures = Figures()
    usual = options.size
    by_pods = {replace(usual, pods=int(usual.pods * times)): f"{times:g}" for times in POD_FACTORS}
    by_nodes = {
        replace(usual, nodes=int(usual.nodes * times)): f"{times:g}" for times in NODE_FACTORS
    }
    with ExitStack() as opened:
        children = {}
        for size in dict.fromkeys((*by_pods, *by_nodes)):
            options.progress(f"scale: making {size.nodes} nodes and {size.pods} pods")
            children[size] = opened.enter_context(worker_process(decisions_in_process, size))
            children[size].run(evaluate_cost, 0.1)
        for number in range(options.rounds):
            options.progress(f"scale: round {number + 1} of {options.rounds}")
            spent = {
                size: each.run(evaluate_cost, options.seconds / 2)
                for size, each in children.items()
            }
            for size in by_pods:
                figures.add(f"evaluate_us_{size.pods}_pods", spent[size])
            for size in by_nodes:
                figures.add(f"evaluate_us_{size.nodes}_nodes", spent[size])
            for size, times in by_pods.items():
                if size != usual:
                    figures.add(f"pods_x{times}_ratio", spent[size] / spent[usual])
            for size, times in by_nodes.items():
                if size != usual:
                    figures.add(f"nodes_x{times}_ratio", spent[size] / spent[usual])
    return figures


def decisions_in_process(size: Size) -> InProcessDecisions:
    """Build the index of a cluster in a child."""
    return InProcessDecisions(objects(size))


def evaluate_cost(index: InProcessDecisions, seconds: float) -> float:
    """Microseconds of CPU of one EvaluatePod, measured in a child."""
    return index.evaluate_cost(requests.evaluate_pod_requests(requests.incoming_pods()), seconds)


def measure_cold(options: BenchOptions) -> Figures:
    """Milliseconds of an EvaluatePod with a new selector, at several sizes."""
    figures = Figures()
    usual = options.size
    sizes = {
        "": usual,
        "_x10_pods": replace(usual, pods=usual.pods * 10),
        "_own_labels": replace(usual, own_labels=True),
        "_x3_own_labels": replace(usual, pods=usual.pods * 3, own_labels=True),
    }
    with ExitStack() as opened:
        children = {}
        for mark, size in sizes.items():
            own = ", each with its own labels" if size.own_labels else ""
            options.progress(f"cold: making {size.nodes} nodes and {size.pods} pods{own}")
            children[mark] = opened.enter_context(worker_process(decisions_in_process, size))
            children[mark].run(evaluate_cost, 0.1)
        for number in range(options.rounds):
            options.progress(f"cold: round {number + 1} of {options.rounds}")
            for mark, each in children.items():
                taken = each.run(first_use_costs, number * NEW_SELECTORS)
                figures.add(f"cold_p50_ms{mark}", statistics.median(taken))
                figures.add(f"cold_max_ms{mark}", max(taken))
    return figures


def first_use_costs(index: InProcessDecisions, first: int) -> list[float]:
    """Milliseconds of CPU of each EvaluatePod with a new selector, measured in a child."""
    asked = [
        requests.evaluate_pod_requests([requests.pod_with_new_selector(number % APPS, number)])[
            0
        ].numbered(number)
        for number in range(first, first + NEW_SELECTORS)
    ]
    taken = []
    for request in asked:
        begun = time.thread_time()
        index.evaluate(request)
        taken.append((time.thread_time() - begun) * 1e3)
    return taken
