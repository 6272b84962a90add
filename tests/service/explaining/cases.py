"""Reads cases.yaml: clusters and pods as manifests, and what must be said of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.service.world import HOSTNAME, ZONE, incoming, node, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Json = dict[str, Any]

KEYS = {"zone": ZONE, "hostname": HOSTNAME}
CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {"selector": {"app": "web"}},
}


@dataclass(frozen=True)
class Story:
    """A case of the file."""

    name: str
    cluster: list[Json]
    reserved: Mapping[str, int]
    pod: Json
    fit: str
    expected: Json


def stories(name: str = "cases.yaml") -> Iterator[Story]:
    """All cases of a file."""
    path = Path(__file__).parent / name
    for written in yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader):
        pods = written.get("pods", {})
        names = [(name, n) for name, count in pods.items() for n in range(count)]
        yield Story(
            name=written["name"],
            cluster=[
                *(node_of(name, about) for name, about in written["nodes"].items()),
                *(running(f"{name}-web-{n}", name) for name, n in names),
                *(taking(name, spec) for name, spec in written.get("taken", {}).items()),
                *([SERVICE] if written.get("service") else []),
                *written.get("objects", []),
            ],
            reserved=written.get("reserved", {}),
            pod=_pod(**written["pod"]),
            fit=written.get("fit", "ALL"),
            expected=written.get("expected", written),
        )


def node_of(name: str, about: Json | str | None) -> Json:
    if not isinstance(about, dict):
        return node(name, about)
    made = node(name, about.get("zone"), **about.get("labels", {}))
    taints = [{"key": key, "effect": "NoSchedule"} for key in about.get("taints", [])]
    made["spec"] = {"taints": taints}
    if about.get("cordoned"):
        made["spec"] = {"unschedulable": True, "taints": [*taints, CORDON]}
    if about.get("unschedulable"):  # before the node controller has added the taint
        made["spec"]["unschedulable"] = True
    if "allocatable" in about:
        made["status"] = {"allocatable": about["allocatable"]}
    return made


def taking(node_name: str, spec: Json) -> Json:
    """A pod of another workload, with labels of its own, that runs on a node."""
    made = running(f"{node_name}-other", node_name)
    made["metadata"]["labels"] = {"app": "other"}
    made["spec"] |= spec
    return made


def _pod(constraints: Sequence[Json] = (), **spec: Any) -> Json:
    return incoming(*(constraint_of(**each) for each in constraints), **spec)


def constraint_of(key: str, *, soft: bool = False, **others: Any) -> Json:
    action = "ScheduleAnyway" if soft else "DoNotSchedule"
    selector = {"matchLabels": {"app": "web"}}
    made = {"maxSkew": 1, "topologyKey": KEYS.get(key, key), "labelSelector": selector} | others
    return {name: value for name, value in made.items() if value is not None} | {
        "whenUnsatisfiable": action
    }


def excerpt(found: Json, expected: Json) -> Json:
    """What an Explanation says, narrowed to what the case speaks of."""
    narrowed: Json = _narrowed(found, expected)
    return narrowed


def _narrowed(found: Any, expected: Any) -> Any:
    if isinstance(expected, dict):
        members = _members(found) if isinstance(found, dict) else _by_name(found)
        return {name: _narrowed(members.get(name), value) for name, value in expected.items()}
    if isinstance(expected, list):
        if len(found) != len(expected):
            return found
        return [_narrowed(*each) for each in zip(found, expected, strict=True)]
    return found


def _members(message: Json) -> Json:
    members = dict(message)
    if "verdict" in members:
        members["verdict"] = members["verdict"]["code"]
        members["findings"] = [finding["code"] for finding in members["findings"]]
    if len(members.get("changes", ())) == 1:
        members |= members["changes"][0]
    return members


def _by_name(items: list[Json]) -> Json:
    """Domains by their values, and reasons with how many nodes have them."""
    return {
        each["value"] if "value" in each else each["reason"]: each
        if "value" in each
        else each["node_count"]
        for each in items
    }
