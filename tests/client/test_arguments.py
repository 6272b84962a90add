"""What is given wrongly is refused before anything is sent, with the path of what is wrong."""

# Wrong types are what these tests are about.
# mypy: disable-error-code="arg-type, dict-item"

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from topospread_client import Connection, InvalidRequest, ManifestError, Unavailable
from topospread_proto.v1 import common_pb2 as common
from topospread_proto.v1 import decision_service_pb2 as decision
from topospread_proto.v1 import scenario_pb2 as scenario

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.client.callers import Caller

POD = {"metadata": {"name": "p"}}
BAD_POD = {"spec": {"topologySpreadConstraints": [{"maxSkew": "1"}]}}
BAD_FIELD = "pod.object.spec.topologySpreadConstraints[0].maxSkew"
NODE = {"kind": "Node", "metadata": {"name": "n"}}


@pytest.fixture
def client(connect: Callable[..., Caller]) -> Caller:
    """A client without a server: what is sent ends in Unavailable."""
    return connect(Connection("127.0.0.1:1", retries=False))


def drained(made: Any) -> None:
    """Begin an iteration."""
    next(iter(made))


def deleted(pods: object) -> dict[str, Any]:
    return {"changes": {"delete_pods": pods}}


DELETED = "scenario.changes.deletePods"
CORDONED = {**NODE, "spec": {"unschedulable": 1}}
TWICE = {"profile": "x", "args": {}}
GATES = "settings.featureGates"
STATES = {"states": ["VIOLATED", "x"]}
PROTECTED = {"protect_selector": "a=b=c"}
REQUEST = decision.EvaluatePodRequest()


MISTAKES: list[tuple[Callable[[Any], object], str, str]] = [
    # One thing where several are meant.
    (lambda c: c.filter(POD, candidates="n0"), "candidates", 'expected list, got string "n0"'),
    (lambda c: c.batch_evaluate_pods(POD), "pods", "expected list, got object"),
    (lambda c: c.rank_deletions({}, constraints="zone"), "constraints", "expected list"),
    (lambda c: c.apply_objects(NODE), "objects", "expected list"),
    (lambda c: c.simulate([], scenario=deleted("a/b")), DELETED, "expected list"),
    # None, or something else, among several.
    (lambda c: c.filter(POD, candidates=[None]), "candidates.names.names[0]", "Required value"),
    (lambda c: c.batch_evaluate_pods([POD, None]), "pods[1]", "Required value"),
    (lambda c: c.apply_objects([{"kind": "ConfigMap"}]), "objects[0]", "'ConfigMap' is not kept"),
    (lambda c: c.apply_objects([CORDONED]), "objects[0].node.spec.unschedulable", "boolean"),
    (lambda c: c.delete_objects(["pod/x"]), "objects[0]", "expected ObjectReference"),
    (
        lambda c: c.delete_objects([{"kind": "pot"}]),
        "objects[0].kind",
        "is no Kind: there are NODE",
    ),
    (lambda c: c.filter(POD, remove_pods=[POD]), "removePods[0]", "expected tuple, got object"),
    (lambda c: c.filter(POD, add_pods=[(1, 2, 3)]), "addPods[0]", "pair"),
    (lambda c: c.filter(POD, add_pods=[(None, "n")]), "addPods[0].pod", "Required value"),
    (lambda c: c.rank_deletions(nodes=[{"kind": "Pod"}]), "nodes[0]", "must be a Node"),
    # Numbers that do not fit.
    (lambda c: c.evaluate_pod(POD, top_k=2**40), "topK", "integer of 32 bits, got number 10995"),
    (lambda c: c.evaluate_pod(POD, top_k="1"), "topK", 'string "1"'),
    # Durations.
    (lambda c: c.place_pod(POD, reservation_ttl=math.inf), "reservationTtl", "inf is"),
    (lambda c: c.evaluate_pod(POD, timeout="1"), "timeout", "'1'"),
    (lambda c: c.evaluate_pod(POD, timeout=math.nan), "timeout", "nan"),
    # Other types.
    (lambda c: c.evaluate_pod(5), "pod.object", "expected object"),
    (lambda c: c.evaluate_pod(BAD_POD), BAD_FIELD, 'expected integer, got string "1"'),
    (lambda c: c.get_reservation(5), "pod", "expected PodReference"),
    (lambda c: c.batch_evaluate_pods(["a/b", "a/b/c"]), "pods[1].ref", "write NAMESPACE/NAME"),
    (lambda c: c.get_cluster(cluster=5), "cluster", "expected string"),
    (lambda c: c.get_cluster(cluster="\ud800"), "cluster", "surrogates"),
    (lambda c: c.reserve_node(POD, b"\xff"), "node", "codec"),
    (lambda c: c.pre_filter(POD, with_counts="yes"), "withCounts", "boolean"),
    (lambda c: c.filter(POD, consistency=5), "consistency", "expected Consistency, got number 5"),
    (lambda c: c.filter(POD, settings=TWICE), "settings", "exclude each other"),
    (lambda c: c.filter(POD, settings={"feature_gates": {"A": "x"}}), GATES, "string to boolean"),
    (lambda c: c.rank_deletions({}, evaluation_time="now"), "evaluationTime", "expected datetime"),
    (lambda c: c.filter(POD, traceparent=5), "traceparent", "expected str"),
    (lambda c: c.filter(POD, traceparent="\n"), "traceparent", "no W3C"),
    # Constants.
    (lambda c: c.filter(POD, validation="x"), "validation", "there are IGNORE, STRICT"),
    (lambda c: drained(c.list_objects("pot")), "kind", "'pot' is no Kind"),
    (lambda c: drained(c.watch_constraints(filter=STATES)), "filter.states[1]", "no SpreadState"),
    # Names of fields, and messages.
    (
        lambda c: c.evaluate_pod(POD, topk=3),
        "topk",
        "Unknown field: EvaluatePodRequest has cluster",
    ),
    (lambda c: c.filter(POD, settings={"profil": 1}), "settings.profil", "Settings has profile"),
    (lambda c: c.filter(POD, settings=common.Verdict()), "settings", "got Verdict"),
    (lambda c: c.call("Evaluate", REQUEST), "method", "'Evaluate' is no method"),
    (lambda c: c.call("WatchObjects", REQUEST), "method", "answers in a stream"),
    (lambda c: c.call("Filter", REQUEST), "request", "FilterRequest, got EvaluatePodRequest"),
    # Label selectors.
    (
        lambda c: drained(c.list_objects("POD", label_selector="app=(")),
        "labelSelector",
        "key=value",
    ),
    (lambda c: c.rank_deletions({"app": 5}), "labelSelector.matchLabels", "string to string"),
    (lambda c: c.plan_rebalance(filters=PROTECTED), "filters.protectSelector", "no requirement"),
]
"""What is given, as a call; the path of what is wrong; and a part of what is said of it."""


