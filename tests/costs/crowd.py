"""The worst requests that are accepted, from many callers at once, and what they leave to others.

    python -m tests.costs.crowd --nodes 5000 --pods 50000

Prints the memory before, at its peak and after, and how long another caller's Evaluate took.
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from tests.costs.grown import pod
from tests.costs.measured import HOSTNAME, MIB, ZONE, Measured, load
from tests.servers import PATIENCE, ServerProcess
from topospread_proto.v1 import placement_pb2, spread_engine_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

CONSTRAINTS = 64
BATCH = 80
"""Pods of a batch with two constraints each, all with selectors of their own."""

SETTLED = 15.0
"""Seconds in which freed memory has gone back to the system."""


def worst(number: int) -> tuple[str, bytes]:
    """One of the requests that cost most, each with things that nobody named before."""
    engine, placement = "/topospread.v1.SpreadEngine/", "/topospread.v1.Placement/"
    kinds: tuple[Callable[[int], tuple[str, Any]], ...] = (
        lambda i: (f"{engine}BatchEvaluate", _batch(i)),
        lambda i: (f"{engine}Evaluate", spread_engine_pb2.EvaluateRequest(pod=_wide(i))),
        lambda i: (f"{engine}PreFilter", spread_engine_pb2.PreFilterRequest(pod=_wide(i))),
        lambda i: (f"{engine}Evaluate", _what_ifs(i)),
        lambda i: (f"{engine}Evaluate", spread_engine_pb2.EvaluateRequest(pod=_terms(i))),
        lambda i: (f"{placement}Place", placement_pb2.PlaceRequest(pod=_resources(i))),
    )
    method, request = kinds[number % len(kinds)](number)
    return method, request.SerializeToString()


def _wide(number: int, constraints: int = CONSTRAINTS) -> Any:
    made = pod()
    del made.spec.topology_spread_constraints[:]
    for each in range(constraints):
        constraint = made.spec.topology_spread_constraints.add()
        constraint.max_skew = 5
        constraint.topology_key = HOSTNAME if each % 2 == 0 else ZONE
        constraint.when_unsatisfiable = "DoNotSchedule"
        constraint.label_selector.match_labels["app"] = f"only-{number}-{each}"
    return made


def _batch(number: int) -> Any:
    pods = [_wide(1_000_000 + number * BATCH + each, 2) for each in range(BATCH)]
    return spread_engine_pb2.BatchEvaluateRequest(pods=pods)


def _what_ifs(number: int) -> Any:
    made = spread_engine_pb2.EvaluateRequest(pod=_wide(number))
    for each in range(1000):
        added = made.add_pods.add(node=f"node-{each}")
        added.pod.metadata.name = f"added-{each}"
        added.pod.metadata.labels["app"] = f"only-{number}-{each % CONSTRAINTS}"
        added.pod.metadata.labels["number"] = str(each)
    return made


def _terms(number: int) -> Any:
    made = pod()
    affinity = made.spec.affinity.node_affinity
    required = affinity.required_during_scheduling_ignored_during_execution
    for each in range(1600):
        expression = required.node_selector_terms.add().match_expressions.add()
        expression.key, expression.operator = HOSTNAME, "Gt"
        expression.values.append(str(number * 1600 + each))
    return made


def _resources(number: int) -> Any:
    made = pod()
    made.metadata.name = f"crowd-{number}"
    for each in range(90):
        made.spec.containers[0].resources.requests[f"only-{number}.io/r-{each}"].string = "1"
    return made


class _Another:
    """A caller who asks plain questions one after the other, and how long each took."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        self._stop = threading.Event()
        self._sent = spread_engine_pb2.EvaluateRequest(pod=pod()).SerializeToString()
        self.failed = 0

    def ask(self, times: int = 0) -> list[float]:
        """So many questions, or as many as there is time for until it is stopped; seconds each."""
        evaluate: Any = self._channel.unary_unary("/topospread.v1.SpreadEngine/Evaluate")
        took: list[float] = []
        while not self._stop.is_set() and (not times or len(took) < times):
            began = time.monotonic()
            try:
                evaluate(self._sent, timeout=PATIENCE)
            except grpc.RpcError:
                self.failed += 1
            took.append(time.monotonic() - began)
        return took

    def stop(self) -> None:
        """Ask no more."""
        self._stop.set()


def _p99(took: list[float]) -> float:
    return sorted(took)[int(len(took) * 0.99)]


def _outcomes(address: str, requests: int, callers: int) -> Iterator[str]:
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    channels = [grpc.insecure_channel(address, options) for _ in range(callers)]
    sent = [worst(number) for number in range(requests)]

    def one(number: int) -> str:
        method, request = sent[number]
        call: Any = channels[number % callers].unary_unary(method)
        try:
            call(request, timeout=PATIENCE)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    with ThreadPoolExecutor(callers) as crowd:
        yield from crowd.map(one, range(requests))
    for channel in channels:
        channel.close()


def main() -> None:
    """Do it and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m tests.costs.crowd")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=50_000)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--callers", type=int, default=64)
    asked = parser.parse_args()
    with ServerProcess("--store", "memory:") as server:
        measured = Measured(server.process.pid, server.address)
        load(measured, asked.nodes, asked.pods)
        another = _Another(server.address)
        quiet = _p99(another.ask(2000))
        before = measured.rss
        measured.forget_peak()
        cpu = measured.cpu
        with ThreadPoolExecutor(1) as beside:
            waiting = beside.submit(another.ask)
            outcomes = list(_outcomes(server.address, asked.requests, asked.callers))
            another.stop()
            loaded = waiting.result()
        after = measured.rss
        time.sleep(SETTLED)
        told = {name: outcomes.count(name) for name in sorted(set(outcomes))}
        sys.stdout.write(
            f"{asked.requests} requests of {asked.callers} callers at {asked.nodes} nodes and"
            f" {asked.pods} pods: {told}, {measured.cpu - cpu:.1f} s of CPU\n"
            f"RSS {before / MIB:.0f} MiB before, {measured.peak / MIB:.0f} at most,"
            f" {after / MIB:.0f} after, {measured.rss / MIB:.0f} when {SETTLED:g} s had passed\n"
            f"another's Evaluate p99: {quiet * 1e3:.2f} ms alone, {_p99(loaded) * 1e3:.2f} ms"
            f" beside them ({len(loaded)} asked, {another.failed} failed)\n"
        )


if __name__ == "__main__":
    main()
