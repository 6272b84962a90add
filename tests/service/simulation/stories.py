"""Stories of simulations: compact data turned into manifests and a request.

A story has `nodes` (name to zone, labels, allocatable, taint), `running` pods of the app "web"
(name to node, or to node, cpu and more), the `pods` to place, `changes`, and what it expects:

- placed, pending, evicted, rescheduled: how many;
- reasons: how many are pending for each reason;
- nodes: pods that went to these; fullest: the most on one node, those before included;
- skew: (before, after) of each constraint; domains: (before, after) of the first constraint's;
- message: of the first pods that are pending; suggested: the begin of what would let one in;
- advice: what would make all fit, up to the colon; advised: the whole of it;
- joined: nodes that joined; warning: part of a warning, null: there is none;
- fewest: nodes of each group, proved; they are looked for then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from tests.service.simulation.calls import change_of, node_group, request_of, to_place
from tests.service.world import HOSTNAME, ZONE, node
from topospread_proto.v1 import common_pb2

if TYPE_CHECKING:
    from collections.abc import Iterator

    from topospread_proto.v1.planner_service_pb2 import SimulateRequest, SimulateResponse
    from topospread_proto.v1.scenario_pb2 import ConstraintChange, NodeGroup, PodsToPlace

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
    *("suggested", "advice", "joined", "warning", "fewest", "rescheduled", "reasons", "advised"),
}


@dataclass(frozen=True)
class Story:
    """A cluster, a question and what it is to be answered.

    Attributes:
        cluster: manifests.
    """

    name: str
    cluster: list[Json]
    request: SimulateRequest
    expect: Json


def stories() -> Iterator[Story]:
    """All of them; a member that is not known is an error."""
    text = (Path(__file__).parent / "stories.yaml").read_text("utf-8")
    written = yaml.load(text, yaml.CSafeLoader)
    for story in written:
        assert story.keys() <= STORY, story
        assert story.get("changes", {}).keys() <= CHANGES, story
        assert story["expect"].keys() <= EXPECT, story
        cluster = [ELSEWHERE, *(_node(name, **said) for name, said in story["nodes"].items())]
        cluster += _running(story.get("running", {}))
        yield Story(story["name"], cluster, _request(story), story["expect"])


def check(found: SimulateResponse, expect: Json) -> None:
    """Compare an answer with what is expected."""
    assert (found.placed_pod_count, found.pending_pod_count) == (
        expect["placed"],
        expect["pending"],
    )
    assert len(found.placements) == found.placed_pod_count
    reasons = [pending.pod_count for pending in found.pending_pods]
    assert sum(reasons) == found.pending_pod_count
    assert reasons == expect.get("reasons", reasons)
    assert found.evicted_pod_count == expect.get("evicted", 0)
    assert found.rescheduled_pod_count == expect.get("rescheduled", 0)
    joined = sum(group.node_count for group in found.joined)
    assert joined == expect.get("joined", joined)
    on: dict[str, int] = {}
    for placement in found.placements:
        on[placement.node] = on.get(placement.node, 0) + 1
    for name, pods in expect.get("nodes", {}).items():
        assert on.get(name, 0) == pods, name
    if "fullest" in expect:
        assert max(on.values()) == expect["fullest"]
    for change, (before, after) in zip(found.spread_changes, expect.get("skew", ()), strict=False):
        assert (change.skew_before, change.skew_after) == (before, after)
    for value, counts in expect.get("domains", {}).items():
        (domain,) = [d for d in found.spread_changes[0].domains if d.value == value]
        before = domain.pod_count_before if domain.HasField("pod_count_before") else None
        after = domain.pod_count_after if domain.HasField("pod_count_after") else None
        assert [before, after] == list(counts), value
    if "message" in expect:
        assert found.pending_pods[0].message == expect["message"]
    if "suggested" in expect:
        explanation = found.pending_pods[0].explanation
        assert explanation.message == found.pending_pods[0].message
        assert any(each.text.startswith(expect["suggested"]) for each in explanation.suggestions)
    advice = [text.partition(":")[0] for text in found.advice]
    assert advice == expect.get("advice", advice)
    assert list(found.advice) == expect.get("advised", list(found.advice))
    assert found.HasField("fewest_nodes") == ("fewest" in expect)
    if "fewest" in expect:
        fewest = found.fewest_nodes
        assert [group.node_count for group in found.joined] == expect["fewest"]
        assert fewest.all_fit == (not found.pending_pod_count)
        assert fewest.optimality == common_pb2.OPTIMALITY_PROVEN
    warning = expect.get("warning", "")
    assert warning in "\n".join(found.warnings) if warning is not None else not found.warnings


def _node(
    name: str, zone: str | None = None, hostname: str = "", taint: bool = False, **said: Any
) -> Json:
    made = node(name, zone)
    if hostname:
        made["metadata"]["labels"][HOSTNAME] = hostname
    if taint:
        made["spec"] = {"taints": [{"key": "dedicated", "effect": "NoSchedule"}]}
    if "condition" in said:
        taints = [{"key": said["condition"], "effect": "NoSchedule"}]
        made["spec"] = {"unschedulable": True, "taints": taints}
    made["metadata"]["labels"] |= said.get("labels", {})
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
    priority: int = 0,
) -> Json:
    made = _pod(name, requests={"cpu": cpu}, nodeName=node, priority=priority)
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


def _request(story: Json) -> SimulateRequest:
    changes = story.get("changes", {})
    return request_of(
        [_pods(**pods) for pods in story.get("pods", ())],
        add_node_groups=[_group(**group) for group in changes.get("add", ())],
        drain_nodes=changes.get("drain", ()),
        taint_nodes=changes.get("taint", ()),
        add_pods=[(pod, "") for pod in _running(changes.get("start", {}))],
        delete_pods=[f"default/{name}" for name in changes.get("remove", ())],
        constraint_changes=[_change(**change) for change in changes.get("constraints", ())],
        find_fewest_nodes="fewest" in story["expect"],
        reschedule=changes.get("reschedule", False),
    )


def _change(key: str, **values: Any) -> ConstraintChange:
    return change_of(KEYS[key], **values)


def _pods(
    name: str = "web",
    app: str = "web",
    replicas: int | None = None,
    constraints: tuple[Json, ...] = (),
    requests: Json | None = None,
    selector: Json | None = None,
) -> PodsToPlace:
    pod = _pod(name, app, requests, nodeSelector=selector or {})
    pod["spec"]["topologySpreadConstraints"] = [*map(_constraint, constraints)]
    return to_place(pod, replicas)


def _constraint(said: Json) -> Json:
    return {
        "maxSkew": 1,
        "topologyKey": KEYS[said["key"]],
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    } | {name: value for name, value in said.items() if name != "key"}


def _group(like: Json, count: int | None = None, zones: tuple[str, ...] = ()) -> NodeGroup:
    return node_group(_node("pool", **like), count, [{ZONE: zone} for zone in zones])
