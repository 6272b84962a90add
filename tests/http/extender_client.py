"""Clusters for the extender, and a scheduler's questions to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx

from tests.allocatable import ROOMY
from tests.servers import ZONE, Peer
from tests.waiting import PATIENCE
from topospread_client import object_from_manifest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Self

    from topospread.app.server import Server

SAMPLES = Path(__file__).parents[1] / "samples"
"""Bytes that real peers sent."""

HOST = "kubernetes.io/hostname"
REASON = "node(s) didn't match pod topology spread constraints"


def sample(name: str) -> bytes:
    """The body of a request of a real kube-scheduler."""
    return (SAMPLES / f"extender-{name}.raw").read_bytes()


def node(name: str, **labels: str) -> dict[str, Any]:
    """A node; ``zone`` is short for the zone's label."""
    found = {ZONE if key == "zone" else key: value for key, value in labels.items()}
    metadata = {"name": name, "labels": {HOST: name, **found}}
    return {"kind": "Node", "metadata": metadata, "status": {"allocatable": ROOMY}}


def pod(name: str, on: str = "", *, app: str = "probe", **spec: Any) -> dict[str, Any]:
    """A pod, bound to a node or waiting."""
    bound = {"nodeName": on} if on else {}
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-of-{name}",
            "labels": {"app": app},
        },
        "spec": {**bound, **spec},
    }


def spreading(name: str, *, key: str = ZONE, action: str = "DoNotSchedule", **more: Any) -> Any:
    """A waiting pod that spreads with its app."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": action,
        "labelSelector": {"matchLabels": {"app": "probe"}},
        **more,
    }
    return pod(name, topologySpreadConstraints=[constraint])


class Scheduler:
    """Asks one server's extender, and writes to its state.

    Args:
        server: with an HTTP address.
    """

    def __init__(self, server: Server) -> None:
        address = server.extender_address or server.http_address
        self.server = server
        self.peer = Peer(server.address)
        self.http = httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=PATIENCE)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()
        self.peer.channel.close()

    def write(self, *manifests: Mapping[str, Any], cluster: str = "default") -> None:
        """Have the server's newest state contain objects."""
        made = [object_from_manifest(manifest) for manifest in manifests]
        revision = self.peer.apply(*[each for each in made if each], cluster=cluster)
        self.peer.await_revision(revision, cluster)

    def post(self, verb: str, body: bytes, **headers: str) -> httpx.Response:
        """One call, as bytes."""
        return self.http.post(f"/extender/v1/{verb}", content=body, headers=headers)

    def ask(self, verb: str, call: Mapping[str, Any], names: Sequence[str]) -> Any:
        """One call of a nodeCacheCapable scheduler that is answered."""
        args = {"Pod": call, "Nodes": None, "NodeNames": list(names)}
        answer = self.post(verb, json.dumps(args).encode())
        assert answer.status_code == httpx.codes.OK, answer.text
        return answer.json()
