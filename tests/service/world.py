"""A cluster in a store in memory, an engine that follows it, and short ways to ask."""

from __future__ import annotations

from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

from tests.allocatable import ROOMY
from tests.conformance.objects import object_of
from topospread.codec.frames import framed
from topospread.codec.pods import pod_from_proto
from topospread.codec.stored import stored
from topospread.replica.replicas import Replicas, seconds_from_now
from topospread.replica.state import ReplicaOptions
from topospread.replica.view import Consistency, Freshness, Token
from topospread.service.decisions.cycle import CycleCache
from topospread.service.decisions.engine import Engine
from topospread.service.decisions.evaluate import evaluate
from topospread.service.decisions.request import (
    DecisionRequest,
    NodeSelection,
    PodOnNode,
    PodRef,
    ProfileRegistry,
)
from topospread.store.model import Change, Key, Kind, Put, Remove
from topospread.store.sqlite.store import open_store
from topospread.store.urls import SqliteURL, parse_store_url
from topospread_client import pod_from_manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from topospread.codec.frames import UnreadPod
    from topospread.kube.objects import Pod
    from topospread.service.decisions.pods import Limits, ShapedPod
    from topospread.service.decisions.request import SettingsOverride
    from topospread.store.api import Store

Json = dict[str, Any]

CLUSTER = "prod"
ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"

PATIENCE = 30.0
"""Seconds after which a test that waits for a revision has failed."""


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Process:
    """One serving process: it follows the store by itself and keeps cycles of its own."""

    def __init__(self, store: Store, *, limits: Limits | None = None, max_groups: int = 4096):
        self.clock = Clock()
        self.replicas = Replicas(store, ReplicaOptions(coalesce=0.0, max_groups=max_groups))
        self.rules = ProfileRegistry()
        self.cycles = CycleCache(self.clock)
        self.engine = Engine(self.replicas, store, self.rules, self.cycles, limits)

    def close(self) -> None:
        """End its threads."""
        self.replicas.close()


class World:
    """A store with one cluster, and a process that answers questions about it.

    Attributes:
        revision: of the newest write; questions see at least this state.
    """

    def __init__(self, store: Store, **options: Any) -> None:
        self.store = store
        self.process = Process(store, **options)
        self.revision = ""

    @property
    def engine(self) -> Engine:
        return self.process.engine

    def apply(self, *manifests: Json, cluster: str = CLUSTER) -> str:
        """Write objects; returns the revision that has them."""
        changes = [Put(stored(object_of(manifest))) for manifest in manifests]
        return self._write(changes, cluster)

    def delete(self, kind: Kind, name: str, namespace: str = "") -> str:
        """Delete an object."""
        return self._write([Remove(Key(kind, namespace, name))], CLUSTER)

    def _write(self, changes: Sequence[Change], cluster: str) -> str:
        applied = self.store.apply(cluster, changes[:500])
        for first in range(500, len(changes), 500):
            applied = self.store.apply(cluster, changes[first : first + 500])
        token = Token(self.store.head(cluster).identity, applied.revision).encode()
        if cluster == CLUSTER:
            self.revision = token
        return token

    def ask(
        self,
        subject: Json | PodRef | UnreadPod | ShapedPod | None = None,
        *,
        add: Sequence[tuple[Json, str]] = (),
        remove: Sequence[tuple[Json, str]] = (),
        nodes: NodeSelection | Sequence[str] | None = None,
        settings: SettingsOverride | None = None,
        cluster: str = CLUSTER,
        **others: Any,
    ) -> DecisionRequest:
        """A question about the newest state."""
        if nodes is not None and not isinstance(nodes, NodeSelection):
            nodes = NodeSelection(names=nodes)
        if settings is not None:
            others["settings"] = settings
        newest = Consistency(Freshness.AT_LEAST_AS_FRESH, Token.decode(self.revision))
        if cluster != CLUSTER:
            newest = Consistency()
        return DecisionRequest(
            deadline=seconds_from_now(PATIENCE),
            cluster=cluster,
            pod=framed(encoded(subject)) if isinstance(subject, dict) else subject,
            add_pods=[PodOnNode(pod_of(pod), where) for pod, where in add],
            remove_pods=[PodOnNode(pod_of(pod), where) for pod, where in remove],
            nodes=nodes,
            consistency=newest,
            **others,
        )


def best(world: World, pod: Json | PodRef | ShapedPod, top_k: int = 0) -> list[str]:
    """The names of the best nodes for a pod, best first."""
    return [ranked.name for ranked in evaluate(world.engine, world.ask(pod), top_k).top]


@contextmanager
def world(**options: Any) -> Iterator[World]:
    """A world of its own, with the process's options."""
    url = parse_store_url("memory:", {})
    assert isinstance(url, SqliteURL)
    with closing(open_store(url)) as store:
        made = World(store, **options)
        with closing(made.process):
            yield made


def pod_of(manifest: Json) -> Pod:
    """A pod of a question."""
    return pod_from_proto(pod_from_manifest(manifest))


def encoded(manifest: Json) -> bytes:
    """The bytes of a pod of a question."""
    return pod_from_manifest(manifest).SerializeToString()


def node(name: str, zone: str | None = None, **labels: str) -> Json:
    """A node with its hostname."""
    zoned = {} if zone is None else {ZONE: zone}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name} | zoned | labels},
        "status": {"allocatable": ROOMY},
    }


def running(name: str, where: str, app: str = "web", **metadata: Any) -> Json:
    """A pod on a node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}} | metadata,
        "spec": {"nodeName": where},
        "status": {"phase": "Running"},
    }


def constraint(key: str = ZONE, app: str = "web", **others: Any) -> Json:
    """A hard constraint."""
    return {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
    } | others


def soft(key: str = ZONE, app: str = "web", **others: Any) -> Json:
    """A soft constraint."""
    return constraint(key, app, whenUnsatisfiable="ScheduleAnyway", **others)


def incoming(*constraints: Json, app: str = "web", **spec: Any) -> Json:
    """A pod that looks for a node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "incoming", "namespace": "default", "labels": {"app": app}},
        "spec": {"topologySpreadConstraints": list(constraints)} | spec,
    }