@pytest.mark.parametrize(("call", "path", "said"), MISTAKES)
def test_wrong_arguments_are_invalid_requests(client: Caller, call: Any, path: str, said: str):
    with pytest.raises(InvalidRequest) as refused:
        call(client)
    assert refused.value.reason == "INVALID_FIELDS"
    assert [each.field for each in refused.value.violations] == [path]
    assert said in refused.value.violations[0].text
    assert str(refused.value) == refused.value.violations[0].text
    assert refused.value.violations[0].reason.startswith("FIELD_")


def test_error_of_a_manifest_has_its_own_path(client: Caller):
    with pytest.raises(ManifestError) as refused:
        client.evaluate_pod(BAD_POD)
    assert refused.value.path == "spec.topologySpreadConstraints[0].maxSkew"
    assert refused.value.message == 'expected integer, got string "1"'


def words() -> Iterator[str]:
    yield from ("a", "b")


FINE: dict[str, Callable[[Any], object]] = {
    "an iterator": lambda c: c.filter(POD, candidates=words()),
    "a set": lambda c: c.plan_rebalance(excluded_namespaces={"a", "b"}),
    "pods one by one": lambda c: c.batch_evaluate_pods(iter([POD, "a/b"])),
    "pods to simulate one by one": lambda c: c.simulate(
        iter([POD, (POD, 2), {"pod": POD, "replicas": 2}])
    ),
    "states one by one": lambda c: drained(c.list_constraints(filter={"states": iter([1, 2])})),
    "one pod": lambda c: c.simulate(POD),
    "nothing": lambda c: c.batch_evaluate_pods([]),
    "a time": lambda c: c.rank_deletions({}, evaluation_time=datetime.now(UTC)),
    "a query": lambda c: c.plan_rebalance("app=web,tier notin (a,b)"),
    "a kind as Kubernetes has it": lambda c: drained(c.list_objects("ReplicaSet")),
    "a whole name of a kind": lambda c: drained(c.list_objects("KIND_REPLICA_SET")),
    "a number of a kind": lambda c: drained(c.list_objects(common.KIND_POD)),
    "a revision": lambda c: c.evaluate_pod(POD, consistency="token"),
    "a profile": lambda c: c.evaluate_pod(POD, settings="default-scheduler"),
    "messages": lambda c: c.evaluate_pod(
        common.PodSource(ref=common.PodReference(name="p")),
        settings=common.Settings(profile="p"),
        consistency=common.Consistency(fully_consistent=True),
        candidates=common.NodeSelection(),
        add_pods=[common.PodOnNode(node="n")],
    ),
    "a pod without a node": lambda c: c.evaluate_pod(POD, add_pods=[(POD, None)]),
    "a scenario": lambda c: c.simulate(POD, scenario=scenario.Scenario(seed="s")),
    "nothing given": lambda c: c.evaluate_pod(POD, top_k=None, settings=None),
}


@pytest.mark.parametrize("call", FINE.values(), ids=FINE)
def test_valid_arguments_are_sent(client: Caller, call: Callable[[Any], object]):
    with pytest.raises(Unavailable):
        call(client)
