"""What a server still holds of large requests a minute after them.

Each kind of request goes to a server of its own.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import click
import grpc

from bench.campaigns.campaign import MIB, Outcome, campaign, note, run, server_flag_option
from bench.campaigns.crowd import ENGINE, PLACEMENT
from bench.campaigns.grown import pod
from bench.campaigns.measured import AS_SHIPPED, Measured, load
from tests.servers import ServerProcess, replacement
from tests.servers import pod as stored_pod
from tests.waiting import PATIENCE
from topospread_proto.v1 import (
    cluster_state_service_pb2,
    common_pb2,
    decision_service_pb2,
    placement_service_pb2,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

AIM: Final = 1.5
"""Times the memory before that may be left."""

SIZE: Final = 8 * MIB
VALUES: Final = 4900
ADDED: Final = 4
KEYS: Final = 63
REPLACED: Final = 1600 * MIB
REPLACE: Final = "/topospread.v1.ClusterStateService/ReplaceObjects"


def _labels(number: int) -> Any:
    made = pod()
    made.metadata.labels[f"only-{number}"] = "x" * SIZE
    return decision_service_pb2.EvaluatePodRequest(pod=common_pb2.PodSource(object=made))


def _selector(number: int) -> Any:
    made = pod()
    (constraint,) = made.spec.topology_spread_constraints
    expression = constraint.label_selector.match_expressions.add(key="app", operator="In")
    long = "x" * (SIZE // VALUES)
    expression.values.extend(f"{number}-{each}-{long}" for each in range(VALUES))
    return decision_service_pb2.EvaluatePodRequest(pod=common_pb2.PodSource(object=made))


def _scheduler(number: int) -> Any:
    made = pod()
    made.spec.scheduler_name = f"{number}-" + "x" * SIZE
    return decision_service_pb2.EvaluatePodRequest(pod=common_pb2.PodSource(object=made))


def _namespace(number: int) -> Any:
    made = pod()
    made.metadata.namespace = f"{number}-" + "x" * SIZE
    return decision_service_pb2.EvaluatePodRequest(pod=common_pb2.PodSource(object=made))


def _topology_key(number: int) -> Any:
    made = pod()
    (constraint,) = made.spec.topology_spread_constraints
    constraint.topology_key = f"{number}-" + "x" * SIZE
    return decision_service_pb2.EvaluatePodRequest(pod=common_pb2.PodSource(object=made))


def _toleration(number: int) -> Any:
    made = pod()
    made.spec.tolerations.add(key=f"{number}-" + "x" * SIZE, operator="Exists")
    return decision_service_pb2.EvaluatePodRequest(pod=common_pb2.PodSource(object=made))


def _affinity(number: int) -> Any:
    made = pod()
    affinity = made.spec.affinity.node_affinity
    terms = affinity.required_during_scheduling_ignored_during_execution.node_selector_terms
    expression = terms.add().match_expressions.add(key="pool", operator="NotIn")
    expression.values.append(f"{number}-" + "x" * SIZE)
    return decision_service_pb2.EvaluatePodRequest(pod=common_pb2.PodSource(object=made))


def _resource(number: int) -> Any:
    made = pod()
    made.metadata.name = f"only-{number}"
    made.spec.containers[0].resources.requests[f"{number}-" + "x" * SIZE].string = "0"
    return placement_service_pb2.PlacePodRequest(pod=common_pb2.PodSource(object=made))


def _cluster(number: int) -> Any:
    return decision_service_pb2.EvaluatePodRequest(
        pod=common_pb2.PodSource(object=pod()), cluster=f"{number}-" + "x" * SIZE
    )


def _container(number: int) -> Any:
    made = pod()
    made.metadata.name = f"only-{number}"
    made.spec.containers.add(name=f"{number}-" + "x" * SIZE)
    return placement_service_pb2.PlacePodRequest(pod=common_pb2.PodSource(object=made))


def _added(number: int) -> Any:
    made = decision_service_pb2.PreFilterRequest(pod=common_pb2.PodSource(object=pod()))
    made.pod.object.metadata.labels["number"] = str(number)
    for each in range(ADDED):
        added = made.add_pods.add(node="node-1")
        added.pod.object.metadata.name = f"added-{each}"
        added.pod.object.metadata.labels[f"only-{number}"] = "x" * (SIZE // ADDED)
    return made


def _keys(number: int) -> Any:
    made = pod()
    (first,) = made.spec.topology_spread_constraints
    for each in range(KEYS):
        constraint = made.spec.topology_spread_constraints.add()
        constraint.CopyFrom(first)
        constraint.topology_key = f"example.com/key-{number}-{each}"
        constraint.when_unsatisfiable = "ScheduleAnyway"
    return decision_service_pb2.EvaluatePodRequest(pod=common_pb2.PodSource(object=made))


CALLS: Final[Mapping[str, tuple[str, Callable[[int], Any], int]]] = {
    "labels": (f"{ENGINE}EvaluatePod", _labels, 1),
    "selector": (f"{ENGINE}EvaluatePod", _selector, 1),
    "scheduler": (f"{ENGINE}EvaluatePod", _scheduler, 1),
    "namespace": (f"{ENGINE}EvaluatePod", _namespace, 1),
    "topology key": (f"{ENGINE}EvaluatePod", _topology_key, 1),
    "toleration": (f"{ENGINE}EvaluatePod", _toleration, 1),
    "affinity": (f"{ENGINE}EvaluatePod", _affinity, 1),
    "resource": (f"{PLACEMENT}PlacePod", _resource, 1),
    "cluster": (f"{ENGINE}EvaluatePod", _cluster, 1),
    "container": (f"{PLACEMENT}PlacePod", _container, 1),
    "added pods": (f"{ENGINE}PreFilter", _added, 1),
    "keys": (f"{ENGINE}EvaluatePod", _keys, 10),
}
"""Each with the method, what is sent, and how often for one of the others."""


def _list_of_pods() -> Iterator[bytes]:
    start, _ = replacement(kind=common_pb2.KIND_POD)
    yield start.SerializeToString()
    pods = REPLACED // SIZE
    for number in range(pods):
        one = stored_pod(f"pod-{number}", "node-1")
        one.pod.metadata.labels["long"] = "x" * SIZE
        batch = cluster_state_service_pb2.ReplaceBatch(objects=[one])
        yield cluster_state_service_pb2.ReplaceObjectsRequest(batch=batch).SerializeToString()
    commit = cluster_state_service_pb2.ReplaceCommit(object_count=pods)
    yield cluster_state_service_pb2.ReplaceObjectsRequest(commit=commit).SerializeToString()


def send(measured: Measured, kind: str, calls: int) -> Counter[str]:
    """Make the calls of one kind; how they ended."""
    ended: Counter[str] = Counter()
    if kind == "replace":
        many: Any = measured.channel.stream_unary(REPLACE)
        ended[_outcome(lambda: many(_list_of_pods(), timeout=10 * PATIENCE))] += 1
        return ended
    method, make, often = CALLS[kind]
    call: Any = measured.channel.unary_unary(method)
    for number in range(calls * often):
        sent = make(number).SerializeToString()
        ended[_outcome(lambda: call(sent, timeout=PATIENCE))] += 1  # noqa: B023
    return ended


def _outcome(call: Callable[[], object]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        return f"{error.code().name} ({str(error.details())[:150]})"
    return "OK"


def _kept(
    kind: str, nodes: int, calls: int, settle: float, flags: Sequence[str]
) -> tuple[dict[str, Any], float]:
    """What one kind of request left: the figures, and how many times the memory before."""
    own = ("--store", "memory:", "--max-decision-bytes", "16MiB", "--log-level", "error")
    with ServerProcess("--http", "127.0.0.1:0", *own, *flags, **AS_SHIPPED) as server:
        measured = Measured(server.process.pid, server.address)
        load(measured, nodes, 10 * nodes)
        plain: Any = measured.channel.unary_unary(f"{ENGINE}EvaluatePod")
        question = decision_service_pb2.EvaluatePodRequest(
            pod=common_pb2.PodSource(object=pod())
        ).SerializeToString()
        for _ in range(200):
            plain(question, timeout=PATIENCE)
        measured.forget_peak()
        before = measured.rss
        ended = send(measured, kind, calls)
        peak, after = measured.peak, measured.rss
        time.sleep(settle)
        left = measured.rss
        _, page = server.get("/metrics")
        measured.channel.close()
    sizes = {"before": before, "peak": peak, "after": after, "settled": left}
    caches = {
        line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
        for line in page.splitlines()
        if line.startswith("topospread_cache_bytes") and not line.endswith(" 0.0")
    }
    figures = {**{name: size // MIB for name, size in sizes.items()}, "ended": ended}
    return {**figures, "caches": caches}, left / before


KINDS: Final = (*CALLS, "replace")


@campaign(
    "kept",
    click.option("--nodes", "sizes", type=click.IntRange(1), multiple=True, default=(6, 5000)),
    click.option("--only", multiple=True, type=click.Choice(KINDS), help="Requests of a kind."),
    click.option("--calls", type=click.IntRange(1), default=80, help="Of each; of keys ten times."),
    click.option("--settle", type=float, default=60.0, help="Seconds without a call."),
    server_flag_option,
)
def command(
    sizes: tuple[int, ...],
    only: tuple[str, ...],
    calls: int,
    settle: float,
    server_flags: tuple[str, ...],
) -> Outcome:
    """Send large requests, each with names that no other has, and see what stays of them; MiB.

    docs/operations.md promises that what is kept of questions is bounded: once the server is idle,
    it has at most half as much again as before.
    """
    figures, broken = {}, []
    for nodes in sizes:
        for kind in only or KINDS:
            name = f"{kind}, {nodes} nodes"
            note(f"kept: {name}")
            figures[name], ratio = _kept(kind, nodes, calls, settle, server_flags)
            if ratio > AIM:
                broken.append(f"{name}: {ratio:.2f} times the memory before is left")
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
