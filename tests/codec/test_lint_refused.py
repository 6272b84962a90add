"""What the API server refuses of workloads beside constraints is found, each once."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from topospread.codec.lint_parts import lint_parts

DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web"}]},
        },
    },
}
POD = "spec.template.spec"
TERMS = "requiredDuringSchedulingIgnoredDuringExecution"
NODE_TERMS = f"affinity.nodeAffinity.{TERMS}.nodeSelectorTerms"
APART = f"affinity.podAntiAffinity.{TERMS}"

CASES: list[tuple[str, object, str]] = [
    ("spec.selector", {}, "spec.selector"),
    ("spec.selector", {"matchLabels": {"app": "wbe"}}, "spec.selector"),
    ("spec.selector", {"matchLabels": {"app": "a b"}}, "spec.selector.matchLabels"),
    ("spec.selector", {"matchLabels": {"app": 1}}, "spec.selector.matchLabels[app]"),
    ("spec.selector", {"matchLabels": {"app": "${APP}"}}, ""),
    ("spec.template.metadata", {}, ""),
    ("spec.template.metadata.labels", {"app": 1}, "spec.template.metadata.labels[app]"),
    ("spec.template.metadata.labels", {"app": "${APP}"}, ""),
    ("spec.template.metadata.labels.x", "a b", "spec.template.metadata.labels[x]"),
    ("spec.template.spec", [], "spec.template.spec"),
    ("spec.strategy", {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%"}}, ""),
    ("spec.strategy", {"type": "Recreate", "rollingUpdate": None}, ""),
    ("spec.strategy", "Recreate", "spec.strategy"),
    ("spec.strategy", {"type": "recreate"}, "spec.strategy.type"),
    ("spec.strategy", {"rollingUpdate": []}, "spec.strategy.rollingUpdate"),
    (
        "spec.strategy",
        {"type": "Recreate", "rollingUpdate": {"maxSurge": 1}},
        "spec.strategy.rollingUpdate",
    ),
    (
        "spec.strategy",
        {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": "0%"}},
        "spec.strategy.rollingUpdate.maxUnavailable",
    ),
    (
        "spec.strategy",
        {"rollingUpdate": {"maxUnavailable": "101%"}},
        "spec.strategy.rollingUpdate.maxUnavailable",
    ),
    (f"{POD}.tolerations", [{"operator": "Exists"}, {"key": "a", "operator": "Lt"}], ""),
    (f"{POD}.tolerations", [{"key": "a", "operator": "exists"}], f"{POD}.tolerations[0].operator"),
    (f"{POD}.tolerations", [{"value": "a"}], f"{POD}.tolerations[0].operator"),
    (f"{POD}.tolerations", [{"key": 1}], f"{POD}.tolerations[0].key"),
    (f"{POD}.tolerations", [{"key": "a", "effect": "no"}], f"{POD}.tolerations[0].effect"),
    (
        f"{POD}.tolerations",
        [{"key": "a", "operator": "Exists", "value": "b"}],
        f"{POD}.tolerations[0].value",
    ),
    (f"{POD}.{NODE_TERMS}", [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}], ""),
    (
        f"{POD}.{NODE_TERMS}",
        [{"matchExpressions": [{"key": "a", "operator": "in", "values": ["b"]}]}],
        f"{POD}.{NODE_TERMS}[0].matchExpressions[0].operator",
    ),
    (
        f"{POD}.{NODE_TERMS}",
        [{"matchExpressions": [{"key": "a", "operator": "In", "values": "b"}]}],
        f"{POD}.{NODE_TERMS}[0].matchExpressions[0].values",
    ),
    (f"{POD}.{APART}", [{"topologyKey": "kubernetes.io/hostname", "labelSelector": {}}], ""),
    (f"{POD}.{APART}", [{"labelSelector": {}}], f"{POD}.{APART}[0].topologyKey"),
    (f"{POD}.{APART}", [{"topologyKey": "a b"}], f"{POD}.{APART}[0].topologyKey"),
    (f"{POD}.{APART}", ["a"], f"{POD}.{APART}[0]"),
    (
        f"{POD}.containers",
        [{"name": "a", "ports": [{"containerPort": 80, "hostPort": 70000}]}],
        f"{POD}.containers[0].ports[0].hostPort",
    ),
    ("kind", "deployment", "kind"),
    ("kind", "Deployments", "kind"),
    ("kind", "Job", "apiVersion"),
    ("apiVersion", "v1", "apiVersion"),
    ("apiVersion", 1, "apiVersion"),
    ("apiVersion", "extensions/v1beta1", ""),
    ("apiVersion", "example.com/v1", ""),
]
"""What is put where, and the field that is refused; empty where none is."""


def put(path: str, value: object) -> dict[str, Any]:
    manifest = copy.deepcopy(DEPLOYMENT)
    *above, last = path.split(".")
    at = manifest
    for step in above:
        at = at.setdefault(step, {})
    at[last] = value
    return manifest


@pytest.mark.parametrize(("path", "value", "field"), CASES)
def test_refused_fields_are_found_once(path, value, field):
    (part,) = lint_parts(put(path, value))
    found = [each.field for each in part.workload.malformed]
    assert found == ([field] if field else [])


def test_texts_are_those_of_the_api_server():
    (part,) = lint_parts(put("spec.selector.matchLabels.app", "wbe"))
    (refused,) = part.workload.malformed
    assert refused.description == (
        'Invalid value: {"matchLabels":{"app":"wbe"}}: `selector` does not match template `labels`'
    )
