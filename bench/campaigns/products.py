"""Two lists that meet, each as long as is accepted, beside callers who ask little."""

from __future__ import annotations

import itertools
import multiprocessing
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Self

import click
import grpc
import httpx

from bench.campaigns.beside import ask, p99, review, validate
from bench.campaigns.campaign import (
    MIB,
    Outcome,
    campaign,
    nodes_option,
    note,
    pods_option,
    run,
    server_flag_option,
)
from bench.campaigns.crowd import ENGINE, PLACEMENT, PLANNER
from bench.campaigns.grown import pod
from bench.campaigns.measured import AS_SHIPPED, Measured, load
from bench.campaigns.product_objects import PRODUCTS, Product
from tests.servers import ServerProcess
from tests.waiting import PATIENCE
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import common_pb2, placement_service_pb2, planner_service_pb2
from topospread_proto.v1 import decision_service_pb2 as pb
from topospread_proto.v1 import inspector_service_pb2 as inspector_pb

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from multiprocessing.synchronize import Event

P99: Final = 20.0
"""How many times its p99 alone another caller's p99 may be."""

SECONDS: Final = 0.5
"""The longest that the webhook and a probe may take."""

RSS: Final = 2.1
"""How many times what it was before the memory may be at its peak."""

SETTLED: Final = 1.5
"""The same once the questions are answered and the objects are gone."""

QUESTIONS: Final = 8
"""Distinct ones of each method: what is remembered of one answers no other."""

LONGER: Final = 10
"""How many times as long is measured where a question has not ended yet."""

STATE: Final = "/topospread.v1.ClusterStateService/"
INSPECTOR: Final = "/topospread.v1.InspectorService/"


# ------------------------------ what is asked


def _requests(product: Product) -> Iterator[tuple[str, Sequence[bytes]]]:
    """Each method that is called, and what is sent."""
    if product.pod is not None:
        pods = [product.pod(number) for number in range(QUESTIONS)]
        sources = [common_pb2.PodSource(object=each) for each in pods]
        yield f"{ENGINE}EvaluatePod", _sent(pb.EvaluatePodRequest(pod=each) for each in sources)
        yield f"{ENGINE}ExplainPod", _sent(pb.ExplainPodRequest(pod=each) for each in sources)
        yield (
            f"{PLACEMENT}PlacePod",
            _sent(placement_service_pb2.PlacePodRequest(pod=each) for each in sources),
        )
        yield f"{PLANNER}Simulate", _sent(_simulated(each) for each in sources)
    if product.selector is not None:
        yield (
            f"{STATE}ListObjects",
            _sent(
                state_pb.ListObjectsRequest(
                    kind=common_pb2.KIND_POD, label_selector=product.selector(number)
                )
                for number in range(QUESTIONS)
            ),
        )


def _simulated(source: Any) -> Any:
    made = planner_service_pb2.SimulateRequest()
    made.pods.add(replicas=3).pod.CopyFrom(source)
    return made


def _sent(requests: Iterable[Any]) -> Sequence[bytes]:
    return [each.SerializeToString() for each in requests]


# ------------------------------ who asks beside


@dataclass
class _Others:
    """Seconds of the answers that callers with little got, and how many calls failed."""

    evaluated: Sequence[float]
    reviewed: Sequence[float]
    probed: Sequence[float]
    failed: int

    def and_then(self, later: _Others) -> _Others:
        """These, and those of later."""
        return _Others(
            [*self.evaluated, *later.evaluated],
            [*self.reviewed, *later.reviewed],
            [*self.probed, *later.probed],
            self.failed + later.failed,
        )


def _others(server: ServerProcess, seconds: float) -> _Others:
    request = pb.EvaluatePodRequest(pod=common_pb2.PodSource(object=pod())).SerializeToString()
    evaluated, failed = ask(server.address, (f"{ENGINE}EvaluatePod", request), seconds)
    reviewed, refused = validate(server.http, review(), seconds / 2)
    probed, dead = _probed(server.http, seconds / 4)
    return _Others(evaluated, reviewed, probed, failed + refused + dead)


def _probed(url: str, seconds: float) -> tuple[list[float], int]:
    took, failed = [], 0
    with httpx.Client(base_url=url, trust_env=False, timeout=PATIENCE) as http:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for page in ("/livez", "/readyz"):
                began = time.monotonic()
                failed += http.get(page).status_code != httpx.codes.OK
                took.append(time.monotonic() - began)
            time.sleep(0.02)
    return took, failed


# ------------------------------ who asks much


class _Hostile:
    """A caller who keeps two questions of one method under way, from a process of its own."""

    def __init__(self, address: str, method: str, requests: Sequence[bytes]) -> None:
        spawning = multiprocessing.get_context("spawn")
        self._asked = spawning.Event()
        self.answered: Any = spawning.Value("q", 0)
        self.failed: Any = spawning.Value("q", 0)
        self._process = spawning.Process(
            target=_call,
            args=(address, method, requests, self._asked, self.answered, self.failed),
            daemon=True,
        )

    def __enter__(self) -> Self:
        self._process.start()
        assert self._asked.wait(PATIENCE), "no question was asked"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.join()
        self._process.close()

    @property
    def ended(self) -> int:
        """Questions so far, whichever way they ended."""
        return int(self.answered.value + self.failed.value)


