"""The planner's verbs: how long each takes, asked one after the other over gRPC.

Each verb is a function that makes one call; see :data:`CALLS`.
"""

from __future__ import annotations

import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from bench import requests
from bench.cluster import HOSTNAME, ZONE
from bench.figures import Figures
from bench.processes import server
from bench.stores import filled_store, sqlite_store
from tests.conformance.recordings import RecordKind, records
from tests.conformance.temporary import temporary_cluster
from topospread.cli.errors import BadInput
from topospread_client import (
    Client,
    Connection,
    args_from_manifest,
    pod_from_manifest,
)
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from bench.options import BenchOptions

REPLICAS: Final = 1000
"""Pods that a simulation places."""

PATIENCE: Final = 120.0
"""Seconds that a call may take, and loading a recorded cluster."""


class PlannerCall(Protocol):
    """Makes one call about a pod."""

    def __call__(self, client: Client, pod: k8s.Pod) -> None:
        """Ask."""
        ...


def explain(client: Client, pod: k8s.Pod) -> None:
    """Explain a pod as it is."""
    client.explain_pod(pod)


def explain_nowhere(client: Client, pod: k8s.Pod) -> None:
    """Explain a pod that fits nowhere, so that advice is sought."""
    waiting = k8s.Pod()
    waiting.CopyFrom(pod)
    waiting.spec.topology_spread_constraints.add(
        max_skew=1,
        min_domains=100,
        topology_key=ZONE,
        when_unsatisfiable="DoNotSchedule",
        label_selector=k8s.LabelSelector(match_labels=pod.metadata.labels),
    )
    client.explain_pod(waiting)


def simulate(client: Client, pod: k8s.Pod) -> None:
    """Place many of a pod, as its workload would have them."""
    client.simulate((pod, REPLICAS))


def rank(client: Client, pod: k8s.Pod) -> None:
    """Rank the pods of the pod's app over zones and nodes."""
    client.rank_deletions(_app(pod), namespace=pod.metadata.namespace, constraints=[ZONE, HOSTNAME])


def rank_all(client: Client, pod: k8s.Pod) -> None:
    """Rank all pods over zones and nodes."""
    del pod
    client.rank_deletions({}, constraints=[ZONE, HOSTNAME])


def rebalance(client: Client, pod: k8s.Pod) -> None:
    """Even the pods of the pod's app out over zones."""
    client.plan_rebalance(
        _app(pod), namespace=pod.metadata.namespace, filters=ALL_PODS, settings=OVER_ZONES
    )


def rebalance_all(client: Client, pod: k8s.Pod) -> None:
    """Even the pods of all apps out over zones."""
    del pod
    client.plan_rebalance(filters=ALL_PODS, settings=OVER_ZONES)


def _app(pod: k8s.Pod) -> dict[str, str]:
    return {"app": pod.metadata.labels.get("app", "")}


OVER_ZONES: Final = common_pb2.Settings(
    args=args_from_manifest(
        {
            "defaultingType": "List",
            "defaultConstraints": [
                {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
            ],
        }
    )
)
"""The pods of the clusters have no constraints of their own."""

ALL_PODS: Final = {"evict_bare_pods": True}

CALLS: Final[Mapping[str, PlannerCall]] = {
    "explain": explain,
    "explain_nowhere": explain_nowhere,
    "simulate": simulate,
    "rank": rank,
    "rank_all": rank_all,
    "rebalance": rebalance,
    "rebalance_all": rebalance_all,
}
"""By what their figures begin with."""

FEW_PODS: Final[Mapping[str, int]] = {
    "rank": 3,
    "rank_all": 1,
    "rebalance": 3,
    "rebalance_all": 1,
}
"""Verbs that take seconds, and about how many of the pods they are asked."""


def measure_planner(options: BenchOptions) -> Figures:
    """Milliseconds of a call, by verb: the median of a round, and its slowest call."""
    figures = Figures()
    with ExitStack() as opened:
        client, pods = _subject(options, opened)
        for name, verb in CALLS.items():
            _round(verb, client, pods[: FEW_PODS.get(name)], 0.0)
        for number in range(options.rounds):
            options.progress(f"planner: round {number + 1} of {options.rounds}")
            for name, verb in CALLS.items():
                taken = _round(verb, client, pods[: FEW_PODS.get(name)], options.seconds)
                figures.add(f"{name}_p50_ms", statistics.median(taken) * 1e3)
                figures.add(f"{name}_max_ms", max(taken) * 1e3)
    return figures


def _round(
    verb: PlannerCall, client: Client, pods: Sequence[k8s.Pod], seconds: float
) -> list[float]:
    """Seconds of each call: one about each pod, and again until the time is over."""
    taken: list[float] = []
    ends = time.monotonic() + seconds
    while not taken or time.monotonic() < ends:
        for pod in pods:
            begun = time.monotonic()
            verb(client, pod)
            taken.append(time.monotonic() - begun)
    return taken


def _subject(options: BenchOptions, opened: ExitStack) -> tuple[Client, Sequence[k8s.Pod]]:
    """A client of a server with the plan's cluster, and pods to ask about."""
    if not options.recorded:
        options.progress(f"planner: making {options.size.nodes} nodes and {options.size.pods} pods")
        running = opened.enter_context(server(opened.enter_context(filled_store(options.size))))
        client = Client(running.address, timeout=PATIENCE)
        return opened.enter_context(client), requests.incoming_pods()
    options.progress(f"planner: loading {options.recorded}")
    found = [each for each in records(Path(options.recorded)) if each.kind is RecordKind.CLUSTER]
    if not found:
        raise BadInput(f"{options.recorded}: no recorded cluster with incoming pods")
    content = found[0].content
    store = opened.enter_context(sqlite_store())
    running = opened.enter_context(server(store, preload="all"))
    loaded = opened.enter_context(
        temporary_cluster(Connection(running.address), content["cluster"], PATIENCE)
    )
    return loaded.client, [pod_from_manifest(each["pod"]) for each in content["incoming"]]
