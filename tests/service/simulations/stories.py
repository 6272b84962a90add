"""Stories of simulations: compact data turned into manifests and the client's arguments.

A story has `nodes` (name to zone, allocatable, taint), `running` pods of the app "web" (name to
node, or to node, cpu and more), the `pods` to place, `changes`, and what it expects:

- placed, pending, evicted, rescheduled: how many;
- reasons: how many are pending for each reason;
- nodes: pods that went to these; fullest: the most on one node, those before included;
- skew: (before, after) of each constraint; domains: (before, after) of the first constraint's;
- message: of the first pods that are pending; suggested: the begin of what would let one in;
- advice: what would make all fit, up to the colon;
- joined: nodes that joined; warning: part of a warning;
- fewest: nodes of each group, proved; they are looked for then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.service.world import HOSTNAME, ZONE, node
from topospread_client.scenarios import ConstraintChange, Drain, NodeGroup, Pods

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread_client.simulations import Simulation

Json = dict[str, Any]

ELSEWHERE: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "elsewhere", "namespace": "elsewhere"},
}
"""Makes a cluster of a story without nodes, too."""

KEYS: Final = {"zone": ZONE, "node": HOSTNAME}

STORY: Final = {"name", "source", "nodes", "running", "pods", "changes", "expect"}
CHANGES: Final = {"add", "drain", "taint", "remove", "start", "constraints", "reschedule"}
EXPECT: Final = {
    *("placed", "pending", "evicted", "nodes", "fullest", "skew", "domains", "message"),
    *("suggested", "advice", "joined", "warning", "fewest", "rescheduled", "reasons"),
}


@dataclass(frozen=True)
class Story:
    """A cluster, a question and what it is to be answered.

    Attributes:
        cluster: manifests.
        arguments: of the client's `simulate`.
    """

    name: str
    cluster: list[Json]
    arguments: Json
    expect: Json


def stories() -> Iterator[Story]:
    """All of them; a member that is not known is an error."""
    written = yaml.safe_load((Path(__file__).parent / "stories.yaml").read_text("utf-8"))
    for story in written:
        assert story.keys() <= STORY, story
        assert story.get("changes", {}).keys() <= CHANGES, story
        assert story["expect"].keys() <= EXPECT, story
        cluster = [ELSEWHERE, *(_node(name, **said) for name, said in story["nodes"].items())]
        cluster += _running(story.get("running", {}))
        yield Story(story["name"], cluster, _arguments(story), story["expect"])


def check(found: Simulation, expect: Json) -> None:
    """Compare an answer with what is expected."""
    assert (found.placed, found.pending) == (expect["placed"], expect["pending"])
    assert len(found.placements) == found.placed
    reasons = [pending.count for pending in found.pending_pods]
    assert sum(reasons) == found.pending
    assert reasons == expect.get("reasons", reasons)
    assert found.evicted == expect.get("evicted", 0)
    assert found.rescheduled == expect.get("rescheduled", 0)
    assert sum(group.count for group in found.joined) == expect.get("joined", _joined(found))
    on: dict[str, int] = {}
    for placement in found.placements:
        on[placement.node] = on.get(placement.node, 0) + 1
    for name, pods in expect.get("nodes", {}).items():
        assert on.get(name, 0) == pods, name
    if "fullest" in expect:
        assert max(on.values()) == expect["fullest"]
    for change, (before, after) in zip(found.spread, expect.get("skew", ()), strict=False):
        assert (change.skew_before, change.skew_after) == (before, after)
    for value, (before, after) in expect.get("domains", {}).items():
        (domain,) = [d for d in found.spread[0].domains if d.value == value]
        assert (domain.before, domain.after) == (before, after), value
    if "message" in expect:
        assert found.pending_pods[0].message == expect["message"]
    if "suggested" in expect:
        explanation = found.pending_pods[0].explanation
        assert explanation is not None
        assert explanation.message == found.pending_pods[0].message
        assert any(each.text.startswith(expect["suggested"]) for each in explanation.suggestions)
    assert [text.partition(":")[0] for text in found.advice] == expect.get("advice", _none(found))
    if "fewest" in expect:
        assert found.fewest is not None
        assert [group.count for group in found.fewest.nodes] == expect["fewest"]
        assert (found.fewest.all_fit, found.fewest.proved) == (not found.pending, True)
    assert expect.get("warning", "") in "\n".join(found.warnings)


def _none(found: Simulation) -> list[str]:
    return [text.partition(":")[0] for text in found.advice]


def _joined(found: Simulation) -> int:
    return sum(group.count for group in found.joined)


def _node(
    name: str, zone: str | None = None, hostname: str = "", taint: bool = False, **said: Any
) -> Json:
    made = node(name, zone)
    if hostname:
        made["metadata"]["labels"][HOSTNAME] = hostname
    if taint:
        made["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}
    if "allocatable" in said:
        made["status"] = {"allocatable": said["allocatable"]}
    return made


def _running(running: Json) -> list[Json]:
    return [
        _runs(name, where) if isinstance(where, str) else _runs(name, **where)
        for name, where in running.items()
    ]


def _runs(
    name: str,
    node: str,
    cpu: str = "0",
    owner: str = "",
    constraints: tuple[Json, ...] = (),
    ending: bool = False,
) -> Json:
    made = _pod(name, requests={"cpu": cpu}, nodeName=node)
    made["spec"]["topologySpreadConstraints"] = [*map(_constraint, constraints)]
    if owner:
        owned = {"kind": owner, "name": "its", "controller": True, "apiVersion": "v1", "uid": "u"}
        made["metadata"]["ownerReferences"] = [owned]
    if ending:
        made["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z"
    return made


def _pod(name: str, app: str = "web", requests: Json | None = None, **spec: Any) -> Json:
    resources = {"requests": {name: str(amount) for name, amount in (requests or {}).items()}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": app}},
        "spec": {"containers": [{"name": "c", "resources": resources}], **spec},
    }


def _arguments(story: Json) -> Json:
    changes = story.get("changes", {})
    return {
        "pods": [_pods(**pods) for pods in story.get("pods", ())],
        "add_nodes": [_group(**group) for group in changes.get("add", ())],
        "drain": [
            *changes.get("drain", ()),
            *(Drain(name, stays=True) for name in changes.get("taint", ())),
        ],
        "add_pods": [(pod, "") for pod in _running(changes.get("start", {}))],
        "remove_pods": [f"default/{name}" for name in changes.get("remove", ())],
        "constraints": [
            ConstraintChange(KEYS[change["key"]], **{k: v for k, v in change.items() if k != "key"})
            for change in changes.get("constraints", ())
        ],
        "fewest_nodes": "fewest" in story["expect"],
        "reschedule": changes.get("reschedule", False),
    }


def _pods(
    name: str = "web",
    app: str = "web",
    replicas: int | None = None,
    constraints: tuple[Json, ...] = (),
    requests: Json | None = None,
) -> Pods:
    pod = _pod(name, app, requests)
    pod["spec"]["topologySpreadConstraints"] = [*map(_constraint, constraints)]
    return Pods(pod, replicas)


def _constraint(said: Json) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": KEYS[said["key"]],
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    } | {name: value for name, value in said.items() if name != "key"}


def _group(like: Json, count: int = 0, zones: tuple[str, ...] = ()) -> NodeGroup:
    return NodeGroup(_node("pool", **like), count, variants=[{ZONE: zone} for zone in zones])
