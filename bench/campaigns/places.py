"""Places a second of two servers whose store is far away, beside another commit's.

    python -m bench.campaigns places --beside HEAD~1 --round-trip 0 --round-trip 20 --callers 8

Each commit has its own Redis and its own two servers, behind a proxy that adds to each round trip.
They are measured in turns, a cluster for each.
"""

from __future__ import annotations

import statistics
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, Final

import click
import grpc

from bench.campaigns.campaign import Outcome, campaign, note, run
from bench.campaigns.checkout import Checkout, checkout_of, this_checkout
from bench.campaigns.proxy import Proxy
from bench.options import redis_server_option
from bench.processes import started
from bench.race import scenario
from bench.stores import program_of, redis_store
from topospread_client import object_from_manifest, pod_from_manifest
from topospread_proto.v1 import cluster_state_service_pb2 as state
from topospread_proto.v1.placement_service_pb2 import PlacePodRequest, PlacePodResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from google.protobuf.message import Message

    from bench.processes import Running

NODES: Final = 60
DEADLINE: Final = 5.0
CONNECTIONS: Final = 4
"""Of each server: one alone would bound what many callers get."""

_PLACE: Final = "/topospread.v1.PlacementService/PlacePod"
_APPLY: Final = "/topospread.v1.ClusterStateService/ApplyObjects"
_DELETE: Final = "/topospread.v1.ClusterStateService/DeleteCluster"


class Side:
    """One commit: two servers of it whose store is far away, and one for writes that is near.

    Args:
        stack: ends them.
        checkout: the commit.
        store: address of its Redis.
        latency: seconds that a round trip takes longer; 0: there is no proxy.
    """

    def __init__(self, stack: ExitStack, checkout: Checkout, store: str, latency: float) -> None:
        self._clusters = 0
        self.name = checkout.name

        def server(address: str) -> Running:
            where = ("--listen", "127.0.0.1:0", "--http", "off", "--log-level", "error")
            command = ("-m", "topospread", "serve", *where)
            environ = {"TOPOSPREAD_STORE": address}
            return stack.enter_context(started(command, environ, checkout.python))

        near = server(store)
        if latency:
            proxy = stack.enter_context(Proxy(store.removeprefix("redis://")))
            proxy.latency = latency / 2
            store = f"redis://{proxy.address}"
        self.servers = [server(store), server(store)]
        self.far = [
            stack.enter_context(grpc.insecure_channel(each.address, _own(number)))
            for number in range(CONNECTIONS)
            for each in self.servers
        ]
        self._near = stack.enter_context(grpc.insecure_channel(near.address))

    def write(self, cluster: str, *manifests: Any) -> None:
        """Write objects by the server that is near."""
        objects = [object_from_manifest(each) for each in manifests]
        request = state.ApplyObjectsRequest(
            cluster=cluster, objects=[each for each in objects if each]
        )
        _call(self._near, _APPLY, request, 30.0)

    def measured(self, callers: int, seconds: float, writes: float) -> dict[str, float]:
        """Place for some seconds; figures by name."""
        self._clusters += 1
        cluster = f"places-{self._clusters}"
        self.write(cluster, *map(scenario.node, range(NODES)))
        for channel in self.far:
            _place(channel, cluster, "first")
        counts: Counter[str] = Counter()
        conflicted, took = [0], list[float]()
        over = threading.Event()

        def call(number: int) -> None:
            channel, done = self.far[number % len(self.far)], 0
            while not over.is_set():
                began, done = time.monotonic(), done + 1
                status, conflicts = _place(channel, cluster, f"{number}-{done}")
                counts[status] += 1
                conflicted[0] += conflicts
                took.append(time.monotonic() - began)

        def others() -> None:
            random, done = Random(1), 0
            while writes and not over.wait(random.expovariate(writes)):
                done += 1
                self.write(cluster, _running(f"other-{done % 50}", done % NODES))

        threads = [threading.Thread(target=call, args=(each,)) for each in range(callers)]
        threads.append(threading.Thread(target=others))
        cpu, began = sum(each.cpu() for each in self.servers), time.monotonic()
        for thread in threads:
            thread.start()
        time.sleep(seconds)
        held, elapsed = counts["OK"], time.monotonic() - began
        cpu = sum(each.cpu() for each in self.servers) - cpu
        over.set()
        for thread in threads:
            thread.join()
        request = state.DeleteClusterRequest(cluster=cluster)
        _call(self._near, _DELETE, request, 30.0)
        return {
            "places/s": held / elapsed,
            "CPU µs": cpu / max(held, 1) * 1e6,
            "p50 ms": statistics.median(took) * 1e3,
            "p99 ms": sorted(took)[int(len(took) * 0.99)] * 1e3,
            "conflicts": conflicted[0] / max(counts["OK"], 1),
            "failed %": 100 * (1 - counts["OK"] / counts.total()),
        }


