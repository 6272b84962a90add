"""Calls whose callers go, are late or read nothing: what a server spends on them."""

from __future__ import annotations

import sys
import time
from collections import Counter
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

import click
import grpc

from bench import planner, requests
from bench.campaigns.campaign import Outcome, campaign, nodes_option, note, pods_option, run
from bench.cluster import HOSTNAME, ZONE, Size, app_name, namespace_of
from bench.processes import server
from bench.stores import filled_store
from tests.servers import Peer
from tests.waiting import PATIENCE
from topospread.calls.memory import PENDING_SECONDS
from topospread_proto.kubernetes.v1 import kubernetes_pb2
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import (
    common_pb2,
    deletion_order_pb2,
    inspector_service_pb2,
    placement_service_pb2,
    planner_service_pb2,
    rebalance_pb2,
)
from topospread_proto.v1 import decision_service_pb2 as pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from google.protobuf.message import Message

    from bench.processes import Running

CALLS: Final = 40
SECONDS: Final = 1.6
"""After which callers go."""

DEADLINE: Final = 0.1

MAX_CPU: Final = 1.0
"""Seconds that they may cost: a call that is under way goes on to its next checkpoint, and none of
those that wait begins. Forty batches take some 2.5 s where each is computed to its end."""

IDLE: Final = 0.3
"""Seconds without CPU after which a process is idle: its clock goes in hundredths."""

STREAMS: Final = 64
CONNECTIONS: Final = 8
UNREAD: Final = 20.0
"""Seconds for which others write beside streams that nobody reads."""

NOT_READING: Final = (("grpc.use_local_subchannel_pool", 1), ("grpc.http2.bdp_probe", 0))
"""Of a client: what it does not read stays with the server, but for 64 KiB."""

BATCH: Final = 500

_SERVICES: Final = "/topospread.v1."


@dataclass(frozen=True, slots=True)
class Spent:
    """What a server did for callers that could not use it any more.

    Attributes:
        codes: how their calls ended, and how many did so.
        cpu: seconds of the server's process after they had gone.
        slowest: milliseconds of the slowest EvaluatePod of somebody else meanwhile.
        answered: how many of those were answered.
    """

    codes: Mapping[str, int]
    cpu: float
    slowest: float
    answered: int


def unlike(pods: int) -> Iterator[kubernetes_pb2.Pod]:
    """Pods of which each must be parsed and judged by itself: nothing is remembered of the others.

    Each is spread over zones and asks for a label that no other asks for.
    """
    like = requests.incoming_pods()[0]
    for number in range(pods):
        pod = kubernetes_pb2.Pod()
        pod.CopyFrom(like)
        pod.metadata.name = f"unlike-{number}"
        pod.spec.node_selector[f"example.com/{time.monotonic_ns()}"] = f"{number}"
        yield pod


def batch(pods: int) -> pb.BatchEvaluatePodsRequest:
    """A batch that takes some tenths of a second on thousands of nodes."""
    return pb.BatchEvaluatePodsRequest(
        pods=[common_pb2.PodSource(object=pod) for pod in unlike(pods)]
    )


def explain() -> pb.ExplainPodRequest:
    """A pod with many constraints that fits nowhere: advice is sought for each."""
    pod = requests.incoming_pods()[0]
    for number in range(40):
        pod.spec.topology_spread_constraints.add(
            max_skew=1,
            min_domains=900 - number,
            topology_key=HOSTNAME if number % 2 else ZONE,
            when_unsatisfiable="DoNotSchedule",
            label_selector=kubernetes_pb2.LabelSelector(match_labels={"app": app_name(number % 9)}),
        )
    return pb.ExplainPodRequest(pod=common_pb2.PodSource(object=pod))


def place() -> placement_service_pb2.PlacePodRequest:
    """A place among all nodes."""
    (pod,) = unlike(1)
    pod.spec.node_selector.clear()
    return placement_service_pb2.PlacePodRequest(pod=common_pb2.PodSource(object=pod))


def simulate() -> planner_service_pb2.SimulateRequest:
    """Ten thousand pods."""
    request = planner_service_pb2.SimulateRequest()
    request.pods.add(replicas=10_000).pod.object.CopyFrom(requests.incoming_pods()[0])
    return request


