"""A workload that grows in a node pool of its own, whose nodes the provider kwok makes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from bench.campaigns.kube_scheduler import ZONE, Cluster, node, pod
from bench.campaigns.retries import pods
from tests.expander.autoscaler import CPU, Group, State, Workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

STEPS: Final = (3, 3, 3)
SIZES: Final = {"4/8/4": (4, 8, 4), "4/4/4": (4, 4, 4)}
WORKLOADS: Final = {
    "hard 1": Workload(1),
    "hard 2": Workload(2),
    "soft 1": Workload(1, hard=False),
    "soft 2": Workload(2, hard=False),
    "hard 1, minDomains 3": Workload(1, min_domains=3),
    "hard 2, minDomains 3": Workload(2, min_domains=3),
}
ZONES: Final[Mapping[str, Sequence[int | None]]] = {
    "open": (None, None, None),
    "c closed": (None, None, 0),
    "b full": (None, 1, None),
}
"""Nodes that each group has from the beginning, full, and can have; None: none, and twenty."""

QUIET: Final = 60.0
"""Seconds without a change after which pods that wait are taken to wait for good."""

NAMESPACE: Final = "default"


@dataclass(frozen=True)
class Trial:
    """One workload that grows, in a node pool of its own."""

    sizes: str
    workload: str
    zones: str
    expander: str

    @property
    def pool(self) -> str:
        """Begins the names of all that it makes."""
        words = f"{self.sizes} {self.workload} {self.zones} {self.expander}"
        return "".join(c if c.isalnum() else "-" for c in words.lower()).replace("--", "-")

    @property
    def begin(self) -> State:
        """Its groups, with the nodes that are there already."""
        groups = []
        for zone, cpu, full in zip("abc", SIZES[self.sizes], ZONES[self.zones], strict=True):
            group = Group(zone, cpu, 20 if full is None else full)
            groups.append((group, (group.capacity,) * (full or 0)))
        return State(WORKLOADS[self.workload], tuple(groups))


@dataclass(frozen=True)
class Seen:
    """Pods of zones a, b, c, nodes, and pods that wait."""

    pods: tuple[int, ...]
    nodes: int
    waiting: int

    @property
    def text(self) -> str:
        """The zones' pods."""
        return "/".join(map(str, self.pods))


class Pool:
    """A trial's nodes and pods at the API server."""

    def __init__(self, cluster: Cluster, trial: Trial) -> None:
        self._cluster = cluster
        self._trial = trial
        self._replicas = 0

    def prepare(self) -> None:
        """Describe the groups to the autoscaler, and make what is there from the beginning."""
        trial = self._trial
        templates = {
            "apiVersion": "v1",
            "kind": "List",
            "items": [self._node(group, f"{trial.pool}-{group.name}") for group in self._groups],
        }
        self._describe(f"{trial.pool}-templates", "templates", templates)
        config = {
            "apiVersion": "v1alpha1",
            "readNodesFrom": "configmap",
            "configmap": {"name": f"{trial.pool}-templates"},
            "nodegroups": {"fromNodeLabelKey": "group"},
            "nodes": {"skipTaint": True},
        }
        self._describe(trial.pool, "config", config)
        for group, nodes in trial.begin.nodes:
            for number, there in enumerate(nodes):
                name = f"{trial.pool}-{group.zone}-{number}"
                made = self._node(group, name)
                made["spec"] = {"providerID": f"kwok:{name}"}
                self._cluster.call("POST", "/api/v1/nodes", made)
                for _ in range(there):
                    self._replica(name)

    def grow(self, step: int) -> None:
        """Create pods that wait."""
        for _ in range(step):
            self._replica()

    def settled(self) -> Seen:
        """What there is when no more is to come."""
        seen, since = self._seen(), time.monotonic()
        while seen.waiting and time.monotonic() < since + QUIET:
            time.sleep(0.5)
            now = self._seen()
            if now != seen:
                seen, since = now, time.monotonic()
        return seen

    @property
    def _groups(self) -> list[Group]:
        return [group for group, _ in self._trial.begin.nodes]

    def _seen(self) -> Seen:
        selector = f"?labelSelector=app%3D{self._trial.pool}"
        found = self._cluster.call("GET", pods(NAMESPACE) + selector)["items"]
        on = [each["spec"].get("nodeName") for each in found]
        selector = f"?labelSelector=pool%3D{self._trial.pool}"
        nodes = self._cluster.call("GET", f"/api/v1/nodes{selector}")["items"]
        zone = {each["metadata"]["name"]: each["metadata"]["labels"][ZONE] for each in nodes}
        zones = [zone[name] for name in on if name]
        return Seen(tuple(zones.count(each) for each in "abc"), len(nodes), on.count(None))

    def _replica(self, on: str = "") -> None:
        trial, workload = self._trial, WORKLOADS[self._trial.workload]
        constraint: dict[str, Any] = {
            "maxSkew": workload.max_skew,
            "topologyKey": ZONE,
            "whenUnsatisfiable": "DoNotSchedule" if workload.hard else "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": trial.pool}},
        }
        if workload.min_domains is not None:
            constraint["minDomains"] = workload.min_domains
        made = pod(
            f"{trial.pool}-{self._replicas}",
            on,
            trial.pool,
            str(CPU),
            nodeSelector={"pool": trial.pool},
            topologySpreadConstraints=[constraint],
        )
        self._cluster.call("POST", pods(NAMESPACE), made)
        self._replicas += 1

    def _node(self, group: Group, name: str) -> dict[str, Any]:
        trial = self._trial
        made = node(name, group.zone, str(group.cpu))
        labels = made["metadata"]["labels"]
        labels |= {"pool": trial.pool, "group": f"{trial.pool}-{group.zone}"}
        annotations = {
            "cluster-autoscaler.kwok.nodegroup/name": labels["group"],
            "cluster-autoscaler.kwok.nodegroup/max-count": str(group.most),
            "kwok.x-k8s.io/node": "fake",
        }
        return {
            "apiVersion": "v1",
            "kind": "Node",
            **made,
            "metadata": {"name": name, "labels": labels, "annotations": annotations},
        }

    def _describe(self, name: str, key: str, content: Mapping[str, Any]) -> None:
        made = {"metadata": {"name": name}, "data": {key: yaml.safe_dump(content)}}
        self._cluster.call("POST", f"/api/v1/namespaces/{NAMESPACE}/configmaps", made)
