"""Made-up clusters like those of conformance recordings, of any size; the same on every machine.

Nodes stand in three zones of two regions, some without a zone; pools, architectures and taints
divide them further. Twenty apps of Zipf-like size share the pods, each in one of three namespaces,
with a Service and a ReplicaSet. Twenty incoming pods have constraints of the kinds that people
write.
"""

from __future__ import annotations

import random
import time
from collections import deque
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Final

from topospread.app.stores import open_store
from topospread.codec.stored import stored
from topospread.store.model import LogEntry, Put, Remove
from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread.store.api import Writer
    from topospread.store.model import Change, StoredObject


ZONE: Final = "topology.kubernetes.io/zone"
REGION: Final = "topology.kubernetes.io/region"
HOSTNAME: Final = "kubernetes.io/hostname"
ARCH: Final = "kubernetes.io/arch"
HASH: Final = "pod-template-hash"
APPS: Final = 20

_NAMESPACES: Final = ("default", "prod", "stage")
_ZONES: Final = (("zone-a", "region-1"), ("zone-b", "region-1"), ("zone-c", "region-2"))
_HASHES: Final = ("77b9d6", "5d4f8c")
_OFFER: Final = {"cpu": "64", "memory": "256Gi", "pods": "250"}
"""What each node has for pods."""

_BATCH: Final = 500
_SEED: Final = 20260102

_CHURN_SEED: Final = 7
_FIRST_NEW_POD: Final = 900_000
_LIVE_NEW_PODS: Final = 500
"""Pods that are there before the first of them goes again."""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a cluster.

    Attributes:
        own_labels: every pod has a label value of its own, as StatefulSets and Jobs make them.
        apps: with a Service and a ReplicaSet each.
        constrained: pods have two constraints, a hard one over zones and a soft one over nodes.
    """

    nodes: int = 5000
    pods: int = 50_000
    own_labels: bool = False
    apps: int = APPS
    constrained: bool = False


def namespace_of(app: int) -> str:
    """The namespace of an app's pods."""
    return _NAMESPACES[app % len(_NAMESPACES)]


def app_name(app: int) -> str:
    """The value of its label `app`."""
    return f"app-{app:02}"


def objects(size: Size) -> Iterator[StoredObject]:
    """All objects of a cluster as a store holds them."""
    return map(stored, cluster_objects(size))


def cluster_objects(size: Size) -> Iterator[ClusterObject]:
    """All objects of a cluster as the API has them."""
    chance = random.Random(_SEED)
    for app in range(size.apps):
        yield ClusterObject(service=_service(app))
        yield ClusterObject(replica_set=_replica_set(app))
    for number in range(size.nodes):
        yield ClusterObject(node=_node(number, chance))
    for pod in pods(size, chance):
        yield ClusterObject(pod=pod)


def pods(size: Size, chance: random.Random, first: int = 0) -> Iterator[k8s.Pod]:
    """The pods of a cluster, numbered from `first` on.

    Args:
        size: of the cluster.
        chance: decides app, labels and node of each.
        first: number of the first one.
    """
    weights = [1 / (app + 1.5) for app in range(size.apps)]
    apps = chance.choices(range(size.apps), weights, k=size.pods)
    for number, app in enumerate(apps, first):
        pod = _pod(number, app, f"node-{chance.randrange(size.nodes):05}", chance, size.own_labels)
        if size.constrained:
            _constrain(pod)
        yield pod


def fill(store: Writer, cluster: str, size: Size) -> None:
    """Write a whole cluster to a store."""
    batch: list[Put] = []
    for each in objects(size):
        batch.append(Put(each))
        if len(batch) == _BATCH:
            store.apply(cluster, batch)
            batch = []
    if batch:
        store.apply(cluster, batch)


def _pod(number: int, app: int, node: str, chance: random.Random, own_label: bool) -> k8s.Pod:
    name = f"{app_name(app)}-{number:06}"
    labels = {
        "app": app_name(app),
        HASH: chance.choice(_HASHES),
        "tier": chance.choice(("fe", "be")),
    }
    if own_label:
        labels["statefulset.kubernetes.io/pod-name"] = name
    return k8s.Pod(
        metadata=k8s.ObjectMeta(
            name=name, namespace=namespace_of(app), uid=f"pod-{number:08}", labels=labels
        ),
        spec=k8s.PodSpec(containers=[k8s.Container(name="c")], node_name=node),
        status=k8s.PodStatus(phase="Running"),
    )


