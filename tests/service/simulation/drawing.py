"""Small clusters with resources, and pods to place, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from tests.service.world import HOSTNAME, ZONE, constraint, node, running

if TYPE_CHECKING:
    from hypothesis.strategies import DrawFn

Json = dict[str, Any]

APPS = ("web", "db")
ZONES = ("a", "a", "b", "c", None)


@dataclass(frozen=True)
class Drawn:
    """A cluster as manifests, and what to place on it: pods, each with its replicas."""

    cluster: list[Json]
    asked: list[tuple[Json, int]]


@st.composite
def scenes(draw: DrawFn) -> Drawn:
    """Up to six nodes in three zones, some tainted, cordoned, small; one or two kinds of pod."""
    names = [f"n{number}" for number in range(draw(st.integers(1, 6)))]
    cluster = [draw(nodes(name)) for name in names]
    cluster += [
        running(f"r{number}", draw(st.sampled_from(names)), draw(st.sampled_from(APPS)))
        for number in range(draw(st.integers(0, 6)))
    ]
    asked = [draw(pods(f"p{number}")) for number in range(draw(st.integers(1, 2)))]
    return Drawn(cluster, asked)


@st.composite
def nodes(draw: DrawFn, name: str) -> Json:
    """A node."""
    made = node(name, draw(st.sampled_from(ZONES)))
    if draw(st.integers(0, 4)) == 0:
        made["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}
    elif draw(st.integers(0, 6)) == 0:
        made["spec"] = {"unschedulable": True}
    if draw(st.booleans()):
        cpu, most_pods = draw(st.integers(1, 4)), draw(st.integers(1, 6))
        made["status"] = {"allocatable": {"cpu": str(cpu), "pods": str(most_pods)}}
    return made


@st.composite
def pods(draw: DrawFn, name: str) -> tuple[Json, int]:
    """A pod, and how many like it."""
    app = draw(st.sampled_from(APPS))
    spec: Json = {
        "topologySpreadConstraints": [
            constraint(
                draw(st.sampled_from((ZONE, HOSTNAME))),
                draw(st.sampled_from((app, app, *APPS))),
                maxSkew=draw(st.integers(1, 3)),
                whenUnsatisfiable=action,
                **({"minDomains": draw(st.integers(1, 5))} if action == "DoNotSchedule" else {}),
                nodeTaintsPolicy=draw(st.sampled_from(("Honor", "Ignore"))),
            )
            for action in draw(
                st.lists(st.sampled_from(("DoNotSchedule", "ScheduleAnyway")), max_size=3)
            )
        ]
    }
    if draw(st.booleans()):
        cpu = draw(st.sampled_from(("500m", "1", "1500m")))
        spec["containers"] = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    if draw(st.integers(0, 4)) == 0:
        spec["tolerations"] = [{"operator": "Exists"}]
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": spec,
    }
    return pod, draw(st.integers(0, 6))