def _call(channel: grpc.Channel, method: str, request: Message, seconds: float) -> bytes:
    call: Any = channel.unary_unary(method)
    answer: bytes = call(request.SerializeToString(), timeout=seconds)
    return answer


def _own(number: int) -> Sequence[tuple[str, Any]]:
    return (("grpc.use_local_subchannel_pool", 1), ("topospread.number", number))


def _running(name: str, number: int) -> Any:
    pod = scenario.pod("team", "zones", name)
    return pod | {"spec": {"nodeName": f"node-{number:03}"}, "status": {"phase": "Running"}}


def _place(channel: grpc.Channel, cluster: str, number: str) -> tuple[str, int]:
    """Place a pod; the status it ended with, or "refused", and how often it conflicted."""
    request = PlacePodRequest(cluster=cluster)
    request.pod.object.CopyFrom(pod_from_manifest(scenario.pod("team", "zones", number)))
    try:
        answer = _call(channel, _PLACE, request, DEADLINE)
    except grpc.RpcError as error:
        code: str = error.code().name
        return code, 0
    placed = PlacePodResponse.FromString(answer)
    return "OK" if placed.node else "refused", placed.conflict_count


def _sides(
    stack: ExitStack, checkouts: Sequence[Checkout], program: str, latency: float
) -> Iterator[Side]:
    for each in checkouts:
        yield Side(stack, each, stack.enter_context(redis_store(program)), latency)


def _by_round(
    sides: Sequence[Side], rounds: int, measure: Callable[[Side], dict[str, float]]
) -> dict[str, dict[str, list[float]]]:
    """All figures of each side, which are measured in turns."""
    found: dict[str, dict[str, list[float]]] = {
        each.name: defaultdict(list[float]) for each in sides
    }
    for number in range(rounds):
        for side in sides if number % 2 == 0 else reversed(sides):
            for name, value in measure(side).items():
                found[side.name][name].append(value)
    return found


@campaign(
    "places",
    click.option("--beside", metavar="REV", help="A commit, or a Python that has it."),
    click.option(
        "--round-trip", "ms", type=float, multiple=True, default=(0.0, 2.0, 5.0, 20.0, 200.0)
    ),
    click.option("--callers", type=int, multiple=True, default=(8, 64), show_default=True),
    click.option("--seconds", type=float, default=5.0, show_default=True),
    click.option("--rounds", type=click.IntRange(1), default=3, show_default=True),
    click.option("--writes", type=float, default=0.0, help="Others' writes a second beside it."),
    redis_server_option,
)
def command(
    beside: str | None,
    ms: Sequence[float],
    callers: Sequence[int],
    seconds: float,
    rounds: int,
    writes: float,
    redis_server: str,
) -> Outcome:
    """Places a second of two servers, with milliseconds added to each round trip of the store."""
    checkouts = [this_checkout()]
    if beside:
        other = Checkout("beside", beside) if Path(beside).is_file() else checkout_of(beside)
        checkouts.append(other)
    figures: dict[str, Any] = {}
    broken = []
    for added in ms:
        with ExitStack() as stack:
            sides = [*_sides(stack, checkouts, program_of(redis_server), added / 1e3)]
            for many in callers:
                measure = partial(Side.measured, callers=many, seconds=seconds, writes=writes)
                found = _by_round(sides, rounds, measure)
                rates = []
                for name, values in found.items():
                    row = {each: statistics.median(those) for each, those in values.items()}
                    figures[f"{added:g} ms, {many} callers, {name}"] = row
                    rates.append(row["places/s"])
                    note(f"{added:g} ms, {many} callers, {name}: {row}")
                if len(rates) > 1 and rates[0] < 0.95 * rates[1]:
                    broken.append(f"{added:g} ms, {many} callers: {rates[0] / rates[1]:.2f} times")
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
