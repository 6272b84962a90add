"""Reads cases.yaml: clusters as manifests, and the rows that must come out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tests.service.explaining.cases import SERVICE, constraint_of, node_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

Json = dict[str, Any]


@dataclass(frozen=True)
class InspectionCase:
    """A case of the file."""

    name: str
    objects: list[Json]
    reserved: Mapping[str, int]
    expected: list[Json]

    def __str__(self) -> str:
        return self.name


def inspection_cases() -> Iterator[InspectionCase]:
    """All cases."""
    path = Path(__file__).parent / "cases.yaml"
    for written in yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader):
        pods = [
            pod_of(f"p{i}-{n}", **({"constraints": written["constraints"]} | each))
            for i, each in enumerate(written["pods"])
            for n in range(each.get("count", 1))
        ]
        nodes = [node_of(name, about) for name, about in written["nodes"].items()]
        services = [SERVICE] if written.get("service") else []
        yield InspectionCase(
            written["name"],
            [
                *nodes,
                *services,
                *(_controlled(*pair) for pair in written.get("controllers", {}).items()),
                *pods,
            ],
            written.get("reserved", {}),
            written["expected"],
        )


def pod_of(
    name: str,
    *,
    node: str = "",
    nominated: str = "",
    count: int = 1,
    owner: str = "",
    labels: Json | None = None,
    constraints: list[Json],
    cpu: str = "",
    phase: str = "",
    terminating: bool = False,
    gates: Sequence[str] = (),
    only_on: str = "",
    node_selector: Mapping[str, str] | None = None,
    scheduler: str = "",
    claim: str = "",
) -> Json:
    """A pod of a case."""
    metadata: Json = {"name": name, "namespace": "default", "labels": labels or {"app": "web"}}
    if owner:
        metadata["ownerReferences"] = [_reference(owner)]
    if terminating:
        metadata["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    spec: Json = {"topologySpreadConstraints": [_constraint(each) for each in constraints]}
    if node:
        spec["nodeName"] = node
    if gates:
        spec["schedulingGates"] = [{"name": each} for each in gates]
    if only_on:
        spec["affinity"] = affinity_to([only_on])
    if scheduler:
        spec["schedulerName"] = scheduler
    if claim:
        named = claim.format(name=name)
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": named}}]
    if node_selector:
        spec["nodeSelector"] = node_selector
    if cpu:
        spec["containers"] = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    status = {"phase": phase or ("Running" if node else "Pending")}
    if nominated:
        status["nominatedNodeName"] = nominated
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec, "status": status}


def _reference(owner: str) -> Json:
    kind, _, name = owner.partition("/")
    group = "batch/v1" if kind == "Job" else "apps/v1"
    return {"apiVersion": group, "kind": kind, "name": name, "uid": owner, "controller": True}


def _controlled(inner: str, outer: str) -> Json:
    """A ReplicaSet or Job that has a controller, or none."""
    kind, _, name = inner.partition("/")
    metadata: Json = {"name": name, "namespace": "default"}
    if outer:
        metadata["ownerReferences"] = [_reference(outer)]
    return {"apiVersion": _reference(inner)["apiVersion"], "kind": kind, "metadata": metadata}


def affinity_to(*terms: Sequence[str]) -> Json:
    """What a DaemonSet's pods have: an affinity to nodes by name, of terms that name some each."""
    named = [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [*names]}]}
        for names in terms
    ]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": named}}
    return {"nodeAffinity": required}


def _constraint(written: Json) -> Json:
    if written["key"] in ("zone", "hostname"):
        return constraint_of(**written)
    return constraint_of(**(written | {"key": "zone"})) | {"topologyKey": written["key"]}


def excerpt(row: Json, expected: Json) -> Json:
    """A row, narrowed to what the case speaks of."""
    constraint, domains = row["constraint"], row.get("domains", ())
    codes = [each["code"] for each in row.get("findings", ())]
    said = {
        "state": row["state"].removeprefix("SPREAD_STATE_"),
        "owner": row.get("owner"),
        "constraint": {name: constraint.get(name) for name in expected.get("constraint", ())},
        "numbers": {name: row.get(name, 0) for name in expected.get("numbers", ())},
        "domains": {each["value"]: each.get("pod_count", 0) for each in domains},
        "message": row.get("message", ""),
        "findings": [code.removeprefix("FINDING_CODE_") for code in codes],
        "minimum_reason": row["minimum_reason"],
        "defaulted": row.get("defaulted", False),
        "not_modelled": row.get("not_modelled", []),
        "waiting_reason": row.get("waiting_reason", ""),
        "counted": row.get("counted"),
    }
    return {name: said[name] for name in expected}