def _constrain(pod: k8s.Pod) -> None:
    """Give a pod of a ReplicaSet the constraints that its template has."""
    app = pod.metadata.labels["app"]
    name = f"{app}-{pod.metadata.labels[HASH]}"
    pod.metadata.owner_references.add(kind="ReplicaSet", name=name, controller=True)
    for key, action in ((ZONE, "DoNotSchedule"), (HOSTNAME, "ScheduleAnyway")):
        pod.spec.topology_spread_constraints.add(
            max_skew=5,
            topology_key=key,
            when_unsatisfiable=action,
            label_selector=k8s.LabelSelector(match_labels={"app": app}),
        )


def _node(number: int, chance: random.Random) -> k8s.Node:
    name = f"node-{number:05}"
    zone, region = chance.choices(_ZONES, (40, 35, 25))[0]
    pool = chance.choices(("general", "gpu", "mem"), (80, 10, 10))[0]
    arch = chance.choices(("amd64", "arm64"), (80, 20))[0]
    labels = {HOSTNAME: name, REGION: region, ARCH: arch, "kubernetes.io/os": "linux", "pool": pool}
    if chance.random() > 0.005:
        labels[ZONE] = zone
    node = k8s.Node(metadata=k8s.ObjectMeta(name=name, uid=f"node-{number:08}", labels=labels))
    for resource, amount in _OFFER.items():
        node.status.allocatable[resource].string = amount
    if pool == "gpu":
        node.spec.taints.add(key="dedicated", value="gpu", effect="NoSchedule")
    return node


def _service(app: int) -> k8s.Service:
    return k8s.Service(
        metadata=k8s.ObjectMeta(name=app_name(app), namespace=namespace_of(app)),
        spec=k8s.ServiceSpec(selector={"app": app_name(app)}),
    )


def _replica_set(app: int) -> k8s.ReplicaSet:
    labels = {"app": app_name(app), HASH: _HASHES[0]}
    return k8s.ReplicaSet(
        metadata=k8s.ObjectMeta(name=f"{app_name(app)}-{_HASHES[0]}", namespace=namespace_of(app)),
        spec=k8s.ReplicaSetSpec(replicas=3, selector=k8s.LabelSelector(match_labels=labels)),
    )


def churn(size: Size) -> Iterator[Change]:
    """Changes without end: a new pod is bound, and soon an earlier one goes."""
    first = _FIRST_NEW_POD
    live: deque[Put] = deque()
    while True:
        for pod in pods(size, random.Random(_CHURN_SEED), first):
            put = Put(stored(ClusterObject(pod=pod)))
            yield put
            live.append(put)
            if len(live) > _LIVE_NEW_PODS:
                yield Remove(live.popleft().object.key)
        first += size.pods


def entries(size: Size, count: int, changes_per_write: int) -> list[list[LogEntry]]:
    """The same as a log holds them: so many changes, a few to a transaction."""
    changes = islice(churn(size), count)
    made = [
        LogEntry(each.object.key, each.object)
        if isinstance(each, Put)
        else LogEntry(each.key, None)
        for each in changes
    ]
    return [made[at : at + changes_per_write] for at in range(0, count, changes_per_write)]


@dataclass(frozen=True, slots=True)
class AcknowledgedWrite:
    """A write that was acknowledged.

    Attributes:
        number: of its revision.
        at: when it was acknowledged, on the monotonic clock, which all processes share.
    """

    number: int
    at: float


class ChangeGenerator:
    """Writes to a store at an even pace; lives in a process of its own."""

    def __init__(self, address: str, size: Size) -> None:
        self._store = open_store(address, {})
        self._changes: dict[str, Iterator[Change]] = {}
        self._size = size

    def close(self) -> None:
        """Release the store."""
        self._store.close()

    def write(
        self, cluster: str, rate: float, changes_per_write: int, seconds: float
    ) -> list[AcknowledgedWrite]:
        """Write for so long.

        Args:
            cluster: where.
            rate: changes a second.
            changes_per_write: how many one transaction holds.
            seconds: how long.
        """
        changes = self._changes.setdefault(cluster, churn(self._size))
        written = []
        due = begun = time.monotonic()
        while due - begun < seconds:
            time.sleep(max(0.0, due - time.monotonic()))
            applied = self._store.apply(cluster, list(islice(changes, changes_per_write)))
            written.append(AcknowledgedWrite(applied.revision.number, time.monotonic()))
            due += changes_per_write / rate
        return written


def write(
    generator: ChangeGenerator, cluster: str, rate: float, changes_per_write: int, seconds: float
) -> list[AcknowledgedWrite]:
    """Run ChangeGenerator.write in a child."""
    return generator.write(cluster, rate, changes_per_write, seconds)
