"""The costliest requests that are accepted, from many callers, and what they leave to others."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click
import grpc

from bench.campaigns.campaign import (
    MIB,
    Outcome,
    campaign,
    nodes_option,
    pods_option,
    run,
    server_flag_option,
)
from bench.campaigns.grown import pod
from bench.campaigns.measured import AS_SHIPPED, HOSTNAME, WORKLOADS, ZONE, Measured, load
from tests.servers import ServerProcess
from tests.waiting import PATIENCE
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    common_pb2,
    decision_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

ENGINE: Final = "/topospread.v1.DecisionService/"
PLACEMENT: Final = "/topospread.v1.PlacementService/"
PLANNER: Final = "/topospread.v1.PlannerService/"

CONSTRAINTS: Final = 64
BATCH: Final = 80
"""Pods of a batch with two constraints each, all with selectors of their own."""

TILTED: Final = 300
"""Pods of a workload that a rebalancing has to move, where the planner's calls are asked for."""

AIMS: Final[Mapping[str, float]] = {"RSS": 2.0, "p99": 20.0}
"""How many times what it was before the memory may be afterwards, and another's p99 meanwhile."""

Request = tuple[str, bytes]


# ------------------------------ what is asked: each with things that nobody named before


def _wide(number: int, constraints: int = CONSTRAINTS) -> Any:
    """A pod with constraints whose selectors are its own; every second one matches some pods."""
    made = pod()
    del made.spec.topology_spread_constraints[:]
    for each in range(constraints):
        constraint = made.spec.topology_spread_constraints.add()
        constraint.max_skew = 5
        constraint.topology_key = HOSTNAME if each % 2 == 0 else ZONE
        constraint.when_unsatisfiable = "DoNotSchedule"
        own = f"only-{number}-{each}"
        # Of each topology key one half: two with matching pods, then two without.
        if each // 2 % 2 == 0:
            expression = constraint.label_selector.match_expressions.add(key="app", operator="In")
            expression.values.extend((f"app-{(number + each) % WORKLOADS}", own))
        else:
            constraint.label_selector.match_labels["app"] = own
    return made


def _batch(number: int) -> Any:
    pods = [_wide(1_000_000 + number * BATCH + each, 2) for each in range(BATCH)]
    return decision_service_pb2.BatchEvaluatePodsRequest(
        pods=[common_pb2.PodSource(object=each) for each in pods]
    )


def _what_ifs(number: int) -> Any:
    made = decision_service_pb2.EvaluatePodRequest(pod=common_pb2.PodSource(object=_wide(number)))
    for each in range(1000):
        added = made.add_pods.add(node=f"node-{each}")
        added.pod.object.metadata.name = f"added-{each}"
        added.pod.object.metadata.labels["app"] = f"only-{number}-{each % CONSTRAINTS}"
        added.pod.object.metadata.labels["number"] = str(each)
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


def _explained(number: int) -> Any:
    # Some 30,000 domains with five reasons each, as many as are accepted.
    return decision_service_pb2.ExplainPodRequest(
        pod=common_pb2.PodSource(object=_wide(number)), domain_limit=900
    )


def simulated(number: int) -> Any:
    """A Simulate of as many pods and constraints as are accepted."""
    made = planner_service_pb2.SimulateRequest()
    made.pods.add(replicas=10_000).pod.object.CopyFrom(_wide(number, 6))
    for each in range(100):
        made.scenario.changes.drain_nodes.add(node=f"node-{each}")
    return made


def _ranked(number: int) -> Any:
    made = planner_service_pb2.RankDeletionsRequest(namespace="default")
    # All pods.
    made.label_selector.match_expressions.add(
        key="app", operator="NotIn", values=[f"only-{number}"]
    )
    for key in (HOSTNAME, ZONE):
        made.constraints.add(topology_key=key, max_skew=1)
    return made


def _rebalanced(number: int) -> Any:
    made = planner_service_pb2.PlanRebalanceRequest(excluded_namespaces=[f"only-{number}"])
    made.search_timeout.FromSeconds(5)
    return made