def rank() -> planner_service_pb2.RankDeletionsRequest:
    """All pods of a namespace."""
    keys = (ZONE, HOSTNAME)
    constraints = [deletion_order_pb2.RankConstraint(topology_key=key) for key in keys]
    return planner_service_pb2.RankDeletionsRequest(
        namespace=namespace_of(0),
        label_selector=kubernetes_pb2.LabelSelector(),
        constraints=constraints,
    )


def rebalance() -> planner_service_pb2.PlanRebalanceRequest:
    """All pods over zones."""
    request = planner_service_pb2.PlanRebalanceRequest(
        settings=planner.OVER_ZONES,
        filters=rebalance_pb2.EvictionFilters(evict_bare_pods=True),
    )
    request.search_timeout.FromSeconds(60)
    return request


STREAMED: Final[Mapping[str, Callable[[], Message]]] = {
    "ClusterStateService/WatchObjects": lambda: state_pb.WatchObjectsRequest(send_initial=True),
    "InspectorService/WatchConstraints": lambda: inspector_service_pb2.WatchConstraintsRequest(
        domain_limit=1000
    ),
}
"""Streams that begin with much on thousands of nodes, by method."""

LONG: Final[Mapping[str, Callable[[], Message]]] = {
    "DecisionService/BatchEvaluatePods": lambda: batch(250),
    "DecisionService/ExplainPod": explain,
    "PlacementService/PlacePod": place,
    "PlannerService/Simulate": simulate,
    "PlannerService/RankDeletions": rank,
    "PlannerService/PlanRebalance": rebalance,
}
"""Calls that take long on thousands of nodes, by method."""


def abandoned(
    running: Running,
    method: str,
    calls: int,
    *,
    deadline: float | None = None,
) -> Spent:
    """Make calls of which nobody awaits the end, and see what they cost afterwards.

    Args:
        running: the server.
        method: of those in LONG.
        calls: how many at once.
        deadline: seconds; None: they are cancelled, and their connection closed, after SECONDS.
    """
    requests = [LONG[method]().SerializeToString() for _ in range(calls)]
    with Peer(running.address) as other:
        other.engine.EvaluatePod(one(), timeout=PATIENCE)
        with Peer(running.address) as peer:
            begin: Any = peer.channel.unary_unary(_SERVICES + method)
            futures = [begin.future(each, timeout=deadline or PATIENCE) for each in requests]
            if deadline is None:
                time.sleep(SECONDS)
                for future in futures:
                    future.cancel()
            for future in futures:
                _ended(future)
        codes = Counter(future.code().name for future in futures)
        before = running.cpu()
        taken = _beside(running, other)
        spent = running.cpu() - before
    return Spent(dict(codes), round(spent, 2), round(max(taken) * 1e3, 1), len(taken))


def one() -> pb.EvaluatePodRequest:
    """A question that costs little."""
    return pb.EvaluatePodRequest(pod=common_pb2.PodSource(object=requests.incoming_pods()[0]))


def _beside(running: Running, other: Peer) -> list[float]:
    """Seconds of somebody's calls of EvaluatePod until the server does nothing else."""
    taken: list[float] = []
    idle = 0
    while idle < 2:
        begun = time.monotonic()
        other.engine.EvaluatePod(one(), timeout=PATIENCE)
        taken.append(time.monotonic() - begun)
        before = running.cpu()
        time.sleep(IDLE)
        idle = idle + 1 if running.cpu() - before < IDLE / 5 else 0
    return taken


def _ended(future: grpc.Future) -> None:
    with suppress(grpc.FutureCancelledError):
        future.exception(PATIENCE)


@dataclass(frozen=True, slots=True)
class Unread:
    """What streams did that nobody read.

    Attributes:
        opened: streams that were asked for.
        refused: those that the server ended within UNREAD.
        left: streams for which there was no room a minute later.
        resident: MB that the server held at most, above what it had before.
        written: lists that another caller replaced meanwhile.
        writes_refused: such lists that were refused.
    """

    opened: int
    refused: int
    left: int
    resident: float
    written: int
    writes_refused: int


