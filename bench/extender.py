"""kube-scheduler's extender: calls a second with 500 candidates, as a scheduler makes them."""

from __future__ import annotations

import selectors
import time
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING, Final

import orjson

from bench import requests
from bench.figures import Figures
from bench.http1 import Http1Connection, post
from bench.load import CallsFailedError, LoadResult
from bench.processes import server
from bench.requests import CLUSTER, RequestTemplate
from bench.stores import filled_store
from topospread_client import Client, manifest_from_object
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from bench.options import BenchOptions
    from bench.processes import Running
    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

CANDIDATES: Final = 500
SCHEDULERS: Final = 4
WARM_SECONDS: Final = 0.3

_PACKED: Final = "accept-encoding: gzip"
_HARD: Final = 4
"""So many of the questions' pods have a hard constraint over zones, and come first."""


@dataclass(frozen=True, slots=True)
class ExtenderCase:
    """A verb that so many schedulers call, each one call after the other."""

    name: str
    asked: Sequence[RequestTemplate]
    schedulers: int


def measure_extender(options: BenchOptions) -> Figures:
    """Rate, CPU and latency of filter, prioritize and place."""
    figures = Figures()
    with ExitStack() as opened:
        options.progress("extender: making the cluster")
        store = opened.enter_context(filled_store(options.size))
        own = ("--extender-listen", "127.0.0.1:0", "--extender-reservation-ttl", "5s")
        running = opened.enter_context(server(store, *own))
        address = _address(running)
        with Client(running.address, cluster=CLUSTER) as client:
            names = client.get_node_table().node_names
        cases = list(_cases(_spaced(names)))
        for case in cases:
            _ask(address, case, WARM_SECONDS)
        for number in range(options.rounds):
            options.progress(f"extender: round {number + 1} of {options.rounds}")
            for case in cases:
                spent = running.cpu()
                done = _ask(address, case, options.seconds)
                figures.add(f"{case.name}_rps", done.rate)
                figures.add(f"{case.name}_cpu_us", (running.cpu() - spent) / done.calls * 1e6)
                figures.add(f"{case.name}_p50_ms", done.latency(0.5) * 1e3)
                figures.add(f"{case.name}_p99_ms", done.latency(0.99) * 1e3)
    return figures


def _address(running: Running) -> str:
    """host:port of the extender, as the server prints it."""
    assert running.output is not None, "it was started here"
    url = running.output.readline().split()[-1]
    return url.split("/")[2]


def _spaced(names: Sequence[str]) -> list[str]:
    """As many nodes as are candidates, from all over the cluster."""
    return list(names[:: max(1, len(names) // CANDIDATES)][:CANDIDATES])


def _cases(names: Sequence[str]) -> Iterator[ExtenderCase]:
    pods = requests.incoming_pods()
    for schedulers, mark in ((SCHEDULERS, ""), (1, "_c1")):
        yield ExtenderCase(f"filter{mark}", _request_templates("filter", pods, names), schedulers)
    yield ExtenderCase(
        "filter_gzip", _request_templates("filter", pods, names, _PACKED), SCHEDULERS
    )
    yield ExtenderCase("prioritize", _request_templates("prioritize", pods, names), SCHEDULERS)
    yield ExtenderCase("place_c1", _request_templates("place", pods[:_HARD], names), 1)


def _request_templates(
    verb: str, pods: Sequence[k8s.Pod], names: Sequence[str], *headers: str
) -> list[RequestTemplate]:
    found = []
    for pod in pods:
        args = {
            "Pod": manifest_from_object(ClusterObject(pod=pod)),
            "Nodes": None,
            "NodeNames": names,
        }
        request = post(f"/extender/v1/{verb}", orjson.dumps(args), *headers)
        found.append(requests.template_from_bytes(request))
    return found


def _ask(address: str, case: ExtenderCase, seconds: float) -> LoadResult:
    """Keep one call of each scheduler under way for so long, or until the first is answered.

    Raises:
        CallsFailedError: a call failed.
    """
    next_request = (case.asked[n % len(case.asked)].numbered(n) for n in count()).__next__
    with ExitStack() as opened:
        connections = [
            opened.enter_context(Http1Connection(address)) for _ in range(case.schedulers)
        ]
        done = _round(connections, next_request, seconds)
        failed = sum(each.failed for each in connections)
    if failed:
        raise CallsFailedError(f"{case.name}: {failed} of {len(done.latencies)} calls failed")
    return done


def _round(
    connections: Sequence[Http1Connection], next_request: Callable[[], bytes], seconds: float
) -> LoadResult:
    clock, done = time.perf_counter, LoadResult()
    sent: dict[int, float] = {}
    with selectors.DefaultSelector() as ready:
        begin = now = clock()
        for connection in connections:
            ready.register(connection, selectors.EVENT_READ, connection)
            connection.call(next_request())
            sent[connection.fileno()] = now
        while sent:
            for key, _ in ready.select():
                if not key.data.receive():
                    continue
                now = clock()
                done.latencies.append(now - sent.pop(key.fd))
                if now - begin < seconds or not done.calls:
                    done.calls += 1
                    done.seconds = now - begin
                    key.data.call(next_request())
                    sent[key.fd] = clock()
    return done
