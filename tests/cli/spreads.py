"""A cluster with a constraint in each state, as people write it."""

from __future__ import annotations

ZONE = "topology.kubernetes.io/zone"


def node(name: str, zone: str) -> str:
    """A node in a zone, as a YAML document."""
    labels = f"{ZONE}: {zone}, kubernetes.io/hostname: {name}"
    return (
        f"---\nkind: Node\nmetadata: {{name: {name}, labels: {{{labels}}}}}\n"
        "status: {allocatable: {cpu: 64, memory: 256Gi, pods: 110}}\n"
    )


def pod(
    owner: str,
    number: int,
    on: str | None = None,
    *,
    namespace: str = "shop",
    kind: str = "StatefulSet",
    key: str = ZONE,
    action: str = "DoNotSchedule",
    more: str = "",
) -> str:
    """A pod of a controller with one constraint, as a YAML document.

    Args:
        owner: name of the controller; its pods have it as their label ``app``.
        number: in the pod's name.
        on: its node; None while it waits.
        more: fields of the constraint.
    """
    controller = f"apiVersion: apps/v1, kind: {kind}, name: {owner}, uid: {owner}"
    constraint = f"maxSkew: 1, topologyKey: {key}, whenUnsatisfiable: {action}{more}"
    return (
        f"---\nkind: Pod\nmetadata:\n  name: {owner}-{number}\n  namespace: {namespace}\n"
        f"  labels: {{app: {owner}}}\n"
        f"  ownerReferences: [{{{controller}, controller: true}}]\n"
        f"spec:\n  nodeName: {on or 'null'}\n  topologySpreadConstraints:\n"
        f"  - {{{constraint}, labelSelector: {{matchLabels: {{app: {owner}}}}}}}\n"
    )


NODES = node("a1", "a") + node("a2", "a") + node("b1", "b")

STATES = (
    NODES
    # Violated: three in zone a, none in b.
    + "".join(pod("web", number, f"a{number % 2 + 1}") for number in range(3))
    # Blocked: there are fewer domains than minDomains, and a replica waits.
    + pod("db", 0, "a1", namespace="data", more=", minDomains: 3")
    + pod("db", 1, "b1", namespace="data", more=", minDomains: 3")
    + pod("db", 2, namespace="data", more=", minDomains: 3")
    # Ineffective: no node is in a rack.
    + pod("log", 0, "a1", kind="DaemonSet", key="example.com/rack", action="ScheduleAnyway")
    # Satisfied.
    + pod("cart", 0, "a1", action="ScheduleAnyway")
    + pod("cart", 1, "b1", action="ScheduleAnyway")
)
"""Each of web, data's db, log and cart is in one state."""