def unread(running: Running, method: str, request: Message, pods: int) -> Unread:
    """Open streams that nobody reads, and replace lists of so many pods beside them."""
    before = running.resident()
    began = time.monotonic()
    highest, written, writes_refused = 0.0, 0, 0
    with ExitStack() as opened, Peer(running.address) as writer:
        channels = [grpc.insecure_channel(running.address, NOT_READING) for _ in range(CONNECTIONS)]
        begin: list[Any] = [
            opened.enter_context(each).unary_stream(_SERVICES + method) for each in channels
        ]
        streams = [each(request.SerializeToString()) for each in begin * (STREAMS // CONNECTIONS)]
        time.sleep(SECONDS)
        while time.monotonic() < began + UNREAD:
            try:
                writer.state.ReplaceObjects(replaced(pods), timeout=PATIENCE)
                written += 1
            except grpc.RpcError as error:
                writes_refused += error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
            highest = max(highest, running.resident() - before)
        refused = sum(not each.is_active() for each in streams)
        # Who reads nothing does not learn that its stream has ended; others find room.
        time.sleep(max(0.0, began + UNREAD + 2 * PENDING_SECONDS - time.monotonic()))
        watched = state_pb.WatchObjectsRequest(kinds=[common_pb2.KIND_NODE])
        read = [writer.state.WatchObjects(watched) for _ in range(STREAMS)]
        left = sum(not _begins(each) for each in read)
    return Unread(len(streams), refused, left, round(highest, 1), written, writes_refused)


def _begins(stream: Any) -> bool:
    """Whether a stream has an answer."""
    try:
        next(stream)
    except grpc.RpcError:
        return False
    return True


def replaced(pods: int) -> Iterator[state_pb.ReplaceObjectsRequest]:
    """All of a cluster's pods, anew."""
    start = state_pb.ReplaceStart(cluster="replaced", kind=common_pb2.KIND_POD)
    yield state_pb.ReplaceObjectsRequest(start=start)
    like = requests.incoming_pods()[0]
    for first in range(0, pods, BATCH):
        batch = state_pb.ReplaceObjectsRequest()
        for number in range(first, min(pods, first + BATCH)):
            made = batch.batch.objects.add().pod
            made.CopyFrom(like)
            made.metadata.name = f"replaced-{number}"
        yield batch
    yield state_pb.ReplaceObjectsRequest(commit=state_pb.ReplaceCommit(object_count=pods))


@campaign(
    "abandoned",
    nodes_option,
    pods_option,
    click.option("--calls", type=click.IntRange(1), default=CALLS, show_default=True),
    click.option(
        "--method", "methods", multiple=True, type=click.Choice([*LONG, *STREAMED]), help="Only it."
    ),
)
def command(nodes: int, pods: int, calls: int, methods: tuple[str, ...]) -> Outcome:
    """Make calls whose callers go or read no answer, and see what the server spends on them.

    Streams that nobody reads must be over after a minute, and refuse no lists that another caller
    replaces. Of long calls: seconds of CPU from the moment at which they have gone until the
    process is idle, and milliseconds of another caller's slowest EvaluatePod.
    """
    figures, broken = {}, []
    with filled_store(Size(nodes, pods)) as store:
        for method in [each for each in methods or LONG if each in LONG]:
            for deadline in (None, DEADLINE):
                left = "cancelled" if deadline is None else "expired"
                name = f"{method}, {left}"
                note(f"abandoned: {name}")
                with server(store) as running:
                    spent = abandoned(running, method, calls, deadline=deadline)
                figures[name] = asdict(spent)
                if "INVALID_ARGUMENT" in spent.codes:
                    broken.append(f"{name}: refused as invalid, so nothing was tried")
                if spent.cpu > MAX_CPU:
                    broken.append(f"{name}: {spent.cpu} s of CPU after the callers had gone")
        for method in [each for each in methods or STREAMED if each in STREAMED]:
            note(f"abandoned: {method}, unread")
            with server(store) as running:
                found = unread(running, method, STREAMED[method](), pods)
            figures[f"{method}, unread"] = asdict(found)
            if found.writes_refused or not found.written:
                broken.append(f"{method}: {found.writes_refused} lists of another were refused")
            if found.left:
                broken.append(f"{method}: {found.left} unread streams were open still")
    return Outcome(figures, broken)


if __name__ == "__main__":
    sys.exit(run(command))
