"""A simulated cluster: its nodes, applications, jobs and pods, and the changes of their objects.

Everything happens in minutes, and what happens depends on the seed alone. Pods take the way they
take in a real cluster: they wait, are bound a minute later, terminate, and are gone a minute after
that, or once their node answers again.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from bench.soak import templates
from topospread_client import kind_of
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1.cluster_state_service_pb2 import ClusterObject, ObjectReference

if TYPE_CHECKING:
    from random import Random

    from bench.soak.templates import Template
    from topospread_proto.kubernetes.v1 import kubernetes_pb2 as k8s

SUCCEEDED: Final = "Succeeded"


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The changes of one minute: first the deleted objects, then the existing ones."""

    gone: list[ObjectReference]
    there: list[ClusterObject]

    def __len__(self) -> int:
        """The number of changes."""
        return len(self.gone) + len(self.there)


@dataclass(slots=True, eq=False)
class SimulatedNode:
    """A node; its pods are a set that keeps its order, so that a seed decides everything."""

    name: str
    zone: str
    cordoned: bool = False
    unreachable: bool = False
    pods: dict[SimulatedPod, None] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class SimulatedPod:
    """A pod of an application's revision or of a job; bound when it has a node."""

    number: int
    app: SimulatedApp
    template: Template
    node: SimulatedNode | None = None


@dataclass(slots=True, eq=False)
class SimulatedApp:
    """An application, or with a template without revision a job.

    Attributes:
        wanted: pods when nothing scales it.
        pods: those that do not terminate.
        kept: templates whose ReplicaSets are still there, the newest last.
    """

    template: Template
    wanted: int
    pods: dict[SimulatedPod, None] = field(default_factory=dict)
    kept: list[Template] = field(default_factory=list)