def _call(
    address: str, method: str, requests: Sequence[bytes], asked: Event, answered: Any, failed: Any
) -> None:
    options = [("grpc.max_receive_message_length", -1), ("grpc.enable_retries", 0)]
    with grpc.insecure_channel(address, options) as channel, ThreadPoolExecutor(2) as threads:
        call: Any = channel.unary_unary(method)
        grpc.channel_ready_future(channel).result(PATIENCE)

        def ask_on(first: int) -> None:
            for request in itertools.cycle(requests[first::2]):
                asked.set()
                try:
                    call(request)
                    ended = answered
                except grpc.RpcError:
                    ended = failed
                with ended.get_lock():
                    ended.value += 1

        for each in [threads.submit(ask_on, first) for first in range(2)]:
            each.result()


# ------------------------------ the state


def _apply(measured: Measured, objects: Sequence[Any]) -> None:
    call: Any = measured.channel.unary_unary(f"{STATE}ApplyObjects")
    for first in range(0, len(objects), 200):
        request = state_pb.ApplyObjectsRequest(objects=objects[first : first + 200])
        call(request.SerializeToString(), timeout=PATIENCE)


def _delete(measured: Measured, objects: Sequence[Any]) -> None:
    call: Any = measured.channel.unary_unary(f"{STATE}DeleteObjects")
    for first in range(0, len(objects), 200):
        request = state_pb.DeleteObjectsRequest()
        for each in objects[first : first + 200]:
            name = each.WhichOneof("content")
            metadata = getattr(each, name).metadata
            request.objects.add(
                kind=common_pb2.Kind.Value(f"KIND_{name.upper()}"),
                namespace=metadata.namespace,
                name=metadata.name,
            )
        call(request.SerializeToString(), timeout=PATIENCE)


def _watching(measured: Measured, product: Product) -> list[Any]:
    """The watches of a product, which begin now; to be cancelled."""
    watch: Any = measured.channel.unary_stream(f"{INSPECTOR}WatchConstraints")
    made = []
    for number in range(product.watches):
        assert product.selector is not None
        request = inspector_pb.WatchConstraintsRequest()
        request.filter.label_selector.CopyFrom(product.selector(number))
        made.append(watch(request.SerializeToString(), timeout=PATIENCE))
    return made


# ------------------------------ what it comes to


def _measure(
    product: Product, server: ServerProcess, measured: Measured, seconds: float, settle: float
) -> tuple[_Others, dict[str, Any]]:
    before = measured.rss
    measured.forget_peak()
    objects = product.objects()
    _apply(measured, objects)
    stream = _watching(measured, product)
    with ExitStack() as asking:
        callers = [
            asking.enter_context(_Hostile(server.address, method, requests))
            for method, requests in _requests(product)
        ]
        others = _others(server, seconds)
        for _ in range(LONGER):
            if all(each.ended for each in callers):
                break
            others = others.and_then(_others(server, seconds))
        answered = sum(each.answered.value for each in callers)
        refused = sum(each.failed.value for each in callers)
    for each in stream:
        each.cancel()
    peak = measured.peak
    _delete(measured, objects)
    time.sleep(settle)
    return others, {
        "answered": answered,
        "refused": refused,
        "before_MiB": before // MIB,
        "peak": peak / before,
        "settled": measured.rss / before,
    }


def _broken(name: str, others: _Others, alone: float, figures: Mapping[str, Any]) -> Iterator[str]:
    if p99(others.evaluated) > P99 * alone:
        yield f"{name}: EvaluatePod's p99 is {p99(others.evaluated) / alone:.1f} times as long"
    for what, took in (("the webhook", others.reviewed), ("a probe", others.probed)):
        if max(took) > SECONDS:
            yield f"{name}: {what} took {max(took):.2f} s"
    if others.failed:
        yield f"{name}: {others.failed} calls of others failed"
    for what, most in (("peak", RSS), ("settled", SETTLED)):
        if figures[what] > most:
            yield f"{name}: memory ({what}) is {figures[what]:.2f} times what it was"


@campaign(
    "products",
    nodes_option,
    pods_option,
    click.option("--seconds", type=float, default=8.0, show_default=True, help="Of each product."),
    click.option("--settle", type=float, default=5.0, help="Seconds in which memory goes back."),
    click.option("--only", multiple=True, type=click.Choice([*PRODUCTS]), help="One of them."),
    server_flag_option,
)
def command(
    nodes: int,
    pods: int,
    seconds: float,
    settle: float,
    only: tuple[str, ...],
    server_flags: tuple[str, ...],
) -> Outcome:
    """Send and store lists that meet in a computation, each as long as is accepted.

    Beside them EvaluatePod's p99 may be at most 20 times as long as alone, the webhook and probes
    take 0.5 s at most, and memory is at most 2.1 times what it was, and back afterwards.
    """
    figures: dict[str, Any] = {}
    broken: list[str] = []
    flags = ("--store", "memory:", "--http", "127.0.0.1:0", "--log-level", "error", *server_flags)
    for name in only or PRODUCTS:
        note(f"products: {name}")
        with ServerProcess(*flags, **AS_SHIPPED) as server:
            measured = Measured(server.process.pid, server.address)
            load(measured, nodes, pods)
            _others(server, seconds / 4)
            alone = p99(_others(server, seconds / 2).evaluated)
            others, found = _measure(PRODUCTS[name], server, measured, seconds, settle)
        figures[name] = {
            "p99": p99(others.evaluated) / alone,
            "webhook_s": max(others.reviewed),
            "probe_s": max(others.probed),
            **found,
        }
        broken += _broken(name, others, alone, figures[name])
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
