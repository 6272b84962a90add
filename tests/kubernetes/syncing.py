"""Syncs of real stores from our own API server, and what the tests wait for."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import yaml

from tests.apiserver.objects import Objects
from tests.servers import served
from topospread_client import Client

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.apiserver.server import ApiServer

ZONE = "topology.kubernetes.io/zone"


def node(name: str, zone: str = "a") -> dict[str, Any]:
    """A node that is ready for pods."""
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {ZONE: zone, "kubernetes.io/hostname": name}},
        "status": {
            "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": None}],
        },
    }


def pod(name: str, on: str = "", *, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """A pod of the app `web`."""
    return {
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": "web"}},
        "spec": {"containers": [{"name": "c"}], **({"nodeName": on} if on else {}), **spec},
        "status": {"phase": "Running" if on else "Pending"},
    }


def replica_set(name: str) -> dict[str, Any]:
    """The owner of pods of the app `web`."""
    return {
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}},
    }


def small_cluster() -> Objects:
    """Three nodes, two pods, an object of each other kind."""
    objects = Objects()
    objects.put(node("a1"), node("a2"), node("b1", "b"))
    objects.put(pod("web-0", "a1"), pod("web-1", "b1"), replica_set("web"))
    objects.put(
        {
            "kind": "Service",
            "metadata": {"name": "web"},
            "spec": {"selector": {"app": "web"}},
        },
        {
            "kind": "ReplicationController",
            "metadata": {"name": "old"},
            "spec": {"selector": {"app": "old"}},
        },
        {
            "kind": "StatefulSet",
            "metadata": {"name": "db"},
            "spec": {"selector": {"matchLabels": {"app": "db"}}},
        },
    )
    return objects


def kubeconfig(directory: Path, url: str, token: str = "", **given: dict[str, Any]) -> str:
    """A kubeconfig for an API server; more may be given of its `cluster` and its `user`."""
    user = {"token": token} if token else {}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url, **given.get("cluster", {})}}],
        "users": [{"name": "test", "user": {**user, **given.get("user", {})}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test",
    }
    path = directory / "kubeconfig"
    path.write_text(yaml.safe_dump(content))
    return str(path)


class State:
    """What a server knows of its cluster."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def names(self, kind: str) -> set[str]:
        found = self.client.list_objects(kind)
        return {getattr(one, kind.lower()).metadata.name for one in found}

    def pods(self) -> dict[str, str]:
        """The node of each pod."""
        found = [one.pod for one in self.client.list_objects("POD")]
        return {pod.metadata.name: pod.spec.node_name for pod in found}


def metric(server: Any, name: str, **labels: str) -> float:
    """The value of a sample of the server's metrics."""
    for family in server.metrics.families():
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return 0.0


@contextmanager
def synced(
    directory: Path, api: ApiServer, *, token: str = "", **flags: object
) -> Iterator[tuple[State, Any]]:
    """A server in this process that is synced from an API server, and its state."""
    config = kubeconfig(directory, api.url, token)
    with (
        served(sync=True, sync_kubeconfig=config, **flags) as server,
        Client(server.address) as client,
    ):
        yield State(client), server