class SimulatedCluster:
    """The cluster; its methods collect changes until :meth:`written` takes them.

    Attributes:
        nodes: by name.
        apps: those that are there, in the order in which they came.
    """

    def __init__(self, random: Random) -> None:
        self.nodes: dict[str, SimulatedNode] = {}
        self.apps: dict[SimulatedApp, None] = {}
        self._random = random
        self._open: list[SimulatedNode] = []
        self._waiting: dict[SimulatedPod, None] = {}
        self._ending: dict[SimulatedPod, None] = {}
        self._gone: list[ObjectReference] = []
        self._there: dict[tuple[common.Kind.ValueType, str, str], ClusterObject] = {}
        self._numbers = 0
        self._version = 0

    def written(self) -> ChangeSet:
        """The changes that were not taken yet; an object that changed twice is there once."""
        taken = ChangeSet(self._gone, list(self._there.values()))
        self._gone, self._there = [], {}
        return taken

    def settle(self) -> None:
        """Let a minute pass: terminating pods are deleted, and waiting pods are bound."""
        for pod in [pod for pod in self._ending if pod.node is None or not pod.node.unreachable]:
            del self._ending[pod]
            if pod.node is not None:
                del pod.node.pods[pod]
            self._remove(common.KIND_POD, templates.name_of(pod.template, pod.number), pod.template)
        for pod in list(self._waiting):
            if not self._open:
                break
            del self._waiting[pod]
            pod.node = min(self._random.choices(self._open, k=2), key=lambda node: len(node.pods))
            pod.node.pods[pod] = None
            self._put_pod(pod)

    # ------------------------------ applications

    def start(self, template: Template, wanted: int) -> SimulatedApp:
        """Add an application or a job."""
        app = SimulatedApp(template, wanted)
        self.apps[app] = None
        if template.revision:
            self._put(ClusterObject(service=templates.service(template)))
            self._keep(app)
        self.scale(app, wanted)
        return app

    def end(self, app: SimulatedApp) -> None:
        """Delete an application, with its pods and all else."""
        del self.apps[app]
        self.scale(app, 0)
        if app.template.revision:
            self._remove(common.KIND_SERVICE, app.template.name, app.template)
        for template in app.kept:
            self._remove(common.KIND_REPLICA_SET, template.owner, template)

    def scale(self, app: SimulatedApp, wanted: int) -> None:
        """Scale an application to so many pods."""
        for pod in list(app.pods)[wanted:]:
            self._terminate(pod)
        for _ in range(wanted - len(app.pods)):
            self._create(app)

    def renew(self, app: SimulatedApp) -> None:
        """Add a revision; its pods come by :meth:`roll`. Of the old ones the last one is kept."""
        app.template = replace(app.template, revision=app.template.revision + 1)
        self._keep(app)
        for template in app.kept[:-2]:
            self._remove(common.KIND_REPLICA_SET, template.owner, template)
        del app.kept[:-2]

    def roll(self, app: SimulatedApp, most: int) -> bool:
        """Replace some pods of old revisions; returns whether there are more."""
        old = [pod for pod in app.pods if pod.template is not app.template]
        for pod in old[:most]:
            self._terminate(pod)
            self._create(app)
        return len(old) > most

    def finish(self, app: SimulatedApp) -> None:
        """Finish a job: its pods succeed and are deleted a minute later."""
        del self.apps[app]
        for pod in list(app.pods):
            self._terminate(pod, phase=SUCCEEDED)

    def evict(self, node: SimulatedNode) -> None:
        """Drain a node: its pods terminate, and others replace them."""
        for pod in self.running(node):
            self._terminate(pod)
            self._create(pod.app)

    def running(self, node: SimulatedNode) -> list[SimulatedPod]:
        """The pods of a node that do not terminate."""
        return [pod for pod in node.pods if pod not in self._ending]

    # ------------------------------ nodes

    def join(self, name: str, zone: str) -> None:
        """Add a node."""
        node = self.nodes[name] = SimulatedNode(name, zone)
        self._open.append(node)
        self._put_node(node)

    def cordon(self, node: SimulatedNode) -> None:
        """Cordon a node: no new pods go to it."""
        node.cordoned = True
        self._open.remove(node)
        self._put_node(node)

    def leave(self, node: SimulatedNode) -> None:
        """Delete a cordoned node."""
        del self.nodes[node.name]
        node.unreachable = False
        self._remove(common.KIND_NODE, node.name)

    def lose(self, zone: str) -> None:
        """Make the nodes of a zone unreachable."""
        self._reach(zone, unreachable=True)

    def find(self, zone: str) -> None:
        """Make the nodes of a zone reachable again."""
        self._reach(zone, unreachable=False)

    def _reach(self, zone: str, *, unreachable: bool) -> None:
        for node in self.nodes.values():
            if node.zone == zone and node.unreachable is not unreachable:
                node.unreachable = unreachable
                self._put_node(node)
        self._open = [n for n in self.nodes.values() if not n.cordoned and not n.unreachable]

    # ------------------------------ what is written

    def _create(self, app: SimulatedApp) -> None:
        self._numbers += 1
        pod = SimulatedPod(self._numbers, app, app.template)
        app.pods[pod] = self._waiting[pod] = None
        self._put_pod(pod)

    def _terminate(self, pod: SimulatedPod, phase: str = "") -> None:
        del pod.app.pods[pod]
        self._waiting.pop(pod, None)
        self._ending[pod] = None
        self._put_pod(pod, phase)

    def _put_pod(self, pod: SimulatedPod, phase: str = "") -> None:
        made = templates.pending_pod(pod.template, pod.number)
        if pod.node is not None:
            made.spec.node_name = pod.node.name
            made.status.phase = phase or "Running"
        if pod in self._ending and not phase:
            made.metadata.deletion_timestamp.seconds = 1
        self._put(ClusterObject(pod=made))

    def _put_node(self, node: SimulatedNode) -> None:
        made = templates.node(
            node.name, node.zone, cordoned=node.cordoned, unreachable=node.unreachable
        )
        self._put(ClusterObject(node=made))

    def _keep(self, app: SimulatedApp) -> None:
        app.kept.append(app.template)
        self._put(ClusterObject(replica_set=templates.replica_set(app.template, app.wanted)))

    def _put(self, made: ClusterObject) -> None:
        field = made.WhichOneof("content")
        assert field is not None
        meta: k8s.ObjectMeta = getattr(made, field).metadata
        meta.resource_version = self._next_version()
        key = (kind_of(made), meta.namespace, meta.name)
        self._there.pop(key, None)
        self._there[key] = made

    def _remove(
        self, kind: common.Kind.ValueType, name: str, template: Template | None = None
    ) -> None:
        namespace = template.namespace if template else ""
        self._there.pop((kind, namespace, name), None)
        version = self._next_version()
        self._gone.append(
            ObjectReference(kind=kind, name=name, namespace=namespace, resource_version=version)
        )

    def _next_version(self) -> str:
        self._version += 1
        return str(self._version)
