"""What is given wrongly is refused before anything is sent, with the path of what is wrong."""

# Wrong types are what these tests are about.
# mypy: disable-error-code="arg-type, dict-item"

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from topospread_client import (
    Connection,
    Consistency,
    ConstraintChange,
    ConstraintMatch,
    ErrorReason,
    EvictionFilters,
    InvalidRequest,
    Kind,
    ManifestError,
    ObjectReference,
    PodsToPlace,
    RankConstraint,
    Scenario,
    Settings,
    SpreadState,
    SupposedChanges,
    Unavailable,
    WorkloadReference,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.client.callers import Caller

POD = {"metadata": {"name": "p"}}
BAD_POD = {"spec": {"topologySpreadConstraints": [{"maxSkew": "1"}]}}
NODE = {"kind": "Node", "metadata": {"name": "n"}}


@pytest.fixture
def client(connect: Callable[..., Caller]) -> Caller:
    """A client without a server: what is sent ends in Unavailable."""
    return connect(Connection("127.0.0.1:1", retries=False))


def drained(made: Any) -> None:
    """Begin an iteration."""
    next(iter(made))


def scenario_of(**changes: Any) -> Scenario:
    return Scenario(SupposedChanges(**changes))


# What is given, as a call; the path of what is wrong; and a part of what is said of it.
MISTAKES: dict[str, tuple[Callable[[Any], object], str, str]] = {
    # One thing where several are meant.
    "candidates of a text": (
        lambda c: c.evaluate_pod(POD, candidates="n0"),
        "candidates",
        'expected list, got string "n0"',
    ),
    "a number of candidates": (lambda c: c.filter(POD, candidates=5), "candidates", "number 5"),
    "pods of a pod": (lambda c: c.batch_evaluate_pods(POD), "pods", "expected list, got object"),
    "pods to rank": (lambda c: c.rank_deletions(pods=POD), "pods", "expected list"),
    "constraints of a key": (
        lambda c: c.rank_deletions({}, constraints="zone"),
        "constraints",
        "expected list",
    ),
    "limited values": (
        lambda c: c.rank_deletions({}, constraints=[RankConstraint("zone", "a")]),
        "constraints[0].limitedValues",
        "expected list",
    ),
    "objects of an object": (lambda c: c.apply_objects(NODE), "objects", "expected list"),
    "references": (lambda c: c.delete_objects("pod/x"), "objects", "expected list"),
    "what-if pods": (lambda c: c.filter(POD, add_pods=POD), "addPods", "expected list"),
    "deleted pods": (
        lambda c: c.simulate([], scenario=scenario_of(delete_pods="a/b")),
        "scenario.changes.deletePods",
        "expected list",
    ),
    # None, or something else, among several.
    "a candidate of nothing": (
        lambda c: c.evaluate_pod(POD, candidates=["n0", None]),
        "candidates.names.names[1]",
        "Required value",
    ),
    "a pod of nothing": (
        lambda c: c.batch_evaluate_pods([POD, None]),
        "pods[1]",
        "Required value",
    ),
    "an object of nothing": (
        lambda c: c.apply_objects([NODE, None]),
        "objects[1]",
        "expected object, got null",
    ),
    "an object of another kind": (
        lambda c: c.apply_objects([{"kind": "ConfigMap"}]),
        "objects[0]",
        "'ConfigMap' is not kept",
    ),
    "an object's field": (
        lambda c: c.apply_objects([{**NODE, "spec": {"unschedulable": 1}}]),
        "objects[0].node.spec.unschedulable",
        "expected boolean",
    ),
    "a reference of a text": (
        lambda c: c.delete_objects(["pod/x"]),
        "objects[0]",
        "expected ObjectReference",
    ),
    "a reference of another kind": (
        lambda c: c.delete_objects([ObjectReference("pod", "x")]),
        "objects[0].kind",
        "'pod' is no Kind: there are NODE, POD",
    ),
    "a version of a pair": (
        lambda c: c.apply_objects([], observed=[("POD", "1")]),
        "observed[0]",
        "expected ResourceVersion, got array",
    ),
    "a what-if pod without a pair": (
        lambda c: c.filter(POD, remove_pods=[POD]),
        "removePods[0]",
        "expected tuple, got object",
    ),
    "three of a pair": (lambda c: c.filter(POD, add_pods=[(1, 2, 3)]), "addPods[0]", "pair"),
    "a what-if pod of nothing": (
        lambda c: c.filter(POD, add_pods=[(None, "n")]),
        "addPods[0].pod",
        "Required value",
    ),
    "a node that is a pod": (
        lambda c: c.rank_deletions(nodes=[{**POD, "kind": "Pod"}]),
        "nodes[0]",
        "must be a Node",
    ),
    "a group of a text": (
        lambda c: c.simulate([], scenario=scenario_of(add_node_groups=["n"])),
        "scenario.changes.addNodeGroups[0]",
        "expected NodeGroup",
    ),
    # Numbers that do not fit.
    "too many best nodes": (
        lambda c: c.evaluate_pod(POD, top_k=2**40),
        "topK",
        "expected integer of 32 bits, got number 1099511627776",
    ),
    "a large token": (lambda c: c.renew_lease("a", 2**70, 5), "fencingToken", "64 bits"),
    "a token of a text": (lambda c: c.release_lease("a", "1"), "fencingToken", 'string "1"'),
    "a skew": (
        lambda c: c.rank_deletions({}, constraints=[RankConstraint("zone", max_skew=2**31)]),
        "constraints[0].maxSkew",
        "32 bits",
    ),
    # Durations.
    "no end": (lambda c: c.place_pod(POD, reservation_ttl=math.inf), "reservationTtl", "inf is"),
    "staleness": (
        lambda c: c.evaluate_pod(POD, consistency=Consistency(max_staleness=math.inf)),
        "consistency.maxStaleness",
        "no duration",
    ),
    "a time-out of a text": (lambda c: c.evaluate_pod(POD, timeout="1"), "timeout", "'1'"),
    "a time-out of no number": (lambda c: c.evaluate_pod(POD, timeout=math.nan), "timeout", "nan"),
    # Other types.
    "a pod of a number": (lambda c: c.evaluate_pod(5), "pod.object", "expected object"),
    "a pod's field": (
        lambda c: c.evaluate_pod(BAD_POD),
        "pod.object.spec.topologySpreadConstraints[0].maxSkew",
        'expected integer, got string "1"',
    ),
    "a name of a number": (lambda c: c.get_reservation(5), "pod", "expected PodReference"),
    "a name with its kind": (lambda c: c.explain_pod("pod/a/b"), "pod.ref", "write NAMESPACE/NAME"),
    "a name of three parts": (
        lambda c: c.batch_evaluate_pods(["a/b", "a/b/c"]),
        "pods[1].ref",
        "'a/b/c' is no name of a pod",
    ),
    "a cluster of a number": (lambda c: c.get_cluster(cluster=5), "cluster", "expected string"),
    "half a character": (lambda c: c.get_cluster(cluster="\ud800"), "cluster", "surrogates"),
    "a node of bytes": (lambda c: c.reserve_node(POD, b"\xff"), "node", "codec"),
    "a flag of a text": (lambda c: c.pre_filter(POD, with_counts="yes"), "withCounts", "boolean"),
    "freshness of a text": (
        lambda c: c.evaluate_pod(POD, consistency="full"),
        "consistency",
        'expected Consistency, got string "full"',
    ),
    "freshness twice": (
        lambda c: c.evaluate_pod(POD, consistency=Consistency("r", fully_consistent=True)),
        "consistency",
        "exclude each other",
    ),
    "settings twice": (
        lambda c: c.filter(POD, settings=Settings("x", {})),
        "settings",
        "exclude each other",
    ),
    "args": (
        lambda c: c.filter(POD, settings=Settings(args={"defaultingType": 5})),
        "settings.args.defaultingType",
        "expected string",
    ),
    "gates": (
        lambda c: c.filter(POD, settings=Settings(feature_gates={"A": "x"})),
        "settings.featureGates",
        "expected map of string to boolean",
    ),
    "changes of a list": (
        lambda c: c.simulate([], scenario=Scenario([1])),
        "scenario.changes",
        "expected SupposedChanges",
    ),
    "which key": (
        lambda c: c.simulate(
            [], scenario=scenario_of(constraint_changes=[ConstraintChange(ConstraintMatch(5))])
        ),
        "scenario.changes.constraintChanges[0].match.topologyKey",
        "expected string",
    ),
    "a time of a text": (
        lambda c: c.rank_deletions({}, evaluation_time="now"),
        "evaluationTime",
        "expected datetime",
    ),
    "a trace of a number": (
        lambda c: c.evaluate_pod(POD, traceparent=5),
        "traceparent",
        "expected str",
    ),
    "an odd trace": (lambda c: c.evaluate_pod(POD, traceparent="\n"), "traceparent", "no W3C"),
    # Constants.
    "validation": (
        lambda c: c.evaluate_pod(POD, validation="x"),
        "validation",
        "Unsupported value: 'x' is no ConstraintValidation: there are IGNORE, STRICT",
    ),
    "a kind": (lambda c: drained(c.list_objects("pod")), "kind", "'pod' is no Kind"),
    "a state": (
        lambda c: drained(c.watch_constraints(states=["VIOLATED", "x"])),
        "filter.states[1]",
        "no SpreadState",
    ),
    "an owner's kind": (
        lambda c: drained(c.watch_constraints(owner=WorkloadReference(5, ""))),
        "filter.owner.kind",
        "expected string",
    ),
    # Label selectors.
    "a query": (
        lambda c: drained(c.list_objects(Kind.POD, label_selector="app=(")),
        "labelSelector",
        "'app=(' is no requirement: write key=value",
    ),
    "labels of numbers": (
        lambda c: c.rank_deletions({"app": 5}),
        "labelSelector.matchLabels",
        "expected map of string to string",
    ),
    "who is protected": (
        lambda c: c.plan_rebalance(filters=EvictionFilters(protect_selector="a=b=c")),
        "filters.protectSelector",
        "no requirement",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_wrong_arguments_are_invalid_requests(client: Caller, mistake: str):
    call, path, said = MISTAKES[mistake]
    with pytest.raises(InvalidRequest) as refused:
        call(client)
    assert refused.value.reason == ErrorReason.INVALID_FIELDS
    assert [each.field for each in refused.value.violations] == [path]
    assert said in refused.value.violations[0].text
    assert str(refused.value) == refused.value.violations[0].text
    assert refused.value.violations[0].reason.startswith("FIELD_VALUE_")


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
    "pods to simulate one by one": lambda c: c.simulate(iter([POD, PodsToPlace(POD, 2)])),
    "states one by one": lambda c: drained(c.list_constraints(states=iter(SpreadState))),
    "one pod": lambda c: c.simulate(POD),
    "nothing": lambda c: c.batch_evaluate_pods([]),
    "a time": lambda c: c.rank_deletions({}, evaluation_time=datetime.now(UTC)),
    "a query": lambda c: c.plan_rebalance("app=web,tier notin (a,b)"),
    "a name of a constant": lambda c: drained(c.list_objects("POD")),
}


@pytest.mark.parametrize("call", FINE.values(), ids=FINE)
def test_valid_arguments_are_sent(client: Caller, call: Callable[[Any], object]):
    with pytest.raises(Unavailable):
        call(client)