DECISIONS: Final[Mapping[str, tuple[str, Callable[[int], Any]]]] = {
    "BatchEvaluatePods": (f"{ENGINE}BatchEvaluatePods", _batch),
    "EvaluatePod": (
        f"{ENGINE}EvaluatePod",
        lambda number: decision_service_pb2.EvaluatePodRequest(
            pod=common_pb2.PodSource(object=_wide(number))
        ),
    ),
    "PreFilter": (
        f"{ENGINE}PreFilter",
        lambda number: decision_service_pb2.PreFilterRequest(
            pod=common_pb2.PodSource(object=_wide(number))
        ),
    ),
    "EvaluatePod of what-ifs": (f"{ENGINE}EvaluatePod", _what_ifs),
    "EvaluatePod of terms": (
        f"{ENGINE}EvaluatePod",
        lambda number: decision_service_pb2.EvaluatePodRequest(
            pod=common_pb2.PodSource(object=_terms(number))
        ),
    ),
    "PlacePod": (
        f"{PLACEMENT}PlacePod",
        lambda number: placement_service_pb2.PlacePodRequest(
            pod=common_pb2.PodSource(object=_resources(number))
        ),
    ),
}
PLANS: Final[Mapping[str, tuple[str, Callable[[int], Any]]]] = {
    "ExplainPod": (f"{ENGINE}ExplainPod", _explained),
    "Simulate": (f"{PLANNER}Simulate", simulated),
    "RankDeletions": (f"{PLANNER}RankDeletions", _ranked),
    "PlanRebalance": (f"{PLANNER}PlanRebalance", _rebalanced),
}
KINDS: Final = {**DECISIONS, **PLANS}


def worst(number: int, kinds: Sequence[str] = tuple(DECISIONS)) -> Request:
    """One of the requests that cost most: the method, and what is sent."""
    method, make = KINDS[kinds[number % len(kinds)]]
    return method, make(number).SerializeToString()


def _tilt(measured: Measured) -> None:
    """Pods that spread over hosts and are on few of them."""
    request = cluster_state_service_pb2.ApplyObjectsRequest()
    for number in range(TILTED):
        made = request.objects.add().pod
        made.CopyFrom(pod())
        made.metadata.name, made.metadata.namespace = f"tilted-{number}", "tilted"
        made.metadata.labels["app"] = "tilted"
        made.spec.node_name = f"node-{number % 3}"
        (constraint,) = made.spec.topology_spread_constraints
        constraint.max_skew, constraint.topology_key = 1, HOSTNAME
        constraint.label_selector.match_labels["app"] = "tilted"
    apply: Any = measured.channel.unary_unary("/topospread.v1.ClusterStateService/ApplyObjects")
    apply(request.SerializeToString(), timeout=PATIENCE)


# ------------------------------ who asks


