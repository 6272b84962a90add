"""Stores whose content is damaged at random, while a server follows them and before one starts."""

from __future__ import annotations

import logging
import sys
from contextlib import closing
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import click
import grpc

from bench.campaigns.campaign import Outcome, campaign, run, seed_option
from bench.campaigns.findings import Findings, resident
from bench.campaigns.store_damage import Damaged, RedisDamage, SqliteDamage
from tests.redis_server import RedisProcess, default_redis_binary
from tests.servers import Peer, evaluate_request, incoming, node, pod, served, two_zones
from topospread.errors import ConfigError, StoreUnavailable
from topospread_client import object_from_manifest, pod_from_manifest
from topospread_proto.v1 import cluster_state_service_pb2 as state_pb
from topospread_proto.v1 import (
    common_pb2,
    placement_service_pb2,
    placement_service_pb2_grpc,
    planner_service_pb2,
    scenario_pb2,
)
from topospread_proto.v1 import decision_service_pb2 as engine_pb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE: Final = 30.0
WATCH: Final = 0.05
ALLOWED: Final = {"DATA_LOSS": {"GetObject"}, "DEADLINE_EXCEEDED": {"WatchObjects"}}
"""Codes that mean a fault, but for these calls."""

FAULTS: Final = {"INTERNAL", "UNKNOWN", "DATA_LOSS", "DEADLINE_EXCEEDED"}
FRESH_EVERY: Final = 3
NEWEST: Final = common_pb2.Consistency(fully_consistent=True)


class Stored:
    """Rounds of damage to one store.

    Args:
        url: of the store.
        store: the same, past its servers.
        seed: of all that is random.
    """

    def __init__(self, url: str, store: Damaged, seed: int) -> None:
        self._url = url
        self._store = store
        self._random = Random(seed)
        self._log = _Exceptions()
        self._done: list[str] = []
        self.found = Findings()

    def run(self, rounds: int) -> Findings:
        """So many, each with a cluster of its own; one in three with a server that starts."""
        logging.getLogger().addHandler(self._log)
        half = 0
        try:
            with served(store=self._url, preload="none") as server, Peer(server.address) as peer:
                _load(peer, "untouched")
                for number in range(rounds):
                    self._round(peer, f"damaged-{number}", fresh=number % FRESH_EVERY == 0)
                    self.found.sent += 1
                    if number == rounds // 2:
                        half = resident()
                    self._expect(peer, "untouched", "another cluster")
        finally:
            logging.getLogger().removeHandler(self._log)
        self.found.grown = resident() - half
        return self.found

    def _round(self, peer: Peer, cluster: str, *, fresh: bool) -> None:
        _load(peer, cluster)
        saved = self._store.saved(cluster)
        self._done = [
            self._store.damage(cluster, self._random) for _ in range(self._random.randint(1, 3))
        ]
        self._ask(peer, cluster)
        if fresh:
            self._start(cluster, self._ask)
        self._store.put_right(cluster, saved)
        if fresh:
            self._start(cluster, lambda late, name: self._expect(late, name, "put right"))
        for text in self._log.taken():
            self._fault(text)
        _code(lambda: peer.state.DeleteCluster(state_pb.DeleteClusterRequest(cluster=cluster)))

    def _start(self, cluster: str, then: Callable[[Peer, str], None]) -> None:
        """A server that begins with what the store holds now."""
        try:
            with served(store=self._url, preload=cluster) as late, Peer(late.address) as other:
                then(other, cluster)
        except (ConfigError, StoreUnavailable) as refused:
            self.found.codes[f"start {type(refused).__name__}"] += 1

    def _ask(self, peer: Peer, cluster: str) -> None:
        for name, call in _calls(peer, cluster):
            code = _code(call)
            self.found.codes[code] += 1
            if code in FAULTS and name not in ALLOWED.get(code, ()):
                self._fault(f"{name} ended {code}")

    def _expect(self, peer: Peer, cluster: str, what: str) -> None:
        request = evaluate_request(cluster=cluster, consistency=NEWEST)
        answer: Any = None

        def ask() -> None:
            nonlocal answer
            answer = peer.engine.EvaluatePod(request, timeout=DEADLINE)

        code = _code(ask)
        if code != "OK" or (answer.node_count, answer.feasible_node_count) != (3, 1):
            self._fault(f"{what}: {code} {answer}")

    def _fault(self, what: str) -> None:
        self.found.faults.append(f"{what}\n  after {self._done}")


def in_sqlite(path: Path, seed: int, rounds: int) -> Findings:
    """A campaign against a SQLite file, which is made."""
    url = f"sqlite:///{path}"
    with served(store=url), closing(SqliteDamage(str(path))) as store:
        return Stored(url, store, seed).run(rounds)


def in_redis(url: str, seed: int, rounds: int) -> Findings:
    """A campaign against an empty Redis."""
    with closing(RedisDamage(url)) as store:
        return Stored(url, store, seed).run(rounds)


