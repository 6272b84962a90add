"""The scenario of a race: some zones, and applications under each kind of hard constraint."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

Json = dict[str, Any]

ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
ZONES: Final = ("a", "b", "c", "d")
KEEP_OUT: Final = {"key": "example.com/keep-out", "value": "now", "effect": "NoSchedule"}
STANDS_IT: Final = {"key": "example.com/keep-out", "operator": "Exists"}


def _spread(app: str, key: str, max_skew: int, **more: Any) -> Json:
    return {
        "maxSkew": max_skew,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": app}},
        **more,
    }


APPS: Final[dict[str, Sequence[Json]]] = {
    "zones": [_spread("zones", ZONE, 1)],
    "nodes": [_spread("nodes", HOSTNAME, 1)],
    "both": [_spread("both", ZONE, 2), _spread("both", HOSTNAME, 1)],
    "many": [_spread("many", ZONE, 1, minDomains=len(ZONES))],
    "honor": [_spread("honor", ZONE, 1, nodeTaintsPolicy="Honor")],
    "stands": [_spread("stands", ZONE, 1, nodeTaintsPolicy="Honor")],
    "revisions": [_spread("revisions", ZONE, 1, matchLabelKeys=["rev"])],
    "ssd": [_spread("ssd", HOSTNAME, 2)],
    "anywhere": [_spread("anywhere", ZONE, 1, nodeAffinityPolicy="Ignore")],
    "defaulted": [],
}
"""Constraints by name; pods without any get ARGS' defaults by way of their Service."""

ARGS: Final[Json] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "PodTopologySpreadArgs",
    "defaultingType": "List",
    "defaultConstraints": [
        {"maxSkew": 2, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"},
        {"maxSkew": 2, "topologyKey": HOSTNAME, "whenUnsatisfiable": "DoNotSchedule"},
    ],
}
"""Plugin arguments by which all pods are judged."""

CONFIGURATION: Final[Json] = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "pluginConfig": [{"name": "PodTopologySpread", "args": ARGS}],
        }
    ],
}
"""The servers' configuration, so that they judge by ARGS."""

ON_SSD: Final = ("ssd", "anywhere")


STRICT, LOOSE = 10, 11
"""Thousandths of a cpu that a pod asks for with its application's constraints, and without them: so
its reservation shows by what it was judged.
"""


def node(number: int, *, tainted: bool = False, zoned: bool = True) -> Json:
    """A node; every third has an SSD, and every twentieth is in no zone."""
    name = f"node-{number:03}"
    labels = {HOSTNAME: name, "disk": "hdd" if number % 3 else "ssd"}
    if zoned and number % 20 != 19:
        labels[ZONE] = ZONES[number % len(ZONES)]
    spec: Json = {"taints": [KEEP_OUT]} if tainted else {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"}},
    }


def services(namespaces: Sequence[str]) -> list[Json]:
    """Services that select the pods without constraints of their own."""
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": "defaulted", "namespace": namespace},
            "spec": {"selector": {"app": "defaulted"}},
        }
        for namespace in namespaces
    ]


def pod(
    namespace: str, app: str, number: str, *, incarnation: int = 0, loose: bool = False
) -> Json:
    """A pod of an application that looks for a node.

    Args:
        namespace: its own.
        app: of APPS.
        number: distinguishes it from others of the application.
        incarnation: distinguishes it from its predecessors of the same name.
        loose: without constraints of its own.
    """
    name = f"{app}-{number}"
    labels = {"app": app}
    if app == "revisions":
        labels["rev"] = str(len(number) % 2)
    asked = LOOSE if loose else STRICT
    spec: Json = {
        "containers": [{"name": "c", "resources": {"requests": {"cpu": f"{asked}m"}}}],
        "topologySpreadConstraints": [] if loose else list(APPS[app]),
    }
    if app in ON_SSD:
        spec["nodeSelector"] = {"disk": "ssd"}
    if app == "stands":
        spec["tolerations"] = [STANDS_IT]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{namespace}-{name}-{incarnation}",
            "labels": labels,
        },
        "spec": spec,
    }


def pod_named(namespace: str, name: str, cpu: int = STRICT) -> Json:
    """The pod with this name, as it was asked about with so many thousandths of a cpu."""
    app, _, number = name.partition("-")
    return pod(namespace, app, number, loose=cpu == LOOSE)


def any_app(random: Random) -> str:
    """One of the applications."""
    return random.choice(list(APPS))