class _Another:
    """A caller who asks plain questions one after the other, and how long each took."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address, [("grpc.use_local_subchannel_pool", 1)])
        self._stop = threading.Event()
        self._sent = decision_service_pb2.EvaluatePodRequest(
            pod=common_pb2.PodSource(object=pod())
        ).SerializeToString()
        self.failed = 0

    def ask(self, times: int = 0) -> list[float]:
        """So many questions, or as many as there is time for until it is stopped; seconds each."""
        evaluate: Any = self._channel.unary_unary(f"{ENGINE}EvaluatePod")
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


def _outcomes(
    address: str, kinds: Sequence[str], requests: int, callers: int, deadline: float
) -> Iterator[tuple[str, str]]:
    """The kind of each request, and how it ended."""
    options = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]
    channels = [grpc.insecure_channel(address, options) for _ in range(callers)]
    sent = [worst(number, kinds) for number in range(requests)]

    def one(number: int) -> tuple[str, str]:
        kind = kinds[number % len(kinds)]
        method, request = sent[number]
        call: Any = channels[number % callers].unary_unary(method)
        try:
            call(request, timeout=deadline if kind in PLANS else PATIENCE)
        except grpc.RpcError as error:
            return kind, str(error.code().name)
        return kind, "OK"

    with ThreadPoolExecutor(callers) as crowd:
        yield from crowd.map(one, range(requests))
    for channel in channels:
        channel.close()


# ------------------------------ what it comes to


def _seconds(took: Sequence[float], failed: int) -> dict[str, float]:
    ordered = sorted(took)
    quantiles = {"p50": ordered[int(len(took) * 0.5)], "p99": ordered[int(len(took) * 0.99)]}
    return {**quantiles, "asked": len(took), "failed": failed}


@campaign(
    "crowd",
    nodes_option,
    pods_option,
    click.option("--requests", type=click.IntRange(1), default=1000, show_default=True),
    click.option("--callers", type=click.IntRange(1), default=64, show_default=True),
    click.option("--planners", is_flag=True, help="The planner's calls, too."),
    click.option("--only", multiple=True, type=click.Choice([*KINDS]), help="Requests of a kind."),
    click.option("--deadline", type=float, default=10.0, help="Seconds of a planner's call."),
    click.option("--settle", type=float, default=15.0, help="Seconds in which memory goes back."),
    server_flag_option,
)
def command(
    nodes: int,
    pods: int,
    requests: int,
    callers: int,
    planners: bool,
    only: tuple[str, ...],
    deadline: float,
    settle: float,
    server_flags: tuple[str, ...],
) -> Outcome:
    """Send the costliest requests that are accepted, from many callers at once.

    docs/security.md promises that memory right after them is at most twice what it was before, and
    another caller's p99 meanwhile at most 20 times as long.
    """
    kinds = only or (*DECISIONS, *(PLANS if planners else ()))
    flags = ("--store", "memory:", "--log-format", "json", *server_flags)
    with (
        TemporaryDirectory() as folder,
        ServerProcess(*flags, stderr=str(log := Path(folder) / "stderr"), **AS_SHIPPED) as server,
    ):
        measured = Measured(server.process.pid, server.address)
        load(measured, nodes, pods)
        if not PLANS.keys().isdisjoint(kinds):
            _tilt(measured)
        another = _Another(server.address)
        alone = _seconds(another.ask(2000), another.failed)
        another.failed = 0
        before = measured.rss
        measured.forget_peak()
        cpu, began = measured.cpu, time.monotonic()
        with ThreadPoolExecutor(1) as side:
            waiting = side.submit(another.ask)
            try:
                ended = Counter(_outcomes(server.address, kinds, requests, callers, deadline))
            finally:
                another.stop()
            beside = _seconds(waiting.result(), another.failed)
        after = measured.rss
        cpu, seconds = measured.cpu - cpu, time.monotonic() - began
        time.sleep(settle)
        peak, settled = measured.peak, measured.rss
        bad = _bad_lines(log)
    outcomes: dict[str, dict[str, int]] = {kind: {} for kind in kinds}
    for (kind, code), count in sorted(ended.items()):
        outcomes[kind][code] = count
    rss = {"before": before, "peak": peak, "after": after, "settled": settled}
    ratios = {
        "RSS": after / before,
        "RSS peak": peak / before,
        "RSS settled": settled / before,
        "p50": beside["p50"] / alone["p50"],
        "p99": beside["p99"] / alone["p99"],
    }
    figures = {
        "outcomes": outcomes,
        "cpu": cpu,
        "seconds": seconds,
        "MiB": {name: size // MIB for name, size in rss.items()},
        "another": {"alone": alone, "beside": beside},
        "ratios": ratios,
        "error_lines": len(bad),
    }
    broken = [
        f"{name} x {ratios[name]:.1f}, at most {aim:g} is promised"
        for name, aim in AIMS.items()
        if ratios[name] > aim
    ]
    return Outcome(figures, [*broken, *(f"the server's log: {line}" for line in bad)])


def _bad_lines(log: Path) -> list[str]:
    """What the log says that is an error, or is no line of the log at all."""
    found = []
    for line in log.read_text(errors="replace").splitlines():
        try:
            level = json.loads(line)["level"]
        except (ValueError, TypeError, KeyError):
            level = "error"
        if level in ("error", "critical"):
            found.append(line)
    return found


if __name__ == "__main__":
    sys.exit(run(command))