class _Exceptions(logging.Handler):
    """Keeps log lines that tell of an exception that nobody expected."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._kept: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._kept.append(self.format(record))

    def taken(self) -> list[str]:
        kept, self._kept = self._kept, []
        return kept


def _load(peer: Peer, cluster: str) -> None:
    service = {"kind": "Service", "metadata": {"name": "s"}, "spec": {"selector": {"app": "web"}}}
    made = object_from_manifest(service)
    assert made is not None, "its kind is known"
    peer.apply(*two_zones(), made, cluster=cluster)
    placements: Any = placement_service_pb2_grpc.PlacementServiceStub(peer.channel)
    held = pod_from_manifest({**incoming(), "metadata": {"name": "held", "labels": {"app": "x"}}})
    placements.ReserveNode(
        placement_service_pb2.ReserveNodeRequest(
            cluster=cluster, pod=common_pb2.PodSource(object=held), node="a1"
        )
    )
    # The log says more than one thing of an object.
    peer.apply(pod("web-9", "b1"), cluster=cluster)
    keys = [state_pb.ObjectReference(kind=common_pb2.KIND_POD, namespace="default", name="web-9")]
    peer.state.DeleteObjects(
        state_pb.DeleteObjectsRequest(cluster=cluster, objects=keys), timeout=DEADLINE
    )
    peer.engine.EvaluatePod(evaluate_request(cluster=cluster, consistency=NEWEST), timeout=DEADLINE)


def _calls(peer: Peer, cluster: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Calls of every kind that looks at the store or at what was read from it."""
    given = pod_from_manifest(incoming())
    placements: Any = placement_service_pb2_grpc.PlacementServiceStub(peer.channel)
    state, engine, planner = peer.state, peer.engine, peer.planner
    kinds = {common_pb2.KIND_POD: "web-0", common_pb2.KIND_NODE: "a1", common_pb2.KIND_SERVICE: "s"}
    asked: list[tuple[str, Any, Any]] = [
        ("EvaluatePod", engine, evaluate_request(cluster=cluster)),
        ("EvaluatePod", engine, evaluate_request(cluster=cluster, consistency=NEWEST)),
        (
            "ExplainPod",
            engine,
            engine_pb.ExplainPodRequest(cluster=cluster, pod=common_pb2.PodSource(object=given)),
        ),
        *(
            ("GetObject", state, state_pb.GetObjectRequest(cluster=cluster, kind=kind, name=name))
            for kind, name in kinds.items()
        ),
        *(
            ("ListObjects", state, state_pb.ListObjectsRequest(cluster=cluster, kind=kind))
            for kind in kinds
        ),
        ("ListClusters", state, state_pb.ListClustersRequest()),
        ("GetNodeTable", state, state_pb.GetNodeTableRequest(cluster=cluster)),
        (
            "ApplyObjects",
            state,
            state_pb.ApplyObjectsRequest(cluster=cluster, objects=[pod("more", "b1")]),
        ),
        (
            "ApplyObjects",
            state,
            state_pb.ApplyObjectsRequest(cluster=cluster, objects=[node("a1", "a")]),
        ),
        (
            "ListReservations",
            placements,
            placement_service_pb2.ListReservationsRequest(cluster=cluster),
        ),
        (
            "PlacePod",
            placements,
            placement_service_pb2.PlacePodRequest(
                cluster=cluster, pod=common_pb2.PodSource(object=given)
            ),
        ),
        (
            "ReleaseReservation",
            placements,
            placement_service_pb2.ReleaseReservationRequest(
                cluster=cluster, pod=common_pb2.PodReference(name="held")
            ),
        ),
        (
            "Simulate",
            planner,
            planner_service_pb2.SimulateRequest(
                cluster=cluster,
                pods=[scenario_pb2.PodsToPlace(pod=common_pb2.PodSource(object=given))],
            ),
        ),
        ("PlanRebalance", planner, planner_service_pb2.PlanRebalanceRequest(cluster=cluster)),
        ("EvaluatePod", engine, evaluate_request(cluster=cluster, consistency=NEWEST)),
    ]
    for name, stub, request in asked:
        yield (
            name,
            lambda stub=stub, name=name, request=request: getattr(stub, name)(  # type: ignore[misc]
                request, timeout=DEADLINE
            ),
        )
    watch = state_pb.WatchObjectsRequest(cluster=cluster)
    yield "WatchObjects", lambda: list(state.WatchObjects(watch, timeout=WATCH))


def _code(call: Callable[[], Any]) -> str:
    try:
        call()
    except grpc.RpcError as error:
        code: grpc.StatusCode = error.code()
        return code.name
    return "OK"


@campaign(
    "damage",
    click.option("--rounds", type=click.IntRange(2), default=1000, show_default=True),
    seed_option,
)
def command(rounds: int, seed: int) -> Outcome:
    """Damage a SQLite file and a Redis, half of the rounds each, and ask servers about them.

    A call that ends as a fault of the server, or a cluster that is not judged as before, is a
    finding.
    """
    found = Findings()
    with TemporaryDirectory() as folder:
        found.add(in_sqlite(Path(folder) / "state.db", seed, rounds - rounds // 2))
        with RedisProcess(Path(folder) / "redis", binary=default_redis_binary()) as server:
            found.add(in_redis(server.url, seed, rounds // 2))
    return found.outcome()


if __name__ == "__main__":
    sys.exit(run(command))
