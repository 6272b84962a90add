"""The cases of RankDeletions: data files, as manifests and as what must come out."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from tests.allocatable import ROOMY

Json = dict[str, Any]

FILES = sorted((Path(__file__).parent / "cases").glob("*.yaml"))


@dataclass(frozen=True)
class Case:
    """One question and its answer.

    Attributes:
        order: names, the first to go first; None where only ranks are told.
        levels: names of equal rank, for the pods whose rank is above 0.
    """

    name: str
    strategy: str
    nodes: list[Json]
    pods: list[Json]
    replica_sets: list[Json]
    select: dict[str, str]
    constraints: list[Json]
    now: int
    delete: int | None
    order: list[str] | None
    levels: list[list[str]] | None
    ranks: dict[str, float] = field(default_factory=dict)
    skews: list[int] | None = None
    best: str | None = None

    def __str__(self) -> str:
        return self.name


def cases() -> list[Case]:
    """All of them."""
    read = (yaml.load(file.read_text(), yaml.CSafeLoader) for file in FILES)
    return [_case(item) for items in read for item in items]


def _case(item: Json) -> Case:
    constraints = [
        {"key": each} if isinstance(each, str) else each for each in item.get("constraints", ())
    ]
    levels = item.get("levels")
    skews = item.get("skews")
    order = item.get("order")
    return Case(
        name=item["name"],
        strategy=item["strategy"],
        nodes=[_node(name, labels) for name, labels in item["nodes"].items()],
        pods=[pod(**each) for each in item["pods"]],
        replica_sets=[_replica_set(*each) for each in item.get("replicaSets", {}).items()],
        select=item.get("select", {}),
        constraints=constraints,
        now=item.get("now", 0),
        delete=item.get("delete"),
        order=None if order is None else order.split(),
        levels=None if levels is None else [level.split() for level in levels.split("|")],
        ranks=item.get("ranks", {}),
        skews=None if skews is None else list(map(int, str(skews).split())),
        best=item.get("best"),
    )


def _node(name: str, labels: dict[str, str]) -> Json:
    metadata = {"name": name, "labels": labels}
    status = {"allocatable": ROOMY}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": status}


def _replica_set(name: str, deployment: str) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": deployment, "controller": True}
    metadata = {"name": name, "namespace": "default", "ownerReferences": [owner]}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": metadata}


def pod(
    name: str,
    node: str = "",
    *,
    uid: str | None = None,
    created: int | None = None,
    phase: str = "Running",
    ready: bool | int = False,
    cost: str | None = None,
    restarts: tuple[int, ...] = (),
    sidecarRestarts: int = 0,  # noqa: N803 - as the files have it
    owner: str = "",
    labels: dict[str, str] | None = None,
    terminating: bool = False,
) -> Json:
    """A pod; `ready` is when it became so, or True for a time that is not known."""
    metadata: Json = {"name": name, "namespace": "default", "uid": name if uid is None else uid}
    metadata["labels"] = {"app": "web"} if labels is None else labels
    if created is not None:
        metadata["creationTimestamp"] = _time(created)
    if terminating:
        metadata["deletionTimestamp"] = _time(1)
    if cost is not None:
        metadata["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": cost, "other": "x"}
    if owner:
        reference = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner, "uid": owner}
        metadata["ownerReferences"] = [{**reference, "controller": True}]
    status: Json = {"phase": phase}
    if ready:
        condition: Json = {"type": "Ready", "status": "True"}
        if ready is not True:
            condition["lastTransitionTime"] = _time(ready)
        status["conditions"] = [{"type": "Initialized", "status": "True"}, condition]
    if restarts:
        counted = [{"name": f"c{i}", "restartCount": count} for i, count in enumerate(restarts)]
        status["containerStatuses"] = counted
    spec: Json = {"nodeName": node} if node else {}
    if sidecarRestarts:
        spec["initContainers"] = [{"name": "proxy", "restartPolicy": "Always"}, {"name": "setup"}]
        status["initContainerStatuses"] = [
            {"name": "setup", "restartCount": 99},
            {"name": "proxy", "restartCount": sidecarRestarts},
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z")
