"""Reads cases.yaml: clusters and pods as manifests, and what must be said of them."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.service.world import HOSTNAME, ZONE, incoming, node, running

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

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


def stories() -> Iterator[Story]:
    """All cases."""
    path = Path(__file__).parent / "cases.yaml"
    for told in yaml.safe_load(path.read_text(encoding="utf-8")):
        pods = told.get("pods", {})
        names = [(name, n) for name, count in pods.items() for n in range(count)]
        yield Story(
            name=told["name"],
            cluster=[
                *(_node(name, about) for name, about in told["nodes"].items()),
                *(running(f"{name}-web-{n}", name) for name, n in names),
                *([SERVICE] if told.get("service") else []),
            ],
            reserved=told.get("reserved", {}),
            pod=_pod(**told["pod"]),
            fit=told.get("fit", "NODE_AND_RESOURCES"),
            expected=told["expected"],
        )


def _node(name: str, about: Json | str | None) -> Json:
    if not isinstance(about, dict):
        return node(name, about)
    made = node(name, about.get("zone"), **about.get("labels", {}))
    taints = [{"key": key, "effect": "NoSchedule"} for key in about.get("taints", [])]
    made["spec"] = {"taints": taints}
    if about.get("cordoned"):
        made["spec"] = {"unschedulable": True, "taints": [*taints, CORDON]}
    if "allocatable" in about:
        made["status"] = {"allocatable": about["allocatable"]}
    return made


def _pod(constraints: list[Json], **spec: Any) -> Json:
    return incoming(*(_constraint(**each) for each in constraints), **spec)


def _constraint(key: str, *, soft: bool = False, **others: Any) -> Json:
    action = "ScheduleAnyway" if soft else "DoNotSchedule"
    selector = {"matchLabels": {"app": "web"}}
    made = {"maxSkew": 1, "topologyKey": KEYS[key], "labelSelector": selector} | others
    return {name: value for name, value in made.items() if value is not None} | {
        "whenUnsatisfiable": action
    }


def excerpt(found: Any, expected: Any) -> Any:
    """What was found, narrowed to what the case speaks of."""
    if isinstance(expected, dict):
        found = _members(found)
        return {name: excerpt(found[name], value) for name, value in expected.items()}
    if isinstance(expected, list):
        given = list(found)
        if len(given) != len(expected):
            return given
        return [excerpt(*each) for each in zip(given, expected, strict=True)]
    return found


def _members(found: Any) -> Json:
    if not is_dataclass(found):
        return dict(found)
    members: Json = {each.name: getattr(found, each.name) for each in fields(found)}
    if "first" in members:
        members["listed"] = {d.value: d for d in (*members["first"], *members["last"])}
    if "changes" in members:
        members["kinds"] = [change.kind for change in members["changes"]]
        if len(members["changes"]) == 1:
            members |= _members(members["changes"][0])
    if "status" in members:
        members["status"] = members["status"].code.label
        members["warnings"] = [warned.kind for warned in members["warnings"]]
    return members
